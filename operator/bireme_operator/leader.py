"""One term of a leading operator: everything it keeps in memory lives and dies with the term.

A new leader starts from nothing but the API server: its caches are listed afresh after the lease
was won, so they hold every write of the leader before it.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from bireme.core.gangs import Key
from bireme.core.settings import SchedulingSettings
from bireme.kube.client import ApiClient
from bireme.kube.cluster_state import ClusterState
from bireme.kube.node_pool_scalers import NodePoolScalers
from bireme.kube.pod_builder import ProgressAccess
from bireme.kube.policy_source import PolicyFacts
from bireme.kube.scale import ScaleTargets
from bireme.registry import make_policy
from bireme.rl import lookup
from bireme_operator.actuator import Actuator, AdmissionRejected, AdmissionRejections, BackOffs
from bireme_operator.events import Events
from bireme_operator.jobs import Jobs
from bireme_operator.loop import ReconcileErrors, SchedulingLoop
from bireme_operator.metrics import OperatorMetrics, PolicyMetrics
from bireme_operator.node_pools import Pools
from bireme_operator.object_status import PolicyReports, PoolReports, QueueReports, Reporting
from bireme_operator.policies import LoadedPolicy, Policies, Shadows
from bireme_operator.preemptions import Preemptions
from bireme_operator.progress_auth import ProgressService, Tokens
from bireme_operator.recording import Recording
from bireme_operator.resizes import Resizes
from bireme_operator.settings import OperatorSettings
from bireme_operator.status import Reports
from bireme_operator.watches import Watches
from bireme_operator.writes import Writes

# From a SchedulingPolicy to a policy that can decide. Reads files; run it in a thread.


def decider_of(facts: PolicyFacts, settings: SchedulingSettings, directory: str) -> LoadedPolicy:
    """The policy of ``facts``; ``settings`` name what it leaves out.

    Raises:
        SettingError: it names what does not exist.
        CheckpointError: its checkpoint, from ``directory`` or shipped, cannot be used.
    """
    policy, source = lookup.policy_of(
        lookup.PolicySource(**facts.names), settings, make_policy, directory
    )
    return LoadedPolicy(policy, facts.uid, source)


_log = structlog.get_logger(__name__)
_FIRST_LOAD_SECONDS = 5.0
"""A new leader waits so long for its policy, lest the settings stop somebody before it is there."""


def wall_clock() -> float:
    """POSIX seconds: for waits and deadlines, which compare with the API server's times."""
    return time.time()  # noqa: TID251  # the one place where the operator asks for the time


def _access(settings: OperatorSettings) -> ProgressAccess | None:
    """Where pods report; None where there is no endpoint."""
    if not settings.progress_url:
        return None
    return ProgressAccess(settings.progress_url, settings.progress_ca_config_map)


