"""From lines back to the very snapshots and decisions that were recorded."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from bireme.core.curves import InverseQuadratic
from bireme.core.errors import SnapshotError
from bireme.core.gangs import Gang
from bireme.core.nodes import Node, NodeTable
from bireme.core.placement import placement_at
from bireme.core.pools import GrowablePool
from bireme.core.queues import Queue
from bireme.core.resources import IntArray
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import LinearSpeed, SpeedLaw
from bireme.records.encoding import carried_over
from bireme.records.errors import RecordError
from bireme.records.lines import SETTINGS, Held, Line, Outline, Source

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Moment:
    """One recorded cycle: what was seen and decided, by whom, and how many before it were lost."""

    snapshot: ClusterSnapshot
    outline: Outline
    lost: int = 0
    source: Source = SETTINGS


class Decoder:
    """Reads the lines below one header, in their order."""

    def __init__(self, settings: SchedulingSettings) -> None:
        self._settings = settings
        self._line = 1
        self._facts: dict[str, Node] = {}
        self._nodes = NodeTable((), settings.topology_levels)
        self._used: IntArray = self._nodes.allocatable
        self._queues: dict[str, Queue] = {}
        self._usage: dict[str, dict[str, int]] = {}
        self._waiting: dict[str, Gang] = {}
        self._held: dict[str, Held] = {}
        self._running: dict[str, RunningGang] = {}
        self._growable: dict[str, GrowablePool] = {}
        self._holds: dict[str, str] = {}
        self._source = SETTINGS
        self._parse = msgspec.json.Decoder(Line, dec_hook=_law).decode

    def decode(self, text: bytes) -> Moment:
        """The cycle of the next line. Raises RecordError when it cannot be one."""
        try:
            line = self._parse(text)
        except msgspec.DecodeError as error:
            raise RecordError(f"it is no line of a record: {error}") from error
        self._line += 1
        if line.line != self._line:
            raise RecordError(f"it was line {line.line} when it was written; lines are missing")
        try:
            return self._moment(line)
        except (KeyError, OverflowError, ValueError, SnapshotError) as error:
            raise RecordError(f"it contradicts the lines before it: {error!r}") from error

    def _moment(self, line: Line) -> Moment:
        before, used = self._nodes, self._used
        _apply(self._facts, line.nodes)
        if line.nodes:
            self._nodes = NodeTable(list(self._facts.values()), self._settings.topology_levels)
            self._running.clear()  # their places are in rows
        self._used = carried_over(before, used, self._nodes).copy()
        for name, amounts in line.used.items():
            self._used[self._nodes.row[name]] = amounts
        _apply(self._queues, line.queues)
        _apply(self._usage, line.queue_usage)
        _apply(self._waiting, line.waiting)
        _apply(self._held, line.running)
        _apply(self._growable, line.growable)
        for uid in line.running:
            self._running.pop(uid, None)
        for uid, held in self._held.items():
            if uid not in self._running:
                self._running[uid] = _running(held, self._nodes)
        if line.source is not msgspec.UNSET:
            self._source = line.source
        outline = self._outline(line.outline)
        return Moment(self._snapshot(line.now), outline, line.lost, self._source)

    def _snapshot(self, now: float) -> ClusterSnapshot:
        return ClusterSnapshot(
            now=now,
            nodes=self._nodes,
            used=self._used,
            waiting=tuple(self._waiting.values()),
            queues=dict(self._queues),
            queue_usage=dict(self._usage),
            settings=self._settings,
            running=tuple(self._running.values()),
            growable=tuple(self._growable.values()),
        )

    def _outline(self, told: Outline) -> Outline:
        decided = (uid for uid in self._waiting if uid not in told.starts)
        self._holds = {uid: told.holds.get(uid) or self._holds[uid] for uid in decided}
        return msgspec.structs.replace(told, holds=self._holds)


def _law(kind: type, given: object) -> object:
    """The law of speed or loss that a report led to."""
    return msgspec.convert(given, LinearSpeed if kind is SpeedLaw else InverseQuadratic)


def _apply(known: dict[str, _V], changes: Mapping[str, _V | None]) -> None:
    for key, value in changes.items():
        if value is None:
            del known[key]
        else:
            known[key] = value


def _running(held: Held, nodes: NodeTable) -> RunningGang:
    return RunningGang(
        gang=held.gang,
        placement=placement_at(held.places, nodes),
        started=held.started,
        resized=-math.inf if held.resized is None else held.resized,
        is_leaving=held.is_leaving,
        anchor_row=nodes.row[held.anchor] if held.anchor else -1,
    )
