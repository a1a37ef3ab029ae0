"""One leader term: the composition root of the operator, and the life of what it builds.

Everything that a leader keeps in memory lives and dies with its term. A new leader starts from
nothing but the API server: its caches are listed afresh after the lease was won, so they hold every
write of the leader before it.

:class:`LeaderTerm` builds every part in the order of dependence, top to bottom. Parts that must
wake the loop are given ``dirty.set`` or :meth:`ClusterState.requeue`, which exist before the loop.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from bireme.core.eta import StartRanges
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
from bireme_operator.cycles import CycleRunner
from bireme_operator.events import Events
from bireme_operator.executor import DecisionExecutor
from bireme_operator.jobs import JobReconciler
from bireme_operator.loop import Pacing, SchedulingLoop
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.node_pools import ManagedPools
from bireme_operator.pod_groups import ExternalPodGroups
from bireme_operator.policies import LoadedPolicy, Policies, Shadows
from bireme_operator.preemptions import Preemptions
from bireme_operator.progress_auth import ProgressService, Tokens
from bireme_operator.reconcile import GangReconciler, MonotonicAge, NodeHealth, ReconcileErrors
from bireme_operator.recording import Recording
from bireme_operator.rejections import AdmissionRejections
from bireme_operator.resizes import Resizes
from bireme_operator.settings import OperatorSettings
from bireme_operator.status_writer import StatusWriter
from bireme_operator.watches import Watches
from bireme_operator.workqueue import BackOffs, WorkQueue
from bireme_operator.writes import PrioritySemaphore, Writes

_log = structlog.get_logger(__name__)
_FIRST_LOAD_SECONDS = 5.0
"""How long a new leader waits for its policy: before it is there, the settings would decide, and
might preempt gangs that the policy would not."""


def wall_clock() -> float:
    """POSIX seconds: for waits and deadlines, which compare with the API server's times."""
    return time.time()  # noqa: TID251  # the one place where the operator asks for the time


