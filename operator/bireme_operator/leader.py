"""One leader term: the composition root of the operator.

A leader's memory begins and ends with its term. A new leader lists its caches anew after it has won
the lease, so they contain every write of the previous leader.

:class:`LeaderTerm` builds every part in the order of dependence, top to bottom. Parts that must
wake the loop are given ``dirty.set`` or :meth:`Changes.requeue`, which exist before the loop.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import msgspec
import structlog

from bireme.core.settings import SchedulingSettings
from bireme.kube.client import ApiClient
from bireme.kube.cluster_state import ClusterState
from bireme.kube.node_pool_scalers import NodePoolScalers
from bireme.kube.pod_builder import ProgressAccess
from bireme.kube.policy_source import PolicyFacts
from bireme.kube.scale import ScaleTargets
from bireme.registry import make_policy
from bireme.rl import lookup
from bireme_operator import first_objects
from bireme_operator.actuator import Actuator
from bireme_operator.admission import JobAdmission
from bireme_operator.adoptions import Adoptions
from bireme_operator.budget_claims import BudgetClaims
from bireme_operator.cluster_reports import (
    ClusterReports,
    PolicyReports,
    PoolReports,
    QueueReports,
    ReportContext,
)
from bireme_operator.custom_resources import CustomResources, Sources
from bireme_operator.debug_dump import LastCycles
from bireme_operator.dry_runs import DryRuns
from bireme_operator.events import Events
from bireme_operator.executor import DecisionExecutor
from bireme_operator.guests import Guests
from bireme_operator.job_services import ServiceRestorer
from bireme_operator.jobs import JobReconciler
from bireme_operator.loop import Heartbeat, Pacing, SchedulingLoop
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.node_pools import ManagedPools
from bireme_operator.node_troubles import NodeHealthHistory
from bireme_operator.outlooks import Outlooks
from bireme_operator.pod_groups import PodGroups
from bireme_operator.policies import CycleRunner, LoadedPolicy, Policies, Shadows
from bireme_operator.preemptions import Preemptions
from bireme_operator.progress_auth import ProgressService, Tokens
from bireme_operator.reconcile import GangReconciler, MonotonicAge, NodeHealth, ReconcileErrors
from bireme_operator.recording import Recording
from bireme_operator.regrets import ShadowEvaluator
from bireme_operator.resizes import Resizes
from bireme_operator.settings import OperatorSettings
from bireme_operator.start_failures import StartFailures
from bireme_operator.status_writer import StatusWriter
from bireme_operator.success_counts import SuccessCounts
from bireme_operator.suspensions import Suspensions
from bireme_operator.watches import Watches
from bireme_operator.workqueue import WorkQueue
from bireme_operator.writes import PrioritySemaphore, Writes

_log = structlog.get_logger(__name__)
# Time limit of a new leader's wait for its policy. Before that the settings would decide, and might
# preempt gangs that the policy would not.
FIRST_LOAD_SECONDS = 5.0


def wall_clock() -> float:
    """Return POSIX seconds, for comparisons with the API server's times."""
    return time.time()  # noqa: TID251  # the one place where the operator asks for the time


