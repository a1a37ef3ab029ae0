"""The jobs of the demo: a seeded mix whose story always has the same turns.

The seed deals sizes, run times, priorities and moments of arrival from fixed decks, so the total
work hardly changes. Whatever the seed: a first wave fills the cluster, larger gangs queue up
behind it, then an urgent gang arrives; one gang is larger than the cluster; one fails at its first
attempt; the batch queue meets its limit.
"""

import random
from dataclasses import dataclass
from typing import Any, Final, Literal

Manifest = dict[str, Any]
Part = Literal["", "urgent", "never fits", "fails once"]

NAMESPACE: Final = "demo"
RACK: Final = "topology.bireme.dev/rack"
HOSTNAME: Final = "kubernetes.io/hostname"
FAILURE: Final = "CUDA error: out of memory"


@dataclass(frozen=True, slots=True)
class Submission:
    """One job and when it is submitted, in seconds after the first."""

    seconds: float
    manifest: Manifest
    part: Part = ""
    """Its part in the story, if it has a special one."""

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster's shape and the jobs that come to it, in order of arrival."""

    nodes: int
    racks: int
    submissions: tuple[Submission, ...]

    def named(self, part: Part) -> str:
        """The name of the job with that part."""
        return next(s.name for s in self.submissions if s.part == part)


def full_workload(seed: int) -> Workload:
    """24 jobs for 16 nodes of 8 GPUs in 4 racks; about 45 s of work."""
    chance = random.Random(seed)  # noqa: S311  # a reproducible mix, not a secret
    jobs = [*_first_wave(chance), *_second_wave(chance), *_services(chance), *_sweeps(chance)]
    jobs += [
        Submission(2, torch("flaky-finetune", 1, 4, 6, fails_at="0"), "fails once"),
        Submission(4, torch("llm-175b", 19, 8, 20, priority="training-urgent"), "never fits"),
        Submission(10, torch("hotfix", 3, 8, 9, "production", "training-urgent"), "urgent"),
    ]
    return Workload(16, 4, tuple(sorted(jobs, key=lambda job: job.seconds)))


def small_workload(seed: int) -> Workload:
    """The same story with 8 short jobs on 4 nodes in 2 racks, for tests."""
    chance = random.Random(seed)  # noqa: S311  # a reproducible mix, not a secret
    sweeps = [f"sweep-{number}" for number in range(2)]
    jobs = [
        Submission(0, parameter_server("recommender", 2, 4, 2, 5, RACK)),
        Submission(0, torch("vit-large", 2, 8, 5)),
        Submission(1, torch("whisper", 3, 8, 2)),
        *(Submission(chance.uniform(0, 1), single(name, 4, 2)) for name in sweeps),
        Submission(1, torch("flaky-finetune", 1, 2, 2, fails_at="0"), "fails once"),
        Submission(1, torch("llm-175b", 4, 8, 5), "never fits"),
        Submission(3, torch("hotfix", 1, 8, 2, "production", "training-urgent"), "urgent"),
    ]
    return Workload(4, 2, tuple(sorted(jobs, key=lambda job: job.seconds)))


def _first_wave(chance: random.Random) -> list[Submission]:
    """Four torch gangs that are there at once and stay for a while."""
    names = ("vit-large", "llama-sft", "protein-fold", "diffusion-xl")
    seconds = _dealt(chance, 13, 15, 18, 22)
    shapes = _dealt(chance, (3, 8), (3, 8), (7, 2), (1, 8))
    return [
        Submission(round(chance.uniform(0, 1), 1), torch(name, workers, gpus, run))
        for name, (workers, gpus), run in zip(names, shapes, seconds, strict=True)
    ]


def _second_wave(chance: random.Random) -> list[Submission]:
    """Larger torch gangs that find the cluster full."""
    names = ("moe-scaling", "whisper", "bert-large", "gemma-dpo")
    shapes = ((7, 8), *_dealt(chance, (3, 8), (3, 8), (1, 8)))
    seconds = _dealt(chance, 9, 11, 13, 16)
    priorities = _dealt(chance, *["training-standard"] * 3, "training-background")
    return [
        Submission(
            round(chance.uniform(3, 8), 1), torch(name, workers, gpus, run, priority=priority)
        )
        for name, (workers, gpus), run, priority in zip(
            names, shapes, seconds, priorities, strict=True
        )
    ]


