"""Read TrainingJobs: their spec as a waiting gang, and the progress that they report.

The API server has validated the spec. Other errors (an invalid pod template, an unreadable
quantity) become the gang's fault, so that one bad object stops nothing else.

Progress lives only in ``status.progress``, so that a new leader knows as much as the old one. It
has the last report, the speed at the latest sizes, and a thinned history of the loss. Whenever the
status changes, Amdahl's law is fitted to the speeds, and the loss curve of Optimus to the losses.
With one known size the law uses the usual serial share.
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
from bireme.kube.pod_comparison import PodDifference, text_of
from bireme.kube.resource_quotas import NO_CHARGES, PodCharges, charges_of
from bireme.kube.tenancy import queue_of, queue_source
from bireme.kube.volume_objects import NO_CLAIMS, PodClaims

MAX_STEPS: Final = 1e15
"""Larger step counts are refused."""
# Shortest time between two reports that give a speed.
_MIN_SECONDS: Final = 10.0
_TRAINING_FIELDS: Final = ("percentage", "step", "loss", "accuracy")
# Weight of a new speed against the one remembered for the same size.
_NEW_WEIGHT: Final = 0.5


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """One progress report with checked and clipped numbers; an absent field is None.

    Attributes:
        percentage: Finished part of the training, 0 to 100.
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
    """``status.progress`` of a job in the form that the core uses."""

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
            anchor_seconds=_at_most(last.first_expected_seconds, MAX_SECONDS),
        )

    @cached_property
    def speed(self) -> LinearSpeed | None:
        """Steps per second by number of replicas; None before two reports at one size."""
        pairs = (
            (pace_by_size.replicas, pace_by_size.steps_per_second)
            for pace_by_size in self.status.speeds
        )
        pace_by_size = {size: pace for size, pace in pairs if size and SLOWEST <= pace <= FASTEST}
        try:
            return fit_speed(pace_by_size) if pace_by_size else None
        except (CurveFitError, ArithmeticError):
            return None

    @cached_property
    def loss(self) -> InverseQuadratic | None:
        """The loss over the steps (Optimus, section 3.1); None if no such curve fits."""
        history = self.status.losses
        try:
            return fit_loss([p.step for p in history], [p.loss for p in history])
        except (ValueError, ArithmeticError):  # CurveFitError, or numbers that numpy cannot take
            return None


def progress_of(status: Mapping[str, Any]) -> ReportedProgress | None:
    """Return the progress in a TrainingJob's status; None if it is absent or invalid."""
    manifest = status.get("progress")
    try:
        if manifest is None:
            return None
        # Before a rollback a newer operator may have written unknown fields.
        return ReportedProgress(ProgressStatus.model_validate(manifest, extra="ignore"))
    except ValidationError:  # not written by the operator; the next report replaces it
        return None


def _remaining_steps(
    step: float | None, total: float | None, fraction: float | None
) -> float | None:
    if step is None:
        return None
    if total is not None:
        return max(0.0, total - step)
    return _at_most(step * (1 / fraction - 1), MAX_STEPS) if fraction else None


def _at_most(value: float | None, limit: float) -> float | None:
    """Return ``value``, at most ``limit``; None for None and NaN."""
    return None if value is None or math.isnan(value) else min(value, limit)


def with_report(
    previous: ReportedProgress | None, report: ProgressReport, now: float, run: ReportedRun
) -> dict[str, Any]:
    """Return ``status.progress`` after ``report``, received at ``now`` (POSIX seconds).

    Fields that the report leaves out keep their last value, except the remaining time.
    """
    timestamp = datetime.fromtimestamp(now, UTC)
    old = previous.status if previous else ProgressStatus(reported_time=timestamp)
    fields = {name: value for name, value in asdict(report).items() if value is not None}
    new = old.model_copy(
        update={
            **fields,
            "reported_time": timestamp,
            "progressed_time": timestamp if _is_news(old, report) else old.progressed_time,
            "remaining_seconds": report.remaining_seconds,
            "worst_loss": _largest(old.worst_loss, report.loss),
            "accuracy_gain": _gain(old, report.accuracy),
            "speeds": _speeds(previous, report.step, now, run),
            "losses": _losses(old.losses, report),
        }
    )
    progress = with_anchor(ReportedProgress(new).progress, run.attained_seconds, run.started)
    anchor = {"first_expected_seconds": progress.anchor_seconds}
    return new.model_copy(update=anchor).to_manifest()


