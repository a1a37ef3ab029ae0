"""``operator.mode: Observe``: decide beside the scheduler in charge, report, and write nothing.

The operator watches and decides as usual, on Bireme's own gangs and on those of pods that wait for
another scheduler. This mode has no part that writes, and the client refuses every write. So there
is no Lease either, and each replica observes by itself.

Metrics report its decisions, and so does the log when they change: ``would admit``, ``would stop``,
``would resize``, and at level debug ``would hold``. Once the other scheduler has bound a pod, the
operator compares that with its latest decision.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import structlog

from bireme.core.decision import Admit, Decision, Hold
from bireme.core.errors import error_text
from bireme.core.gangs import Key
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import pods
from bireme.kube.client import NotLeader
from bireme.kube.cluster_state import ClusterState
from bireme.kube.observed_gangs import PENDING, ObservedPods, PendingPod
from bireme.kube.watch import Reflector
from bireme_operator.loop import Pacing
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.policies import CycleRunner
from bireme_operator.term import FIRST_LOAD_SECONDS, Caches, Deciding, TermContext

_log = structlog.get_logger(__name__)
# Number of cycles to look for a pod on its node after it left the pending pods: the two watches are
# not in step.
_MAX_LOOKS: Final = 5


def refuse() -> NoReturn:
    """Refuse a write, as the fence of a client. Raises NotLeader."""
    raise NotLeader("operator.mode is Observe, in which nothing is written")


@dataclass(frozen=True, slots=True)
class ObservedVerdict:
    """The latest decision on one gang: a reason, and the nodes of its start, if it would start."""

    reason: str
    nodes: frozenset[str] = frozenset()


@dataclass(slots=True)
class Observation:
    """The loop of mode Observe: decides after changes, and reports new decisions.

    ``now`` gives POSIX seconds.
    """

    pacing: Pacing
    state: ClusterState
    pods: ObservedPods
    cycles: CycleRunner
    metrics: OperatorMetrics
    now: Callable[[], float]
    _verdicts: dict[str, ObservedVerdict] = field(default_factory=dict)
    _departures: dict[Key, tuple[str, ObservedVerdict, int]] = field(default_factory=dict)
    """Pods that are no longer pending, with gang, its verdict, and the number of looks."""
    _partial: set[str] = field(default_factory=set)
    """Gangs with some bound pods; the last verdict on the whole gang applies to the rest.

    The other scheduler binds the pods of a gang one after another. Decisions in between concern a
    rest that lacks room because of its own gang.
    """
    _faulty: set[Key] = field(default_factory=set)

    async def run(self) -> None:
        """Decide again and again, until cancelled."""
        while True:
            has_changed = await self.pacing.next_turn()
            began = self.pacing.clock()
            with self.pacing.measure_turn():
                if self.pacing.is_sweep_due():
                    with self.pacing.sweeping():
                        await self._cycle()
                elif has_changed:
                    await self._cycle()
            await self.pacing.rest(began)

    async def _cycle(self) -> None:
        # 1. Compare the other scheduler's bindings with the decisions.
        self._compare()

        # 2. Decide on the waiting gangs of Bireme and of other schedulers.
        self.state.objects.learn(self.state.objects.jobs.values())
        own_gangs = self.state.waiting.gangs(on_error=self._report)
        learned, node_of = self.state.run_times.of_group, self.state.objects.node_of_other
        other_gangs = self.pods.gangs(self.state.tenancy, learned, node_of)
        waiting = [*own_gangs, *other_gangs]
        snapshot = self.state.snapshot(self.now(), None, waiting, self._report)
        if not snapshot.may_change:
            self.cycles.skip(snapshot)
            self._verdicts = self._lasting()
            return
        decision = await self.cycles.decide(snapshot)
        self.cycles.shadows.submit(snapshot, decision)

        # 3. Report new decisions.
        self._say(decision, snapshot)

    def _compare(self) -> None:
        """Count newly bound pods by whether their nodes match the decisions."""
        for key, gang in self.pods.take_removed().items():
            self._departures[key] = gang, self._verdicts.get(gang, ObservedVerdict("")), 0
        gangs, partial = self.pods.gang_uids(self.state.objects.node_of_other)
        for key, (gang, verdict, looks) in list(self._departures.items()):
            node = self.state.objects.node_of_other(key)
            if node:
                self.metrics.observed_binds.labels(_outcome(verdict, node)).inc()
                partial.add(gang)
            if node or looks >= _MAX_LOOKS:
                del self._departures[key]
            else:
                self._departures[key] = gang, verdict, looks + 1
        settling = {gang for gang, _, _ in self._departures.values()}
        self._partial = (self._partial | partial | settling) & gangs

    def _say(self, decision: Decision, snapshot: ClusterSnapshot) -> None:
        verdicts: dict[str, ObservedVerdict] = {}
        for action in decision.actions:
            if not isinstance(action, Admit | Hold):
                continue
            nodes = frozenset[str]()
            if isinstance(action, Admit):
                rows = action.placement.node_rows()
                nodes = frozenset(snapshot.nodes.names[row] for row in rows)
            gang = action.gang
            if gang.uid in self._partial:
                continue
            verdict = verdicts[gang.uid] = ObservedVerdict(action.reason.value, nodes)
            if verdict == self._verdicts.get(gang.uid):
                continue
            log_fields = {"gang": f"{gang.namespace}/{gang.name}", "kind": gang.kind}
            log_fields |= {"queue": gang.queue, "message": action.message}
            if isinstance(action, Admit):
                _log.info("would admit", **log_fields)
            else:
                _log.debug("would hold", reason=action.reason.value, **log_fields)
        # Stops and resizes recur in every cycle until something changes.
        changes = {("would stop", stop.gang.key, stop.message) for stop in decision.preempted}
        changes |= {("would stop", stop.gang.key, stop.message) for stop in decision.vacated}
        changes |= {("would resize", r.gang.key, r.message) for r in decision.resized}
        for event, key, message in sorted(changes):
            name = f"{event} {key[0]}/{key[1]}"
            verdict = verdicts[name] = ObservedVerdict(message)
            if verdict != self._verdicts.get(name):
                _log.info(event, gang=f"{key[0]}/{key[1]}", message=message)
        self.metrics.show_observed(Counter(type(action).__name__ for action in decision.actions))
        self._verdicts = verdicts | self._lasting()

    def _lasting(self) -> dict[str, ObservedVerdict]:
        """Return the verdicts to keep, of gangs that are not decided on any more."""
        return {uid: self._verdicts[uid] for uid in self._partial & self._verdicts.keys()}

    def _report(self, key: Key, error: Exception) -> None:
        if key not in self._faulty:
            self._faulty.add(key)
            self.metrics.reconcile_errors.inc()
            _log.error("an object was not understood", object=key, error=error_text(error))


def _outcome(verdict: ObservedVerdict, node: str) -> str:
    if not verdict.reason:
        return "undecided"
    if not verdict.nodes:
        return "held"
    return "same node" if node in verdict.nodes else "other node"


class ObserverTerm:
    """One process in mode Observe; the client of ``context`` refuses to write."""

    def __init__(self, term: TermContext) -> None:
        metrics, clock = term.metrics, term.clock
        # An observer writes no status, so it must not promote or roll back policies.
        caches = Caches.of(term, is_automatic=False)
        dirty = caches.dirty
        self.policies, self.state, self.watches = caches.policies, caches.state, caches.watches
        observed = ObservedPods(dirty.set)
        self._pending = Reflector[Any](
            term.client,
            pods.PATH,
            PendingPod,
            observed.put,
            observed.delete,
            PENDING,
            name="pending pods",
            clock=clock,
        )
        deciding = Deciding.of(term, f"{term.identity}/observer", self.policies)
        self.last, self.heartbeat = deciding.last, deciding.heartbeat
        self.outlooks = deciding.outlooks
        pacing = Pacing(dirty, metrics, clock, deciding.heartbeat)
        cycles = deciding.cycles
        self.loop = Observation(pacing, self.state, observed, cycles, metrics, term.now)
        self._closing = deciding.closing

    async def run(self) -> None:
        """Fill the caches, then observe, until cancelled; any failure inside ends the term."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.watches.run())
                group.create_task(self._pending.run())
                await self.watches.wait_until_synced()
                await self._pending.synced.wait()
                _log.info("caches are filled", nodes=len(self.state.nodes.table))
                await self.policies.first_loaded(FIRST_LOAD_SECONDS)
                group.create_task(self.loop.run())
        finally:
            for part in self._closing:
                await part.close()
