"""Files of a record: never above their bound, whole but for a torn last line, read alone."""

import errno
import gzip
from collections.abc import Iterator
from dataclasses import replace
from io import FileIO
from pathlib import Path

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.replay import writer as writing
from bireme.replay.reader import open_record
from bireme.replay.record import RecordError
from bireme.replay.writer import RecordWriter, record_files
from bireme.testing import a_gang, a_node, a_snapshot, a_task
from testbed.recordings import PLENTY, a_writer, content, record, snapshots_in

POLICY = make_policy(SchedulingSettings())
SMALL = 6000
"""Bytes of a file that holds a few lines."""


def moments(count: int, first: int = 0) -> Iterator[ClusterSnapshot]:
    """Snapshots of which each has another gang waiting than the one before it."""
    nodes = a_snapshot([a_node("n0"), a_node("n1")])
    for at in range(first, first + count):
        gang = a_gang(f"gang-{at:04}", a_task(20), arrived=float(at))
        yield replace(nodes, waiting=(gang,), now=float(at))


def write(writer: RecordWriter, snapshot: ClusterSnapshot) -> bool:
    return writer.write(snapshot, run_cycle(snapshot, POLICY))


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_files_never_hold_more_than_their_bound_and_the_latest_cycles_stay(tmp_path: Path) -> None:
    writer = a_writer(tmp_path, file_bytes=SMALL, most_files=3)
    for snapshot in moments(60):
        write(writer, snapshot)
        assert len(record_files(tmp_path)) <= 3
        assert on_disk(tmp_path) <= 3 * SMALL
    writer.close()
    kept = snapshots_in(tmp_path)
    assert record_files(tmp_path)[0].name != "record-00000001.jsonl"
    assert [content(one) for one in kept] == [
        content(one) for one in moments(len(kept), 60 - len(kept))
    ]


def test_every_file_reads_alone(tmp_path: Path) -> None:
    record(tmp_path, *moments(9), file_bytes=SMALL, most_files=9)
    files = record_files(tmp_path)
    assert len(files) > 1
    alone = [content(m.snapshot) for path in files for m in open_record([path]).cycles()]
    assert alone == [content(one) for one in moments(9)]


def test_files_of_an_operator_before_it_count_towards_the_bound(tmp_path: Path) -> None:
    record(tmp_path, *moments(30), run="a", file_bytes=SMALL, most_files=3)
    (tmp_path / "notes.txt").write_text("not ours")
    record(tmp_path, *moments(1), run="b", file_bytes=SMALL, most_files=2)
    assert len(record_files(tmp_path)) == 2
    assert open_record([tmp_path]).runs == 2
    assert (tmp_path / "notes.txt").exists()


def test_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    record(tmp_path, *moments(1))
    assert record_files(tmp_path)[0].stat().st_mode & 0o777 == 0o600


def test_cluster_that_no_file_can_tell_once_is_an_error_and_nothing_is_deleted(
    tmp_path: Path,
) -> None:
    record(tmp_path, *moments(3))
    with pytest.raises(
        RecordError,
        match=r"takes \d+ bytes, and a file .* at most 99; leave record",
    ):
        write(a_writer(tmp_path, file_bytes=99, most_files=1), next(moments(1)))
    assert len(record_files(tmp_path)) == 1


class FullDisk(FileIO):
    """A file on a disk with room for ``room`` bytes more."""

    room = 0

    def write(self, text: object, /) -> int:
        """As much as there is room for, then no more."""
        part = memoryview(text)[: FullDisk.room]  # type: ignore[arg-type]  # bytes, as FileIO's
        if not part:
            raise OSError(errno.ENOSPC, "No space left on device")
        FullDisk.room -= len(part)
        return super().write(part)


@pytest.mark.parametrize(("is_begun", "room"), [(False, 0), (False, 10), (True, 0), (True, 10)])
def test_full_disk_leaves_whole_lines_and_recording_goes_on_when_there_is_room(
    is_begun: bool, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_create", lambda path: FullDisk(path, "xb"))
    FullDisk.room = PLENTY
    writer = a_writer(tmp_path)
    before, refused, after = moments(3)
    if is_begun:
        write(writer, before)
    FullDisk.room = room
    with pytest.raises(OSError, match="No space left"):
        write(writer, refused)
    assert all(path.read_bytes().endswith(b"\n") for path in record_files(tmp_path))
    FullDisk.room = PLENTY
    writer.lost += 1
    assert write(writer, after)
    writer.close()
    *_, last = open_record([tmp_path]).cycles()
    assert content(last.snapshot) == content(after)
    assert last.lost == 1


def torn(path: Path, kept_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:kept_bytes])


