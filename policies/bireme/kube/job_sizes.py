"""Limits on the size of one TrainingJob, and the messages for a job above a limit.

Users choose the size of the TrainingJobs that they create. The operator holds every spec in memory,
and the used parts of templates as objects, which take twenty times as much; etcd holds every pod. A
job above a limit is a configuration fault: an edit ends it, and no other job is delayed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.kube import envelopes, names, wire
from bireme.kube.api.training_job import TaskSpec, TrainingJobSpec

MAX_PLACING_BYTES: Final = 64 * 1024
"""Bound of the placement fields of all templates of a job together."""
MAX_VARIABLE_BYTES: Final = 96 * 1024
"""Linux starts no program with a variable of 128 KiB; the rest is for a longer cluster domain."""
MAX_GANG_BYTES: Final = 256 * 1024**2
"""Bound of all pods of a gang together: an eighth of etcd's default quota."""
TENSORFLOW_PORT: Final = 2222
# Size of a pod without its template and rendezvous: labels, owner, pin, status.
_POD_BYTES: Final = 4096

Fault = tuple[Reason, str]


def of_spec(spec: msgspec.Raw) -> Fault | None:
    """Return the fault of a spec that is too large to decode."""
    size = envelopes.spec_bytes(spec)
    if size <= envelopes.MAX_SPEC_BYTES:
        return None
    return Reason.TOO_LARGE, (
        f"spec is {size} bytes as JSON, more than the {envelopes.MAX_SPEC_BYTES} that one job may "
        "have; move scripts and data out of its templates, into images, ConfigMaps or volumes"
    )


def of_placing(tasks: Iterable[tuple[str, wire.V1PodSpec]]) -> Fault | None:
    """Return the fault of templates whose placement fields are too large."""
    sizes = {name: len(msgspec.json.encode(spec)) for name, spec in tasks}
    if sum(sizes.values()) <= MAX_PLACING_BYTES:
        return None
    largest = max(sizes, key=lambda name: sizes[name])
    return Reason.TOO_LARGE, (
        f"spec.tasks[{largest}].template.spec has {sizes[largest]} bytes of affinity, tolerations,"
        " volumes, containers and the like by which pods are placed, and the job"
        f" {sum(sizes.values())}, more than {MAX_PLACING_BYTES};"
        " select nodes by labels that many share instead of naming each"
    )


def of_pods(key: Key, spec: TrainingJobSpec, templates: Iterable[bytes]) -> Fault | None:
    """Return the fault of a job whose pods could not start, or would fill etcd."""
    shape = _Shape(key, spec, tuple(map(len, templates)))
    task = max(spec.tasks, key=_max_replicas)
    if (variable := shape.tf_config_bytes({})) > MAX_VARIABLE_BYTES:
        return Reason.TOO_LARGE, (
            "spec.rendezvous tensorflow gives every pod the addresses of all replicas, a "
            f"TF_CONFIG of {variable} bytes, more than the {MAX_VARIABLE_BYTES} with which every "
            f"program can start; at most {shape.max_fitting(task)} replicas of task {task.name} "
            "fit: use fewer and larger replicas, shorter names, or another rendezvous"
        )
    if (whole := shape.gang_bytes({})) > MAX_GANG_BYTES:
        return Reason.TOO_LARGE, (
            f"spec.tasks: all pods together are {whole / 1024**2:.0f} MiB, more than the "
            f"{MAX_GANG_BYTES // 1024**2} MiB that one job may take of etcd; at most "
            f"{shape.max_fitting(task)} replicas of task {task.name} fit: use fewer, or make its "
            "template smaller"
        )
    return None


def _max_replicas(task: TaskSpec) -> int:
    return max(task.replicas, task.max_replicas or 0)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The inputs of a job's size; ``template_bytes`` has the size of each task's template."""

    key: Key
    spec: TrainingJobSpec
    template_bytes: tuple[int, ...]

    def max_fitting(self, task: TaskSpec) -> int:
        """Return the maximum replicas of ``task`` that keep the job within both limits."""
        low, high = 0, _max_replicas(task)
        while low < high:
            middle = (low + high + 1) // 2
            other = {task.name: middle}
            fits = self.tf_config_bytes(other) <= MAX_VARIABLE_BYTES
            if fits and self.gang_bytes(other) <= MAX_GANG_BYTES:
                low = middle
            else:
                high = middle - 1
        return low

    def tf_config_bytes(self, other: dict[str, int]) -> int:
        """Return the length of the largest TF_CONFIG; ``other`` replaces replicas by task name."""
        if self.spec.rendezvous != "tensorflow":
            return 0
        roles = {task.role for task in self.spec.tasks if task.role != "evaluator"}
        # {"cluster":{"worker":["...","..."]},"task":{"type":"evaluator","index":9999}}
        size = len('{"cluster":{},"task":{"type":"evaluator","index":}}') + 5
        size += sum(len(f'"{role}":[],') for role in roles)
        return size + sum(self._addresses(task, other) for task in self.spec.tasks)

    def _addresses(self, task: TaskSpec, other: dict[str, int]) -> int:
        if task.role == "evaluator":
            return 0
        replicas = other.get(task.name, _max_replicas(task))
        return sum(
            count * len(f'"{names.address(self.key, task.name, first)}:{TENSORFLOW_PORT}",')
            for first, count in _by_digits(replicas)
        )

    def gang_bytes(self, other: dict[str, int]) -> int:
        """Return the approximate size of all pods together in bytes."""
        variable = self.tf_config_bytes(other)
        total = 0
        for task, template in zip(self.spec.tasks, self.template_bytes, strict=True):
            pod = _POD_BYTES + template + variable * len(task.template.spec.containers)
            total += pod * other.get(task.name, _max_replicas(task))
        return total


def _by_digits(count: int) -> Iterator[tuple[int, int]]:
    """Yield the first number and the size of each group of numbers below ``count`` by length."""
    first = 0
    while first < count:
        limit = 10 if first == 0 else first * 10
        yield first, min(limit, count) - first
        first = limit
