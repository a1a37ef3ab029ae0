"""One leader term: the composition root of the operator.

A leader's memory begins and ends with its term. A new leader lists its caches afresh after it has
won the lease, so they hold every write of the leader before it.

:class:`LeaderTerm` builds every part in the order of dependence, top to bottom. Parts that must
wake the loop are given ``dirty.set`` or :meth:`ClusterState.requeue`, which exist before the loop.
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
from bireme_operator.job_counts import JobCounts
from bireme_operator.job_services import ServiceRestorer
from bireme_operator.jobs import JobReconciler
from bireme_operator.loop import Heartbeat, Pacing, SchedulingLoop
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.node_pools import ManagedPools
from bireme_operator.node_troubles import NodeTroubles
from bireme_operator.outlooks import Outlooks
from bireme_operator.pod_groups import PodGroups
from bireme_operator.policies import CycleRunner, LoadedPolicy, Policies, Shadows
from bireme_operator.preemptions import Preemptions
from bireme_operator.progress_auth import ProgressService, Tokens
from bireme_operator.reconcile import GangReconciler, MonotonicAge, NodeHealth, ReconcileErrors
from bireme_operator.recording import Recording
from bireme_operator.regrets import Regrets
from bireme_operator.resizes import Resizes
from bireme_operator.settings import OperatorSettings
from bireme_operator.start_failures import StartFailures
from bireme_operator.status_writer import StatusWriter
from bireme_operator.suspensions import Suspensions
from bireme_operator.watches import Watches
from bireme_operator.workqueue import WorkQueue
from bireme_operator.writes import PrioritySemaphore, Writes

_log = structlog.get_logger(__name__)
# The wait of a new leader for its policy: until then the settings would decide, and might preempt
# gangs that the policy would not.
FIRST_LOAD_SECONDS = 5.0


def wall_clock() -> float:
    """Return POSIX seconds, for what is compared with the API server's times."""
    return time.time()  # noqa: TID251  # the one place where the operator asks for the time


