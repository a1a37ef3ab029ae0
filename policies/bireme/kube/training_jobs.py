"""Read TrainingJobs: their spec as a waiting gang, and the progress that they report.

The API server has validated the spec. What it could not check (a template that is no valid pod, an
unreadable quantity) becomes the gang's fault, so that one bad object stops nothing else.

Progress is kept in ``status.progress`` alone, so that a new leader knows as much as the old one:
the last report, the speed at the latest sizes, and a thinned history of the loss. From these a
speed law (Amdahl's; with only one size seen, at the usual serial share) and a loss curve (that of
Optimus) are fitted whenever the status changes.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec
from pydantic import ValidationError

from bireme.core.decision import VACATED
from bireme.core.estimates import with_anchor
from bireme.core.gangs import AffinityMode, Gang, Key, Role, RoleAffinity, Task, TrainingProgress
from bireme.core.nodes import HOSTNAME_LABEL
from bireme.core.reasons import Reason
from bireme.core.resources import add
from bireme.core.speed import (
    FASTEST,
    SLOWEST,
    CurveFitError,
    InverseQuadratic,
    LinearSpeed,
    fit_loss,
    fit_speed,
)
from bireme.core.times import MAX_SECONDS
from bireme.kube import (
    job_sizes,
    names,
    plans,
    pod_rules,
    pods,
    preferences,
    quantities,
    volume_objects,
    waits,
    wire,
)
from bireme.kube.api.training_job import (
    MAX_LOSSES,
    MAX_SPEEDS,
    Container,
    LossSeen,
    PodSpec,
    PodTemplate,
    ProgressStatus,
    SpeedSeen,
    TaskSpec,
    TrainingJobSpec,
)
from bireme.kube.plans import PlanFacts, spec_digest
from bireme.kube.pod_comparison import Difference, text_of
from bireme.kube.resource_quotas import NO_CHARGES, PodCharges, charges_of
from bireme.kube.tenancy import queue_of, queue_source
from bireme.kube.volume_objects import NO_CLAIMS, PodClaims

MAX_STEPS: Final = 1e15
"""Larger step counts are refused."""
# Shortest time between two reports from which a speed is derived.
_MIN_SECONDS: Final = 10.0
_OF_TRAINING: Final = ("percentage", "step", "loss", "accuracy")
# Weight of a new speed against the one remembered for the same size.
_NEW_WEIGHT: Final = 0.5


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """One progress report, every number checked and clipped; None for what it leaves out.

    Attributes:
        percentage: The part of the training that is done, 0 to 100.
        remaining_seconds: At least 0.
        accuracy: From 0 to 1.
    """

    percentage: float | None = None
    remaining_seconds: float | None = None
    step: float | None = None
    total_steps: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    checkpoint_step: float | None = None


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """The run that a report belongs to.

    Attributes:
        replicas: Its size.
        started: Admission, POSIX seconds.
        since: Start at this size, POSIX seconds.
        attained_seconds: Run time of earlier starts.
    """

    replicas: int
    started: float
    since: float
    attained_seconds: float


@dataclass(frozen=True)
class ReportedProgress:
    """``status.progress`` of a job, as the core uses it."""

    status: ProgressStatus

    @cached_property
    def progress(self) -> TrainingProgress:
        """The last report, with the differences to earlier ones."""
        last = self.status
        fraction = None if last.percentage is None else last.percentage / 100
        if fraction is None and last.step is not None and last.total_steps:
            fraction = min(1.0, last.step / last.total_steps)
        return TrainingProgress(
            reported=last.reported_time.timestamp(),
            fraction=fraction,
            remaining_seconds=last.remaining_seconds,
            steps=last.step,
            remaining_steps=_remaining_steps(last.step, last.total_steps, fraction),
            loss=last.loss,
            worst_loss=last.worst_loss,
            accuracy=last.accuracy,
            accuracy_gain=last.accuracy_gain,
            # Bounded again here: earlier versions wrote unbounded values.
            anchor_seconds=_least(last.first_expected_seconds, MAX_SECONDS),
        )

    @cached_property
    def speed(self) -> LinearSpeed | None:
        """Steps per second by number of replicas; None before two reports at one size."""
        pairs = ((seen.replicas, seen.steps_per_second) for seen in self.status.speeds)
        seen = {size: pace for size, pace in pairs if size and SLOWEST <= pace <= FASTEST}
        try:
            return fit_speed(seen) if seen else None
        except (CurveFitError, ArithmeticError):
            return None

    @cached_property
    def loss(self) -> InverseQuadratic | None:
        """The loss over the steps (Optimus, section 3.1); None if no such curve fits."""
        seen = self.status.losses
        try:
            return fit_loss([p.step for p in seen], [p.loss for p in seen])
        except (ValueError, ArithmeticError):  # CurveFitError, or numbers that numpy cannot take
            return None


def reported_progress(status: Mapping[str, Any]) -> ReportedProgress | None:
    """Return the progress in a TrainingJob's status; None if it is absent or invalid."""
    given = status.get("progress")
    try:
        if given is None:
            return None
        # A newer operator, before a rollback, may have written more than is known here.
        return ReportedProgress(ProgressStatus.model_validate(given, extra="ignore"))
    except ValidationError:  # not written by the operator; the next report replaces it
        return None


