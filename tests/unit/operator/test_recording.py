"""Recording beside the loop: it never waits, never fails, and counts what it loses."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bireme.core.decision import Decision
from bireme.core.snapshot import ClusterSnapshot
from bireme.replay.reader import open_record
from bireme.replay.writer import RecordWriter
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource
from bireme.testing import ManualClock, a_node, a_snapshot
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.recording import Recording
from testbed.objects.policies import settled
from testbed.recordings import a_writer


def moments() -> Iterator[ClusterSnapshot]:
    """Snapshots without end; in each, the node uses more than before."""
    snapshot, at = a_snapshot([a_node("n0")]), 0
    while True:
        at += 1
        yield replace(snapshot, now=float(at), used=snapshot.used + at)


def cycles(metrics: OperatorMetrics, outcome: str) -> float:
    name = "bireme_recorded_cycles_total"
    return metrics.registry.get_sample_value(name, {"outcome": outcome}) or 0.0


async def test_offered_cycles_are_on_disk_when_it_is_closed(tmp_path: Path) -> None:
    metrics, seen = OperatorMetrics(), moments()
    recording = Recording(a_writer(tmp_path), metrics, ManualClock())
    for _ in range(3):
        recording.submit(next(seen), Decision(), SETTINGS_SOURCE)
    await recording.close()
    assert [m.snapshot.now for m in open_record([tmp_path]).cycles()] == [1.0, 2.0, 3.0]
    assert (cycles(metrics, "written"), cycles(metrics, "lost")) == (3, 0)


async def test_folder_that_comes_later_is_written_to_after_a_pause(tmp_path: Path) -> None:
    metrics, clock, seen = OperatorMetrics(), ManualClock(), moments()
    folder = tmp_path / "later"
    recording = Recording(a_writer(folder), metrics, clock)
    recording.submit(next(seen), Decision(), SETTINGS_SOURCE)
    await settled(lambda: cycles(metrics, "lost") == 1)
    folder.mkdir()
    recording.submit(next(seen), Decision(), SETTINGS_SOURCE)
    assert cycles(metrics, "lost") == 2, "it pauses"
    clock.advance(31.0)
    recording.submit(next(seen), Decision(), SETTINGS_SOURCE)
    await recording.close()
    (moment,) = open_record([folder]).cycles()
    assert (moment.snapshot.now, moment.lost) == (3.0, 2)


class SlowWriter(RecordWriter):
    """Writes when it is let."""

    let = threading.Event()

    def write(
        self, snapshot: ClusterSnapshot, decision: Decision, source: PolicySource = SETTINGS_SOURCE
    ) -> bool:
        """As any other, once it is let."""
        assert self.let.wait(10)
        return super().write(snapshot, decision, source)


async def test_disk_that_does_not_keep_up_loses_cycles_and_says_how_many(tmp_path: Path) -> None:
    metrics, seen = OperatorMetrics(), moments()
    writer = SlowWriter(tmp_path, "run", next(seen).settings, file_bytes=2**20, most_files=2)
    recording = Recording(writer, metrics, ManualClock())
    for _ in range(30):
        recording.submit(next(seen), Decision(), SETTINGS_SOURCE)
        await asyncio.sleep(0)
    lost = cycles(metrics, "lost")
    assert 0 < lost < 30
    SlowWriter.let.set()
    await settled(lambda: cycles(metrics, "written") == 30 - lost)
    recording.submit(next(seen), Decision(), SETTINGS_SOURCE)
    await recording.close()
    assert sum(m.lost for m in open_record([tmp_path]).cycles()) == lost
