"""Good manifests as scripts draw them, by kind."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from testbed.scenario.manifests import (
    Manifest,
    annotations,
    batch_job,
    member_template,
    pod,
    pod_group,
    pod_spec,
    priority_class,
    queue,
    task,
    torch_job,
    training_job,
)

_TEAMS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"team": "a"},
    {"team": "b"},
    {"team": "a", "size": "big"},
)
_SHORT: Final = annotations("1s")
_NO_TOKEN: Final = {"automountServiceAccountToken": False}
"""Keeps the volume of the account's token out of pods, which the embedded cluster does not add."""


def _training_job(chance: Random, name: str, group: str, own_queue: str) -> Manifest:
    fake = _SHORT if chance.random() < 0.25 else {}
    gpus = chance.choice((0, 1, 1, 2, 4, 8))
    spec: Manifest = {}
    if chance.random() < 0.4:
        spec["queue"] = own_queue
    if chance.random() < 0.3:
        spec["priorityClassName"] = f"{own_queue}-class"
    if chance.random() < 0.2:
        spec["runPolicy"] = {"suspend": True}
    shape = chance.randrange(6)
    if shape == 0:
        manifest = torch_job(name, chance.randint(1, 3), gpus=gpus, fake=fake, **spec)
    elif shape == 1:
        tasks = (task("ps", gpus=0, fake=fake), task("worker", 2, gpus=gpus, fake=fake))
        manifest = training_job(name, *tasks, **spec)
    elif shape == 2:
        huge = task("worker", chance.choice((3, 40)), gpus=chance.choice((8, 9)))
        manifest = training_job(name, huge, **spec)
    elif shape == 3:
        elastic = task("worker", 2, gpus=gpus, minReplicas=1, maxReplicas=4)
        manifest = training_job(name, elastic, **{**spec, "rendezvous": "torch"})
    else:
        manifest = training_job(
            name, task("worker", chance.randint(1, 4), gpus=gpus, fake=fake), **spec
        )
    return manifest


def _pod_group(chance: Random, name: str, group: str, own_queue: str) -> Manifest:
    spec = {"queue": own_queue} if chance.random() < 0.4 else {}
    return pod_group(name, chance.randint(1, 3), **spec)


def _pod(chance: Random, name: str, group: str, own_queue: str) -> Manifest:
    fake = _SHORT if chance.random() < 0.2 else {}
    if chance.random() < 0.6:
        template = member_template(group, gpus=chance.choice((0, 1, 2)), fake=fake)
        manifest = {"apiVersion": "v1", "kind": "Pod", **template}
        manifest["metadata"] = {**template["metadata"], "name": name}
        manifest["spec"] = {**template["spec"], "restartPolicy": "Never", **_NO_TOKEN}
        return manifest
    # Without GPUs: kube-scheduler draws among equal nodes, and that must not change what fits.
    return pod(name, gpus=0, fake=fake, **_NO_TOKEN)


def _job(chance: Random, name: str, group: str, own_queue: str) -> Manifest:
    fake = _SHORT if chance.random() < 0.4 else {}
    if chance.random() < 0.4:
        return batch_job(name, chance.randint(1, 3), member_template(group, gpus=1, fake=fake))
    template: Manifest = {"metadata": {"annotations": fake}, "spec": pod_spec(gpus=0)}
    manifest = batch_job(name, chance.randint(1, 3), template)
    if chance.random() < 0.3:
        manifest["spec"]["suspend"] = True
    if chance.random() < 0.3:
        manifest["spec"]["completionMode"] = "Indexed"
    return manifest


def _queue(chance: Random, name: str, group: str, own_queue: str) -> Manifest:
    options: tuple[Manifest, ...] = (
        {},
        {"limit": {"nvidia.com/gpu": "4"}},
        {"limit": {"nvidia.com/gpu": 6, "cpu": "40"}},
        {"guaranteed": {"nvidia.com/gpu": "4"}},
        {"weight": 3, "userPriority": 80},
        {"state": "Closed"},
    )
    return queue(name, **chance.choice(options))


def _priority_class(chance: Random, name: str, group: str, own_queue: str) -> Manifest:
    return priority_class(name, chance.choice((0, 10, 1000)))


_MAKERS: Final[Mapping[str, Callable[[Random, str, str, str], Manifest]]] = {
    "TrainingJob": _training_job,
    "PodGroup": _pod_group,
    "Pod": _pod,
    "Job": _job,
    "Queue": _queue,
    "PriorityClass": _priority_class,
}


def make(kind: str, chance: Random, name: str, group: str, own_queue: str) -> Manifest:
    """Return a good manifest; its pods may join the PodGroup ``group``, its gangs ``own_queue``."""
    manifest = _MAKERS[kind](chance, name, group, own_queue)
    if labels := chance.choice(_TEAMS):
        meta = manifest["metadata"]
        meta["labels"] = {**(meta.get("labels") or {}), **labels}
    return manifest
