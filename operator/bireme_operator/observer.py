"""``operator.mode: Observe``: decide beside the scheduler in charge, say what, and write nothing.

The operator watches and decides as always, on Bireme's own gangs and on those of pods that wait for
another scheduler. No part that writes exists in this mode, and the client refuses every write; so
there is no Lease either, and each replica observes by itself.

What it would do stands in metrics, and in the log when it changes: ``would admit``, ``would stop``,
``would resize``, and at level debug ``would hold``. Once the other scheduler has bound a pod, that
is compared with what was decided for it last.
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
from bireme.kube.node_pool_scalers import NodePoolScalers
from bireme.kube.observed_gangs import PENDING, ObservedPods, PendingPod
from bireme.kube.watch import Reflector
from bireme.registry import make_policy
from bireme_operator.custom_resources import CustomResources
from bireme_operator.leader import FIRST_LOAD_SECONDS, Deciding, TermContext, policy_loader
from bireme_operator.loop import Pacing
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.policies import CycleRunner, Policies
from bireme_operator.watches import Watches

_log = structlog.get_logger(__name__)
# A pod that has left is looked for on its node in so many cycles: its two watches are not in step.
_MAX_LOOKS: Final = 5


def refuse() -> NoReturn:
    """Refuse a write, as the fence of a client. Raises NotLeader."""
    raise NotLeader("operator.mode is Observe, in which nothing is written")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided last on one gang: a reason, and the nodes it would start on, if it would."""

    reason: str
    nodes: frozenset[str] = frozenset()


@dataclass(slots=True)
class Observation:
    """The loop of Observe: decide where something has changed, and say what is new.

    ``now`` gives POSIX seconds.
    """

    pacing: Pacing
    state: ClusterState
    pods: ObservedPods
    cycles: CycleRunner
    metrics: OperatorMetrics
    now: Callable[[], float]
    _verdicts: dict[str, Verdict] = field(default_factory=dict)
    _left: dict[Key, tuple[str, Verdict, int]] = field(default_factory=dict)
    """Pods that have left, with gang, the verdict on it, and how often they were looked for."""
    _partial: set[str] = field(default_factory=set)
    """Gangs of which some pods are bound; the last verdict on the whole gang is that on the rest.

    The pods of a gang are bound one after another. What is decided in between is about a rest that
    lacks room because of its own gang.
    """
    _faulty: set[Key] = field(default_factory=set)

    async def run(self) -> None:
        """Decide again and again, until cancelled."""
        while True:
            has_changed = await self.pacing.next_turn()
            began = self.pacing.clock()
            with self.pacing.measured():
                if self.pacing.is_sweep_due():
                    with self.pacing.sweeping():
                        await self._cycle()
                elif has_changed:
                    await self._cycle()
            await self.pacing.rest(began)

    async def _cycle(self) -> None:
        # 1. Compare what the other scheduler has done with what was decided.
        self._compare()

        # 2. Decide on what waits, for Bireme and for others.
        self.state.changed.clear()
        self.state.learn(self.state.jobs.values())
        known = self.state.waiting(on_error=self._report)
        learned, node_of = self.state.run_times.of_group, self.state.node_of_other
        others = self.pods.gangs(self.state.tenancy, learned, node_of)
        waiting = [*known, *others]
        snapshot = self.state.snapshot(self.now(), None, waiting, self._report)
        if not snapshot.may_change:
            self.cycles.skip(snapshot)
            self._verdicts = self._lasting()
            return
        decision = await self.cycles.decide(snapshot)
        self.cycles.shadows.submit(snapshot, decision)

        # 3. Say what is new.
        self._say(decision, snapshot)

    def _compare(self) -> None:
        """Count where pods that have left are, by whether they would have gone there."""
        for key, gang in self.pods.take_removed().items():
            self._left[key] = gang, self._verdicts.get(gang, Verdict("")), 0
        gangs, partial = self.pods.gang_uids(self.state.node_of_other)
        for key, (gang, verdict, looks) in list(self._left.items()):
            node = self.state.node_of_other(key)
            if node:
                self.metrics.observed_binds.labels(_outcome(verdict, node)).inc()
                partial.add(gang)
            if node or looks >= _MAX_LOOKS:
                del self._left[key]
            else:
                self._left[key] = gang, verdict, looks + 1
        settling = {gang for gang, _, _ in self._left.values()}
        self._partial = (self._partial | partial | settling) & gangs

    def _say(self, decision: Decision, snapshot: ClusterSnapshot) -> None:
        found: dict[str, Verdict] = {}
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
            verdict = found[gang.uid] = Verdict(action.reason.value, nodes)
            if verdict == self._verdicts.get(gang.uid):
                continue
            about = {"gang": f"{gang.namespace}/{gang.name}", "kind": gang.kind}
            about |= {"queue": gang.queue, "message": action.message}
            if isinstance(action, Admit):
                _log.info("would admit", **about)
            else:
                _log.debug("would hold", reason=action.reason.value, **about)
        # What would be stopped or resized is so again in every cycle, until something changes.
        changes = {("would stop", stop.gang.key, stop.message) for stop in decision.preempted}
        changes |= {("would stop", stop.gang.key, stop.message) for stop in decision.vacated}
        changes |= {("would resize", r.gang.key, r.message) for r in decision.resized}
        for what, key, message in sorted(changes):
            name = f"{what} {key[0]}/{key[1]}"
            verdict = found[name] = Verdict(message)
            if verdict != self._verdicts.get(name):
                _log.info(what, gang=f"{key[0]}/{key[1]}", message=message)
        self.metrics.show_observed(Counter(type(action).__name__ for action in decision.actions))
        self._verdicts = found | self._lasting()

    def _lasting(self) -> dict[str, Verdict]:
        """Return the verdicts that stay although their gangs are decided on no more."""
        return {uid: self._verdicts[uid] for uid in self._partial & self._verdicts.keys()}

    def _report(self, key: Key, error: Exception) -> None:
        if key not in self._faulty:
            self._faulty.add(key)
            self.metrics.reconcile_errors.inc()
            _log.error("an object was not understood", object=key, error=error_text(error))


