"""Reader of records: from files on a disk back to snapshots and decisions.

1. :func:`open_record` checks the headers of all files, plain or gzipped, before the first cycle is
   read: their format and version, and that no file between them is missing.
2. :meth:`Record.cycles` reads them line by line; every message names file and line.
3. :class:`Decoder` applies each line's changes and makes the snapshot that the operator had.
"""

import gzip
import math
import zlib
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Final, TypeVar, cast

import msgspec
import numpy as np

from bireme.core.errors import SnapshotError
from bireme.core.finished_runs import NO_RUNS
from bireme.core.gangs import Gang
from bireme.core.gpus import read_gpu_models
from bireme.core.nodes import GrowablePool, Node, NodeTable
from bireme.core.placement import placement_at
from bireme.core.pod_rules import Occupants, PodsOf
from bireme.core.policy import PARTS
from bireme.core.queues import Queue
from bireme.core.quotas import Quota
from bireme.core.resources import IntArray
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import InverseQuadratic, LinearSpeed, SpeedLaw
from bireme.registry import imported_class
from bireme.replay.record import (
    FORMAT,
    VERSION,
    Header,
    Line,
    Outline,
    RecordedGang,
    RecordedPods,
    RecordError,
)
from bireme.replay.writer import number_of, previous_usage, record_files
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class RecordedCycle:
    """One cycle: its snapshot, decision and policy, and the number of lost cycles before it."""

    snapshot: ClusterSnapshot
    outline: Outline
    lost: int = 0
    source: PolicySource = SETTINGS_SOURCE


