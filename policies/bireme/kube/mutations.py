"""Changes of mutating admission to the pods of a task, learned from dry runs and from pods.

A LimitRange, a RuntimeClass with overhead or a webhook may change a pod when it is created. They
may change its request, tolerations, node selector, priority, or the labels that affinity rules
select. Gangs are planned with the changed pods. Admission changes all pods of one shape
(namespace, PriorityClass and template) alike.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bireme.core.pod_constraints import NodeConstraints, Toleration
from bireme.core.resources import Request, add, request_of
from bireme.kube import wire
from bireme.kube.job_pods import PodShape, TaskPods, with_spec
from bireme.kube.pod_comparison import PodDifference
from bireme.kube.pods import spec_of_template
from bireme.kube.training_jobs import JobFacts

FRESH_SECONDS = 600.0
"""An older entry is learned again before the next gang of its shape starts."""
_REFUSED_SECONDS = 45.0
"""The same for an entry that keeps a gang from starting: admission may have been corrected."""
_MAX_SHAPES = 50_000
_MAX_BYTES = 64 * 1024 * 1024
"""Bound of the templates of all changed shapes: tenants choose their size."""
# The API server adds these to every pod. They matter only on nodes that are not ready.
_DEFAULT_TOLERATIONS = tuple(
    Toleration(f"node.kubernetes.io/{condition}", "Exists", effect="NoExecute")
    for condition in ("not-ready", "unreachable")
)


@dataclass(frozen=True, slots=True)
class _Entry:
    """The pods of a shape, learned at ``learned_at``; ``pods`` is None without a change."""

    learned_at: float
    pods: TaskPods | None
    template_bytes: int = 0
    """Size of the template; 0 without a change."""


class Mutations:
    """Changes of admission to pods, by shape. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._entries: dict[PodShape, _Entry] = {}
        self._bytes = 0

    def unknown(self, job: JobFacts, now: float) -> list[int]:
        """Return the indices of the tasks of ``job`` whose entry is missing or too old."""
        shapes: set[PodShape] = set()
        places = []
        for place, shape in enumerate(job.pod_shapes):
            entry = self._entries.get(shape)
            if shape not in shapes and (
                entry is None or now - entry.learned_at > _fresh_seconds(entry)
            ):
                places.append(place)
            shapes.add(shape)
        return places

    def put(
        self,
        job: JobFacts,
        place: int,
        pod: wire.V1Pod,
        now: float,
        changes: tuple[PodDifference, ...] = (),
    ) -> None:
        """Store ``pod``, the API server's version of a pod of the task at ``place`` of ``job``.

        ``changes`` are changes that keep such a pod from being bound as planned.

        Raises:
            ValueError: a quantity or an operator in its spec cannot be read.
        """
        spec_pods, template = job.template_pods[place], spec_of_template(job.templates[place])
        mutation = with_spec(spec_pods, pod.spec, job.key[0], pod.metadata.labels or {}, template)
        spec_constraints = spec_pods.task.constraints
        constraints = _without_defaults(mutation.task.constraints, spec_constraints)
        task = replace(mutation.task, constraints=constraints)
        mutation = replace(mutation, task=task, differences=changes)
        if spec_pods.priority_class is None:
            # Admission set the cluster's default class, which the tenancy knows anyway.
            mutation = replace(mutation, priority_class=None)
        self._store(job, place, _Entry(now, None if mutation == spec_pods else mutation))

    def put_unchanged(self, job: JobFacts, place: int, now: float) -> None:
        """Record that the task at ``place`` cannot be learned before its pods exist."""
        self._store(job, place, _Entry(now, None))

    def put_created(
        self, job: JobFacts, place: int, request: Request, labels: Mapping[str, str], now: float
    ) -> None:
        """Store the request and labels of a created pod of the task at ``place`` of ``job``.

        Each is empty if it is as planned.
        """
        current = job.pods[place]
        task = replace(current.task, request=_larger(current.task.request, request))
        mutation = replace(current, task=task, labels={**current.labels, **labels})
        self._store(job, place, _Entry(now, mutation))

    def _store(self, job: JobFacts, place: int, entry: _Entry) -> None:
        self._drop(job.pod_shapes[place])
        if entry.pods is not None:
            entry = replace(entry, template_bytes=len(job.templates[place]))
        self._entries[job.pod_shapes[place]] = entry
        self._bytes += entry.template_bytes
        while len(self._entries) > _MAX_SHAPES or self._bytes > _MAX_BYTES:
            self._drop(next(iter(self._entries)))  # the oldest

    def _drop(self, shape: PodShape) -> None:
        if (entry := self._entries.pop(shape, None)) is not None:
            self._bytes -= entry.template_bytes

    def forget(self, job: JobFacts) -> None:
        """Drop the entries of ``job``: they are learned again before its next admission."""
        for shape in job.pod_shapes:
            self._drop(shape)

    def apply(self, job: JobFacts) -> JobFacts:
        """Return ``job`` with the changes of admission; the same object without any."""
        if not self._entries or not job.template_pods:
            return job
        pods = tuple(self._pods_of_tasks(job))
        if pods == job.pods:
            return job
        return replace(job, tasks=tuple(of_task.task for of_task in pods), pods=pods)

    def _pods_of_tasks(self, job: JobFacts) -> Iterable[TaskPods]:
        for shape, spec_pods, current in zip(
            job.pod_shapes, job.template_pods, job.pods, strict=True
        ):
            entry = self._entries.get(shape)
            if entry is None:
                yield current  # learned earlier, or as in the spec
            elif entry.pods is None:
                yield spec_pods
            else:
                task = replace(
                    spec_pods.task,
                    request=entry.pods.task.request,
                    constraints=entry.pods.task.constraints,
                    pod=entry.pods.task.pod,
                    preferences=entry.pods.task.preferences,
                )
                yield replace(entry.pods, task=task)


def _fresh_seconds(entry: _Entry) -> float:
    is_refused = entry.pods is not None and bool(entry.pods.differences)
    return _REFUSED_SECONDS if is_refused else FRESH_SECONDS


def _without_defaults(
    constraints: NodeConstraints, spec_constraints: NodeConstraints
) -> NodeConstraints:
    tolerations = tuple(
        toleration
        for toleration in constraints.tolerations
        if toleration not in _DEFAULT_TOLERATIONS or toleration in spec_constraints.tolerations
    )
    return replace(constraints, tolerations=tolerations)


def _larger(first: Request, second: Request) -> Request:
    amounts = add({}, first)
    for name, amount in second:
        amounts[name] = max(amounts.get(name, 0), amount)
    return request_of(amounts)