def test_torn_last_line_is_left_out_and_counted(tmp_path: Path) -> None:
    record(tmp_path, *moments(3))
    (path,) = record_files(tmp_path)
    torn(path, path.stat().st_size - 7)
    found = open_record([path])
    assert [content(m.snapshot) for m in found.cycles()] == [content(one) for one in moments(2)]
    assert found.torn == 1


def test_file_that_was_never_begun_is_left_out_and_counted(tmp_path: Path) -> None:
    """The operator was killed between making the file and its first line."""
    record(tmp_path, *moments(1))
    (tmp_path / "record-00000002.jsonl").touch()
    record(tmp_path, *moments(1, 1), run="next")
    found = open_record([tmp_path])
    assert len(list(found.cycles())) == 2
    assert (found.torn, len(found.files)) == (1, 2)


def test_gzipped_file_is_read_as_the_plain_one(tmp_path: Path) -> None:
    record(tmp_path, *moments(3))
    (path,) = record_files(tmp_path)
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    plain, unpacked = (list(open_record([one]).cycles()) for one in (path, packed))
    assert [content(m.snapshot) for m in plain] == [content(m.snapshot) for m in unpacked]


def refusal(*paths: Path) -> str:
    """The error message about a record of ``paths``."""
    with pytest.raises(RecordError) as caught:
        list(open_record(paths).cycles())
    return str(caught.value)


def damaged(tmp_path: Path, line: int, text: bytes | None) -> Path:
    """A record of three cycles, of which one line says ``text``, or is missing."""
    record(tmp_path, *moments(3))
    (path,) = record_files(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line - 1 : line] = [] if text is None else [text]
    path.write_bytes(b"".join(lines))
    return path


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (1, None, "line 1: format is '', not 'bireme-record'"),
        (1, b"job_id,submitted\n", "line 1: no first line of a record"),
        (1, b'{"format":"bireme-record","version":9}\n', "line 1: version is 9, and this Bireme"),
        (1, b'{"format":"bireme-record","version":1}\n', "line 1: no first line of a record: "),
        (3, b'{"line":3,"now":2\n', "line 3: it is no line of a record"),
        (3, b"\xff\xfe\n", "line 3: it is no line of a record"),
        (3, None, "line 3: it was line 4 when it was written; lines are missing"),
        (
            3,
            b'{"line":3,"now":2,"outline":{"digest":""},"used":{"n9":[1]}}\n',
            "line 3: it contradicts the lines before it: KeyError('n9')",
        ),
    ],
)
def test_damage_is_named_by_file_and_line(
    line: int, text: bytes | None, message: str, tmp_path: Path
) -> None:
    path = damaged(tmp_path, line, text)
    assert f"{path} {message}" in refusal(path)


def test_truncated_gzip_is_named_by_file_and_line(tmp_path: Path) -> None:
    record(tmp_path, *moments(40))
    (path,) = record_files(tmp_path)
    packed = tmp_path / "packed.gz"
    whole = gzip.compress(path.read_bytes())
    packed.write_bytes(whole[: len(whole) // 2])
    message = refusal(packed)
    assert message.startswith(f"{packed} line ")
    assert "ends or is damaged here" in message


def test_missing_file_between_two_is_named(tmp_path: Path) -> None:
    record(tmp_path, *moments(20), file_bytes=SMALL, most_files=9)
    first, _, third, *_ = record_files(tmp_path)
    assert refusal(third, first).startswith(f"{third} line 1: it is file 3 of the record, and the")


def test_file_that_is_there_twice_is_named(tmp_path: Path) -> None:
    record(tmp_path, *moments(1))
    (path,) = record_files(tmp_path)
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    assert "is file 1; name every file from the first to the last" in refusal(path, copy)


def test_other_settings_in_one_record_are_refused(tmp_path: Path) -> None:
    record(tmp_path, *moments(1))
    fifo = SchedulingSettings(orderer="fifo")
    record(tmp_path, *(replace(one, settings=fifo) for one in moments(1)))
    assert "its settings are not those of file 1; replay" in refusal(tmp_path)


def test_folder_without_a_record_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path).startswith(f"{tmp_path} holds no record-*.jsonl")
    assert "cannot be read: No such file" in refusal(tmp_path / "missing")


def test_last_file_that_is_no_record_is_not_taken_for_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("no line ends here")
    assert refusal(path).startswith(f"{path} line 1: it ends before its first line does")
