"""Read TrainingJobs: their spec as a waiting gang, and what their status says of them.

The API server has validated the spec. Other errors (an invalid pod template, an unreadable
quantity) become the gang's fault, so that one bad object stops nothing else.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Final

import msgspec

from bireme.core.decision import VACATED
from bireme.core.gangs import AffinityMode, Gang, Key, RoleAffinity, Task
from bireme.core.nodes import HOSTNAME_LABEL
from bireme.core.reasons import Reason
from bireme.core.resources import add
from bireme.kube import (
    envelopes,
    job_sizes,
    plans,
    quantities,
    waits,
    wire,
)
from bireme.kube.api.training_job import (
    Container,
    PodSpec,
    PodTemplate,
    TrainingJobSpec,
)
from bireme.kube.job_pods import (
    PodShape,
    TaskPods,
    kind_of_work,
    labels_by_bireme,
    pod_shapes,
    pods_of_template,
    typed_spec,
)
from bireme.kube.plans import PlanFacts, spec_digest
from bireme.kube.pod_comparison import text_of
from bireme.kube.progress_reports import ReportedProgress, progress_of
from bireme.kube.tenancy import queue_of, queue_source
from bireme.kube.volume_objects import NO_CLAIMS, PodClaims

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

    def labels_of(self, place: int) -> dict[str, str]:
        """Return the labels that all pods of the task at ``place`` have."""
        task = self.template_pods[place].task
        return {**self.pods[place].labels, **labels_by_bireme(self.key[1], self.queue, task)}

    @cached_property
    def label_pairs(self) -> tuple[tuple[str, str], ...]:
        """All labels of the pods of its tasks."""
        labels = (self.labels_of(place).items() for place in range(len(self.pods)))
        return tuple(dict.fromkeys(chain.from_iterable(labels)))

    @property
    def queue(self) -> str:
        """The queue of its spec, or else of its namespace; empty for an invalid spec."""
        return queue_of(self.spec.queue, self.default_queue) if self.spec is not None else ""

    @property
    def is_finished(self) -> bool:
        """True if the job has ended for good."""
        return self.phase in FINISHED

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
        return waits.is_pause(self.retry_time - now, self.start_failures)

    @cached_property
    def wait(self) -> waits.Wait:
        """The sum of its waits."""
        status = self.status
        earlier_seconds = float(status.get("waitSeconds") or 0)
        seconds, uncounted = waits.self_caused_wait(status)
        if waits.is_raised(status, self.total_request):
            return waits.ANEW
        if "admittedTime" in status:  # the wait ended with the admission: the status has all of it
            return waits.Wait(0.0, earlier_seconds, 0.0, uncounted=seconds)
        if waits.is_other(status, self.queue, self.wait_key):
            return waits.ANEW
        # The pause after a failed start does not count as waiting.
        since = max(self.queue_time, self.retry_time)
        parked = waits.park_time(status)
        return waits.Wait(
            since, earlier_seconds, parked, uncounted=seconds, uncounted_since=uncounted
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
        pods_of_template(
            job.key, job.spec, queue, task, raw["template"], typed_spec(task, template)
        )
        for task, raw, template in zip(job.spec.tasks, raw_tasks, job.templates, strict=True)
    )
    return replace(
        job,
        default_queue=default_queue,
        template_pods=template_pods,
        pods=template_pods,
        tasks=tuple(map(_task_of, template_pods)),
        pod_shapes=tuple(pod_shapes(job.key, job.spec, queue, raw_tasks, template_pods)),
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
            pod_specs = [*map(typed_spec, spec.tasks, templates)]
            specs_by_task = zip((task.name for task in spec.tasks), pod_specs, strict=True)
            fault = job_sizes.of_placing(specs_by_task) or job_sizes.of_pods(key, spec, templates)
            if fault is None:
                template_pods = tuple(
                    pods_of_template(key, spec, queue, task, raw["template"], pod_spec)
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
        template=kind_of_work(template_pods, raw_tasks) if template_pods else "",
        pod_shapes=tuple(pod_shapes(key, spec, queue, raw_tasks, template_pods))
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
    if envelopes.is_too_deep(raw):
        limit = (
            f"spec is nested more than {envelopes.DEPTH_LIMIT} levels deep; flatten its template"
        )
        return None, (Reason.SPEC_INVALID, limit)
    spec, problem = TrainingJobSpec.read(msgspec.json.decode(raw))
    return spec, (Reason.SPEC_INVALID, problem) if problem else None