class Decoder:
    """Decodes the lines below one header, in their order."""

    def __init__(self, settings: SchedulingSettings) -> None:
        self._settings = settings
        self._line = 1
        self._facts: dict[str, Node] = {}
        self._nodes = NodeTable(
            (),
            settings.topology_levels,
            read_gpu_models(settings.gpu_models),
            settings.known_accelerators,
        )
        self._used: IntArray = self._nodes.allocatable
        self._queues: dict[str, Queue] = {}
        self._usage: dict[str, dict[str, int]] = {}
        self._waiting: dict[str, Gang] = {}
        self._held: dict[str, RecordedGang] = {}
        self._running: dict[str, RunningGang] = {}
        self._growable: dict[str, GrowablePool] = {}
        self._quotas: dict[str, Quota] = {}
        self._occupants: list[RecordedPods] = []
        self._finished = NO_RUNS
        self._holds: dict[str, str] = {}
        self._source = SETTINGS_SOURCE
        self._parse = msgspec.json.Decoder(Line, dec_hook=_law).decode

    def decode(self, text: bytes) -> RecordedCycle:
        """Return the cycle of the next line; RecordError when it cannot be one."""
        try:
            line = self._parse(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecordError(f"it is no line of a record: {error}") from error
        self._line += 1
        # A line states only changes: without the lines before it, it means nothing.
        if line.line != self._line:
            raise RecordError(f"it was line {line.line} when it was written; lines are missing")
        try:
            return self._cycle(line)
        except (KeyError, OverflowError, ValueError, SnapshotError) as error:
            raise RecordError(f"it contradicts the lines before it: {error!r}") from error

    def _cycle(self, line: Line) -> RecordedCycle:
        previous_nodes, used = self._nodes, self._used
        _apply(self._facts, line.nodes)
        if line.nodes:
            self._nodes = previous_nodes.with_nodes(list(self._facts.values()))
            self._running.clear()  # their places are in rows
        # A line states the use of nodes that changed, by name; rows are those of the new table.
        self._used = previous_usage(previous_nodes, used, self._nodes).copy()
        for name, amounts in line.used.items():
            self._used[self._nodes.row[name]] = amounts
        _apply(self._queues, line.queues)
        _apply(self._usage, line.queue_usage)
        _apply(self._waiting, line.waiting)
        _apply(self._held, line.running)
        _apply(self._growable, line.growable)
        _apply(self._quotas, line.quotas)
        for run in line.finished:
            self._finished = self._finished.plus(run)
        if line.occupants is not msgspec.UNSET:
            self._occupants = line.occupants
        for uid in line.running:
            self._running.pop(uid, None)
        # A gang that did not change stays the same object, which keeps its computed values.
        for uid, recorded in self._held.items():
            if uid not in self._running:
                self._running[uid] = _running(recorded, self._nodes)
        if line.source is not msgspec.UNSET:
            self._source = line.source
        snapshot = ClusterSnapshot(
            now=line.now,
            nodes=self._nodes,
            used=self._used,
            waiting=tuple(self._waiting.values()),
            queues=dict(self._queues),
            queue_usage=dict(self._usage),
            settings=self._settings,
            running=tuple(self._running.values()),
            growable=tuple(self._growable.values()),
            occupants=Occupants(_pods(pods, self._nodes) for pods in self._occupants),
            quotas={(q.namespace, q.name): q for q in self._quotas.values()},
            finished_runs=self._finished,
            service=line.service,
        )
        return RecordedCycle(snapshot, self._outline(line.outline), line.lost, self._source)

    def _outline(self, outline: Outline) -> Outline:
        # A line states only holds that are new or have another reason.
        decided = (uid for uid in self._waiting if uid not in outline.starts)
        self._holds = {uid: outline.holds.get(uid) or self._holds[uid] for uid in decided}
        return msgspec.structs.replace(outline, holds=self._holds)


def _law(kind: type, value: object) -> object:
    """Convert the law of speed or loss that a report led to."""
    return msgspec.convert(value, LinearSpeed if kind is SpeedLaw else InverseQuadratic)


def _apply(state: dict[str, _V], changes: Mapping[str, _V | None]) -> None:
    for key, value in changes.items():
        if value is None:
            del state[key]
        else:
            state[key] = value


def _pods(recorded: RecordedPods, nodes: NodeTable) -> PodsOf:
    rows = np.array([nodes.row[name] for name in recorded.nodes], dtype=np.int64)
    return PodsOf(recorded.kind, rows, recorded.owner, recorded.are_fixed)


def _running(recorded: RecordedGang, nodes: NodeTable) -> RunningGang:
    return RunningGang(
        gang=recorded.gang,
        placement=placement_at(recorded.places, nodes),
        started=recorded.started,
        resized=-math.inf if recorded.resized is None else recorded.resized,
        is_leaving=recorded.is_leaving,
        kept_by_budget=recorded.kept_by_budget,
        is_starting=recorded.is_starting,
        is_opportunistic=recorded.is_opportunistic,
        anchor_row=nodes.row[recorded.anchor] if recorded.anchor else -1,
    )


_GZIP_MAGIC: Final = b"\x1f\x8b"
_REMEDY: Final = "name the files that an operator wrote to its record directory"


class _Claim(msgspec.Struct):
    """The fields of a header of any version."""

    format: str = ""
    version: int = 0


class _Moment(msgspec.Struct):
    """The time of a line, POSIX seconds."""

    now: float


@dataclass(slots=True)
class Record:
    """The files of one record, oldest first.

    Attributes:
        classes: Policy classes that it may name as well as Bireme's own; None for all.
        torn: Number of last lines that were cut off, in the files read so far.
        place: File and line of the cycle read last.
        run: The operator that wrote it.
        files_read: Number of files read to their end.
    """

    files: tuple[tuple[Path, Header], ...]
    classes: Collection[str] | None = ()
    torn: int = 0
    place: str = ""
    run: str = ""
    files_read: int = 0

    @property
    def settings(self) -> SchedulingSettings:
        """Return the settings of all its decisions."""
        return self.files[0][1].settings

    @property
    def runs(self) -> int:
        """Return the number of operators that wrote it, one after another."""
        return len({header.run for _, header in self.files})

    @property
    def versions(self) -> tuple[str, ...]:
        """Return the versions of Bireme that wrote it."""
        return tuple(dict.fromkeys(header.bireme for _, header in self.files))

    def span(self) -> tuple[float, float] | None:
        """Return the times of its first and last cycle, POSIX seconds; None without any.

        Reads the first and the last file that have a cycle, and decodes no cycle.
        """
        first = next(filter(None, (_moment(path, 2) for path, _ in self.files)), None)
        last = next(filter(None, (_moment(path, None) for path, _ in reversed(self.files))), None)
        return None if first is None or last is None else (first.now, last.now)

    def cycles(self) -> Iterator[RecordedCycle]:
        """Yield every recorded cycle in turn. Raises RecordError if a line is not valid."""
        for path, header in self.files:
            decoder, self.run = Decoder(header.settings), header.run
            with _open_text(path) as text:
                for number, line in _lines(path, text):
                    if number == 1:
                        continue  # the header, which was read when the record was opened
                    self.place = f"{path} line {number}"
                    try:
                        cycle = decoder.decode(line)
                    except RecordError as error:
                        # An operator that was killed leaves a torn last line behind.
                        if line.endswith(b"\n"):
                            raise RecordError(f"{self.place}: {error}; {_REMEDY}") from error
                        self.torn += 1
                    else:
                        _check_source(self.place, cycle.source, self.classes)
                        yield cycle
            self.files_read += 1


def open_record(paths: Sequence[Path], classes: Collection[str] | None = ()) -> Record:
    """Open the record in ``paths``: files, or folders that hold them, in any order.

    A record may come from a stranger, and names policies. To make one of a user's own class, the
    reader would import the module that the record names. So such a record is refused unless
    ``classes`` has the class; None allows all, for readers that make no policy.

    Raises RecordError if a file is no record, has other settings, or is missing.
    """
    files = {path: _header(path) for entry in paths for path in _files(entry)}
    torn = {number_of(path) for path, header in files.items() if header is None}
    whole_files = [(path, header) for path, header in files.items() if header is not None]
    whole_files.sort(key=lambda one: one[1].number)
    if not whole_files:
        raise RecordError(f"{paths[0]} line 1: it ends before its first line does; {_REMEDY}")
    for (_, previous), (path, header) in pairwise(whole_files):
        _check_follows(path, header, previous, torn)
    path, header = whole_files[0]
    names: dict[str, str] = {part: getattr(header.settings, part) for part in PARTS}
    _check_classes(f"{path} line 1", names, classes)
    return Record(tuple(whole_files), classes, torn=len(torn))


def _check_source(place: str, source: PolicySource, classes: Collection[str] | None) -> None:
    _check_classes(place, {part: getattr(source, part) for part in PARTS}, classes)
    for canary in source.canaries:
        _check_source(place, canary, classes)


def _check_classes(place: str, names: Mapping[str, str], classes: Collection[str] | None) -> None:
    for part, name in names.items():
        path = imported_class(name)
        if path and classes is not None and path not in classes:
            raise RecordError(
                f"{place}: its {part} is {path!r}, a class that is not Bireme's and would be"
                f" imported; name it by --policy-class {path} if you trust it"
            )


def _check_follows(path: Path, header: Header, previous: Header, torn: Container[int]) -> None:
    # An operator that was killed early leaves a file without a whole header between two others.
    between = range(previous.number + 1, header.number)
    if header.number <= previous.number or not all(number in torn for number in between):
        raise RecordError(
            f"{path} line 1: it is file {header.number} of the record, and the one before it "
            f"is file {previous.number}; name every file from the first to the last, each once"
        )
    if header.settings != previous.settings:
        raise RecordError(
            f"{path} line 1: its settings are not those of file {previous.number}; "
            "replay the files before it and those from it on apart"
        )


def _files(path: Path) -> list[Path]:
    with _naming(path):
        if not path.is_dir():
            return [path]
        files = record_files(path)
    if not files:
        raise RecordError(f"{path} holds no record-*.jsonl; {_REMEDY}")
    return files


def _header(path: Path) -> Header | None:
    """Return the header; None if an operator was killed before the line was whole."""
    with _open_text(path) as text:
        _, line = next(_lines(path, text), (1, b""))
    if not line.endswith(b"\n"):
        return None
    where = f"{path} line 1"
    try:
        # Checked first, as a header of another version may have other fields.
        claim = msgspec.json.decode(line, type=_Claim)
        if claim.format != FORMAT:
            raise RecordError(f"{where}: format is {claim.format!r}, not {FORMAT!r}; {_REMEDY}")
        if claim.version != VERSION:
            raise RecordError(
                f"{where}: version is {claim.version}, and this Bireme reads {VERSION}; "
                "replay it with the Bireme that wrote it"
            )
        return msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{where}: no first line of a record: {error}; {_REMEDY}") from error


def _moment(path: Path, line_number: int | None) -> _Moment | None:
    """Return the time of line ``line_number``, None for the last; None if no cycle is whole."""
    latest = 0, b""
    with _open_text(path) as text:
        for number, line in _lines(path, text):
            if number > 1 and line.endswith(b"\n"):
                latest = number, line
                if number == line_number:
                    break
    number, line = latest
    if not line:
        return None
    try:
        return msgspec.json.decode(line, type=_Moment)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} line {number}: {error}; {_REMEDY}") from error


def _lines(path: Path, text: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, numbered from 1."""
    number = 0
    try:
        for number, line in enumerate(text, 1):
            yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RecordError(
            f"{path} line {number + 1}: the compressed file ends or is damaged here: {error}; "
            "copy it again"
        ) from error


@contextmanager
def _open_text(path: Path) -> Iterator[IO[bytes]]:
    with _naming(path), path.open("rb") as file:
        # By content: a file may have been renamed when it was copied.
        is_gzipped = file.peek(2)[:2] == _GZIP_MAGIC
        yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if is_gzipped else file


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}; {_REMEDY}") from error