@dataclass(frozen=True, slots=True)
class TermContext:
    """The process around a term, and the term's place in the order of leaders.

    Attributes:
        client: Writes through it pass the fence.
        epoch: Number of the leader, which stamps every plan.
        identity: Name of the process.
        fence: Raises NotLeader in a process that does not hold the lease.
        clock: Monotonic seconds.
        now: POSIX seconds.
        custom: Source of Bireme's own kinds; kopf if None. Simulations set one.
        queue: Spec of the Queue ``default``, created if there is none.
        shadow: Checkpoint of the learned shadow, created once per version.
    """

    client: ApiClient
    settings: OperatorSettings
    scheduling: SchedulingSettings
    metrics: OperatorMetrics
    epoch: int
    identity: str
    fence: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = wall_clock
    custom: Sources | None = None
    queue: Mapping[str, Any] | None = None
    shadow: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Deciding:
    """The deciding parts of a term, whether or not decisions are carried out.

    Attributes:
        last: Keeps the last cycles for the debug dump; None if none is served.
        outlooks: Renews the start forecast; None if it is disabled.
        closing: Parts to close after the term, in this order.
    """

    cycles: CycleRunner
    heartbeat: Heartbeat
    last: LastCycles | None
    outlooks: Outlooks | None
    closing: tuple[Policies | Shadows | Recording | Outlooks, ...]

    @classmethod
    def of(cls, term: TermContext, name: str, policies: Policies) -> "Deciding":
        """Return the parts of the term ``name``, which decides by ``policies``."""
        settings, metrics, clock = term.settings, term.metrics, term.clock
        regrets = ShadowEvaluator.begin(name, settings, term.scheduling, metrics.policies, clock)
        shadows = Shadows(policies, metrics.policies, clock, regrets)
        recording = Recording.begin(name, settings, term.scheduling, metrics, clock)
        last = LastCycles(name, term.scheduling) if settings.debug_dump else None
        outlooks = Outlooks.begin(name, settings, term.scheduling, metrics.outlook, clock)
        heartbeat = Heartbeat(clock)
        cycles = CycleRunner(
            *(policies, shadows, recording, metrics, term.fence),
            limit_seconds=settings.cycle_limit_seconds,
            beat=heartbeat.beat,
            clock=clock,
            last=last,
            outlooks=outlooks,
            logs_steps=settings.log_level == "debug",
        )
        given_parts = (policies, shadows, recording, outlooks)
        closing = tuple(part for part in given_parts if part is not None)
        return cls(cycles, heartbeat, last, outlooks, closing)