def _services(chance: random.Random) -> list[Submission]:
    """Parameter-server jobs of production; workers have to share the servers' rack or node."""
    names = ("recommender", "ads-ctr", "feed-rank", "search-rank", "fraud-score")
    arrivals = (0, 0.5, 1, *sorted(round(chance.uniform(6, 14), 1) for _ in range(2)))
    in_rack = ((2, 6, 2, RACK), (1, 4, 4, RACK), (2, 8, 1, RACK), (3, 6, 2, RACK))
    shapes = _dealt(chance, *in_rack, (1, 3, 2, HOSTNAME))
    seconds = _dealt(chance, 8, 10, 12, 14, 17)
    return [
        Submission(at, parameter_server(name, servers, workers, gpus, run, near))
        for name, at, (servers, workers, gpus, near), run in zip(
            names, arrivals, shapes, seconds, strict=True
        )
    ]


def _sweeps(chance: random.Random) -> list[Submission]:
    """Single-replica jobs in the queue with a limit."""
    gpus = _dealt(chance, 1, 1, 1, 1, 1, 1, 2, 2)
    return [
        Submission(round(chance.uniform(0, 12), 1), single(f"sweep-{number}", n, seconds))
        for number, (n, seconds) in enumerate(
            zip(gpus, _dealt(chance, 5, 5, 6, 7, 8, 9, 10, 12), strict=True)
        )
    ]


def _dealt(chance: random.Random, *cards: Any) -> tuple[Any, ...]:
    return tuple(chance.sample(cards, len(cards)))


# --- manifests, as a user would write them ---------------------------------------------------


def torch(
    name: str,
    workers: int,
    gpus: int,
    seconds: int,
    queue: str = "research",
    priority: str = "training-standard",
    fails_at: str = "",
) -> Manifest:
    """A master and ``workers`` workers of ``gpus`` GPUs each."""
    image = "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime"
    template = _template(image, gpus, seconds, fails_at)
    tasks = [_task("master", 1, template), _task("worker", workers, template)]
    return _job(name, queue, priority, tasks, rendezvous="torch")


def parameter_server(
    name: str, servers: int, workers: int, gpus: int, seconds: int, near: str
) -> Manifest:
    """Parameter servers without GPUs, and workers in the same domain of the label ``near``."""
    image = "tensorflow/tensorflow:2.19.0-gpu"
    tasks = [
        _task("ps", servers, _template(image, 0, 0)),
        _task("worker", workers, _template(image, gpus, seconds)),
    ]
    affinity = {"mode": "Required", "topologyKey": near}
    spec = {"rendezvous": "tensorflow", "roleAffinity": affinity}
    return _job(name, "production", "training-standard", tasks, **spec)


def single(name: str, gpus: int, seconds: int) -> Manifest:
    """One replica."""
    template = _template("python:3.13", gpus, seconds)
    return _job(name, "batch", "training-background", [_task("worker", 1, template)])


def _job(name: str, queue: str, priority: str, tasks: list[Manifest], **spec: Any) -> Manifest:
    return {
        "apiVersion": "bireme.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "queue": queue,
            "priorityClassName": priority,
            **spec,
            "runPolicy": {"backoffLimit": 2},
            "tasks": tasks,
        },
    }


def _task(role: str, replicas: int, template: Manifest) -> Manifest:
    return {"name": role, "role": role, "replicas": replicas, "template": template}


def _template(image: str, gpus: int, seconds: int, fails_at: str = "") -> Manifest:
    """A pod template; the annotations tell kwok's fake kubelet how long it runs and how it ends."""
    fake = {}
    if seconds:
        fake["fake.bireme.dev/duration"] = f"{seconds}s"
    if fails_at:
        fake["fake.bireme.dev/fail-attempts"] = fails_at
        fake["fake.bireme.dev/fail-message"] = FAILURE
    resources: Manifest = {
        "requests": {"cpu": str(4 * gpus or 4), "memory": f"{16 * gpus or 32}Gi"}
    }
    if gpus:
        resources["limits"] = {"nvidia.com/gpu": gpus}
    container = {
        "name": "train",
        "image": image,
        "command": ["python", "train.py"],
        "resources": resources,
    }
    return {"metadata": {"annotations": fake}, "spec": {"containers": [container]}}