def _remaining_steps(
    step: float | None, total: float | None, fraction: float | None
) -> float | None:
    if step is None:
        return None
    if total is not None:
        return max(0.0, total - step)
    return _least(step * (1 / fraction - 1), MAX_STEPS) if fraction else None


def _least(value: float | None, most: float) -> float | None:
    """Return ``value``, at most ``most``; None for None and NaN."""
    return None if value is None or math.isnan(value) else min(value, most)


def with_report(
    before: ReportedProgress | None, report: ProgressReport, now: float, run: ReportedRun
) -> dict[str, Any]:
    """Return ``status.progress`` after ``report``, received at ``now`` (POSIX seconds).

    What the report leaves out keeps its last value, except the remaining time.
    """
    moment = datetime.fromtimestamp(now, UTC)
    old = before.status if before else ProgressStatus(reported_time=moment)
    reported = {name: value for name, value in asdict(report).items() if value is not None}
    new = old.model_copy(
        update={
            **reported,
            "reported_time": moment,
            "progressed_time": moment if _is_news(old, report) else old.progressed_time,
            "remaining_seconds": report.remaining_seconds,
            "worst_loss": _largest(old.worst_loss, report.loss),
            "accuracy_gain": _gain(old, report.accuracy),
            "speeds": _speeds(before, report.step, now, run),
            "losses": _losses(old.losses, report),
        }
    )
    progress = with_anchor(ReportedProgress(new).progress, run.attained_seconds, run.started)
    anchor = {"first_expected_seconds": progress.anchor_seconds}
    return new.model_copy(update=anchor).to_manifest()


def _is_news(old: ProgressStatus, report: ProgressReport) -> bool:
    """Return whether ``report`` shows that training went on since the one before it."""
    told = {
        name: value
        for name, value in asdict(report).items()
        if name in _OF_TRAINING and value is not None
    }
    if not told:  # of what it says only the time that is left can tell
        return report.remaining_seconds != old.remaining_seconds
    return any(getattr(old, name) != value for name, value in told.items())


def _largest(*losses: float | None) -> float | None:
    return max((loss for loss in losses if loss is not None), default=None)


def _gain(old: ProgressStatus, accuracy: float | None) -> float | None:
    if accuracy is None:
        return old.accuracy_gain
    return None if old.accuracy is None else accuracy - old.accuracy


def _speeds(
    before: ReportedProgress | None, step: float | None, now: float, run: ReportedRun
) -> tuple[SpeedSeen, ...]:
    """Return the known speeds with the one since the last report, if that was at this size."""
    known = before.status.speeds if before else ()
    last = before.progress if before else None
    if last is None or last.steps is None or step is None or last.reported < run.since:
        return known
    seconds, steps = now - last.reported, step - last.steps
    if seconds < _MIN_SECONDS or not SLOWEST <= steps / seconds <= FASTEST:
        return known
    seen = {each.replicas: each.steps_per_second for each in known}
    earlier = seen.pop(run.replicas, None)
    pace = steps / seconds
    pace = pace if earlier is None else _NEW_WEIGHT * pace + (1 - _NEW_WEIGHT) * earlier
    kept = [*seen.items(), (run.replicas, pace)][-MAX_SPEEDS:]
    return tuple(SpeedSeen(replicas=n, steps_per_second=each) for n, each in kept)


