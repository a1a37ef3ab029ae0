"""The pods of the tasks of a TrainingJob, by its templates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import msgspec

from bireme.core.gangs import Key, Role, Task
from bireme.kube import (
    names,
    pod_rules,
    pods,
    preferences,
    volume_objects,
    wire,
)
from bireme.kube.api.training_job import (
    TaskSpec,
    TrainingJobSpec,
)
from bireme.kube.plans import spec_digest
from bireme.kube.pod_comparison import PodDifference
from bireme.kube.resource_quotas import NO_CHARGES, PodCharges, charges_of
from bireme.kube.volume_objects import NO_CLAIMS, PodClaims

PodShape: TypeAlias = tuple[str, str, str]
"""Key of equal treatment by admission: namespace, PriorityClass, template."""


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


def typed_spec(task: TaskSpec, template: bytes) -> wire.V1PodSpec:
    """Return the typed pod spec of the template of a task.

    Raises:
        ValueError: a field has the wrong type.
    """
    try:
        return pods.spec_of_template(template)
    except msgspec.ValidationError as error:
        raise ValueError(f"spec.tasks[{task.name}].template.spec: {error}") from error


def pods_of_template(
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
        labels = {**template_labels, **labels_by_bireme(key[1], queue, bare_task)}
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


def labels_by_bireme(job: str, queue: str, task: Task) -> dict[str, str]:
    """Return the labels that Bireme sets on the pods of a task."""
    return {
        names.JOB_LABEL: job,
        names.POD_GROUP_LABEL: job,
        names.TASK_LABEL: task.name,
        names.ROLE_LABEL: task.role.value,
        names.QUEUE_LABEL: queue,
    }


def pod_shapes(
    key: Key,
    spec: TrainingJobSpec,
    queue: str,
    raw_tasks: Iterable[dict[str, Any]],
    template_pods: Sequence[TaskPods],
) -> Iterator[PodShape]:
    """Yield the shape of the pods of each task."""
    for place, raw in enumerate(raw_tasks):
        parts = [raw["template"]]
        # Equal templates have different rules if these use labels that Bireme sets.
        if template_pods and template_pods[place].names_own_labels:
            parts.append(labels_by_bireme(key[1], queue, template_pods[place].task))
        yield key[0], spec.priority_class_name or "", spec_digest(parts)


def kind_of_work(template_pods: Iterable[TaskPods], raw_tasks: Iterable[dict[str, Any]]) -> str:
    """Return the digest that jobs of the same kind of work share, as ``JobFacts.template``."""
    tasks = (pods_of_task.task for pods_of_task in template_pods)
    return spec_digest(
        [
            {
                "role": task.role.value,
                "replicas": task.replicas,
                "request": task.request,
                "programs": _programs(raw["template"]["spec"]),
            }
            for task, raw in zip(tasks, raw_tasks, strict=True)
        ]
    )


def _programs(spec: dict[str, Any]) -> list[list[Any]]:
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    return [[c.get("image"), c.get("command"), c.get("args")] for c in containers]