@dataclass(frozen=True, slots=True)
class TermContext:
    """What a term is given: the process around it, and its place in the order of leaders.

    Attributes:
        client: Writes through it pass the fence.
        epoch: Counts leaders and stamps every plan.
        identity: Names the process.
        fence: Raises NotLeader in a process that does not hold the lease.
        clock: Monotonic seconds.
        now: POSIX seconds.
        custom: Where Bireme's own kinds come from; kopf, unless there is no real server.
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
        settings, metrics = given.settings, given.metrics
        client, clock, now = given.client, given.clock, given.now
        self.metrics = metrics
        dirty = asyncio.Event()

        # 1. What is known: caches that the watches fill.
        self.policies = Policies(
            make_policy(given.scheduling), _policy_loader(given), metrics.policies, dirty.set
        )
        self.state = ClusterState(given.scheduling, dirty.set, self.policies.known)
        scalers = NodePoolScalers(dirty.set)
        limit = settings.cycle_age_limit_seconds
        custom = given.custom or CustomResources(client, metrics.watches, limit, clock=clock)
        self.watches = Watches(client, self.state, scalers, custom, clock)

        # 2. How to act: writes, events, statuses, work on gangs.
        self.slots = PrioritySemaphore(settings.write_concurrency)
        writes = Writes(client, self.slots)
        events = Events(writes, given.identity, now)
        self.reports = StatusWriter(
            writes,
            self.watches,
            events,
            clock,
            settings.status_refresh_seconds,
            settings.refresh_writes_per_second,
            self.state.requeue,
        )
        self.rejections = AdmissionRejections(clock)
        self.work = WorkQueue(self.state, self.slots, self.rejections, BackOffs(clock))
        actuator = Actuator(self.state, self.watches, writes, _progress_access(settings))

        # 3. Gangs: admission, life cycle, resizes, preemptions, pods of other controllers.
        tokens = Tokens(client, clock)
        self.progress = ProgressService(
            self.state, tokens, settings.progress_write_seconds, clock, now
        )
        admission = JobAdmission(
            state=self.state,
            work=self.work,
            actuator=actuator,
            rejections=self.rejections,
            settings=settings,
            epoch=given.epoch,
        )
        resizes = Resizes(
            state=self.state,
            watches=self.watches,
            writes=writes,
            work=self.work,
            actuator=actuator,
            reports=self.reports,
            events=events,
            metrics=metrics,
            now=now,
        )
        jobs = JobReconciler(
            state=self.state,
            watches=self.watches,
            writes=writes,
            work=self.work,
            actuator=actuator,
            admission=admission,
            resizes=resizes,
            reports=self.reports,
            progress=self.progress,
            events=events,
            metrics=metrics.gangs,
            clock=clock,
        )
        pod_groups = ExternalPodGroups(
            state=self.state,
            watches=self.watches,
            writes=writes,
            work=self.work,
            actuator=actuator,
            clock=clock,
        )
        self.preemptions = Preemptions(
            state=self.state,
            writes=writes,
            work=self.work,
            jobs=jobs,
            metrics=metrics,
            clock=clock,
            now=now,
            on_answer=dirty.set,
        )
        errors = ReconcileErrors(self.state, self.work, self.reports, metrics)
        gangs = GangReconciler(
            state=self.state,
            work=self.work,
            actuator=actuator,
            rejections=self.rejections,
            jobs=jobs,
            pod_groups=pod_groups,
            reports=self.reports,
            errors=errors,
            health=NodeHealth(self.state, clock, settings.node_lost_seconds),
            ages=MonotonicAge(clock),
            bind_timeout_seconds=settings.bind_timeout_seconds,
        )

        # 4. Decisions: cycles, and what carries them out.
        shadows = Shadows(self.policies, metrics.policies, clock)
        name = f"{given.identity}/{given.epoch}"
        recording = Recording.begin(name, settings, given.scheduling, metrics, clock)
        cycles = CycleRunner(self.policies, shadows, recording, metrics, given.fence)
        self.executor = DecisionExecutor(
            state=self.state,
            work=self.work,
            admission=admission,
            pod_groups=pod_groups,
            preemptions=self.preemptions,
            resizes=resizes,
            reports=self.reports,
            start_ranges=StartRanges(),
            errors=errors,
            metrics=metrics.gangs,
            now=now,
        )

        # 5. Node pools, and what administrators look at.
        self.pools = ManagedPools(
            scalers,
            self.watches.nodes.objects,
            self.state,
            self.work,
            ScaleTargets(client),
            metrics.pools,
            clock,
            dirty.set,
        )
        context = ReportContext(writes, events, settings.status_refresh_seconds, clock, now)
        cluster_reports = ClusterReports(
            self.state,
            QueueReports(self.state, metrics.gangs, context),
            PolicyReports(self.policies, metrics.policies, context),
            PoolReports(self.pools, metrics.pools, context),
            metrics.gangs,
        )

        # 6. The loop.
        self.loop = SchedulingLoop(
            fence=given.fence,
            now=now,
            pacing=Pacing(dirty, settings, metrics, clock),
            gangs=gangs,
            cycles=cycles,
            executor=self.executor,
            pools=self.pools,
            reports=cluster_reports,
        )
        self._closing = (
            self.preemptions,
            self.work,
            admission,
            self.reports,
            self.policies,
            shadows,
            cluster_reports,
            self.pools,
            recording,
        )

    async def run(self) -> None:
        """Mirror, then decide, until cancelled; any failure inside ends it with that failure."""
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


def _policy_loader(given: TermContext) -> Callable[[PolicyFacts], LoadedPolicy]:
    """Return what makes a policy of a SchedulingPolicy; it reads files, so run it in a thread.

    What the SchedulingPolicy leaves out, the settings name. The function raises SettingError where
    it names what does not exist, and CheckpointError where its checkpoint cannot be used.
    """
    scheduling, directory = given.scheduling, given.settings.checkpoint_directory

    def load(facts: PolicyFacts) -> LoadedPolicy:
        named = lookup.PolicySource(**facts.names)
        policy, source = lookup.policy_of(named, scheduling, make_policy, directory)
        return LoadedPolicy(policy, facts.uid, source)

    return load


def _progress_access(settings: OperatorSettings) -> ProgressAccess | None:
    """Return where pods report; None where there is no endpoint."""
    if not settings.progress_url:
        return None
    return ProgressAccess(settings.progress_url, settings.progress_ca_config_map)