def _losses(known: Sequence[LossSeen], report: ProgressReport) -> tuple[LossSeen, ...]:
    """Return the known losses with the reported one; too many are thinned to every second."""
    if report.step is None or report.loss is None:
        return tuple(known)
    # A restart resumes from a checkpoint: drop losses of later steps.
    kept = [seen for seen in known if seen.step < report.step]
    if len(kept) >= MAX_LOSSES:
        kept = [*kept[:-1:2], kept[-1]]
    return (*kept, LossSeen(step=report.step, loss=report.loss))


def pause_seconds(failures: int) -> float:
    """Return how long a gang pauses whose last ``failures`` starts failed."""
    # The counter may be any number: it stands in a status.
    return 60.0 * min(2.0 ** min(failures - 1, 5), 30.0)


def is_pause(seconds: float, failures: int) -> bool:
    """Return whether a pause after the last of ``failures`` goes on for ``seconds``."""
    # A clock that was set back, or was ahead, must not keep a gang for much longer than its pause;
    # those of two leaders may differ by seconds.
    return failures > 0 and 0 < seconds <= pause_seconds(failures) + _CLOCK_SKEW_SECONDS


_CLOCK_SKEW_SECONDS: Final = 60.0
FINISHED = ("Succeeded", "Failed")
_DISPLACING = (Reason.NODE_LOST, *VACATED)
# Cached properties of JobFacts that follow from its spec and its tasks as planned.
_OF_TASKS: Final = (
    "asked",
    "wait_key",
    "request_manifest",
    "claims",
    "has_claims",
    "rules",
    "label_pairs",
)
_NO_TEMPLATE: Final = PodTemplate(spec=PodSpec(containers=(Container(name="left-out"),)))
# Finalizer of ``--cascade=orphan``: the garbage collector removes owner references first.
_ORPHANS = "orphan"


@dataclass(frozen=True, slots=True)
class TaskPods:
    """The pods of one task: the task as the core plans it, and what else they ask."""

    task: Task
    claims: PodClaims = NO_CLAIMS
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the template and of admission, without those that all pods of a job get."""
    names_own_labels: bool = False
    """Its rules select pods by values of labels that Bireme gives its pods."""
    rules: tuple[str, ...] = ()
    """Demands on other pods that are not planned, in words: kube-scheduler keeps them."""
    priority_class: str | None = None
    differences: tuple[Difference, ...] = ()
    """Changes of admission for which the pods would not be bound as they are planned."""
    charges: PodCharges = NO_CHARGES
    images: tuple[str, ...] = ()


PodShape: TypeAlias = tuple[str, str, str]
"""What the API server's admission tells pods apart by: namespace, PriorityClass, template."""


