"""One leader term: the composition root of the operator.

A leader's memory begins and ends with its term. A new leader lists its caches afresh after it has
won the lease, so they hold every write of the leader before it.

:class:`LeaderTerm` builds every part in the order of dependence, top to bottom. Parts that must
wake the loop are given ``dirty.set`` or :meth:`ClusterState.requeue`, which exist before the loop.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

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
from bireme_operator.actuator import Actuator
from bireme_operator.admission import JobAdmission
from bireme_operator.cluster_reports import (
    ClusterReports,
    PolicyReports,
    PoolReports,
    QueueReports,
    ReportContext,
)
from bireme_operator.custom_resources import CustomResources, Sources
from bireme_operator.events import Events
from bireme_operator.executor import DecisionExecutor
from bireme_operator.jobs import JobReconciler
from bireme_operator.loop import Pacing, SchedulingLoop
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.node_pools import ManagedPools
from bireme_operator.pod_groups import ExternalPodGroups
from bireme_operator.policies import CycleRunner, LoadedPolicy, Policies, Shadows
from bireme_operator.preemptions import Preemptions
from bireme_operator.progress_auth import ProgressService, Tokens
from bireme_operator.reconcile import GangReconciler, MonotonicAge, NodeHealth, ReconcileErrors
from bireme_operator.recording import Recording
from bireme_operator.resizes import Resizes
from bireme_operator.settings import OperatorSettings
from bireme_operator.status_writer import StatusWriter
from bireme_operator.watches import Watches
from bireme_operator.workqueue import WorkQueue
from bireme_operator.writes import PrioritySemaphore, Writes

_log = structlog.get_logger(__name__)
# The wait of a new leader for its policy: until then the settings would decide, and might preempt
# gangs that the policy would not.
_FIRST_LOAD_SECONDS = 5.0


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


class LeaderTerm:
    """One period of leadership."""

    def __init__(self, given: TermContext) -> None:
        settings, metrics, clock, now = given.settings, given.metrics, given.clock, given.now
        dirty = asyncio.Event()
        self.metrics = metrics

        # 1. What is known: caches that the watches fill.
        from_settings = make_policy(given.scheduling)
        self.policies = Policies(from_settings, _policy_loader(given), metrics.policies, dirty.set)
        self.state = state = ClusterState(given.scheduling, dirty.set, self.policies.known)
        scalers = NodePoolScalers(dirty.set)
        self.watches = watches = Watches(given.client, state, scalers, _own_kinds(given), clock)

        # 2. How to act: writes, events, statuses, work on gangs.
        self.slots = PrioritySemaphore(settings.write_concurrency)
        writes = Writes(given.client, self.slots)
        events = Events(writes, given.identity, now)
        self.reports = reports = StatusWriter(
            writes, watches, events, settings, clock, state.requeue
        )
        self.work = work = WorkQueue(state, self.slots, clock)
        actuator = Actuator(state, watches, writes, _progress_access(settings))
        errors = ReconcileErrors(state, work, reports, metrics)

        # 3. Gangs: admission, life cycle, resizes, preemptions, pods of other controllers.
        tokens = Tokens(given.client, clock)
        self.progress = ProgressService(state, tokens, settings.progress_write_seconds, clock, now)
        admission = JobAdmission(state, work, actuator, settings, given.epoch)
        resizes = Resizes(state, work, actuator, reports, events, metrics, now)
        jobs = JobReconciler(
            state=state,
            work=work,
            actuator=actuator,
            admission=admission,
            resizes=resizes,
            reports=reports,
            progress=self.progress,
            events=events,
            metrics=metrics.gangs,
            clock=clock,
        )
        pod_groups = ExternalPodGroups(state, watches, writes, work, actuator, clock)
        self.preemptions = Preemptions(
            state, writes, work, jobs, metrics, clock=clock, now=now, on_answer=dirty.set
        )
        gangs = GangReconciler(
            state=state,
            work=work,
            actuator=actuator,
            jobs=jobs,
            pod_groups=pod_groups,
            reports=reports,
            errors=errors,
            health=NodeHealth(state, clock, settings.node_lost_seconds),
            ages=MonotonicAge(clock),
            bind_timeout_seconds=settings.bind_timeout_seconds,
        )

        # 4. Decisions: cycles, and what carries them out.
        shadows = Shadows(self.policies, metrics.policies, clock)
        name = f"{given.identity}/{given.epoch}"
        recording = Recording.begin(name, settings, given.scheduling, metrics, clock)
        cycles = CycleRunner(self.policies, shadows, recording, metrics, given.fence)
        self.executor = DecisionExecutor(
            state=state,
            work=work,
            admission=admission,
            pod_groups=pod_groups,
            preemptions=self.preemptions,
            resizes=resizes,
            reports=reports,
            errors=errors,
            metrics=metrics.gangs,
            now=now,
        )

        # 5. Node pools, and what administrators look at.
        nodes, targets = watches.nodes.objects, ScaleTargets(given.client)
        self.pools = ManagedPools(
            scalers, nodes, state, work, targets, metrics.pools, clock, dirty.set
        )
        context = ReportContext(writes, events, settings.status_refresh_seconds, clock, now)
        cluster_reports = ClusterReports(
            state,
            QueueReports(state, metrics.gangs, context),
            PolicyReports(self.policies, metrics.policies, context),
            PoolReports(self.pools, metrics.pools, context),
            metrics.gangs,
        )

        # 6. The loop.
        pacing = Pacing(dirty, settings, metrics, clock)
        self.loop = SchedulingLoop(
            given.fence, now, pacing, gangs, cycles, self.executor, self.pools, cluster_reports
        )
        self._closing = (
            self.preemptions,
            work,
            admission,
            reports,
            self.policies,
            shadows,
            cluster_reports,
            self.pools,
            recording,
        )

    async def run(self) -> None:
        """Fill the caches, then decide, until cancelled; any failure inside ends the term."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.watches.run())
                await self.watches.synced()
                _log.info(
                    "caches are filled",
                    nodes=len(self.state.node_table),
                    jobs=len(self.state.jobs),
                    pods=len(self.state.members),
                )
                await self.policies.first_loaded(_FIRST_LOAD_SECONDS)
                group.create_task(self.loop.run())
        finally:
            for part in self._closing:
                await part.close()


def _own_kinds(given: TermContext) -> Sources:
    """Return the source of Bireme's own kinds: kopf, unless another is given."""
    if given.custom is not None:
        return given.custom
    limit = given.settings.cycle_age_limit_seconds
    return CustomResources(given.client, given.metrics.watches, limit, clock=given.clock)


def _policy_loader(given: TermContext) -> Callable[[PolicyFacts], LoadedPolicy]:
    """Return the loader of a SchedulingPolicy; it reads files, so it belongs into a thread.

    The settings name what the SchedulingPolicy leaves out. The loader raises SettingError for a
    name that does not exist and CheckpointError for a checkpoint that cannot be used.
    """
    scheduling, directory = given.scheduling, given.settings.checkpoint_directory

    def load(facts: PolicyFacts) -> LoadedPolicy:
        named = lookup.PolicySource(**facts.names)
        policy, source = lookup.policy_of(named, scheduling, make_policy, directory)
        return LoadedPolicy(policy, facts.uid, source)

    return load


def _progress_access(settings: OperatorSettings) -> ProgressAccess | None:
    """Return the address that pods report to; None without an endpoint."""
    if not settings.progress_url:
        return None
    return ProgressAccess(settings.progress_url, settings.progress_ca_config_map)