@dataclass(frozen=True, slots=True)
class TermContext:
    """The process around a term, and the term's place in the order of leaders.

    Attributes:
        client: Writes through it pass the fence.
        epoch: Counts leaders and stamps every plan.
        identity: Names the process.
        fence: Raises NotLeader in a process that does not hold the lease.
        clock: Monotonic seconds.
        now: POSIX seconds.
        custom: Source of Bireme's own kinds; kopf unless one is given, as simulations do.
        queue: Spec of the Queue ``default`` that is made where there is none.
        shadow: Checkpoint of the learned shadow that is made once per version.
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
    """What decides in a term, whether or not that is carried out.

    Attributes:
        last: Keeps the last cycles for the debug dump; None where none is served.
        outlooks: Renews the outlook; None where there is none.
        closing: What is to be closed after the term, in this order.
    """

    cycles: CycleRunner
    heartbeat: Heartbeat
    last: LastCycles | None
    outlooks: Outlooks | None
    closing: tuple[Policies | Shadows | Recording | Outlooks, ...]

    @classmethod
    def of(cls, given: TermContext, name: str, policies: Policies) -> "Deciding":
        """Return it for the term ``name``, which decides by ``policies``."""
        settings, metrics, clock = given.settings, given.metrics, given.clock
        regrets = Regrets.begin(name, settings, given.scheduling, metrics.policies, clock)
        shadows = Shadows(policies, metrics.policies, clock, regrets)
        recording = Recording.begin(name, settings, given.scheduling, metrics, clock)
        last = LastCycles(name, given.scheduling) if settings.debug_dump else None
        outlooks = Outlooks.begin(name, settings, given.scheduling, metrics.outlook, clock)
        heartbeat = Heartbeat(clock)
        cycles = CycleRunner(
            *(policies, shadows, recording, metrics, given.fence),
            limit_seconds=settings.cycle_limit_seconds,
            beat=heartbeat.beat,
            clock=clock,
            last=last,
            outlooks=outlooks,
        )
        given_parts = (policies, shadows, recording, outlooks)
        closing = tuple(part for part in given_parts if part is not None)
        return cls(cycles, heartbeat, last, outlooks, closing)


class LeaderTerm:
    """One period of leadership."""

    def __init__(self, given: TermContext) -> None:
        settings, metrics, clock, now = given.settings, given.metrics, given.clock, given.now
        dirty = asyncio.Event()
        self.metrics = metrics
        self._queue, self._shadow = given.queue, given.shadow
        self._namespace = settings.lease_namespace

        # 1. What is known: caches that the watches fill.
        from_settings = make_policy(given.scheduling)
        self.policies = Policies(
            *(from_settings, policy_loader(given), metrics.policies, dirty.set),
            general=f"{version('bireme')} {given.scheduling}",
        )
        self.state = state = ClusterState(given.scheduling, dirty.set, self.policies.known)
        scalers = NodePoolScalers(dirty.set)
        limit = settings.cycle_age_limit_seconds
        own_kinds = given.custom or CustomResources(
            given.client, metrics.watches, limit, clock=clock
        )
        self.watches = watches = Watches(given.client, state, scalers, own_kinds, clock)

        # 2. How to act: writes, events, statuses, work on gangs.
        self.slots = PrioritySemaphore(settings.write_concurrency)
        self._writes = writes = Writes(given.client, self.slots)
        events = Events(writes, given.identity, now, clock, metrics.events_left_out.inc)
        self.reports = reports = StatusWriter(
            writes, watches, events, settings, clock, state.requeue
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
        tokens = Tokens(given.client, clock)
        pause = settings.progress_write_seconds
        self.progress = progress = ProgressService(state, tokens, pause, clock, now)
        check_seconds = settings.template_check_seconds
        dry_runs = DryRuns(state, writes, work, events, check_seconds, clock, access)
        admission = JobAdmission(state, work, actuator, reports, settings, given.epoch, dry_runs)
        start_failures = StartFailures(state)
        troubles = NodeTroubles(state, reports, metrics.suspected, clock)
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
        adoptions = Adoptions(state, work, actuator, guests, events, given.epoch, clock)
        ages = MonotonicAge(clock)
        gangs = GangReconciler(
            *(state, work, actuator, jobs, pod_groups, adoptions),
            JobCounts(state, work, writes, clock),
            *(reports, errors, health, ages, settings),
            start_failures=start_failures,
            troubles=troubles,
        )

        # 4. Decisions: cycles, and what carries them out.
        deciding = Deciding.of(given, f"{given.identity}/{given.epoch}", self.policies)
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

        # 5. Node pools, and what administrators look at.
        targets = ScaleTargets(given.client)
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
        state.on_newcomer = pacing.notice
        parts = (gangs, deciding.cycles, self.executor, self.pools, cluster_reports)
        self.loop = SchedulingLoop(given.fence, now, pacing, *parts)
        acting = (preemptions, work, dry_runs, reports)
        self._closing = (*acting, cluster_reports, self.pools, *deciding.closing)

    async def run(self) -> None:
        """Fill the caches, then decide, until cancelled; any failure inside ends the term."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.watches.run())
                # On half a cache it would admit gangs to nodes whose pods it does not know yet.
                await self.watches.wait_until_synced()
                _log.info(
                    "caches are filled",
                    nodes=len(self.state.node_table),
                    jobs=len(self.state.jobs),
                    pods=len(self.state.members),
                )
                if self._queue is not None:
                    made = (self._queue, self.state.tenancy, self._writes)
                    group.create_task(first_objects.make_default_queue(*made))
                if self._shadow is not None:
                    shadow = (self._shadow, self._namespace, self._writes)
                    group.create_task(first_objects.make_learned_shadow(*shadow))
                await self.policies.first_loaded(FIRST_LOAD_SECONDS)
                group.create_task(self.suspensions.run())
                group.create_task(self.loop.run())
        finally:
            for part in self._closing:
                await part.close()


def policy_loader(given: TermContext) -> Callable[[PolicyFacts], LoadedPolicy]:
    """Return the loader of a SchedulingPolicy; it reads files, so it belongs into a thread.

    The settings name what the SchedulingPolicy leaves out. The loader raises SettingError for a
    name that does not exist and CheckpointError for a checkpoint that cannot be used.
    """
    scheduling, directory = given.scheduling, given.settings.checkpoint_directory

    def load(facts: PolicyFacts) -> LoadedPolicy:
        named = msgspec.convert(facts.names, lookup.PolicySource)
        policy, source = lookup.policy_of(named, scheduling, make_policy, directory)
        return LoadedPolicy(policy, facts.uid, source)

    return load
