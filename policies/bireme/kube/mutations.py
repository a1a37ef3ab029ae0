"""What mutating admission makes of the pods of a task: learned from dry runs, and from pods.

A LimitRange, a RuntimeClass with overhead or a webhook may change a pod when it is created: it
asks for more, tolerates or selects other nodes, has another priority, or labels that rules over
pods select by. Gangs are planned with what
comes back. Pods of one shape (namespace, PriorityClass and template) are changed alike.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bireme.core.gangs import NodeConstraints, Toleration
from bireme.core.resources import Request, add, request_of
from bireme.kube import wire
from bireme.kube.pod_comparison import Difference
from bireme.kube.pods import spec_of_template
from bireme.kube.training_jobs import JobFacts, PodShape, TaskPods, with_spec

FRESH_SECONDS = 600.0
"""What was learned is learned anew after so long, before the next gang of the shape starts."""
_REFUSED_SECONDS = 45.0
"""The same where it keeps the gang from starting: admission may have been corrected."""
_MAX_SHAPES = 50_000
_MAX_BYTES = 64 * 1024 * 1024
"""Of the templates of all shapes whose pods are changed: tenants choose how large these are."""
# The API server adds these to every pod. They matter only on nodes that are not ready.
_DEFAULT_TOLERATIONS = tuple(
    Toleration(f"node.kubernetes.io/{condition}", "Exists", effect="NoExecute")
    for condition in ("not-ready", "unreachable")
)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a shape since ``at``; ``pods`` is None where nothing was changed."""

    at: float
    pods: TaskPods | None
    template_bytes: int = 0
    """Of a shape whose pods are changed."""


class Mutations:
    """What the API server makes of pods, by shape. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._known: dict[PodShape, _Known] = {}
        self._bytes = 0

    def unknown(self, job: JobFacts, now: float) -> list[int]:
        """Return the places of the tasks of ``job`` of whose pods nothing is known, or too old."""
        seen: set[PodShape] = set()
        places = []
        for place, shape in enumerate(job.pod_shapes):
            known = self._known.get(shape)
            if shape not in seen and (known is None or now - known.at > _fresh_seconds(known)):
                places.append(place)
            seen.add(shape)
        return places

    def put(
        self,
        job: JobFacts,
        place: int,
        pod: wire.V1Pod,
        now: float,
        changes: tuple[Difference, ...] = (),
    ) -> None:
        """Take in ``pod``, what the API server makes of one of the task at ``place`` of ``job``.

        For ``changes`` that it made, such a pod would not be bound as planned.

        Raises:
            ValueError: a quantity or an operator in its spec cannot be read.
        """
        written, template = job.written[place], spec_of_template(job.templates[place])
        found = with_spec(written, pod.spec, job.key[0], pod.metadata.labels or {}, template)
        given = written.task.constraints
        constraints = _without_defaults(found.task.constraints, given)
        task = replace(found.task, constraints=constraints)
        found = replace(found, task=task, differences=changes)
        if written.priority_class is None:
            # The class is the cluster's default one, which is known without.
            found = replace(found, priority_class=None)
        self._store(job, place, _Known(now, None if found == written else found))

    def put_unchanged(self, job: JobFacts, place: int, now: float) -> None:
        """Take note that nothing can be learned of the task at ``place`` before its pods exist."""
        self._store(job, place, _Known(now, None))

    def put_created(
        self, job: JobFacts, place: int, request: Request, labels: Mapping[str, str], now: float
    ) -> None:
        """Take in that a pod of the task at ``place`` of ``job`` asks ``request``, has ``labels``.

        Either may be empty, where it is as planned.
        """
        known = job.pods[place]
        task = replace(known.task, request=_most(known.task.request, request))
        found = replace(known, task=task, labels={**known.labels, **labels})
        self._store(job, place, _Known(now, found))

    def _store(self, job: JobFacts, place: int, known: _Known) -> None:
        self._drop(job.pod_shapes[place])
        if known.pods is not None:
            known = replace(known, template_bytes=len(job.templates[place]))
        self._known[job.pod_shapes[place]] = known
        self._bytes += known.template_bytes
        while len(self._known) > _MAX_SHAPES or self._bytes > _MAX_BYTES:
            self._drop(next(iter(self._known)))  # the oldest

    def _drop(self, shape: PodShape) -> None:
        if (known := self._known.pop(shape, None)) is not None:
            self._bytes -= known.template_bytes

    def forget(self, job: JobFacts) -> None:
        """Have what is known of the pods of ``job`` learned anew before it is next admitted."""
        for shape in job.pod_shapes:
            self._drop(shape)

    def apply(self, job: JobFacts) -> JobFacts:
        """Return ``job`` with its tasks as its pods will be; the same object if they are so."""
        if not self._known or not job.written:
            return job
        pods = tuple(self._applied(job))
        return job if pods == job.pods else job.with_pods(pods)

    def _applied(self, job: JobFacts) -> Iterable[TaskPods]:
        for shape, written, planned in zip(job.pod_shapes, job.written, job.pods, strict=True):
            known = self._known.get(shape)
            if known is None:
                yield planned  # what was learned earlier, or as it is written
            elif known.pods is None:
                yield written
            else:
                task = replace(
                    written.task,
                    request=known.pods.task.request,
                    constraints=known.pods.task.constraints,
                    pod=known.pods.task.pod,
                    preferences=known.pods.task.preferences,
                )
                yield replace(known.pods, task=task)


def _fresh_seconds(known: _Known) -> float:
    is_refused = known.pods is not None and bool(known.pods.differences)
    return _REFUSED_SECONDS if is_refused else FRESH_SECONDS


def _without_defaults(found: NodeConstraints, written: NodeConstraints) -> NodeConstraints:
    tolerations = tuple(
        each
        for each in found.tolerations
        if each not in _DEFAULT_TOLERATIONS or each in written.tolerations
    )
    return replace(found, tolerations=tolerations)


def _most(left: Request, right: Request) -> Request:
    amounts = add({}, left)
    for name, amount in right:
        amounts[name] = max(amounts.get(name, 0), amount)
    return request_of(amounts)