def _is_news(old: ProgressStatus, report: ProgressReport) -> bool:
    """Return whether ``report`` shows progress since the previous report."""
    fields = {
        name: value
        for name, value in asdict(report).items()
        if name in _TRAINING_FIELDS and value is not None
    }
    if not fields:  # only the remaining time can show progress
        return report.remaining_seconds != old.remaining_seconds
    return any(getattr(old, name) != value for name, value in fields.items())


def _largest(*losses: float | None) -> float | None:
    return max((loss for loss in losses if loss is not None), default=None)


def _gain(old: ProgressStatus, accuracy: float | None) -> float | None:
    if accuracy is None:
        return old.accuracy_gain
    return None if old.accuracy is None else accuracy - old.accuracy


def _speeds(
    previous: ReportedProgress | None, step: float | None, now: float, run: ReportedRun
) -> tuple[SpeedSeen, ...]:
    """Return the known speeds, updated by the speed since the last report at the same size."""
    speeds = previous.status.speeds if previous else ()
    last = previous.progress if previous else None
    if last is None or last.steps is None or step is None or last.reported < run.since:
        return speeds
    seconds, steps = now - last.reported, step - last.steps
    if seconds < _MIN_SECONDS or not SLOWEST <= steps / seconds <= FASTEST:
        return speeds
    pace_by_size = {speed.replicas: speed.steps_per_second for speed in speeds}
    earlier = pace_by_size.pop(run.replicas, None)
    pace = steps / seconds
    pace = pace if earlier is None else _NEW_WEIGHT * pace + (1 - _NEW_WEIGHT) * earlier
    recent = [*pace_by_size.items(), (run.replicas, pace)][-MAX_SPEEDS:]
    return tuple(SpeedSeen(replicas=n, steps_per_second=speed) for n, speed in recent)


def _losses(losses: Sequence[LossSeen], report: ProgressReport) -> tuple[LossSeen, ...]:
    """Return the known losses with the reported one. A full history is thinned by half."""
    if report.step is None or report.loss is None:
        return tuple(losses)
    # A restart resumes from a checkpoint: drop losses of later steps.
    earlier = [loss for loss in losses if loss.step < report.step]
    if len(earlier) >= MAX_LOSSES:
        earlier = [*earlier[:-1:2], earlier[-1]]
    return (*earlier, LossSeen(step=report.step, loss=report.loss))


def pause_seconds(failures: int) -> float:
    """Return the pause of a gang after ``failures`` failed starts in a row."""
    # The counter comes from a status and may be any number.
    return 60.0 * min(2.0 ** min(failures - 1, 5), 30.0)


def is_pause(seconds: float, failures: int) -> bool:
    """Return whether a pause after ``failures`` failed starts lasts for ``seconds`` more."""
    # A wrong clock must not delay a gang for much longer than its pause. The clocks of two leaders
    # may differ by seconds.
    return failures > 0 and 0 < seconds <= pause_seconds(failures) + _CLOCK_SKEW_SECONDS