def _outcome(verdict: Verdict, node: str) -> str:
    if not verdict.reason:
        return "undecided"
    if not verdict.nodes:
        return "held"
    return "same node" if node in verdict.nodes else "other node"


class ObserverTerm:
    """One process in mode Observe; ``given`` has a client that refuses to write."""

    def __init__(self, given: TermContext) -> None:
        settings, metrics, clock = given.settings, given.metrics, given.clock
        dirty = asyncio.Event()
        from_settings = make_policy(given.scheduling)
        # Nobody could read in a status what an observer has promoted or rolled back.
        self.policies = Policies(
            *(from_settings, policy_loader(given), metrics.policies, dirty.set),
            is_automatic=False,
        )
        self.state = ClusterState(given.scheduling, dirty.set, self.policies.known)
        limit = settings.cycle_age_limit_seconds
        own_kinds = given.custom or CustomResources(
            given.client, metrics.watches, limit, clock=clock
        )
        scalers = NodePoolScalers(dirty.set)
        self.watches = Watches(given.client, self.state, scalers, own_kinds, clock)
        observed = ObservedPods(dirty.set)
        self._pending = Reflector[Any](
            *(given.client, pods.PATH, PendingPod, observed.put, observed.delete, PENDING),
            name="pending pods",
            clock=clock,
        )
        deciding = Deciding.of(given, f"{given.identity}/observer", self.policies)
        self.last, self.heartbeat = deciding.last, deciding.heartbeat
        self.outlooks = deciding.outlooks
        pacing = Pacing(dirty, settings, metrics, clock, deciding.heartbeat)
        cycles = deciding.cycles
        self.loop = Observation(pacing, self.state, observed, cycles, metrics, given.now)
        self._closing = deciding.closing

    async def run(self) -> None:
        """Fill the caches, then observe, until cancelled; any failure inside ends the term."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.watches.run())
                group.create_task(self._pending.run())
                await self.watches.synced()
                await self._pending.synced.wait()
                _log.info("caches are filled", nodes=len(self.state.node_table))
                await self.policies.first_loaded(FIRST_LOAD_SECONDS)
                group.create_task(self.loop.run())
        finally:
            for part in self._closing:
                await part.close()
