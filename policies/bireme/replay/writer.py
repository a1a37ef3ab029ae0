"""Writer of records: numbered files of bounded size, the oldest deleted, never above the bound.

1. :func:`outline_of` puts a decision into names, so that it outlives its node rows.
2. :class:`Encoder` turns cycles into lines, each with the changes since the line before. Snapshots
   share unchanged parts (the node table, tasks, labels), so that most comparisons are of identity.
3. :class:`RecordWriter` writes the lines.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from importlib.metadata import version
from io import FileIO
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from bireme.core.decision import Action, Admit, Decision, Hold, Preempt, Resize, Vacate
from bireme.core.finished_runs import NO_RUNS, FinishedRun
from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.placement import Placement
from bireme.core.resources import IntArray
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import InverseQuadratic, LinearSpeed
from bireme.replay import record
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource

# --- 1. Decisions in names ----------------------------------------------------------------------


def outline_of(decision: Decision, nodes: NodeTable) -> record.Outline:
    """Return ``decision``, made over the rows of ``nodes``, in names."""
    return record.Outline(
        digest=_digest(decision, nodes),
        starts={a.gang.uid: places_of(a.placement, nodes) for a in decision.admitted},
        resizes={a.gang.uid: places_of(a.placement, nodes) for a in decision.resized},
        stops={a.gang.uid: a.beneficiary.uid for a in decision.preempted}
        | {a.gang.uid: "" for a in decision.vacated},
        holds={a.gang.uid: a.reason.value for a in decision.held},
        fallback=decision.overruled,
        growth=_growth_of(decision),
    )


def _growth_of(decision: Decision) -> dict[str, dict[str, int]]:
    by_gang: dict[str, dict[str, int]] = {}
    for growth in decision.node_requests:
        by_gang.setdefault(growth.gang.uid, {})[growth.pool] = growth.nodes
    return by_gang


def places_of(placement: Placement, nodes: NodeTable) -> record.Places:
    """Return ``placement`` by task and node name."""
    names = nodes.names
    return {
        task.task: {
            names[row]: count
            for row, count in zip(task.rows.tolist(), task.counts.tolist(), strict=True)
        }
        for task in placement.tasks
    }


def _digest(decision: Decision, nodes: NodeTable) -> str:
    actions = [list(_facts(action, nodes)) for action in decision.actions]
    growth = _growth_of(decision)
    # Without growth the digest equals that of records from before growing pools.
    text = msgspec.json.encode([actions, decision.overruled, *([growth] if growth else [])])
    return blake2b(text, digest_size=8).hexdigest()


def _facts(action: Action, nodes: NodeTable) -> Iterator[object]:
    """Yield everything about ``action`` but its message."""
    yield action.gang.uid
    yield action.reason
    match action:
        case Admit():
            yield places_of(action.placement, nodes)
            yield action.passed.uid if action.passed else None
            if action.is_opportunistic:
                yield action.is_opportunistic
        case Hold():
            yield action.position
            reservation = action.reservation
            if reservation is not None:
                yield reservation.start
                yield reservation.is_closed
                yield places_of(reservation.placement, nodes)
        case Resize():
            yield places_of(action.placement, nodes)
        case Preempt():
            yield action.beneficiary.uid
            if action.overrides_budget:
                yield action.overrides_budget
        case Vacate():
            pass


# --- 2. Cycles to lines -------------------------------------------------------------------------


class Encoder:
    """Encodes the lines below one header; the first states everything."""

    def __init__(self) -> None:
        self._line = 1
        self._nodes: NodeTable | None = None
        self._used: IntArray = np.zeros((0, 0), dtype=np.int64)
        self._known: Mapping[str, Mapping[str, Any]] = {}
        self._holds: dict[str, str] = {}
        self._source = SETTINGS_SOURCE
        self._occupants: list[record.RecordedPods] = []
        self._finished = NO_RUNS

    def encode(
        self,
        snapshot: ClusterSnapshot,
        decision: Decision,
        lost: int = 0,
        source: PolicySource = SETTINGS_SOURCE,
    ) -> bytes | None:
        """Return a line for this cycle; None if nothing has changed and nothing was done.

        ``lost`` cycles before it could not be recorded; ``source`` decided. Raises RecordError for
        gangs that no record can hold: two with one uid, or one whose law comes from no report.
        """
        now: dict[str, Mapping[str, Any]] = {
            "queues": dict(snapshot.queues),
            "queue_usage": dict(snapshot.queue_usage),
            "waiting": {gang.uid: gang for gang in snapshot.waiting},
            "running": {
                running.gang.uid: _recorded_gang(running, snapshot.nodes)
                for running in snapshot.running
            },
            "growable": {pool.name: pool for pool in snapshot.growable},
            "quotas": {"/".join(key): quota for key, quota in snapshot.quotas.items()},
        }
        gangs = len(now["waiting"]), len(now["running"])
        if gangs != (len(snapshot.waiting), len(snapshot.running)):
            raise record.RecordError("two gangs of the snapshot have one uid; give each its own")
        _check(*snapshot.waiting, *(running.gang for running in snapshot.running))
        outline = outline_of(decision, snapshot.nodes)
        holds, self._holds = self._holds, outline.holds
        previous, self._known = self._known, now
        changes = {name: _changes(previous.get(name, {}), entries) for name, entries in now.items()}
        line = record.Line(
            line=self._line + 1,
            now=snapshot.now,
            outline=msgspec.structs.replace(outline, holds=_new(holds, outline.holds)),
            lost=lost,
            source=msgspec.UNSET if source == self._source else source,
            used=self._usage_changes(snapshot),  # before the nodes, whose last table it needs
            nodes=self._nodes_now(snapshot.nodes),
            occupants=self._occupants_now(snapshot),
            finished=self._new_runs(snapshot),
            service=dict(snapshot.service),
            **changes,
        )
        # The first line states everything, so it is always written.
        if self._line > 1 and _is_unchanged(line):
            return None
        self._line += 1
        self._source = source
        return msgspec.json.encode(line) + b"\n"

    def _occupants_now(
        self, snapshot: ClusterSnapshot
    ) -> list[record.RecordedPods] | msgspec.UnsetType:
        names = snapshot.nodes.names
        previous, self._occupants = (
            self._occupants,
            [
                record.RecordedPods(
                    group.kind,
                    [names[row] for row in group.rows.tolist()],
                    group.owner,
                    group.are_fixed,
                    group.are_leaving,
                )
                for group in snapshot.occupants.groups
            ],
        )
        return msgspec.UNSET if previous == self._occupants else self._occupants

    def _new_runs(self, snapshot: ClusterSnapshot) -> list[FinishedRun]:
        previous, self._finished = self._finished, snapshot.finished_runs
        if previous is self._finished:
            return []
        known_ids = set(map(id, previous.runs))  # snapshots share them
        return [run for run in self._finished.runs if id(run) not in known_ids]

    def _nodes_now(self, nodes: NodeTable) -> dict[str, Any]:
        previous, self._nodes = self._nodes, nodes
        if previous is nodes:
            return {}
        previous_nodes = (
            {} if previous is None else dict(zip(previous.names, previous.nodes, strict=True))
        )
        return _changes(previous_nodes, dict(zip(nodes.names, nodes.nodes, strict=True)))

    def _usage_changes(self, snapshot: ClusterSnapshot) -> dict[str, list[int]]:
        previous = previous_usage(self._nodes, self._used, snapshot.nodes)
        self._used = snapshot.used
        rows = np.flatnonzero((snapshot.used != previous).any(axis=1))
        names = map(snapshot.nodes.names.__getitem__, rows.tolist())
        return dict(zip(names, snapshot.used[rows].tolist(), strict=True))


def previous_usage(previous: NodeTable | None, used: IntArray, nodes: NodeTable) -> IntArray:
    """Return the use of ``nodes`` in the line before, shape (nodes, resources).

    A new node used nothing; nor did any node if other resources are offered now.
    """
    if previous is not None and previous.names == nodes.names and previous.axis == nodes.axis:
        return used
    carried = np.zeros_like(nodes.allocatable)
    if previous is not None and previous.axis == nodes.axis:
        both = [(nodes.row[name], row) for name, row in previous.row.items() if name in nodes.row]
        if both:
            rows, old = np.array(both).T
            carried[rows] = used[old]
    return carried


def _check(*gangs: Gang) -> None:
    for gang in gangs:
        for law, expected in ((gang.speed, LinearSpeed), (gang.loss, InverseQuadratic)):
            if law is not None and type(law) is not expected:
                raise record.RecordError(
                    f"gang {gang.name!r} has a {type(law).__name__}, of which a record can hold "
                    f"{expected.__name__} alone; turn recording off"
                )


def _changes(previous: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of ``now`` that are new or different, and None for those that are gone."""
    return _new(previous, now) | {key: None for key in previous if key not in now}


