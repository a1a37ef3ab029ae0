"""Carries out a decision: starts, stops and resizes gangs, and reports on the waiting ones.

A decision is based on the objects at the start of its cycle. The executor skips a gang whose
objects have changed since; the next cycle decides on the new ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bireme.core.decision import Admit, Decision, Hold
from bireme.core.eta import StartRange, StartRanges
from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube.cluster_state import ClusterState
from bireme.kube.pod_groups import GroupFacts, total_request
from bireme.kube.training_jobs import JobFacts
from bireme_operator import group_status, status
from bireme_operator.admission import JobAdmission, is_same_demand
from bireme_operator.metrics import GangMetrics
from bireme_operator.node_troubles import NodeHealthHistory
from bireme_operator.outlooks import Outlooks
from bireme_operator.pod_groups import PodGroups
from bireme_operator.preemptions import Preemptions
from bireme_operator.reconcile import ReconcileErrors
from bireme_operator.resizes import Resizes
from bireme_operator.start_failures import StartFailures
from bireme_operator.status import Urgency
from bireme_operator.status_writer import StatusWriter
from bireme_operator.workqueue import WorkQueue

# Limit of statuses recomputed in one cycle to find changed numbers. Few of them may be written in
# that time, and those of 20,000 gangs took two seconds, during which no gang could start.
_MAX_REFRESHED = 1000


@dataclass(frozen=True, slots=True)
class Basis:
    """A snapshot to decide on, and its source objects."""

    snapshot: ClusterSnapshot
    jobs: Mapping[Key, JobFacts]
    groups: Mapping[Key, GroupFacts]


@dataclass(slots=True)
class DecisionExecutor:
    """Passes every action of a decision to its performer; ``now`` is POSIX seconds."""

    state: ClusterState
    work: WorkQueue
    admission: JobAdmission
    pod_groups: PodGroups
    preemptions: Preemptions
    resizes: Resizes
    reports: StatusWriter
    errors: ReconcileErrors
    troubles: NodeHealthHistory
    start_failures: StartFailures
    metrics: GangMetrics
    now: Callable[[], float]
    outlooks: Outlooks | None = None
    start_ranges: StartRanges = field(default_factory=StartRanges)
    _last_reports: dict[str, tuple[JobFacts | GroupFacts, Reason]] = field(default_factory=dict)
    """Waiting objects as of their latest report, with its reason, by uid."""
    _next_refreshed: str = ""
    """Uid of the gang at which the next cycle begins to refresh statuses."""

    def basis(self, snapshot: ClusterSnapshot) -> Basis:
        """Return ``snapshot`` with the present objects."""
        return Basis(snapshot, dict(self.state.objects.jobs), dict(self.state.objects.groups))

    def carry_out(self, decision: Decision, basis: Basis) -> None:
        """Begin all actions of ``decision``."""
        # 1. Admissions. A gang that is busy or has just failed keeps its place in the order until
        #    the next decision.
        free = self.work.is_free
        for admit in (admit for admit in decision.admitted if free(admit.gang.key)):
            with self.errors.isolate(admit.gang.key):
                self._admit(admit, basis)
        # 2. Preemptions: all victims of one preemptor together.
        self.preemptions.carry_out(decision, basis.jobs, basis.groups)
        # 3. Resizes.
        for resize in decision.resized:
            with self.errors.isolate(resize.gang.key):
                self.resizes.carry_out(resize, basis.snapshot, basis.jobs)
        # 4. Reports: reasons and estimated starts of waiting gangs.
        reserved = self.start_ranges.update(basis.snapshot, decision)
        starts = {**self._forecast(basis.snapshot.now), **reserved}
        firsts = reserved.keys() | _heads(decision)
        waiting = {gang.uid for gang in basis.snapshot.waiting}
        self._last_reports = {
            uid: report for uid, report in self._last_reports.items() if uid in waiting
        }
        holds = [hold for hold in decision.held if free(hold.gang.key)]
        refreshed = self._pick_refreshable(holds)
        for hold in holds:
            with self.errors.isolate(hold.gang.key):
                uid = hold.gang.uid
                flags = {"is_first": uid in firsts, "may_refresh": uid in refreshed}
                self._hold(hold, starts.get(uid), basis, **flags)

    def _pick_refreshable(self, holds: Sequence[Hold]) -> set[str]:
        """Return the uids of the gangs whose numbers may be refreshed in this cycle, in turns."""
        uids = [hold.gang.uid for hold in holds]
        if len(uids) <= _MAX_REFRESHED:
            return set(uids)
        first = uids.index(self._next_refreshed) if self._next_refreshed in uids else 0
        turned = uids[first:] + uids[:first]
        self._next_refreshed = turned[_MAX_REFRESHED]
        return set(turned[:_MAX_REFRESHED])

    def _admit(self, admit: Admit, basis: Basis) -> None:
        key, snapshot = admit.gang.key, basis.snapshot
        if admit.gang.kind == "PodGroup":
            group = self.state.objects.groups.get(key)
            if group is not None and group is basis.groups.get(key):
                plan = self.admission.plan(admit, snapshot, 0, "", group.start_failures)
                self.metrics.count_admission(admit, snapshot)
                self.pod_groups.admit(group, admit, plan, self.now())
            return
        job, decided_job = self.state.objects.jobs.get(key), basis.jobs.get(key)
        if (
            job is not None
            and decided_job is not None
            and is_same_demand(self.state, job, decided_job)
        ):
            self.metrics.count_admission(admit, snapshot)
            self.admission.admit(job, admit, snapshot)

    def _forecast(self, now: float) -> Mapping[str, StartRange]:
        """Return the forecast start ranges that have not passed yet, by uid."""
        latest = self.outlooks.latest if self.outlooks is not None else None
        if latest is None:
            return {}
        # A range that has passed was wrong; the next forecast replaces it.
        return {
            uid: start
            for uid, start in latest.ranges.items()
            if (start.earliest if start.latest is None else start.latest) > now
        }

    def _hold(
        self,
        hold: Hold,
        start: StartRange | None,
        basis: Basis,
        *,
        is_first: bool,
        may_refresh: bool,
    ) -> None:
        key, now = hold.gang.key, basis.snapshot.now
        is_unfit = hold.reason in (Reason.NEVER_FITS, Reason.NODES_NOT_READY)
        if is_unfit and self.troubles.exempt(hold.gang):
            return  # it may fit on nodes that it avoided; the next cycle decides
        hold = self.troubles.explain(hold, basis.snapshot)
        hold = self.start_failures.explain(hold, now)
        if hold.gang.kind == "PodGroup":
            group = self.state.objects.groups.get(key)
            if (
                group is not None
                and group is basis.groups.get(key)
                and self._is_news(group, hold, may_refresh)
            ):
                waiting_request = total_request(self.state.waiting.newcomers(group))
                new_status = group_status.waiting_status(group, hold, now, waiting_request)
                self._note(group, hold, self.reports.submit_group(group, new_status))
            return
        job = self.state.objects.jobs.get(key)
        if job is not None and job is basis.jobs.get(key):
            # For gangs further back the estimate is written with their other numbers.
            if (is_first and start is not None) or self._is_news(job, hold, may_refresh):
                new_status = status.waiting_status(
                    job, hold, now, start, self.state.settings.known_accelerators
                )
                self._note(job, hold, self.reports.submit_job(job, new_status))
            self.admission.dry_runs.check(job, hold)

    def _is_news(self, facts: JobFacts | GroupFacts, hold: Hold, may_refresh: bool) -> bool:
        """Return whether a status with ``hold`` could be written now."""
        # Computing the statuses of a long queue takes longer than deciding on it.
        if not self.reports.may_write(facts.uid, facts.key[0]):
            return False
        reported_facts, reason = self._last_reports.get(facts.uid, (None, None))
        is_new = reported_facts is not facts or reason is not hold.reason
        return is_new or (may_refresh and self.reports.may_refresh(facts.uid, facts.key[0]))

    def _note(self, facts: JobFacts | GroupFacts, hold: Hold, how_urgent: Urgency) -> None:
        if how_urgent <= Urgency.NUMBERS and hold.reason not in status.TELLING:
            self._last_reports[facts.uid] = facts, hold.reason


def _heads(decision: Decision) -> set[str]:
    """Return the uids of the first waiting gang of each queue."""
    heads: dict[str, Hold] = {}
    for hold in decision.held:
        if hold.position is not None:
            first = heads.setdefault(hold.gang.queue, hold)
            if hold.position < (first.position or 0):
                heads[hold.gang.queue] = hold
    return {hold.gang.uid for hold in heads.values()}
