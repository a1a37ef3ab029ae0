"""From cycles to lines, each with what has changed since the one before.

A cluster of thousands of nodes and gangs is looked at many times a minute, and hardly anything of
it changes from one look to the next. Snapshots share what did not change (the node table, tasks,
labels), so that comparing is mostly a matter of identity.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from bireme.core.curves import InverseQuadratic
from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.pools import GrowablePool
from bireme.core.resources import IntArray
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import LinearSpeed
from bireme.records.errors import RecordError
from bireme.records.lines import SETTINGS, Header, Held, Line, Source
from bireme.records.outlines import outline_of, places_of


def encode_header(header: Header) -> bytes:
    """``header`` as the first line of a file."""
    return msgspec.json.encode(header) + b"\n"


class Encoder:
    """The lines below one header; the first tells everything."""

    def __init__(self) -> None:
        self._line = 1
        self._nodes: NodeTable | None = None
        self._used: IntArray = np.zeros((0, 0), dtype=np.int64)
        self._queues: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._waiting: dict[str, Gang] = {}
        self._running: dict[str, Held] = {}
        self._growable: dict[str, GrowablePool] = {}
        self._holds: dict[str, str] = {}
        self._source = SETTINGS

    def encode(
        self,
        snapshot: ClusterSnapshot,
        decision: Decision,
        lost: int = 0,
        source: Source = SETTINGS,
    ) -> bytes | None:
        """A line for this cycle; None when nothing has changed, nor was anything done.

        ``lost`` cycles before it could not be recorded; ``source`` decided. Raises RecordError
        for a gang that no record can hold: two of one uid, or a law that no report leads to.
        """
        waiting = {gang.uid: gang for gang in snapshot.waiting}
        running = {each.gang.uid: _held(each, snapshot.nodes) for each in snapshot.running}
        if (len(waiting), len(running)) != (len(snapshot.waiting), len(snapshot.running)):
            raise RecordError("two gangs of the snapshot have one uid; give each its own")
        _check(*snapshot.waiting, *(each.gang for each in snapshot.running))
        outline = outline_of(decision, snapshot.nodes)
        holds, self._holds = self._holds, outline.holds
        line = Line(
            line=self._line + 1,
            now=snapshot.now,
            outline=msgspec.structs.replace(outline, holds=_new(holds, outline.holds)),
            lost=lost,
            source=msgspec.UNSET if source == self._source else source,
            used=self._used_now(snapshot),  # before the nodes: it asks which ones there were
            nodes=self._nodes_now(snapshot.nodes),
            queues=_changes(self._queues, snapshot.queues),
            queue_usage=_changes(self._usage, snapshot.queue_usage),
            waiting=_changes(self._waiting, waiting),
            running=_changes(self._running, running),
            growable=self._growable_now(snapshot),
        )
        self._queues, self._usage = dict(snapshot.queues), dict(snapshot.queue_usage)
        self._waiting, self._running = waiting, running
        if self._line > 1 and _is_dull(line):
            return None
        self._line += 1
        self._source = source
        return msgspec.json.encode(line) + b"\n"

    def _nodes_now(self, nodes: NodeTable) -> dict[str, Any]:
        before, self._nodes = self._nodes, nodes
        if before is nodes:
            return {}
        known = {} if before is None else dict(zip(before.names, before.nodes, strict=True))
        return _changes(known, dict(zip(nodes.names, nodes.nodes, strict=True)))

    def _growable_now(self, snapshot: ClusterSnapshot) -> dict[str, Any]:
        before, self._growable = self._growable, {pool.name: pool for pool in snapshot.growable}
        return _changes(before, self._growable)

    def _used_now(self, snapshot: ClusterSnapshot) -> dict[str, list[int]]:
        before = carried_over(self._nodes, self._used, snapshot.nodes)
        self._used = snapshot.used
        rows = np.flatnonzero((snapshot.used != before).any(axis=1))
        names = map(snapshot.nodes.names.__getitem__, rows.tolist())
        return dict(zip(names, snapshot.used[rows].tolist(), strict=True))


def carried_over(before: NodeTable | None, used: IntArray, nodes: NodeTable) -> IntArray:
    """What ``nodes`` used in the line before, shape (nodes, resources).

    A node that was not there used nothing; so do all when ``nodes`` offer other resources.
    """
    if before is not None and before.names == nodes.names and before.axis == nodes.axis:
        return used
    carried = np.zeros_like(nodes.allocatable)
    if before is not None and before.axis == nodes.axis:
        both = [(nodes.row[name], row) for name, row in before.row.items() if name in nodes.row]
        if both:
            rows, old = np.array(both).T
            carried[rows] = used[old]
    return carried


def _check(*gangs: Gang) -> None:
    for gang in gangs:
        for law, held in ((gang.speed, LinearSpeed), (gang.loss, InverseQuadratic)):
            if law is not None and type(law) is not held:
                raise RecordError(
                    f"gang {gang.name!r} has a {type(law).__name__}, of which a record can hold "
                    f"{held.__name__} alone; turn recording off"
                )


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What is new or another in ``now``; None for what is gone."""
    return _new(before, now) | {key: None for key in before if key not in now}


def _new(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in now.items() if before.get(key) != value}


def _is_dull(line: Line) -> bool:
    done, seen = line.outline, (line.nodes, line.used, line.queues, line.queue_usage)
    acts = (done.starts, done.stops, done.resizes, done.holds, done.fallback)
    return not any((*seen, line.waiting, line.running, line.growable, *acts))


def _held(running: RunningGang, nodes: NodeTable) -> Held:
    return Held(
        gang=running.gang,
        places=places_of(running.placement, nodes),
        started=running.started,
        resized=running.resized if math.isfinite(running.resized) else None,
        is_leaving=running.is_leaving,
        anchor=nodes.names[running.anchor_row] if running.anchor_row >= 0 else "",
    )