@dataclass(frozen=True)
class JobFacts:
    """One TrainingJob as the operator uses it; ``created`` and ``queued`` are POSIX seconds.

    Thousands wait, with templates as large as their tenants like. These stay JSON until pods are
    made of them: as Python objects they would take about ten times as much.
    """

    key: Key
    uid: str
    resource_version: str
    generation: int
    created: float
    is_leaving: bool
    orphans_pods: bool
    """It is being deleted without what it owns (``kubectl delete --cascade=orphan``)."""
    spec: TrainingJobSpec | None
    """The spec; the templates in it are left out."""
    templates: tuple[bytes, ...]
    """The pod template of each task, as JSON."""
    spec_hash: str
    """Digest of what a plan depends on."""
    template: str
    """Digest that jobs of the same kind of work share: 16 hex digits; empty with a fault.

    It covers of every task, in written order, the role, the replicas, the request of one (as
    amounts: 1 equals 1000m), and of each container the image, command and arguments; no names,
    labels, environment, volumes, constraints, limits, elastic bounds, queue or run policy.
    """
    pod_shapes: tuple[PodShape, ...]
    """The shape of the pods of each task."""
    tasks: tuple[Task, ...]
    """Its tasks as they are planned, with what is known of the API server's changes to its pods."""
    fault: tuple[Reason, str] | None
    status: dict[str, Any]
    plan: PlanFacts | None = None
    """The plan in the status; it may be of an attempt that has ended."""
    pods: tuple[TaskPods, ...] = ()
    """The same, with everything that its pods ask."""
    written: tuple[TaskPods, ...] = ()
    """The same as the templates say it."""
    default_queue: str = ""
    """What its namespace names for jobs that name no queue; empty for ``default``."""

    @property
    def tasks_by_rank(self) -> list[Task]:
        """Its tasks in the order in which their replicas are numbered: the leader's comes first."""
        return sorted(self.tasks, key=lambda task: (not task.role.is_leading, -task.priority))

    @property
    def phase(self) -> str:
        """``status.phase``; Pending before the operator has written one."""
        return str(self.status.get("phase") or "Pending")

    @cached_property
    def claims(self) -> tuple[PodClaims, ...]:
        """The claims that the pods of each task name."""
        return tuple(pods.claims for pods in self.pods)

    @cached_property
    def has_claims(self) -> bool:
        """True if the pods of one of its tasks name claims."""
        return any(used != NO_CLAIMS for used in self.claims)

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """Demands of its pods on other pods that are not planned, in words."""
        return tuple(dict.fromkeys(words for pods in self.pods for words in pods.rules))

    @property
    def priority_class(self) -> str | None:
        """The PriorityClass of its pods; None for the cluster's default one."""
        return next((pods.priority_class for pods in self.pods if pods.priority_class), None)

    @property
    def altered(self) -> tuple[Reason, str] | None:
        """The fault that admission makes its pods such as cannot be bound as planned, or None."""
        for pods_of_task in self.pods:
            if pods_of_task.differences:
                text = text_of(pods_of_task.task.name, pods_of_task.differences)
                return Reason.PODS_REFUSED, f"{text}; a dry run asks again every minute"
        return None

    def with_pods(self, pods: tuple[TaskPods, ...]) -> "JobFacts":
        """Return the job with its tasks planned as ``pods``, one of each task."""
        return replace(self, tasks=tuple(each.task for each in pods), pods=pods)

    def labels_of(self, place: int) -> dict[str, str]:
        """Return the labels that all pods of the task at ``place`` have."""
        return {**self.pods[place].labels, **self._own_labels(place)}

    @cached_property
    def label_pairs(self) -> tuple[tuple[str, str], ...]:
        """All labels that pods of its tasks have."""
        labels = (self.labels_of(place).items() for place in range(len(self.pods)))
        return tuple(dict.fromkeys(chain.from_iterable(labels)))

    def _own_labels(self, place: int) -> dict[str, str]:
        return _own_labels(self.key[1], self.queue, self.written[place].task)

    @property
    def queue(self) -> str:
        """The queue it asks for: of its spec, or else of its namespace; empty if not understood."""
        return queue_of(self.spec.queue, self.default_queue) if self.spec is not None else ""

    @property
    def is_finished(self) -> bool:
        """True if the job has ended for good."""
        return self.phase in FINISHED

    @property
    def keeps_pods(self) -> bool:
        """True if its pods run on when it has finished."""
        return self.spec is not None and self.spec.run_policy.clean_pod_policy == "None"

    @property
    def attempt(self) -> int:
        """Number of restarts of the gang; 0 is the first start."""
        return int(self.status.get("attempt") or 0)

    @property
    def is_suspended(self) -> bool:
        """True if the user asked for a pause."""
        return self.spec is not None and self.spec.run_policy.suspend

    @property
    def queued(self) -> float:
        """The last time it joined the queue, POSIX seconds."""
        return quantities.parse_timestamp(self.status.get("queuedTime")) or self.created

    @property
    def is_displaced(self) -> bool:
        """True if it was stopped for nobody else and owns where it goes until it starts.

        It lost a node, or was stopped for a maintenance or for faster GPUs. Not where its user has
        stopped it since.
        """
        is_stopped = self.is_leaving or self.is_suspended or self.wait.is_anew
        return self.phase == "Restarting" and self.last_stop in _DISPLACING and not is_stopped

    @property
    def last_stop(self) -> str:
        """The reason for which it last stopped, or has not started to run; empty for none."""
        # The reason of the phase becomes that of the wait; the condition keeps this one.
        conditions = self.status.get("conditions") or ()
        return next((str(c.get("reason")) for c in conditions if c.get("type") == "Running"), "")

    @property
    def start_failures(self) -> int:
        """The number of starts in a row that failed; an edit of the spec begins anew."""
        if self.status.get("observedGeneration") != self.generation:
            return 0
        return int(self.status.get("startFailures") or 0)

    @property
    def has_timed_out(self) -> bool:
        """True if its last start took too long, for which images may have been the reason."""
        return bool(self.start_failures) and self.last_stop == Reason.START_TIMED_OUT

    @property
    def retry_time(self) -> float:
        """When it is tried again after a start that failed, POSIX seconds; 0 without one."""
        return quantities.parse_timestamp(self.status.get("retryTime")) or 0.0

    @property
    def rejected_by(self) -> tuple[str, ...]:
        """The nodes whose kubelets have rejected it since it last ran."""
        return tuple(self.status.get("rejectedBy") or ())

    def is_pausing(self, now: float) -> bool:
        """Return whether it is not to be tried yet, because its last start failed."""
        return is_pause(self.retry_time - now, self.start_failures)

    @property
    def waited(self) -> float:
        """Seconds it waited before it last joined the queue."""
        return float(self.status.get("waitSeconds") or 0)

    @cached_property
    def wait(self) -> waits.Wait:
        """How long it has waited, over all its times in line."""
        status = self.status
        seconds, uncounted = waits.uncounted(status)
        if waits.is_raised(status, self.asked):
            return waits.ANEW
        if "admittedTime" in status:  # it ended then, and the status has all of it
            return waits.Wait(0.0, self.waited, 0.0, uncounted=seconds)
        if waits.is_other(status, self.queue, self.wait_key):
            return waits.ANEW
        # The pause after a failed start is no waiting for others.
        since = max(self.queued, self.retry_time)
        parked = waits.parked_since(status)
        return waits.Wait(since, self.waited, parked, uncounted=seconds, uncounted_since=uncounted)

    @cached_property
    def wait_key(self) -> str:
        """Digest of what its wait counts for beside the queue: the nodes and the kinds of pods.

        How many pods of a kind it has is no part of it: fewer wait on, and more are a raise.
        """
        kinds = [
            (
                *(task.name, task.request, task.constraints.node_selector),
                *(task.constraints.affinity_terms, task.constraints.tolerations),
            )
            for task in map(_task_of, self.written)
        ]
        affinity = self.spec.role_affinity if self.spec is not None else None
        # Only tuples, texts and numbers: the text is the same in every process.
        return hashlib.sha256(repr((kinds, affinity)).encode()).hexdigest()[:16]

    @cached_property
    def asked(self) -> dict[str, int]:
        """The total request of its replicas, by its templates; empty where they cannot be read."""
        total: dict[str, int] = {}
        for task in map(_task_of, self.written):
            total = add(total, task.request, task.replicas)
        return total

    @cached_property
    def request_manifest(self) -> dict[str, str]:
        """The same, as its status has it."""
        return waits.request_manifest(self.asked)

    @property
    def attained(self) -> float:
        """Seconds for which earlier starts held their places."""
        return float(self.status.get("runSeconds") or 0)

    @property
    def running_since(self) -> float | None:
        """Since when all its replicas run, POSIX seconds, by its condition; None if they do not."""
        for condition in self.status.get("conditions") or ():
            if condition.get("type") == "Running" and condition.get("status") == "True":
                return quantities.parse_timestamp(condition.get("lastTransitionTime"))
        return None

    @property
    def stated_seconds(self) -> float | None:
        """The run time that its owner has stated; once it is admitted, that had stated by then.

        An edit that always puts the end of a running job near would keep it from being stopped.
        """
        if "admittedTime" in self.status and "estimatedSeconds" in self.status:
            return float(self.status["estimatedSeconds"]) or None
        duration = self.spec.estimated_duration if self.spec is not None else None
        return None if duration is None else quantities.parse_duration(duration)

    @property
    def has_checkpoint(self) -> bool:
        """True if it has reported a checkpoint, in this start or an earlier one."""
        return self.reported is not None and self.reported.status.checkpoint_step is not None

    @cached_property
    def reported(self) -> ReportedProgress | None:
        """The progress that the job has reported; None before the first report."""
        return reported_progress(self.status)

    def gang(
        self,
        priority: int,
        fault: tuple[Reason, str] | None = None,
        may_preempt: bool = True,
        learned_seconds: float | None = None,
    ) -> Gang:
        """Return the job as a waiting gang; its wait is summed over all its times in line.

        ``learned_seconds`` is the estimated run time if the owner gave none.
        """
        gang = Gang(
            uid=self.uid,
            name=self.key[1],
            namespace=self.key[0],
            queue=self.queue,
            queue_source=""
            if self.spec is None or self.spec.queue
            else queue_source(self.key[0], self.default_queue),
            tasks=self.tasks,
            arrived=self.wait.arrived,
            parked=self.wait.parked,
            uncounted_seconds=self.wait.uncounted,
            uncounted_since=self.wait.uncounted_since,
            priority=priority,
            # Where its own start failed, it has no claim to go before its equals.
            interrupted=self.phase == "Restarting" and not self.start_failures,
            displaced=self.is_displaced,
            fault=self.fault or fault,
            attained_seconds=self.attained,
            evictions=int(self.status.get("preemptions") or 0),
            yields=int(self.status.get("yields") or 0),
            user=self.key[0],
            estimated_seconds=learned_seconds,
            may_preempt=may_preempt,
            left_to_scheduler="; ".join(self.rules),
        )
        gang = gang if self.spec is None else _as_asked(gang, self.spec, self.stated_seconds)
        if (reported := self.reported) is None:
            return gang
        return replace(gang, progress=reported.progress, speed=reported.speed, loss=reported.loss)