class LeaderTerm:
    """One period of leadership."""

    def __init__(self, term: TermContext) -> None:
        settings, metrics, clock, now = term.settings, term.metrics, term.clock, term.now
        dirty = asyncio.Event()
        self.metrics = metrics
        self._queue, self._shadow = term.queue, term.shadow
        self._namespace = settings.lease_namespace

        # 1. State: caches that the watches fill.
        from_settings = make_policy(term.scheduling)
        self.policies = Policies(
            *(from_settings, policy_loader(term), metrics.policies, dirty.set),
            general=f"{version('bireme')} {term.scheduling}",
        )
        self.state = state = ClusterState(term.scheduling, dirty.set, self.policies.known)
        scalers = NodePoolScalers(dirty.set)
        limit = settings.cycle_age_limit_seconds
        own_kinds = term.custom or CustomResources(term.client, metrics.watches, limit, clock=clock)
        self.watches = watches = Watches(term.client, state, scalers, own_kinds, clock)

        # 2. Actions: writes, events, statuses, work on gangs.
        self.slots = PrioritySemaphore(settings.write_concurrency)
        self._writes = writes = Writes(term.client, self.slots)
        events = Events(writes, term.identity, now, clock, metrics.events_left_out.inc)
        self.reports = reports = StatusWriter(
            writes, watches, events, settings, clock, state.changes.requeue
        )
        self.work = work = WorkQueue(state, self.slots, clock, writes.is_answering)
        url, authority = settings.progress_url, settings.progress_ca_config_map
        access = ProgressAccess(url, authority) if url else None
        health = NodeHealth(state, clock, settings.node_lost_seconds)
        actuator = Actuator(
            *(state, watches, writes, health.lost, access), settings.max_grace_seconds
        )
        errors = ReconcileErrors(state, work, reports, metrics)

        # 3. Gangs: admission, life cycle, resizes, preemptions, pods of other controllers.
        tokens = Tokens(term.client, clock)
        pause = settings.progress_write_seconds
        self.progress = progress = ProgressService(state, tokens, pause, clock, now)
        check_seconds = settings.template_check_seconds
        dry_runs = DryRuns(state, writes, work, events, check_seconds, clock, access)
        admission = JobAdmission(state, work, actuator, reports, settings, term.epoch, dry_runs)
        start_failures = StartFailures(state)
        troubles = NodeHealthHistory(state, reports, metrics.suspected, clock)
        resizes = Resizes(state, work, actuator, reports, events, metrics, troubles, now)
        jobs = JobReconciler(
            *(state, work, actuator, admission, resizes, reports, progress, events),
            start_failures=start_failures,
            troubles=troubles,
            services=ServiceRestorer(state, work, actuator, events, clock),
            metrics=metrics.gangs,
            usage=metrics.usage,
            clock=clock,
            stalled_after_seconds=settings.stalled_after_seconds,
        )
        self.suspensions = Suspensions(state, writes, clock)
        claims = BudgetClaims(state, clock)
        guests = Guests(
            *(writes, self.suspensions, claims, health.lost, clock, now),
            settings.max_grace_seconds,
        )
        pod_groups = PodGroups(
            *(state, watches, writes, work, actuator, guests, events, start_failures, troubles),
            clock=clock,
        )
        self.preemptions = preemptions = Preemptions(
            *(state, writes, work, jobs, pod_groups, metrics, claims),
            clock=clock,
            now=now,
            on_answer=dirty.set,
        )
        adoptions = Adoptions(state, work, actuator, guests, events, term.epoch, clock)
        ages = MonotonicAge(clock)
        gangs = GangReconciler(
            *(state, work, actuator, jobs, pod_groups, adoptions),
            SuccessCounts(state, work, writes, clock),
            *(reports, errors, health, ages, settings),
            start_failures=start_failures,
            troubles=troubles,
        )

        # 4. Decisions: cycles and their execution.
        deciding = Deciding.of(term, f"{term.identity}/{term.epoch}", self.policies)
        self.last, self.heartbeat = deciding.last, deciding.heartbeat
        self.outlooks = deciding.outlooks
        self.executor = DecisionExecutor(
            *(state, work, admission, pod_groups, preemptions, resizes, reports, errors),
            troubles=troubles,
            start_failures=start_failures,
            metrics=metrics.gangs,
            now=now,
            outlooks=deciding.outlooks,
        )

        # 5. Node pools, and reports for administrators.
        targets = ScaleTargets(term.client)
        self.pools = ManagedPools(scalers, state, work, targets, metrics.pools, clock, dirty.set)
        context = ReportContext(writes, events, settings.status_refresh_seconds, clock, now)
        cluster_reports = ClusterReports(
            state,
            QueueReports(context, state, metrics.gangs),
            PolicyReports(context, self.policies, metrics.policies),
            PoolReports(context, self.pools, metrics.pools),
            metrics.gangs,
            settings.stalled_after_seconds,
        )

        # 6. The loop.
        pacing = Pacing(dirty, settings, metrics, clock, deciding.heartbeat)
        state.changes.on_newcomer = pacing.notice
        parts = (gangs, deciding.cycles, self.executor, self.pools, cluster_reports)
        self.loop = SchedulingLoop(term.fence, now, pacing, *parts)
        acting = (preemptions, work, dry_runs, reports)
        self._closing = (*acting, cluster_reports, self.pools, *deciding.closing)

    async def run(self) -> None:
        """Fill the caches, then decide, until cancelled; any failure inside ends the term."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.watches.run())
                # With incomplete caches it would admit gangs to nodes with unknown pods.
                await self.watches.wait_until_synced()
                _log.info(
                    "caches are filled",
                    nodes=len(self.state.nodes.table),
                    jobs=len(self.state.objects.jobs),
                    pods=len(self.state.objects.members),
                )
                if self._queue is not None:
                    arguments = (self._queue, self.state.tenancy, self._writes)
                    group.create_task(first_objects.make_default_queue(*arguments))
                if self._shadow is not None:
                    shadow = (self._shadow, self._namespace, self._writes)
                    group.create_task(first_objects.make_learned_shadow(*shadow))
                await self.policies.first_loaded(FIRST_LOAD_SECONDS)
                group.create_task(self.suspensions.run())
                group.create_task(self.loop.run())
        finally:
            for part in self._closing:
                await part.close()


def policy_loader(term: TermContext) -> Callable[[PolicyFacts], LoadedPolicy]:
    """Return the loader of a SchedulingPolicy; it reads files, so run it in a thread.

    The settings supply the names that the SchedulingPolicy omits. The loader raises SettingError
    for an unknown name, and CheckpointError for an unusable checkpoint.
    """
    scheduling, directory = term.scheduling, term.settings.checkpoint_directory

    def load(facts: PolicyFacts) -> LoadedPolicy:
        named = msgspec.convert(facts.names, lookup.PolicySource)
        policy, source = lookup.policy_of(named, scheduling, make_policy, directory)
        return LoadedPolicy(policy, facts.uid, source)

    return load
