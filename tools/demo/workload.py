"""The demo's workload: jobs as a user would write them, and when each is submitted."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from bireme_lab.embedded.fake_nodes import GPU

Manifest = dict[str, Any]
Part = Literal["", "elastic", "reserved", "short", "long", "urgent", "never fits", "fails once"]

NAMESPACE: Final = "demo"
_TORCH: Final = "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime"
FAILURE: Final = "CUDA error: out of memory"
_DURATION: Final = "fake.bireme.dev/duration"


@dataclass(frozen=True, slots=True)
class Cue:
    """The moment from which jobs together hold so many GPUs; without jobs, the beginning."""

    gpus: int = 0
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Submission:
    """One job and when it is submitted, in seconds after its cue."""

    seconds: float
    manifest: Manifest
    part: Part = ""
    """Its part in the story, if it has a special one."""
    after: Cue = Cue()

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster's shape and the jobs that come to it."""

    nodes: int
    racks: int
    submissions: tuple[Submission, ...]

    def named(self, part: Part) -> str:
        return next(s.name for s in self.submissions if s.part == part)


def shortened(workload: Workload, share: float) -> Workload:
    """Return the workload with ``share`` of all its times; estimates stay whole seconds."""
    submissions = (
        replace(each, seconds=each.seconds * share, manifest=_shortened_job(each.manifest, share))
        for each in workload.submissions
    )
    return replace(workload, submissions=tuple(submissions))


def _shortened_job(job: Manifest, share: float) -> Manifest:
    spec = {**job["spec"], "tasks": [_shortened_task(task, share) for task in job["spec"]["tasks"]]}
    if estimate := spec.get("estimatedDuration"):
        spec |= _estimate(math.ceil(_seconds(estimate) * share))
    return {**job, "spec": spec}


def _shortened_task(task: Manifest, share: float) -> Manifest:
    template = task["template"]
    annotations = dict(template["metadata"]["annotations"])
    if duration := annotations.get(_DURATION):
        annotations[_DURATION] = f"{_seconds(duration) * share:g}s"
    metadata = {**template["metadata"], "annotations": annotations}
    return {**task, "template": {**template, "metadata": metadata}}


def _seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


def torch(
    name: str,
    workers: int,
    gpus: int,
    seconds: int,
    queue: str = "research",
    priority: str = "training-standard",
    *,
    expected: int = 0,
    fails_at: str = "",
) -> Manifest:
    """Return a master and ``workers`` workers of ``gpus`` GPUs each with an estimate.

    It resumes from its last checkpoint, so being stopped for another costs it little.
    """
    template = _template(_TORCH, gpus, seconds, fails_at)
    tasks = [_task("master", 1, template), _task("worker", workers, template)]
    spec = {"rendezvous": "torch", **_estimate(expected)}
    return _job(name, queue, priority, tasks, is_resumable=True, **spec)


def elastic(name: str, sizes: tuple[int, int, int], gpus: int, seconds: int) -> Manifest:
    """Return workers of ``gpus`` GPUs, ``sizes`` the least, the asked and the most of them."""
    least, asked, most = sizes
    workers = _task("worker", asked, _template(_TORCH, gpus, seconds))
    workers |= {"minReplicas": least, "maxReplicas": most}
    spec = {"rendezvous": "torch", **_estimate(60)}
    return _job(name, "research", "training-standard", [workers], is_resumable=True, **spec)


def parameter_server(
    name: str, servers: int, workers: int, gpus: int, seconds: int, near: str
) -> Manifest:
    """Return parameter servers without GPUs, and workers in their domain of the label ``near``."""
    image = "tensorflow/tensorflow:2.19.0-gpu"
    tasks = [
        _task("ps", servers, _template(image, 0, 0)),
        _task("worker", workers, _template(image, gpus, seconds)),
    ]
    affinity = {"mode": "Required", "topologyKey": near}
    spec = {"rendezvous": "tensorflow", "roleAffinity": affinity, **_estimate(60)}
    return _job(name, "production", "training-standard", tasks, **spec)


def single(name: str, gpus: int, seconds: int) -> Manifest:
    template = _template("python:3.13", gpus, seconds)
    tasks = [_task("worker", 1, template)]
    return _job(name, "batch", "training-background", tasks, **_estimate(seconds + 3))


def _estimate(seconds: int) -> Manifest:
    return {"estimatedDuration": f"{seconds}s"} if seconds else {}


def _job(
    name: str,
    queue: str,
    priority: str,
    tasks: list[Manifest],
    *,
    is_resumable: bool = False,
    **spec: Any,
) -> Manifest:
    return {
        "apiVersion": "bireme.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "queue": queue,
            "priorityClassName": priority,
            **spec,
            "runPolicy": {"backoffLimit": 2, "resumable": is_resumable},
            "tasks": tasks,
        },
    }


def _task(role: str, replicas: int, template: Manifest) -> Manifest:
    return {"name": role, "role": role, "replicas": replicas, "template": template}


def _template(image: str, gpus: int, seconds: int, fails_at: str = "") -> Manifest:
    """Return a template; annotations set how long kwok's fake kubelet runs it and how it ends."""
    fake = {}
    if seconds:
        fake[_DURATION] = f"{seconds}s"
    if fails_at:
        fake["fake.bireme.dev/fail-attempts"] = fails_at
        fake["fake.bireme.dev/fail-message"] = FAILURE
    resources: Manifest = {
        # So little that GPUs alone decide what fits.
        "requests": {"cpu": str(4 * gpus or 4), "memory": f"{16 * gpus or 32}Gi"}
    }
    if gpus:
        resources["limits"] = {GPU: gpus}
    container = {
        "name": "train",
        "image": image,
        "command": ["torchrun", "train.py", "--resume"]
        if image == _TORCH
        else ["python", "train.py"],
        "resources": resources,
    }
    return {"metadata": {"annotations": fake}, "spec": {"containers": [container]}}