def _as_asked(gang: Gang, spec: TrainingJobSpec, stated_seconds: float | None) -> Gang:
    """Return ``gang`` with the fields of the spec beside the tasks."""
    wish = spec.role_affinity
    learned = gang.estimated_seconds
    return replace(
        gang,
        min_available=spec.min_available or 0,
        role_affinity=RoleAffinity(AffinityMode(wish.mode), wish.topology_key),
        estimated_seconds=learned if stated_seconds is None else stated_seconds,
        is_learned_estimate=stated_seconds is None and learned is not None,
        min_runtime_seconds=spec.run_policy.min_runtime_seconds,
        is_elastic=spec.is_elastic,
    )


def from_manifest(
    job: wire.CustomObject,
    topology_levels: tuple[str, ...] = (),
    before: JobFacts | None = None,
    default_queue: str = "",
) -> JobFacts:
    """Return the facts of one TrainingJob. Never raises: ``fault`` says what is wrong.

    ``topology_levels`` are the label keys that a role affinity may name, beside the hostname;
    without any, every key is accepted. ``before`` are the facts of its last version: most events
    change the status alone, and what follows from the spec is then taken from there.
    ``default_queue`` is what its namespace names for jobs that name none; empty for ``default``.
    """
    meta, known = job.metadata, before
    # The API server raises the generation with every change of the spec.
    if known is None or (known.uid, known.generation) != (meta.uid, meta.generation):
        known = _of_new_spec(job, topology_levels, default_queue)
    facts = replace(
        known,
        resource_version=meta.resource_version,
        is_leaving=meta.deletion_timestamp is not None,
        orphans_pods=_ORPHANS in (meta.finalizers or ()),
        status=job.status,
        plan=plans.read(job.status, before),
    )
    _take_over(facts, known)
    return facts


