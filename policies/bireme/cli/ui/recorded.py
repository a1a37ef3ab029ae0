"""The board of a record: any cycle that an operator recorded, with what came before and may follow.

The decision is made again by the policy that made it, because a record holds no messages.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from bireme.cli import what_if
from bireme.cli.arguments import UsageError
from bireme.cli.gangs import Factor, GangLine
from bireme.cli.outlook import policy_that_decided
from bireme.cli.ui.view import NodeRow, QueueRow, Span, View, in_tree, main_device, node_rows
from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.device_use import device_uses, places_for_holds
from bireme.core.gangs import Gang
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.outlook import Outlook, look_ahead
from bireme.core.placement import Placement, usage_of
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.what_if import PriorityClass
from bireme.replay.reader import Record, RecordedCycle, open_record
from bireme.replay.what_if import Asked, answers


@dataclass(frozen=True, slots=True)
class _Shown:
    """A cycle, and its view as far as it is made."""

    cycle: RecordedCycle
    view: View


@dataclass(slots=True)
class Recorded:
    """The cycles of a record; ``name`` says which one it is.

    Attributes:
        times: When each cycle was, POSIX seconds.
        ran: When gangs ran that had left by the last cycle, in the order in which they left.
    """

    name: str
    record: Record
    checkpoints: str
    times: Sequence[float]
    ran: Sequence[Span]
    version: int = 0
    """Grows when a view that was incomplete has become whole."""
    _last: _Shown | None = field(default=None, repr=False)
    _question: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    def view(self, number: int) -> View:
        """Return the view of cycle ``number``, from 0; one beyond the last is the last.

        At first it says nothing of starts to come: to foresee those of thousands of gangs takes a
        while, which nobody waits for.
        """
        return self._shown(number).view

    def tasks(self, gang: GangLine, number: int) -> dict[str, int]:
        """Return the replicas of each task of a gang that waits in cycle ``number``."""
        waiting = self._shown(number).cycle.snapshot.waiting
        found = (each for each in waiting if (each.kind, _key(each)) == (gang.kind, gang.key))
        return {task.name: task.replicas for each in found for task in each.tasks}

    async def answer(
        self, asked: Asked, classes: Mapping[str, PriorityClass], number: int
    ) -> what_if.Answered:
        """Return the answer about cycle ``number``, by the policy that decided it.

        Raises WhatIfError where the question cannot be asked.
        """
        async with self._question:  # one at a time, as each takes a whole core
            return await _in_own_thread(partial(self._answer, asked, classes, number))

    def _answer(
        self, asked: Asked, classes: Mapping[str, PriorityClass], number: int
    ) -> what_if.Answered:
        settings, cycle = self.record.settings, self._shown(number).cycle
        # Its own one, as that of the view may be foreseeing starts.
        name, policy = policy_that_decided(settings, cycle, self.checkpoints, "RECORD")
        known = what_if.known_of_record(settings, classes, "beside its name")
        told = answers(asked, known, cycle.snapshot, policy, time.monotonic)
        return what_if.Answered(told, name)

    def _shown(self, number: int) -> _Shown:
        number = max(0, min(number, len(self.times) - 1))
        last = self._last
        if last is None or last.view.cycle != number:
            cycles = enumerate(self.record.cycles())
            cycle = next(cycle for at, cycle in cycles if at == number)
            last = self._begin(number, cycle)
        return last

    def _begin(self, number: int, cycle: RecordedCycle) -> _Shown:
        snapshot = cycle.snapshot
        name, policy = policy_that_decided(self.record.settings, cycle, self.checkpoints, "RECORD")
        decision = run_cycle(snapshot, policy)
        view = self._view_of(number, snapshot, decision, name, None)
        first = self._last = _Shown(cycle, view)

        def foresee() -> None:
            outlook = look_ahead(snapshot, run_cycle(snapshot, policy, explain=False), policy)
            if self._last is first:  # the reader has not gone on
                view = self._view_of(number, snapshot, decision, name, outlook)
                # In this order: a reader who is told of the change finds it.
                self._last = _Shown(cycle, view)
                self.version = view.version

        # Not a thread of a pool, which would be waited for when the board ends.
        threading.Thread(target=foresee, daemon=True).start()
        return first

    def _view_of(
        self,
        number: int,
        snapshot: ClusterSnapshot,
        decision: Decision,
        policy: str,
        outlook: Outlook | None,
    ) -> View:
        remarks = ["Logs, events and node pools are not part of a record."]
        remarks += [] if outlook else ["Starts to come are being foreseen."]
        return View(
            source=f"record {self.name}",
            now=snapshot.now,
            lines=[*_running(snapshot), *_waiting(snapshot, decision, outlook)],
            capacity=tuple(device_uses(snapshot, places_for_holds(snapshot, decision.held))),
            queues=tuple(_queues(snapshot)),
            nodes=tuple(_nodes(snapshot, decision)),
            spans=(
                *(span for span in self.ran if span.end is not None and span.end <= snapshot.now),
                *_spans(snapshot, outlook),
            ),
            policies=[{"metadata": {"name": policy}, "spec": {"stage": "Active"}}],
            version=self.version + (outlook is not None),
            cycle=number,
            remarks=tuple(remarks),
        )


def read(paths: Sequence[Path], checkpoints: str, classes: Collection[str] = ()) -> Recorded:
    """Read a whole record once, which may name policy ``classes`` beside Bireme's own.

    Raises:
        RecordError: it cannot be read.
        UsageError: it has no cycle.
    """
    record = open_record(paths, classes)
    times: list[float] = []
    ran: list[Span] = []
    before: dict[str, RunningGang] = {}
    for cycle in record.cycles():
        now = cycle.snapshot.now
        times.append(now)
        there = {each.gang.uid: each for each in cycle.snapshot.running}
        for uid, gone in before.items():
            if uid not in there or there[uid].started != gone.started:
                ran.append(
                    Span(
                        _key(gone.gang),
                        "ran",
                        gone.started,
                        now,
                        _devices(gone.current, cycle.snapshot),
                    )
                )
        before = there
    if not times:
        raise UsageError("argument RECORD: it has no cycle; has anything waited since it began?")
    return Recorded(", ".join(path.name for path in paths), record, checkpoints, times, ran)


_T = TypeVar("_T")


async def _in_own_thread(call: Callable[[], _T]) -> _T:
    """Return what ``call`` does; cancelled, leave it to itself.

    A thread of a pool would be waited for when the board ends, and be missing to other pages.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def tell(how: Callable[[], None]) -> None:
        if not done.done():  # cancelled
            how()

    def work() -> None:
        try:
            how = partial(done.set_result, call())
        except Exception as error:  # noqa: BLE001  # it is raised where it is awaited
            how = partial(done.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed: the board has ended
            loop.call_soon_threadsafe(tell, how)

    threading.Thread(target=work, daemon=True).start()
    return await done


def _key(gang: Gang) -> str:
    return f"{gang.namespace}/{gang.name}"


def _devices(gang: Gang, snapshot: ClusterSnapshot) -> float:
    return snapshot.nodes.accelerators.units(gang.demand)


# --- gangs ---


def _running(snapshot: ClusterSnapshot) -> Iterator[GangLine]:
    for running in snapshot.running:
        gang = running.gang
        placement = running.placement
        nodes = len(placement.node_rows()) if placement.tasks else 0
        inside = f"{placement.level.rpartition('/')[2]} {placement.domain}".strip()
        report = gang.progress
        yield _line(
            gang,
            phase="Running",
            message="it is being stopped" if running.is_leaving else "",
            gpus=_devices(running.current, snapshot),
            waits=False,
            since=running.started,
            nodes=f"{nodes} nodes" + (f", {inside}" if inside else ""),
            progress=100 * report.fraction if report and report.fraction is not None else None,
        )


def _waiting(
    snapshot: ClusterSnapshot, decision: Decision, outlook: Outlook | None
) -> Iterator[GangLine]:
    starts = {each.gang.uid: each.start for each in (outlook.prospects if outlook else ())}
    holds = {hold.gang.uid: hold for hold in decision.held}
    admits = {admit.gang.uid: admit for admit in decision.admitted}
    for gang in snapshot.waiting:
        hold, admit = holds.get(gang.uid), admits.get(gang.uid)
        said = hold or admit
        ranked = said.ranked if said is not None else None
        yield _line(
            gang,
            phase="Pending" if admit is None else "Starting",
            reason=said.reason.value if said is not None else "",
            message=said.message if said is not None else "",
            position=hold.position if hold is not None else None,
            waits=admit is None,
            gpus=_devices(gang, snapshot),
            score=ranked.score if ranked is not None else None,
            factors=tuple(
                Factor(each.name, each.value, each.weight, each.contribution)
                for each in (ranked.factors if ranked is not None else ())
            ),
            earliest=starts.get(gang.uid),
            since=snapshot.now if admit is not None else None,
        )


def _line(gang: Gang, **known: object) -> GangLine:
    """Return a line with what is ``known``; of all else, a record says nothing."""
    unknown: dict[str, object] = dict.fromkeys(
        ("position", "score", "earliest", "latest", "coverage_percent", "since", "progress")
    )
    unknown |= dict.fromkeys(("reason", "message", "ready", "priority_class", "nodes"), "")
    unknown |= {"factors": (), "waited_before_seconds": 0.0}
    counters = (("preemptions", gang.evictions),) if gang.evictions else ()
    return GangLine(
        kind=gang.kind,
        namespace=gang.namespace,
        name=gang.name,
        queue=gang.queue,
        created=gang.arrived,
        queued=gang.arrived,
        parked=gang.parked,
        counters=counters,
        **{**unknown, **known},  # type: ignore[arg-type]
    )


def _spans(snapshot: ClusterSnapshot, outlook: Outlook | None) -> Iterator[Span]:
    now = snapshot.now
    for running in snapshot.running:
        is_known = running.gang.estimated_seconds is not None
        end = running.expected_end(now) if is_known and not running.is_leaving else None
        yield Span(
            _key(running.gang), "runs", running.started, end, _devices(running.current, snapshot)
        )
    for each in outlook.prospects if outlook is not None else ():
        if each.start is not None:
            lasts = each.gang.estimated_seconds
            end = None if lasts is None else each.start + lasts
            yield Span(_key(each.gang), "expected", each.start, end, _devices(each.gang, snapshot))


# --- queues and nodes ---


def _queues(snapshot: ClusterSnapshot) -> Iterator[QueueRow]:
    pending = Counter(gang.queue for gang in snapshot.waiting)
    admitted = Counter(running.gang.queue for running in snapshot.running)
    parents = ((name, queue.parent) for name, queue in snapshot.queues.items())
    for name, depth, used in in_tree(parents, snapshot.queue_usage):
        queue = snapshot.queues[name]
        yield QueueRow(
            name=name,
            depth=depth,
            state="Open" if queue.is_open else "Closed",
            admitted=admitted[name],
            pending=pending[name],
            used=used,
            guaranteed=queue.guaranteed,
            limit=queue.limit,
        )


def _nodes(snapshot: ClusterSnapshot, decision: Decision) -> Iterator[NodeRow]:
    nodes = snapshot.nodes
    resource = main_device(nodes)
    if not resource:
        return node_rows(nodes, {}, {}, {}, (snapshot.settings.node_pool_label, GPU_MODEL_LABEL))
    column = nodes.axis.names.index(resource)

    def devices(gang: Gang, placement: Placement) -> Iterator[tuple[int, int]]:
        rows, usage = usage_of(gang, placement, nodes.axis)
        return zip(rows.tolist(), usage[:, column].tolist(), strict=True)

    held: dict[int, Counter[str]] = {}
    kept: dict[int, Counter[str]] = {}
    for running in snapshot.running:
        for row, amount in devices(running.current, running.placement):
            held.setdefault(row, Counter())[_key(running.gang)] += amount
    for hold in decision.held:
        if hold.reservation is not None:
            for row, amount in devices(hold.gang, hold.reservation.placement):
                kept.setdefault(row, Counter())[_key(hold.gang)] += amount
    used = dict(enumerate(snapshot.used[:, column].tolist()))
    labels = (snapshot.settings.node_pool_label, GPU_MODEL_LABEL)
    return node_rows(nodes, used, held, kept, labels)
