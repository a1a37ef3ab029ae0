"""Carries a decision out: starts gangs, stops and resizes others, reports to those that wait.

A decision was made on the objects as they were when its cycle began. A gang whose objects have
changed since is left alone; the next cycle decides on what is new.
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
from bireme_operator import pod_groups, status
from bireme_operator.admission import JobAdmission, is_same_demand
from bireme_operator.metrics import GangMetrics
from bireme_operator.node_troubles import NodeTroubles
from bireme_operator.outlooks import Outlooks
from bireme_operator.pod_groups import PodGroups
from bireme_operator.preemptions import Preemptions
from bireme_operator.reconcile import ReconcileErrors
from bireme_operator.resizes import Resizes
from bireme_operator.start_failures import StartFailures
from bireme_operator.status import Urgency
from bireme_operator.status_writer import StatusWriter
from bireme_operator.workqueue import WorkQueue

# Statuses that are made again in one cycle to see whether their numbers have changed. Few of them
# may be written in that time, and those of 20,000 gangs took two seconds to make, in which nobody
# else was started.
_MAX_REFRESHED = 1000


@dataclass(frozen=True, slots=True)
class Basis:
    """A snapshot to decide on, and the objects that it was made of."""

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
    troubles: NodeTroubles
    start_failures: StartFailures
    metrics: GangMetrics
    now: Callable[[], float]
    outlooks: Outlooks | None = None
    start_ranges: StartRanges = field(default_factory=StartRanges)
    _told: dict[str, tuple[JobFacts | GroupFacts, Reason]] = field(default_factory=dict)
    """By uid, objects that wait as they were when they had been told this reason."""
    _next_refreshed: str = ""
    """Uid of the gang from which on the next cycle refreshes statuses."""

    def basis(self, snapshot: ClusterSnapshot) -> Basis:
        """Return ``snapshot`` with the objects as they are now."""
        return Basis(snapshot, dict(self.state.jobs), dict(self.state.groups))

    def carry_out(self, decision: Decision, basis: Basis) -> None:
        """Begin everything that was decided."""
        # 1. Admissions. A gang that is busy or has just failed keeps its place in the order, and
        #    is decided on again soon.
        free = self.work.is_free
        for admit in (admit for admit in decision.admitted if free(admit.gang.key)):
            with self.errors.isolated(admit.gang.key):
                self._admit(admit, basis)
        # 2. Preemptions: all victims of one preemptor together.
        self.preemptions.carry_out(decision, basis.jobs, basis.groups)
        # 3. Resizes.
        for resize in decision.resized:
            with self.errors.isolated(resize.gang.key):
                self.resizes.carry_out(resize, basis.snapshot, basis.jobs)
        # 4. Reports: why the others wait, and when they should start.
        reserved = self.start_ranges.update(basis.snapshot, decision)
        starts = {**self._foreseen(basis.snapshot.now), **reserved}
        firsts = reserved.keys() | _heads(decision)
        waiting = {gang.uid for gang in basis.snapshot.waiting}
        self._told = {uid: told for uid, told in self._told.items() if uid in waiting}
        held = [hold for hold in decision.held if free(hold.gang.key)]
        refreshed = self._refreshed(held)
        for hold in held:
            with self.errors.isolated(hold.gang.key):
                uid = hold.gang.uid
                flags = {"is_first": uid in firsts, "may_refresh": uid in refreshed}
                self._hold(hold, starts.get(uid), basis, **flags)

    def _refreshed(self, held: Sequence[Hold]) -> set[str]:
        """Return the uids of those whose numbers may be refreshed in this cycle, in turn."""
        uids = [hold.gang.uid for hold in held]
        if len(uids) <= _MAX_REFRESHED:
            return set(uids)
        first = uids.index(self._next_refreshed) if self._next_refreshed in uids else 0
        turned = uids[first:] + uids[:first]
        self._next_refreshed = turned[_MAX_REFRESHED]
        return set(turned[:_MAX_REFRESHED])

    def _admit(self, admit: Admit, basis: Basis) -> None:
        key, snapshot = admit.gang.key, basis.snapshot
        if admit.gang.kind == "PodGroup":
            group = self.state.groups.get(key)
            if group is not None and group is basis.groups.get(key):
                plan = self.admission.plan(admit, snapshot, 0, "", group.start_failures)
                self.metrics.count_admission(admit, snapshot)
                self.pod_groups.admit(group, admit, plan, self.now())
            return
        job, seen = self.state.jobs.get(key), basis.jobs.get(key)
        if job is not None and seen is not None and is_same_demand(self.state, job, seen):
            self.metrics.count_admission(admit, snapshot)
            self.admission.admit(job, admit, snapshot)

    def _foreseen(self, now: float) -> Mapping[str, StartRange]:
        """Return the ranges of the outlook that can still come true, by uid."""
        latest = self.outlooks.latest if self.outlooks is not None else None
        if latest is None:
            return {}
        # What has passed by now was wrong, and the next outlook says something else.
        return {
            uid: found
            for uid, found in latest.ranges.items()
            if (found.earliest if found.latest is None else found.latest) > now
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
            return  # it may fit on nodes that it was kept from: the next cycle says
        hold = self.troubles.explained(hold, basis.snapshot)
        hold = self.start_failures.explained(hold, now)
        if hold.gang.kind == "PodGroup":
            group = self.state.groups.get(key)
            if (
                group is not None
                and group is basis.groups.get(key)
                and self._is_news(group, hold, may_refresh)
            ):
                asked = total_request(self.state.newcomers(group))
                wanted = pod_groups.waiting_status(group, hold, now, asked)
                self._note(group, hold, self.reports.submit_group(group, wanted))
            return
        job = self.state.jobs.get(key)
        if job is not None and job is basis.jobs.get(key):
            # Of those further back an estimate is written with their other numbers.
            if (is_first and start is not None) or self._is_news(job, hold, may_refresh):
                wanted = status.waiting(
                    job, hold, now, start, self.state.settings.known_accelerators
                )
                self._note(job, hold, self.reports.submit_job(job, wanted))
            self.admission.dry_runs.check(job, hold)

    def _is_news(self, facts: JobFacts | GroupFacts, hold: Hold, may_refresh: bool) -> bool:
        """Return whether a status that says ``hold`` could be written now."""
        # To make the statuses of a long line takes longer than to decide on it.
        if not self.reports.may_write(facts.uid, facts.key[0]):
            return False
        told, reason = self._told.get(facts.uid, (None, None))
        is_new = told is not facts or reason is not hold.reason
        return is_new or (may_refresh and self.reports.may_refresh(facts.uid, facts.key[0]))

    def _note(self, facts: JobFacts | GroupFacts, hold: Hold, how_urgent: Urgency) -> None:
        if how_urgent <= Urgency.NUMBERS and hold.reason not in status.TELLING:
            self._told[facts.uid] = facts, hold.reason


def _heads(decision: Decision) -> set[str]:
    """Return the uids of the gangs that are the first in line of their queues."""
    heads: dict[str, Hold] = {}
    for hold in decision.held:
        if hold.position is not None:
            first = heads.setdefault(hold.gang.queue, hold)
            if hold.position < (first.position or 0):
                heads[hold.gang.queue] = hold
    return {hold.gang.uid for hold in heads.values()}