def _take_over(facts: JobFacts, known: JobFacts) -> None:
    """Take over from ``known`` what was worked out there and is still right."""
    cached = vars(known)
    vars(facts).update((name, cached[name]) for name in _OF_TASKS if name in cached)


def _task_of(pods: TaskPods) -> Task:
    return pods.task


def with_default_queue(job: JobFacts, default_queue: str) -> JobFacts:
    """Return ``job`` where its namespace names another queue for jobs that name none."""
    if job.spec is None or job.spec.queue is not None or not job.written:
        return replace(job, default_queue=default_queue)
    queue = queue_of(None, default_queue)
    raw_tasks = [{"template": msgspec.json.decode(template)} for template in job.templates]
    written = tuple(
        _written(job.key, job.spec, queue, task, raw["template"], _asked(task, template))
        for task, raw, template in zip(job.spec.tasks, raw_tasks, job.templates, strict=True)
    )
    return replace(
        job,
        default_queue=default_queue,
        written=written,
        pods=written,
        tasks=tuple(map(_task_of, written)),
        pod_shapes=tuple(_pod_shapes(job.key, job.spec, queue, raw_tasks, written)),
    )


def _of_new_spec(
    job: wire.CustomObject, topology_levels: tuple[str, ...], default_queue: str
) -> JobFacts:
    """Return the facts that follow from the spec, with an empty status."""
    meta = job.metadata
    key = meta.namespace, meta.name
    written: tuple[TaskPods, ...] = ()
    raw_tasks: list[dict[str, Any]] = []
    templates: tuple[bytes, ...] = ()
    spec, fault = _spec(job.spec)
    queue = queue_of(spec.queue, default_queue) if spec is not None else ""
    if spec is not None:
        raw_tasks = job.fields["tasks"]
        templates = tuple(msgspec.json.encode(raw["template"]) for raw in raw_tasks)
        try:
            asked = [*map(_asked, spec.tasks, templates)]
            named = zip((task.name for task in spec.tasks), asked, strict=True)
            fault = job_sizes.of_placing(named) or job_sizes.of_pods(key, spec, templates)
            if fault is None:
                written = tuple(
                    _written(key, spec, queue, task, raw["template"], of_task)
                    for task, raw, of_task in zip(spec.tasks, raw_tasks, asked, strict=True)
                )
        except (ValueError, msgspec.ValidationError) as error:
            fault = (Reason.TEMPLATE_INVALID, str(error)[:512])
        fault = fault or _affinity_fault(spec, topology_levels)
    return JobFacts(
        key=key,
        uid=meta.uid,
        resource_version="",
        generation=meta.generation,
        created=quantities.parse_timestamp(meta.creation_timestamp) or 0.0,
        is_leaving=False,
        orphans_pods=False,
        spec=None if spec is None else _without_templates(spec),
        templates=templates,
        spec_hash=spec_digest(raw_tasks),
        template=_kind_of_work(written, raw_tasks) if written else "",
        pod_shapes=tuple(_pod_shapes(key, spec, queue, raw_tasks, written))
        if spec is not None
        else (),
        tasks=tuple(map(_task_of, written)),
        fault=fault,
        status={},
        pods=written,
        written=written,
        default_queue=default_queue,
    )


