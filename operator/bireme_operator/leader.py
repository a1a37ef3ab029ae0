"""One leader term: the composition root of the operator.

A leader's memory begins and ends with its term. A new leader lists its caches anew after it has won
the lease, so they contain every write of the previous leader.

:class:`LeaderTerm` builds every part in the order of dependence, top to bottom. Parts that must
wake the loop are given ``dirty.set`` or :meth:`Changes.requeue`, which exist before the loop.
"""

import asyncio
from importlib.metadata import version

import structlog

from bireme.kube.pod_builder import ProgressAccess
from bireme.kube.scale import ScaleTargets
from bireme_operator import first_objects, progress_auth, status_writer
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
from bireme_operator.dry_runs import DryRuns
from bireme_operator.events import Events
from bireme_operator.executor import DecisionExecutor
from bireme_operator.guests import Guests
from bireme_operator.job_services import ServiceRestorer
from bireme_operator.jobs import JobReconciler
from bireme_operator.loop import Pacing, SchedulingLoop
from bireme_operator.node_pools import ManagedPools
from bireme_operator.node_troubles import NodeHealthHistory
from bireme_operator.pod_groups import PodGroups
from bireme_operator.preemptions import Preemptions
from bireme_operator.progress_auth import ProgressService, Tokens
from bireme_operator.reconcile import GangReconciler, MonotonicAge, NodeHealth, ReconcileErrors
from bireme_operator.resizes import Resizes
from bireme_operator.start_failures import StartFailures
from bireme_operator.status_writer import StatusWriter
from bireme_operator.success_counts import SuccessCounts
from bireme_operator.suspensions import Suspensions
from bireme_operator.term import FIRST_LOAD_SECONDS, Caches, Deciding, TermContext
from bireme_operator.workqueue import WorkQueue
from bireme_operator.writes import PrioritySemaphore, Writes

_log = structlog.get_logger(__name__)


MAX_WRITES = 32
"""Number of concurrent requests to the API server: a small one answers no more of them faster."""


class LeaderTerm:
    """One period of leadership."""

    def __init__(self, term: TermContext) -> None:
        settings, metrics, clock, now = term.settings, term.metrics, term.clock, term.now
        self.metrics = metrics
        self._queue, self._shadow = term.queue, term.shadow
        self._namespace = settings.lease_namespace

        # 1. State: caches that the watches fill.
        general = f"{version('bireme')} {term.scheduling}"
        caches = Caches.of(term, is_automatic=True, general=general)
        dirty, scalers = caches.dirty, caches.scalers
        self.policies = caches.policies
        self.state = state = caches.state
        self.watches = watches = caches.watches

        # 2. Actions: writes, events, statuses, work on gangs.
        self.slots = PrioritySemaphore(MAX_WRITES)
        self._writes = writes = Writes(term.client, self.slots)
        events = Events(writes, term.identity, now, clock, metrics.events_left_out.inc)
        self.reports = reports = StatusWriter(writes, watches, events, clock, state.changes.requeue)
        self.work = work = WorkQueue(state, self.slots, clock, writes.is_answering)
        url, authority = settings.progress_url, settings.progress_ca_config_map
        access = ProgressAccess(url, authority) if url else None
        health = NodeHealth(state, clock, settings.node_lost_seconds)
        actuator = Actuator(state, watches, writes, health.lost, access, settings.max_grace_seconds)
        errors = ReconcileErrors(state, work, reports, metrics)

        # 3. Gangs: admission, life cycle, resizes, preemptions, pods of other controllers.
        tokens = Tokens(term.client, clock)
        pause = progress_auth.WRITE_SECONDS
        self.progress = progress = ProgressService(state, tokens, pause, clock, now)
        dry_runs = DryRuns(state, writes, work, events, clock, access)
        admission = JobAdmission(state, work, actuator, reports, term.epoch, dry_runs)
        start_failures = StartFailures(state)
        troubles = NodeHealthHistory(state, reports, metrics.suspected, clock)
        resizes = Resizes(state, work, actuator, reports, events, metrics, troubles, now)
        jobs = JobReconciler(
            state=state,
            work=work,
            actuator=actuator,
            admission=admission,
            resizes=resizes,
            reports=reports,
            progress=progress,
            events=events,
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
            writes=writes,
            suspensions=self.suspensions,
            claims=claims,
            lost_node=health.lost,
            clock=clock,
            now=now,
            max_grace_seconds=settings.max_grace_seconds,
        )
        pod_groups = PodGroups(
            state=state,
            watches=watches,
            writes=writes,
            work=work,
            actuator=actuator,
            guests=guests,
            events=events,
            start_failures=start_failures,
            troubles=troubles,
            clock=clock,
        )
        self.preemptions = preemptions = Preemptions(
            state=state,
            writes=writes,
            work=work,
            jobs=jobs,
            pod_groups=pod_groups,
            metrics=metrics,
            claims=claims,
            clock=clock,
            now=now,
            on_answer=dirty.set,
        )
        adoptions = Adoptions(state, work, actuator, guests, events, term.epoch, clock)
        ages = MonotonicAge(clock)
        gangs = GangReconciler(
            state=state,
            work=work,
            actuator=actuator,
            jobs=jobs,
            pod_groups=pod_groups,
            adoptions=adoptions,
            success_counts=SuccessCounts(state, work, writes, clock),
            reports=reports,
            errors=errors,
            health=health,
            ages=ages,
            settings=settings,
            start_failures=start_failures,
            troubles=troubles,
        )

        # 4. Decisions: cycles and their execution.
        deciding = Deciding.of(term, f"{term.identity}/{term.epoch}", self.policies)
        self.last, self.heartbeat = deciding.last, deciding.heartbeat
        self.outlooks = deciding.outlooks
        self.executor = DecisionExecutor(
            state=state,
            work=work,
            admission=admission,
            pod_groups=pod_groups,
            preemptions=preemptions,
            resizes=resizes,
            reports=reports,
            errors=errors,
            troubles=troubles,
            start_failures=start_failures,
            metrics=metrics.gangs,
            now=now,
            outlooks=deciding.outlooks,
        )

        # 5. Node pools, and reports for administrators.
        targets = ScaleTargets(term.client)
        self.pools = ManagedPools(scalers, state, work, targets, metrics.pools, clock, dirty.set)
        context = ReportContext(writes, events, status_writer.REFRESH_SECONDS, clock, now)
        cluster_reports = ClusterReports(
            state,
            QueueReports(context, state, metrics.gangs),
            PolicyReports(context, self.policies, metrics.policies),
            PoolReports(context, self.pools, metrics.pools),
            metrics.gangs,
            settings.stalled_after_seconds,
        )

        # 6. The loop.
        pacing = Pacing(dirty, metrics, clock, deciding.heartbeat)
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
