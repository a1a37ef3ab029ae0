"""Tenants who submit jobs without end: of all kinds, some that fail, some that are deleted.

Every job ends, by itself or by the hand of its user, so that what the cluster holds stays the same.
Which one comes next is drawn from a seed.
"""

import http.client
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from testbed.controlplane.errors import ControlPlaneError
from testbed.scenario.manifests import (
    Manifest,
    annotations,
    batch_job,
    member_template,
    pod,
    pod_group,
    queue,
    task,
    torch_job,
    training_job,
)
from testbed.scenario.tenant import Tenant

NODES: Final = 8
GPUS: Final = 8
MAX_UNFINISHED: Final = 24
"""With more jobs than this at once, nothing new comes."""
CLASSES: Final = {"high": 1000, "low": -100}
QUEUES: Final = (
    queue("default"),
    queue("research", limit={"nvidia.com/gpu": "32"}, weight=2),
    queue("product", guaranteed={"nvidia.com/gpu": "16"}),
)
REFUSALS: Final = (OSError, http.client.HTTPException, ControlPlaneError)
"""What a request meets while a fault is on."""
_KEPT_SECONDS: Final = 30
"""How long a job is kept that has ended."""


def gang(draw: random.Random, name: str) -> list[Manifest]:
    return [_job(name, draw, task(replicas=draw.randint(2, 8), fake=_runs(draw)))]


def torch(draw: random.Random, name: str) -> list[Manifest]:
    return [_kept(draw, torch_job(name, draw.randint(1, 4), fake=_runs(draw)))]


def parameter_servers(draw: random.Random, name: str) -> list[Manifest]:
    tasks = (task("ps", 1, fake=_runs(draw)), task("worker", 3, fake=_runs(draw)))
    key = "topology.bireme.dev/rack"
    affinity = {"mode": "Required", "topologyKey": key}
    return [_job(name, draw, *tasks, roleAffinity=affinity, rendezvous="tensorflow")]


def elastic(draw: random.Random, name: str) -> list[Manifest]:
    workers = task(replicas=4, minReplicas=2, maxReplicas=8, fake=_runs(draw))
    return [_job(name, draw, workers, rendezvous="torch", priorityClassName="low")]


def urgent(draw: random.Random, name: str) -> list[Manifest]:
    """Large and above all others: it stops or shrinks some."""
    workers = task(replicas=draw.randint(16, 32), fake=_runs(draw))
    return [_job(name, draw, workers, priorityClassName="high")]


def failing(draw: random.Random, name: str) -> list[Manifest]:
    """One that fails at its first start, or at every one until it is given up."""
    fails = draw.choice(["0", "0,1,2,3,4,5,6"])
    fake = annotations(f"{draw.randint(5, 20)}s", fails, "out of memory")
    return [_job(name, draw, task(replicas=2, fake=fake), backoff=2)]


def too_large(draw: random.Random, name: str) -> list[Manifest]:
    """One that fits nowhere; its user deletes it."""
    return [_job(name, draw, task(replicas=NODES * GPUS + 1))]


def guests(draw: random.Random, name: str) -> list[Manifest]:
    """Pods of another controller that join a group; their user deletes all of it."""
    members = draw.randint(2, 4)
    template = member_template(name, fake=_runs(draw))
    return [pod_group(name, members), batch_job(name, members, template)]


def others(draw: random.Random, name: str) -> list[Manifest]:
    """Pods of the default scheduler, on the same nodes."""
    count = draw.randint(1, 4)
    return [pod(f"{name}-{number}", fake=_runs(draw)) for number in range(count)]


KINDS: Final[Sequence[tuple[int, Callable[[random.Random, str], list[Manifest]]]]] = (
    (6, gang),
    (5, torch),
    (3, parameter_servers),
    (4, elastic),
    (2, urgent),
    (3, failing),
    (1, too_large),
    (3, guests),
    (3, others),
)
"""How often each comes, in parts, and how it is made."""
DELETED_AFTER_SECONDS: Final = {"guests": 150.0, "others": 120.0, "too_large": 60.0}
"""What no time to live removes."""
_CHANGES_HIS_MIND: Final = 0.08
"""Share of the other jobs that their user deletes while they wait or run."""


@dataclass
class Load:
    """Submits for some tenants, each time it is asked to, and deletes what is due."""

    tenants: Sequence[Tenant]
    seed: int
    submitted: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    _deletions: list[tuple[float, Tenant, Manifest]] = field(default_factory=list)
    _number: int = 0

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)  # noqa: S311  # a load, no secret

    def submit(self, now: float) -> None:
        """Submit the next job, unless too many are there or the API server refuses."""
        weights = [share for share, _ in KINDS]
        (make,) = self._draw.choices([kind for _, kind in KINDS], weights)
        tenant = self._draw.choice(self.tenants)
        self._number += 1
        name = f"{make.__name__.replace('_', '-')}-{self._number}"
        manifests = make(self._draw, name)
        after = DELETED_AFTER_SECONDS.get(make.__name__)
        if after is None and self._draw.random() < _CHANGES_HIS_MIND:
            after = self._draw.uniform(5, 60)
        try:
            if self._unfinished() >= MAX_UNFINISHED:
                return
            for manifest in manifests:
                tenant.create(manifest)
                if after is not None:
                    self._deletions.append((now + after, tenant, manifest))
        except REFUSALS:
            self.refused += 1
            return
        self.submitted[make.__name__] += 1

    def delete_due(self, now: float) -> None:
        """Delete what is due by ``now``; what is refused is tried again."""
        due = [each for each in self._deletions if each[0] <= now]
        for each in due:
            _, tenant, manifest = each
            try:
                tenant.delete(manifest["kind"], manifest["metadata"]["name"])
            except REFUSALS:
                continue
            self._deletions.remove(each)

    @property
    def is_cleared(self) -> bool:
        return not self._deletions

    def _unfinished(self) -> int:
        """Return how many jobs of all tenants have not ended."""
        cluster = self.tenants[0].cluster
        jobs = cluster.api.get("/apis/bireme.dev/v1alpha1/trainingjobs")["items"]
        phases = [job.get("status", {}).get("phase") for job in jobs]
        return sum(phase not in ("Succeeded", "Failed") for phase in phases)


def _job(
    name: str, draw: random.Random, *tasks: Manifest, backoff: int = 3, **spec: str | Manifest
) -> Manifest:
    return _kept(draw, training_job(name, *tasks, **spec), backoff)


def _kept(draw: random.Random, job: Manifest, backoff: int = 3) -> Manifest:
    """Lay over a job the queue it waits in, and how long it is kept."""
    policy = {"backoffLimit": backoff, "ttlSecondsAfterFinished": _KEPT_SECONDS}
    chosen = draw.choice([each["metadata"]["name"] for each in QUEUES])
    return {**job, "spec": {**job["spec"], "queue": chosen, "runPolicy": policy}}


def _runs(draw: random.Random) -> Manifest:
    return annotations(f"{draw.randint(15, 75)}s")