def _new(previous: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in now.items() if previous.get(key) != value}


def _is_unchanged(line: record.Line) -> bool:
    done, cluster = line.outline, (line.nodes, line.used, line.queues, line.queue_usage)
    acts = (done.starts, done.stops, done.resizes, done.holds, done.fallback)
    changed = (line.waiting, line.running, line.growable, line.quotas, line.finished)
    return line.occupants is msgspec.UNSET and not any((*cluster, *changed, *acts))


def _recorded_gang(running: RunningGang, nodes: NodeTable) -> record.RecordedGang:
    return record.RecordedGang(
        gang=running.gang,
        places=places_of(running.placement, nodes),
        started=running.started,
        resized=running.resized if math.isfinite(running.resized) else None,
        is_leaving=running.is_leaving,
        kept_by_budget=running.kept_by_budget,
        is_starting=running.is_starting,
        is_opportunistic=running.is_opportunistic,
        anchor=nodes.names[running.anchor_row] if running.anchor_row >= 0 else "",
    )


# --- 3. Lines to files --------------------------------------------------------------------------

_NAME: Final = re.compile(r"record-(\d{8})\.jsonl")


class RecordWriter:
    """Writes one operator's term into ``folder``, after the files of earlier terms.

    All files together hold at most ``most_files * file_bytes`` bytes. ``lost`` counts the cycles
    since the last line that could not be recorded; the next line states it.
    """

    def __init__(
        self,
        folder: Path,
        run: str,
        settings: SchedulingSettings,
        *,
        file_bytes: int,
        most_files: int,
    ) -> None:
        self.lost = 0
        self._folder = folder
        self._run, self._settings = run, settings
        self._file_bytes, self._most_files = file_bytes, most_files
        self._encoder = Encoder()
        self._file: FileIO | None = None
        self._size = 0

    def write(
        self,
        snapshot: ClusterSnapshot,
        decision: Decision,
        source: PolicySource = SETTINGS_SOURCE,
    ) -> bool:
        """Record one cycle, which ``source`` decided; return whether a line was written.

        Raises OSError, and RecordError if no record, or no file of its size, can hold the cycle.
        """
        try:
            return self._write(snapshot, decision, source)
        except BaseException:
            # The file ends after its last whole line; the next write begins a file that states all.
            self.close()
            raise

    def _write(self, snapshot: ClusterSnapshot, decision: Decision, source: PolicySource) -> bool:
        if self._file is not None:
            line = self._encoder.encode(snapshot, decision, self.lost, source)
            if line is None:
                return False
            if self._size + len(line) <= self._file_bytes:
                self._append(self._file, line)
                return True
            # The line holds only changes, and no file can begin with it.
            self.close()
        self._begin(snapshot, decision, source)
        return True

    def _begin(self, snapshot: ClusterSnapshot, decision: Decision, source: PolicySource) -> None:
        """Begin another file, whose first line states everything."""
        self._encoder = Encoder()
        line = self._encoder.encode(snapshot, decision, self.lost, source) or b""
        number = max(map(number_of, record_files(self._folder)), default=0) + 1
        header = _header(self._run, number, self._settings)
        if len(header) + len(line) > self._file_bytes:
            raise record.RecordError(
                f"stating this cluster once takes {len(header) + len(line)} bytes, and a file of a "
                f"record has at most {self._file_bytes}; leave recordDirectory empty, and report it"
            )
        self._make_room()
        self._size = 0
        self._file = _create(self._folder / f"record-{number:08}.jsonl")
        self._append(self._file, header + line)

    def _make_room(self) -> None:
        """Delete the oldest files until one more can grow to its full size."""
        files = record_files(self._folder)
        sizes = [path.stat().st_size for path in files]
        # Files of earlier terms may be larger than the maximum of this one.
        most_bytes = (self._most_files - 1) * self._file_bytes
        while files and (len(files) >= self._most_files or sum(sizes) > most_bytes):
            files.pop(0).unlink()
            sizes.pop(0)

    def _append(self, file: FileIO, text: bytes) -> None:
        # Unbuffered, with one write for a line: a killed process tears at most the last line.
        remaining = memoryview(text)
        while remaining:
            remaining = remaining[file.write(remaining) :]
        self._size += len(text)
        self.lost = 0

    def close(self) -> None:
        """End the file after its last whole line; another write begins a new one."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError), file:
                file.truncate(self._size)
                if not self._size:
                    Path(file.name).unlink()


def _header(run: str, number: int, settings: SchedulingSettings) -> bytes:
    fields = (record.FORMAT, record.VERSION, version("bireme"), run, number, settings)
    return msgspec.json.encode(record.Header(*fields)) + b"\n"


def encode_record(
    run: str,
    settings: SchedulingSettings,
    snapshot: ClusterSnapshot,
    decision: Decision,
    source: PolicySource,
) -> bytes:
    """Return one cycle as a whole record: its header, and a line that states everything.

    Raises RecordError as :meth:`Encoder.encode`.
    """
    line = Encoder().encode(snapshot, decision, source=source) or b""
    return _header(run, 1, settings) + line


def record_files(folder: Path) -> list[Path]:
    """Return the record files in ``folder``, oldest first; OSError if it cannot be read."""
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name)), key=number_of)


def number_of(path: Path) -> int:
    """Return the number in the name of a record's file; 0 without one."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def _create(path: Path) -> FileIO:
    # Readable by its owner alone: names of jobs and namespaces are tenants' data. Never over
    # another file: a second operator may write to the same folder.
    return FileIO(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))
