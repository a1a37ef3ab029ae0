"""The board of a record: any cycle that an operator recorded, with its past and expected future.

The policy that decided a cycle decides it again, because a record holds no messages.
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
from bireme.cli.gangs import GangLine
from bireme.cli.recorded_cycle import line_of_gang, policy_that_decided, waiting_lines
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
from bireme.replay.what_if import Inquiry, answers


@dataclass(frozen=True, slots=True)
class _CycleView:
    """A cycle, and its view as far as it is computed."""

    cycle: RecordedCycle
    view: View


@dataclass(slots=True)
class Recorded:
    """The cycles of the record ``name``.

    Attributes:
        times: Time of each cycle, POSIX seconds.
        ran: Spans of gangs that had left by the last cycle, in the order in which they left.
    """

    name: str
    record: Record
    checkpoints: str
    times: Sequence[float]
    ran: Sequence[Span]
    version: int = 0
    """Grows when an incomplete view has become complete."""
    _last: _CycleView | None = field(default=None, repr=False)
    _question: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    def view(self, number: int) -> View:
        """Return the view of cycle ``number``, from 0; one beyond the last is the last.

        At first it lacks the expected starts: to foresee those of thousands of gangs takes a while.
        """
        return self._cycle_view(number).view

    def tasks(self, gang: GangLine, number: int) -> dict[str, int]:
        """Return the replicas of each task of a gang that waits in cycle ``number``."""
        waiting = self._cycle_view(number).cycle.snapshot.waiting
        gangs = (
            candidate
            for candidate in waiting
            if (candidate.kind, _key(candidate)) == (gang.kind, gang.key)
        )
        return {task.name: task.replicas for candidate in gangs for task in candidate.tasks}

    async def answer(
        self, question: Inquiry, classes: Mapping[str, PriorityClass], number: int
    ) -> what_if.Answered:
        """Return the answer about cycle ``number``, by the policy that decided it.

        Raises WhatIfError if the question is not valid.
        """
        async with self._question:  # one at a time, as each takes a whole core
            return await _in_own_thread(partial(self._answer, question, classes, number))

    def _answer(
        self, question: Inquiry, classes: Mapping[str, PriorityClass], number: int
    ) -> what_if.Answered:
        settings, cycle = self.record.settings, self._cycle_view(number).cycle
        # A policy of its own: a thread may use that of the view to foresee starts.
        name, policy = policy_that_decided(settings, cycle, self.checkpoints, "RECORD")
        facts = what_if.record_facts(settings, classes, "beside its name")
        results = answers(question, facts, cycle.snapshot, policy, time.monotonic)
        return what_if.Answered(results, name)

    def _cycle_view(self, number: int) -> _CycleView:
        number = max(0, min(number, len(self.times) - 1))
        last = self._last
        if last is None or last.view.cycle != number:
            cycles = enumerate(self.record.cycles())
            cycle = next(cycle for index, cycle in cycles if index == number)
            last = self._begin(number, cycle)
        return last

    def _begin(self, number: int, cycle: RecordedCycle) -> _CycleView:
        snapshot = cycle.snapshot
        name, policy = policy_that_decided(self.record.settings, cycle, self.checkpoints, "RECORD")
        decision = run_cycle(snapshot, policy)
        view = self._view_of(number, snapshot, decision, name, None)
        first = self._last = _CycleView(cycle, view)

        def foresee() -> None:
            outlook = look_ahead(snapshot, run_cycle(snapshot, policy, explain=False), policy)
            if self._last is first:  # the reader still looks at this cycle
                view = self._view_of(number, snapshot, decision, name, outlook)
                # In this order: a reader who sees the new version finds its view.
                self._last = _CycleView(cycle, view)
                self.version = view.version

        # Not a pool thread: the end of the board would wait for it.
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
        remarks += [] if outlook else ["The board is computing the expected starts."]
        return View(
            source=f"record {self.name}",
            now=snapshot.now,
            lines=[*_running(snapshot), *waiting_lines(snapshot, decision, outlook)],
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
    """Read a whole record once; it may name the policy ``classes`` as well as Bireme's own.

    Raises:
        RecordError: the record cannot be read.
        UsageError: the record has no cycle.
    """
    record = open_record(paths, classes)
    times: list[float] = []
    ran: list[Span] = []
    previous: dict[str, RunningGang] = {}
    for cycle in record.cycles():
        now = cycle.snapshot.now
        times.append(now)
        current = {running.gang.uid: running for running in cycle.snapshot.running}
        for uid, run in previous.items():
            if uid not in current or current[uid].started != run.started:
                ran.append(
                    Span(
                        _key(run.gang),
                        "ran",
                        run.started,
                        now,
                        _devices(run.current, cycle.snapshot),
                    )
                )
        previous = current
    if not times:
        raise UsageError("argument RECORD: it has no cycle; has anything waited since it began?")
    return Recorded(", ".join(path.name for path in paths), record, checkpoints, times, ran)


_T = TypeVar("_T")


async def _in_own_thread(call: Callable[[], _T]) -> _T:
    """Return the result of ``call`` in a thread of its own, which a cancellation leaves running.

    The end of the board would wait for a pool thread, and other pages would lack it.
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
        yield line_of_gang(
            gang,
            phase="Running",
            message="it is being stopped" if running.is_leaving else "",
            gpus=_devices(running.current, snapshot),
            waits=False,
            since=running.started,
            nodes=f"{nodes} nodes" + (f", {inside}" if inside else ""),
            progress=100 * report.fraction if report and report.fraction is not None else None,
        )


def _spans(snapshot: ClusterSnapshot, outlook: Outlook | None) -> Iterator[Span]:
    now = snapshot.now
    for running in snapshot.running:
        is_known = running.gang.estimated_seconds is not None
        end = running.expected_end(now) if is_known and not running.is_leaving else None
        yield Span(
            _key(running.gang), "runs", running.started, end, _devices(running.current, snapshot)
        )
    for prospect in outlook.prospects if outlook is not None else ():
        if prospect.start is not None:
            lasts = prospect.gang.estimated_seconds
            end = None if lasts is None else prospect.start + lasts
            yield Span(
                _key(prospect.gang),
                "expected",
                prospect.start,
                end,
                _devices(prospect.gang, snapshot),
            )


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

    by_gang: dict[int, Counter[str]] = {}
    reserved: dict[int, Counter[str]] = {}
    for running in snapshot.running:
        for row, amount in devices(running.current, running.placement):
            by_gang.setdefault(row, Counter())[_key(running.gang)] += amount
    for hold in decision.held:
        if hold.reservation is not None:
            for row, amount in devices(hold.gang, hold.reservation.placement):
                reserved.setdefault(row, Counter())[_key(hold.gang)] += amount
    used = dict(enumerate(snapshot.used[:, column].tolist()))
    labels = (snapshot.settings.node_pool_label, GPU_MODEL_LABEL)
    return node_rows(nodes, used, by_gang, reserved, labels)