_CLOCK_SKEW_SECONDS: Final = 60.0
FINISHED = ("Succeeded", "Failed")
_DISPLACING_REASONS = (Reason.NODE_LOST, *VACATED)
# Cached properties of JobFacts that depend only on its spec and its tasks.
_TASK_PROPERTIES: Final = (
    "total_request",
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
    """The pods of one task: the task of the core, and their other demands."""

    task: Task
    claims: PodClaims = NO_CLAIMS
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the template and of admission, without the labels that Bireme sets."""
    names_own_labels: bool = False
    """Its affinity rules select pods by labels that Bireme sets."""
    rules: tuple[str, ...] = ()
    """Messages for demands on other pods that only kube-scheduler checks."""
    priority_class: str | None = None
    differences: tuple[PodDifference, ...] = ()
    """Changes of admission that keep the pods from being bound as planned."""
    charges: PodCharges = NO_CHARGES
    images: tuple[str, ...] = ()


PodShape: TypeAlias = tuple[str, str, str]
"""Key of equal treatment by admission: namespace, PriorityClass, template."""


@dataclass(frozen=True)
class JobFacts:
    """One TrainingJob as the operator uses it; times are POSIX seconds.

    Thousands wait, with templates of any size. Templates stay JSON until pods are created: as
    Python objects they would take about ten times the memory.
    """

    key: Key
    uid: str
    resource_version: str
    generation: int
    created: float
    is_leaving: bool
    orphans_pods: bool
    """It is being deleted without its pods (``kubectl delete --cascade=orphan``)."""
    spec: TrainingJobSpec | None
    """The spec without the pod templates."""
    templates: tuple[bytes, ...]
    """The pod template of each task, as JSON."""
    spec_hash: str
    """Digest of the inputs of a plan."""
    template: str
    """Digest that jobs of the same kind of work share: 16 hex digits; empty with a fault.

    It covers, for every task in the order of the spec, the role, the replicas and the request of
    one replica (as amounts: 1 equals 1000m). For each container it covers the image, command and
    arguments. It covers no names, labels, environment, volumes, constraints, limits, elastic
    bounds, queue or run policy.
    """
    pod_shapes: tuple[PodShape, ...]
    """The shape of the pods of each task."""
    tasks: tuple[Task, ...]
    """Its tasks as they are planned, with the known changes of admission to its pods."""
    fault: tuple[Reason, str] | None
    status: dict[str, Any]
    plan: PlanFacts | None = None
    """The plan in the status; it may belong to an earlier attempt."""
    pods: tuple[TaskPods, ...] = ()
    """Its tasks with all demands of their pods, after admission."""
    template_pods: tuple[TaskPods, ...] = ()
    """Its tasks with all demands of their pods, by the templates."""
    default_queue: str = ""
    """Default queue of its namespace for jobs that name no queue; empty for ``default``."""

    @property
    def tasks_by_rank(self) -> list[Task]:
        """Its tasks in the order of their ranks: the task of the leader comes first."""
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
        """Messages for demands of its pods on other pods that only kube-scheduler checks."""
        return tuple(dict.fromkeys(rule for pods in self.pods for rule in pods.rules))

    @property
    def priority_class(self) -> str | None:
        """The PriorityClass of its pods; None for the cluster's default one."""
        return next((pods.priority_class for pods in self.pods if pods.priority_class), None)

    @property
    def admission_fault(self) -> tuple[Reason, str] | None:
        """The fault that admission changes its pods so that they cannot be bound as planned."""
        for pods_of_task in self.pods:
            if pods_of_task.differences:
                text = text_of(pods_of_task.task.name, pods_of_task.differences)
                return Reason.PODS_REFUSED, f"{text}; a dry run checks again every minute"
        return None

    def with_pods(self, pods: tuple[TaskPods, ...]) -> "JobFacts":
        """Return the job with the tasks of ``pods``, one item per task."""
        return replace(self, tasks=tuple(task_pods.task for task_pods in pods), pods=pods)

    def labels_of(self, place: int) -> dict[str, str]:
        """Return the labels that all pods of the task at ``place`` have."""
        return {**self.pods[place].labels, **self._own_labels(place)}

    @cached_property
    def label_pairs(self) -> tuple[tuple[str, str], ...]:
        """All labels of the pods of its tasks."""
        labels = (self.labels_of(place).items() for place in range(len(self.pods)))
        return tuple(dict.fromkeys(chain.from_iterable(labels)))

    def _own_labels(self, place: int) -> dict[str, str]:
        return _own_labels(self.key[1], self.queue, self.template_pods[place].task)

    @property
    def queue(self) -> str:
        """The queue of its spec, or else of its namespace; empty for an invalid spec."""
        return queue_of(self.spec.queue, self.default_queue) if self.spec is not None else ""

    @property
    def is_finished(self) -> bool:
        """True if the job has ended for good."""
        return self.phase in FINISHED

    @property
    def keeps_pods(self) -> bool:
        """True if its pods keep running after it has finished."""
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
    def queue_time(self) -> float:
        """The last time it joined the queue, POSIX seconds."""
        return quantities.parse_timestamp(self.status.get("queuedTime")) or self.created

    @property
    def is_displaced(self) -> bool:
        """True if it lost its places by no fault of its own, so that it restarts ahead of others.

        It lost a node, or was stopped for maintenance or for faster GPUs. False if its user has
        stopped it since.
        """
        is_stopped = self.is_leaving or self.is_suspended or self.wait.is_anew
        return (
            self.phase == "Restarting" and self.last_stop in _DISPLACING_REASONS and not is_stopped
        )

    @property
    def last_stop(self) -> str:
        """The reason why it last stopped or did not start; empty for none."""
        # The reason of the phase changes to that of the wait. The condition keeps this reason.
        conditions = self.status.get("conditions") or ()
        return next((str(c.get("reason")) for c in conditions if c.get("type") == "Running"), "")

    @property
    def start_failures(self) -> int:
        """The number of failed starts in a row; an edit of the spec resets it."""
        if self.status.get("observedGeneration") != self.generation:
            return 0
        return int(self.status.get("startFailures") or 0)

    @property
    def has_timed_out(self) -> bool:
        """True if its last start timed out, possibly because of image pulls."""
        return bool(self.start_failures) and self.last_stop == Reason.START_TIMED_OUT

    @property
    def retry_time(self) -> float:
        """Time of the next start after a failed one, POSIX seconds; 0 without a failed start."""
        return quantities.parse_timestamp(self.status.get("retryTime")) or 0.0

    @property
    def rejecting_nodes(self) -> tuple[str, ...]:
        """The nodes whose kubelets have rejected its pods since it last ran."""
        return tuple(self.status.get("rejectedBy") or ())

    def is_pausing(self, now: float) -> bool:
        """Return whether it pauses after a failed start."""
        return is_pause(self.retry_time - now, self.start_failures)

    @property
    def earlier_wait_seconds(self) -> float:
        """Seconds of its waits before it last joined the queue."""
        return float(self.status.get("waitSeconds") or 0)

    @cached_property
    def wait(self) -> waits.Wait:
        """The sum of its waits."""
        status = self.status
        seconds, uncounted = waits.self_caused_wait(status)
        if waits.is_raised(status, self.total_request):
            return waits.ANEW
        if "admittedTime" in status:  # the wait ended with the admission: the status has all of it
            return waits.Wait(0.0, self.earlier_wait_seconds, 0.0, uncounted=seconds)
        if waits.is_other(status, self.queue, self.wait_key):
            return waits.ANEW
        # The pause after a failed start does not count as waiting.
        since = max(self.queue_time, self.retry_time)
        parked = waits.park_time(status)
        return waits.Wait(
            since, self.earlier_wait_seconds, parked, uncounted=seconds, uncounted_since=uncounted
        )

    @cached_property
    def wait_key(self) -> str:
        """Digest of the nodes and kinds of pods that it waits for.

        The number of pods of a kind is no part of it: fewer pods keep the wait, and more pods are
        a raised request.
        """
        kinds = [
            (
                *(task.name, task.request, task.constraints.node_selector),
                *(task.constraints.affinity_terms, task.constraints.tolerations),
            )
            for task in map(_task_of, self.template_pods)
        ]
        affinity = self.spec.role_affinity if self.spec is not None else None
        # Only tuples, texts and numbers: ``repr`` is the same in every process.
        return hashlib.sha256(repr((kinds, affinity)).encode()).hexdigest()[:16]

    @cached_property
    def total_request(self) -> dict[str, int]:
        """The total request of its replicas by its templates; empty if they cannot be read."""
        total: dict[str, int] = {}
        for task in map(_task_of, self.template_pods):
            total = add(total, task.request, task.replicas)
        return total

    @cached_property
    def request_manifest(self) -> dict[str, str]:
        """The total request in the form of ``status.request``."""
        return waits.request_manifest(self.total_request)

    @property
    def earlier_run_seconds(self) -> float:
        """Seconds that earlier starts ran."""
        return float(self.status.get("runSeconds") or 0)

    @property
    def running_since(self) -> float | None:
        """Transition time of its condition Running, POSIX seconds; None if it does not run."""
        for condition in self.status.get("conditions") or ():
            if condition.get("type") == "Running" and condition.get("status") == "True":
                return quantities.parse_timestamp(condition.get("lastTransitionTime"))
        return None

    @property
    def owner_estimate_seconds(self) -> float | None:
        """The run time that its owner estimates; for an admitted job, the estimate at admission.

        Otherwise an owner could protect a running job by edits that always put its end near.
        """
        if "admittedTime" in self.status and "estimatedSeconds" in self.status:
            return float(self.status["estimatedSeconds"]) or None
        duration = self.spec.estimated_duration if self.spec is not None else None
        return None if duration is None else quantities.parse_duration(duration)

    @property
    def has_checkpoint(self) -> bool:
        """True if it has reported a checkpoint, in this start or an earlier one."""
        return (
            self.latest_progress is not None
            and self.latest_progress.status.checkpoint_step is not None
        )

    @cached_property
    def latest_progress(self) -> ReportedProgress | None:
        """The last reported progress; None before the first report."""
        return progress_of(self.status)

    def gang(
        self,
        priority: int,
        fault: tuple[Reason, str] | None = None,
        may_preempt: bool = True,
        learned_seconds: float | None = None,
    ) -> Gang:
        """Return the job as a waiting gang, with the sum of its waits.

        ``learned_seconds`` is the learned run time, used if the owner gave no estimate.
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
            arrived=self.wait.arrival_time,
            parked=self.wait.parked,
            uncounted_seconds=self.wait.uncounted,
            uncounted_since=self.wait.uncounted_since,
            priority=priority,
            # A gang whose own start failed does not go ahead of its equals.
            interrupted=self.phase == "Restarting" and not self.start_failures,
            displaced=self.is_displaced,
            fault=self.fault or fault,
            attained_seconds=self.earlier_run_seconds,
            evictions=int(self.status.get("preemptions") or 0),
            yields=int(self.status.get("yields") or 0),
            user=self.key[0],
            estimated_seconds=learned_seconds,
            may_preempt=may_preempt,
            left_to_scheduler="; ".join(self.rules),
        )
        gang = (
            gang
            if self.spec is None
            else _with_spec_fields(gang, self.spec, self.owner_estimate_seconds)
        )
        if (latest := self.latest_progress) is None:
            return gang
        return replace(gang, progress=latest.progress, speed=latest.speed, loss=latest.loss)


def _with_spec_fields(
    gang: Gang, spec: TrainingJobSpec, owner_estimate_seconds: float | None
) -> Gang:
    """Return ``gang`` with the fields of the spec other than the tasks."""
    affinity = spec.role_affinity
    learned = gang.estimated_seconds
    return replace(
        gang,
        min_available=spec.min_available or 0,
        role_affinity=RoleAffinity(AffinityMode(affinity.mode), affinity.topology_key),
        estimated_seconds=learned if owner_estimate_seconds is None else owner_estimate_seconds,
        is_learned_estimate=owner_estimate_seconds is None and learned is not None,
        min_runtime_seconds=spec.run_policy.min_runtime_seconds,
        is_elastic=spec.is_elastic,
    )


def from_manifest(
    job: wire.CustomObject,
    topology_levels: tuple[str, ...] = (),
    previous: JobFacts | None = None,
    default_queue: str = "",
) -> JobFacts:
    """Return the facts of one TrainingJob. Never raises: ``fault`` says what is wrong.

    ``topology_levels`` are the label keys that a role affinity may name besides the hostname;
    without any, every key is accepted. ``previous`` are the facts of its last version. Most events
    change only the status: the facts of the spec are then reused. ``default_queue`` is the queue of
    its namespace for jobs that name none; empty for ``default``.
    """
    meta, spec_facts = job.metadata, previous
    # The API server increments the generation with every change of the spec.
    if spec_facts is None or (spec_facts.uid, spec_facts.generation) != (meta.uid, meta.generation):
        spec_facts = _of_new_spec(job, topology_levels, default_queue)
    facts = replace(
        spec_facts,
        resource_version=meta.resource_version,
        is_leaving=meta.deletion_timestamp is not None,
        orphans_pods=_ORPHANS in (meta.finalizers or ()),
        status=job.status,
        plan=plans.read(job.status, previous),
    )
    _take_over(facts, spec_facts)
    return facts


def _take_over(facts: JobFacts, source: JobFacts) -> None:
    """Copy the cached properties of ``source`` that are still valid."""
    cached = vars(source)
    vars(facts).update((name, cached[name]) for name in _TASK_PROPERTIES if name in cached)


def _task_of(pods: TaskPods) -> Task:
    return pods.task


def with_default_queue(job: JobFacts, default_queue: str) -> JobFacts:
    """Return ``job`` with another default queue of its namespace."""
    if job.spec is None or job.spec.queue is not None or not job.template_pods:
        return replace(job, default_queue=default_queue)
    queue = queue_of(None, default_queue)
    raw_tasks = [{"template": msgspec.json.decode(template)} for template in job.templates]
    template_pods = tuple(
        _template_pods(job.key, job.spec, queue, task, raw["template"], _typed_spec(task, template))
        for task, raw, template in zip(job.spec.tasks, raw_tasks, job.templates, strict=True)
    )
    return replace(
        job,
        default_queue=default_queue,
        template_pods=template_pods,
        pods=template_pods,
        tasks=tuple(map(_task_of, template_pods)),
        pod_shapes=tuple(_pod_shapes(job.key, job.spec, queue, raw_tasks, template_pods)),
    )


def _of_new_spec(
    job: wire.CustomObject, topology_levels: tuple[str, ...], default_queue: str
) -> JobFacts:
    """Return the facts of the spec, with an empty status."""
    meta = job.metadata
    key = meta.namespace, meta.name
    template_pods: tuple[TaskPods, ...] = ()
    raw_tasks: list[dict[str, Any]] = []
    templates: tuple[bytes, ...] = ()
    spec, fault = _spec(job.spec)
    queue = queue_of(spec.queue, default_queue) if spec is not None else ""
    if spec is not None:
        raw_tasks = job.fields["tasks"]
        templates = tuple(msgspec.json.encode(raw["template"]) for raw in raw_tasks)
        try:
            pod_specs = [*map(_typed_spec, spec.tasks, templates)]
            specs_by_task = zip((task.name for task in spec.tasks), pod_specs, strict=True)
            fault = job_sizes.of_placing(specs_by_task) or job_sizes.of_pods(key, spec, templates)
            if fault is None:
                template_pods = tuple(
                    _template_pods(key, spec, queue, task, raw["template"], pod_spec)
                    for task, raw, pod_spec in zip(spec.tasks, raw_tasks, pod_specs, strict=True)
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
        template=_kind_of_work(template_pods, raw_tasks) if template_pods else "",
        pod_shapes=tuple(_pod_shapes(key, spec, queue, raw_tasks, template_pods))
        if spec is not None
        else (),
        tasks=tuple(map(_task_of, template_pods)),
        fault=fault,
        status={},
        pods=template_pods,
        template_pods=template_pods,
        default_queue=default_queue,
    )


def _without_templates(spec: TrainingJobSpec) -> TrainingJobSpec:
    update = {"template": _NO_TEMPLATE}
    tasks = tuple(task.model_copy(update=update) for task in spec.tasks)
    return _intern(spec.model_copy(update={"tasks": tasks}))


@lru_cache(maxsize=1024)
def _intern(spec: TrainingJobSpec) -> TrainingJobSpec:
    """Return the first of equal specs: many jobs differ only in their names."""
    return spec


def _kind_of_work(template_pods: Iterable[TaskPods], raw_tasks: Iterable[dict[str, Any]]) -> str:
    return spec_digest(
        [
            {
                "role": task.role.value,
                "replicas": task.replicas,
                "request": task.request,
                "programs": _programs(raw["template"]["spec"]),
            }
            for task, raw in zip(map(_task_of, template_pods), raw_tasks, strict=True)
        ]
    )


def _pod_shapes(
    key: Key,
    spec: TrainingJobSpec,
    queue: str,
    raw_tasks: Iterable[dict[str, Any]],
    template_pods: Sequence[TaskPods],
) -> Iterator[PodShape]:
    for place, raw in enumerate(raw_tasks):
        parts = [raw["template"]]
        # Equal templates have different rules if these use labels that Bireme sets.
        if template_pods and template_pods[place].names_own_labels:
            parts.append(_own_labels(key[1], queue, template_pods[place].task))
        yield key[0], spec.priority_class_name or "", spec_digest(parts)


def _affinity_fault(
    spec: TrainingJobSpec, topology_levels: tuple[str, ...]
) -> tuple[Reason, str] | None:
    """Return the fault of a role affinity that cannot be met, if any."""
    affinity = spec.role_affinity
    if affinity.mode == "None":
        return None
    if topology_levels and affinity.topology_key not in (HOSTNAME_LABEL, *topology_levels):
        return Reason.SPEC_INVALID, (
            f"spec.roleAffinity.topologyKey {affinity.topology_key!r} is no topology level here; "
            f"use one of {', '.join(topology_levels)}"
        )
    roles = [task.role for task in spec.tasks]
    if affinity.mode == "Required" and (roles.count("ps"), roles.count("worker")) != (1, 1):
        return Reason.SPEC_INVALID, (
            f"spec.roleAffinity.mode Required needs one task of role ps and one of role worker, "
            f"not {roles.count('ps')} and {roles.count('worker')}; merge the tasks or choose "
            "Preferred"
        )
    return None


def _spec(raw: msgspec.Raw) -> tuple[TrainingJobSpec | None, tuple[Reason, str] | None]:
    if (fault := job_sizes.of_spec(raw)) is not None:
        return None, fault
    # The API server stores objects that are nested ten thousand levels deep. Validation and
    # encoding would recurse as deep.
    if wire.is_too_deep(raw):
        limit = f"spec is nested more than {wire.DEPTH_LIMIT} levels deep; flatten its template"
        return None, (Reason.SPEC_INVALID, limit)
    spec, problem = TrainingJobSpec.read(msgspec.json.decode(raw))
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


def _typed_spec(task: TaskSpec, template: bytes) -> wire.V1PodSpec:
    """Return the typed pod spec of the template of a task.

    Raises:
        ValueError: a field has the wrong type.
    """
    try:
        return pods.spec_of_template(template)
    except msgspec.ValidationError as error:
        raise ValueError(f"spec.tasks[{task.name}].template.spec: {error}") from error


def _template_pods(
    key: Key,
    spec: TrainingJobSpec,
    queue: str,
    task: TaskSpec,
    template: dict[str, Any],
    pod_spec: wire.V1PodSpec,
) -> TaskPods:
    """Return the pods of a task by its template; ``pod_spec`` is the typed spec of it."""
    role = Role(task.role)
    bare_task = Task(
        name=task.name,
        replicas=task.replicas,
        request=(),
        role=role,
        min_replicas=task.min_replicas or 0,
        max_replicas=task.max_replicas or 0,
        priority=role.default_priority if task.priority is None else task.priority,
    )
    try:
        template_labels = (template.get("metadata") or {}).get("labels") or {}
        labels = {**template_labels, **_own_labels(key[1], queue, bare_task)}
        task_pods = with_spec(TaskPods(bare_task), pod_spec, key[0], labels, pod_spec)
    except (ValueError, msgspec.ValidationError) as error:
        raise ValueError(f"spec.tasks[{task.name}].template.spec: {error}") from error
    if pod_spec.restart_policy == "Always":
        raise ValueError(
            f"spec.tasks[{task.name}].template.spec.restartPolicy: Always never ends; "
            "use Never or OnFailure"
        )
    return replace(task_pods, priority_class=spec.priority_class_name)


def with_spec(
    task_pods: TaskPods,
    spec: wire.V1PodSpec,
    namespace: str,
    labels: Mapping[str, str],
    template: wire.V1PodSpec,
) -> TaskPods:
    """Return the pods of a task with the demands of ``spec``, the spec of one of them.

    This pod is in ``namespace``, has ``labels`` and was created from ``template``.

    Raises:
        ValueError: a quantity or an operator in it cannot be read.
    """
    return TaskPods(
        task=replace(
            task_pods.task,
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