class LeaderTerm:
    """One period of leadership. ``clock`` gives monotonic seconds, ``now`` POSIX ones."""

    def __init__(
        self,
        client: ApiClient,
        settings: OperatorSettings,
        scheduling: SchedulingSettings,
        metrics: OperatorMetrics,
        epoch: int,
        identity: str,
        fence: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = wall_clock,
    ) -> None:
        self._clock, self._now = clock, now
        self.state = ClusterState(scheduling)
        scalers = NodePoolScalers(self._changed)
        self.watches = Watches(client, self.state, scalers, clock)
        writes = Writes(client, settings.write_concurrency)
        events = Events(writes, identity, now)
        self._refusals = AdmissionRejections(clock)
        self._actuator = Actuator(
            self.state, self.watches, writes, epoch, BackOffs(clock), self._changed, self._refused
        )
        self._actuator.progress = _access(settings)
        self.progress = self._make_desk(client, settings)
        self._reports = self._make_reports(writes, events, settings)
        self._resizes = Resizes(self._actuator, self._reports, events, metrics, now)
        self._jobs = self._make_jobs(events, settings, metrics)
        self._preemptions = Preemptions(self._actuator, self._jobs, metrics, clock, now)
        self._policies = self._make_policies(settings, scheduling, metrics.policies)
        self._shadows = Shadows(self._policies, metrics.policies, clock)
        reporting = Reporting(writes, events, settings.status_refresh_seconds, clock, now)
        self._queue_reports = QueueReports(self.state, metrics.gangs, reporting)
        self._policy_reports = PolicyReports(self._policies, metrics.policies, reporting)
        nodes, targets = self.watches.nodes.objects, ScaleTargets(client)
        self._pools = Pools(scalers, nodes, self._actuator, targets, metrics, clock, self._changed)
        self._pool_reports = PoolReports(self._pools, metrics.pools, reporting)
        name = f"{identity}/{epoch}"
        self._recording = Recording.begin(name, settings, scheduling, metrics, clock)
        self.loop = self._make_loop(settings, metrics, fence)
        self.state.on_change = self._changed

    def _make_desk(self, client: ApiClient, settings: OperatorSettings) -> ProgressService:
        tokens, pause = Tokens(client, self._clock), settings.progress_write_seconds
        return ProgressService(self.state, tokens, pause, self._clock, self._now)

    def _make_reports(self, writes: Writes, events: Events, settings: OperatorSettings) -> Reports:
        return Reports(
            writes,
            self.watches,
            events,
            self._clock,
            settings.status_refresh_seconds,
            settings.refresh_writes_per_second,
            self._actuator.wake,
        )

    def _make_jobs(
        self, events: Events, settings: OperatorSettings, metrics: OperatorMetrics
    ) -> Jobs:
        return Jobs(
            self._actuator,
            self._resizes,
            self._reports,
            self.progress,
            events,
            metrics,
            settings,
            self._clock,
            self._refused,
        )

    def _make_policies(
        self, settings: OperatorSettings, scheduling: SchedulingSettings, metrics: PolicyMetrics
    ) -> Policies:
        def load(facts: PolicyFacts) -> LoadedPolicy:
            return decider_of(facts, scheduling, settings.checkpoint_directory)

        known = self.state.policies
        made = Policies(known, make_policy(scheduling), load, metrics, self._changed)
        known.on_change = made.look
        return made

    def _make_loop(
        self,
        settings: OperatorSettings,
        metrics: OperatorMetrics,
        fence: Callable[[], None],
    ) -> SchedulingLoop:
        reconcile_errors = ReconcileErrors(self._actuator, self._reports, metrics)
        self.state.on_failure = reconcile_errors.note
        return SchedulingLoop(
            state=self.state,
            policies=self._policies,
            shadows=self._shadows,
            policy_reports=self._policy_reports,
            pools=self._pools,
            pool_reports=self._pool_reports,
            reconcile_errors=reconcile_errors,
            actuator=self._actuator,
            reports=self._reports,
            jobs=self._jobs,
            preemptions=self._preemptions,
            resizes=self._resizes,
            queue_reports=self._queue_reports,
            recording=self._recording,
            metrics=metrics,
            settings=settings,
            refusals=self._refusals,
            fence=fence,
            now=self._now,
            clock=self._clock,
        )

    def _changed(self) -> None:
        self.loop.dirty.set()

    def _refused(self, key: Key, refused: AdmissionRejected) -> None:
        job = self.state.jobs.get(key)
        _log.info("gang refused", gang=key, reason=refused.reason.value, error=str(refused))
        if job is not None:
            self._refusals.add(job, refused)
            self._changed()

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
                await self._policies.first(_FIRST_LOAD_SECONDS)
                group.create_task(self.loop.run())
        finally:
            for part in (
                self._preemptions,
                self._actuator,
                self._jobs,
                self._reports,
                self._queue_reports,
                self._policies,
                self._shadows,
                self._policy_reports,
                self._pools,
                self._pool_reports,
                self._recording,
            ):
                await part.close()
