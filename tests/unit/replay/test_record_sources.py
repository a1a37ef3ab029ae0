"""Records say whose policy decided each cycle, where it was not that of the settings."""

from dataclasses import replace
from pathlib import Path

import msgspec

from bireme.core.decision import Decision
from bireme.core.snapshot import ClusterSnapshot
from bireme.replay.reader import Decoder, open_record
from bireme.replay.writer import Encoder
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource
from bireme.testing import a_node, a_snapshot
from testbed.recordings import a_writer

LEARNED = PolicySource("better", sizer="max", checkpoint="index", sha256="ab" * 32)
OTHER = msgspec.structs.replace(LEARNED, sha256="cd" * 32)
SNAPSHOT = a_snapshot([a_node("n0")], now=1.0)


def seen(at: int) -> ClusterSnapshot:
    """In each, the node uses more than before."""
    return replace(SNAPSHOT, now=float(at), used=SNAPSHOT.used + at)


def test_every_cycle_is_read_with_the_policy_that_decided_it(tmp_path: Path) -> None:
    sources = [
        SETTINGS_SOURCE,
        LEARNED,
        LEARNED,
        msgspec.structs.replace(LEARNED, sha256="cd" * 32),
        SETTINGS_SOURCE,
    ]
    writer = a_writer(tmp_path)
    for at, source in enumerate(sources):
        writer.write(seen(at), Decision(), source)
    writer.close()
    assert [moment.source for moment in open_record([tmp_path]).cycles()] == sources


def test_a_policy_is_only_named_where_it_changes() -> None:
    encoder, lines = Encoder(), []
    for at, source in enumerate([SETTINGS_SOURCE, LEARNED, LEARNED, SETTINGS_SOURCE]):
        lines.append(encoder.encode(seen(at), Decision(), source=source) or b"")
    assert [b'"source":' in line for line in lines] == [False, True, False, True]


def test_a_cycle_without_news_does_not_hide_who_decided_the_next() -> None:
    encoder, decoder = Encoder(), Decoder(SNAPSHOT.settings)
    first = encoder.encode(SNAPSHOT, Decision())
    assert encoder.encode(SNAPSHOT, Decision(), source=LEARNED) is None, "nothing was seen or done"
    second = encoder.encode(seen(2), Decision(), source=LEARNED)
    assert [decoder.decode(line or b"").source for line in (first, second)] == [
        SETTINGS_SOURCE,
        LEARNED,
    ]