def _without_templates(spec: TrainingJobSpec) -> TrainingJobSpec:
    left = {"template": _NO_TEMPLATE}
    tasks = tuple(task.model_copy(update=left) for task in spec.tasks)
    return _shared(spec.model_copy(update={"tasks": tasks}))


@lru_cache(maxsize=1024)
def _shared(spec: TrainingJobSpec) -> TrainingJobSpec:
    """Return the first of equal specs: most jobs of a flood differ in their names alone."""
    return spec


def _kind_of_work(written: Iterable[TaskPods], raw_tasks: Iterable[dict[str, Any]]) -> str:
    return spec_digest(
        [
            {
                "role": task.role.value,
                "replicas": task.replicas,
                "request": task.request,
                "programs": _programs(raw["template"]["spec"]),
            }
            for task, raw in zip(map(_task_of, written), raw_tasks, strict=True)
        ]
    )


def _pod_shapes(
    key: Key,
    spec: TrainingJobSpec,
    queue: str,
    raw_tasks: Iterable[dict[str, Any]],
    written: Sequence[TaskPods],
) -> Iterator[PodShape]:
    for place, raw in enumerate(raw_tasks):
        asked = [raw["template"]]
        # Rules of equal templates differ where they name labels that Bireme gives.
        if written and written[place].names_own_labels:
            asked.append(_own_labels(key[1], queue, written[place].task))
        yield key[0], spec.priority_class_name or "", spec_digest(asked)


def _affinity_fault(
    spec: TrainingJobSpec, topology_levels: tuple[str, ...]
) -> tuple[Reason, str] | None:
    """Return the fault of a role affinity that could not be followed, if there is one."""
    wish = spec.role_affinity
    if wish.mode == "None":
        return None
    if topology_levels and wish.topology_key not in (HOSTNAME_LABEL, *topology_levels):
        return Reason.SPEC_INVALID, (
            f"spec.roleAffinity.topologyKey {wish.topology_key!r} is no topology level here; "
            f"use one of {', '.join(topology_levels)}"
        )
    roles = [task.role for task in spec.tasks]
    if wish.mode == "Required" and (roles.count("ps"), roles.count("worker")) != (1, 1):
        return Reason.SPEC_INVALID, (
            f"spec.roleAffinity.mode Required needs one task of role ps and one of role worker, "
            f"not {roles.count('ps')} and {roles.count('worker')}; merge the tasks or choose "
            "Preferred"
        )
    return None


