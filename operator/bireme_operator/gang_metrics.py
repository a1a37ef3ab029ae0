"""Metrics about gangs: who waits, for what and how long; which are not whole; how jobs went.

Nothing that a tenant names becomes a label. Queues do, which administrators make, but only the
first so many that are met: all others are counted together as ``(other)``, a name no queue has.
"""

from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import Gauge

from bireme.core.decision import Admit, Hold
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube.cluster_state import ClusterState
from bireme.kube.gang_views import GangView
from bireme.kube.training_jobs import FINISHED, JobFacts
from bireme_operator.lifecycle import Transition
from bireme_operator.metric_maker import MetricMaker

MOST_QUEUES: Final = 64
OTHER: Final = "(other)"
_WAITS: Final = (1, 5, 15, 60, 300, 900, 3600, 14_400, 43_200, 86_400)
_STARTS: Final = (1, 3, 10, 30, 60, 120, 300, 900)
_COMPLETIONS: Final = (60, 300, 900, 3600, 14_400, 43_200, 86_400, 259_200, 604_800, 1_209_600)


class QueueLabels:
    """Label values for queues, bounded for as long as the process lives."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, queue: str) -> str:
        """The name itself for the first :data:`MOST_QUEUES`, else :data:`OTHER`."""
        if queue not in self._known and len(self._known) >= MOST_QUEUES:
            return OTHER
        self._known.add(queue)
        return queue


class GangMetrics:
    """Those about gangs."""

    def __init__(self, make: MetricMaker) -> None:
        self._queues = QueueLabels()
        self._admitted = make.counter("gangs_admitted", "Gangs admitted", "queue")
        self._waits = make.seconds(
            "wait", "How long gangs waited before they were admitted", _WAITS, "queue"
        )
        self._starts = make.seconds(
            "start", "From a job's plan until all its replicas run", _STARTS
        )
        self._completions = make.seconds(
            "completion", "From a job's creation to its end", _COMPLETIONS, "queue", "phase"
        )
        self._transitions = make.counter(
            "job_transitions", "Changes of a job's phase, and why", "phase", "reason"
        )
        self._waiting = make.gauge("gangs_waiting", "Gangs that wait, by why", "reason")
        self._head = make.gauge("head_wait_seconds", "How long the gang that is next has waited")
        self._oldest = make.gauge(
            "queue_oldest_wait_seconds", "Longest wait of those that still wait", "queue"
        )
        self._overdue = make.gauge(
            "queue_overdue_seconds", "How far the longest wait is past the queue's bound", "queue"
        )
        told = "Gangs that are pending or admitted, as in Queue.status"
        self._in_queue = make.gauge("queue_gangs", told, "queue", "state")
        self._partial = make.gauge(
            "partial_gangs", "Gangs that have a plan, and a replica on no node yet"
        )
        self._partial_age = make.gauge(
            "partial_gang_age_seconds", "Age of the oldest plan of a gang with a replica on no node"
        )

    # --- what happens -----------------------------------------------------------------------

    def count_admission(self, admit: Admit, snapshot: ClusterSnapshot) -> None:
        """A gang was handed to the actuator."""
        queue = self._queues.of(admit.gang.queue)
        self._admitted.labels(queue).inc()
        self._waits.labels(queue).observe(snapshot.wait_seconds(admit.gang))

    def count_move(
        self, job: JobFacts, move: Transition, view: GangView | None, now: float
    ) -> None:
        """A job's change of phase was recorded; ``now`` is POSIX seconds."""
        self._transitions.labels(move.phase, move.reason).inc()
        if move.phase == "Running" and view is not None:
            self._starts.observe(max(0.0, now - view.plan.planned))
        if move.phase in FINISHED and job.spec is not None:
            labels = self._completions.labels(self._queues.of(job.spec.queue), move.phase)
            labels.observe(max(0.0, now - job.created))

    # --- what is the case -------------------------------------------------------------------

    def show_waiting(self, held: Iterable[Hold], snapshot: ClusterSnapshot) -> None:
        """Those who wait, in their order. One with a configuration fault is only a reason."""
        reasons, oldest, first = Counts[str](), dict[str, Hold](), None
        for hold in held:
            reasons[hold.reason] += 1
            if hold.position is None:
                continue
            queue = self._queues.of(hold.gang.queue)
            if queue not in oldest or hold.gang.arrived < oldest[queue].gang.arrived:
                oldest[queue] = hold
            first = first or hold
        self._head.set(snapshot.wait_seconds(first.gang) if first is not None else 0.0)
        _show(self._waiting, {(reason,): count for reason, count in reasons.items()})
        gangs = {queue: hold.gang for queue, hold in oldest.items()}
        _show(self._oldest, {(q,): snapshot.wait_seconds(gang) for q, gang in gangs.items()})
        _show(self._overdue, {(q,): snapshot.overdue_seconds(gang) for q, gang in gangs.items()})

    def show_queues(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Gangs by queue and state."""
        shown = Counts[tuple[str, ...]]()
        for queue, by_state in counts.items():
            for state, count in by_state.items():
                shown[self._queues.of(queue), state] += count
        _show(self._in_queue, shown)

    def show_partial(self, state: ClusterState, now: float) -> None:
        """Those that are not whole at ``now``, POSIX seconds."""
        ages = list(partial_ages(state, now))
        self._partial.set(len(ages))
        self._partial_age.set(max(ages, default=0.0))


def partial_ages(state: ClusterState, now: float) -> Iterator[float]:
    """Seconds since the plan, or its last resize, of every gang with a replica on no node.

    A job whose gang is over or stops has no such replicas: they are gone for good.
    """
    for key, group in state.groups.items():
        view, job = state.view(key), state.jobs.get(key)
        if view is None or view.is_bound:
            continue
        if group.job_uid and (job is None or not _is_starting(job, group.job_uid, view)):
            continue
        yield max(0.0, now - max(view.plan.planned, view.plan.resized))


def _is_starting(job: JobFacts, job_uid: str, view: GangView) -> bool:
    is_its_own = job.uid == job_uid and view.plan.attempt == job.attempt
    return is_its_own and not (job.is_leaving or job.is_finished or job.is_suspended)


def _show(gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
    """Exactly these; what is gone is told no more."""
    gauge.clear()
    for labels, value in values.items():
        gauge.labels(*labels).set(value)