def _spec(given: msgspec.Raw) -> tuple[TrainingJobSpec | None, tuple[Reason, str] | None]:
    if (fault := job_sizes.of_spec(given)) is not None:
        return None, fault
    # The API server stores what is nested ten thousand levels deep; to validate it or to write it
    # into a pod takes a recursion as deep.
    if wire.is_too_deep(given):
        limit = f"spec is nested more than {wire.DEPTH_LIMIT} levels deep; flatten its template"
        return None, (Reason.SPEC_INVALID, limit)
    spec, problem = TrainingJobSpec.read(msgspec.json.decode(given))
    return spec, (Reason.SPEC_INVALID, problem) if problem else None


def _programs(spec: dict[str, Any]) -> list[list[Any]]:
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    return [[c.get("image"), c.get("command"), c.get("args")] for c in containers]


def _own_labels(job: str, queue: str, task: Task) -> dict[str, str]:
    return {
        names.JOB_LABEL: job,
        names.POD_GROUP_LABEL: job,
        names.TASK_LABEL: task.name,
        names.ROLE_LABEL: task.role.value,
        names.QUEUE_LABEL: queue,
    }


def _asked(task: TaskSpec, template: bytes) -> wire.V1PodSpec:
    """Return what is read of the template of a task.

    Raises:
        ValueError: a field has a type no pod can have.
    """
    try:
        return pods.spec_of_template(template)
    except msgspec.ValidationError as error:
        raise ValueError(f"spec.tasks[{task.name}].template.spec: {error}") from error


def _written(
    key: Key,
    spec: TrainingJobSpec,
    queue: str,
    task: TaskSpec,
    template: dict[str, Any],
    asked: wire.V1PodSpec,
) -> TaskPods:
    """Return the pods of a task as its template says them, which reads ``asked``."""
    role = Role(task.role)
    made = Task(
        name=task.name,
        replicas=task.replicas,
        request=(),
        role=role,
        min_replicas=task.min_replicas or 0,
        max_replicas=task.max_replicas or 0,
        priority=role.default_priority if task.priority is None else task.priority,
    )
    try:
        given = (template.get("metadata") or {}).get("labels") or {}
        labels = {**given, **_own_labels(key[1], queue, made)}
        found = with_spec(TaskPods(made), asked, key[0], labels, asked)
    except (ValueError, msgspec.ValidationError) as error:
        raise ValueError(f"spec.tasks[{task.name}].template.spec: {error}") from error
    if asked.restart_policy == "Always":
        raise ValueError(
            f"spec.tasks[{task.name}].template.spec.restartPolicy: Always never ends; "
            "use Never or OnFailure"
        )
    return replace(found, priority_class=spec.priority_class_name)


def with_spec(
    known: TaskPods,
    spec: wire.V1PodSpec,
    namespace: str,
    labels: Mapping[str, str],
    template: wire.V1PodSpec,
) -> TaskPods:
    """Return the pods of a task with what ``spec``, of one of them in ``namespace``, asks.

    That one has ``labels`` and was made of ``template``.

    Raises:
        ValueError: a quantity or an operator in it cannot be read.
    """
    return TaskPods(
        task=replace(
            known.task,
            request=pods.request_of_spec(spec, strict=True),
            constraints=pods.constraints_of_spec(spec),
            pod=pod_rules.demands_of_spec(spec, namespace, labels, template),
            preferences=preferences.of_spec(spec, namespace, labels),
        ),
        claims=volume_objects.of_pod(spec),
        labels={key: value for key, value in labels.items() if key not in names.POD_LABELS},
        names_own_labels=pod_rules.names_own_labels(template),
        rules=pod_rules.demands_for_scheduler(spec, template),
        priority_class=spec.priority_class_name,
        charges=charges_of(spec),
        images=pods.images_of_spec(spec),
    )
