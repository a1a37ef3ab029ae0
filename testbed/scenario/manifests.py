"""Manifests as users write them, each argument a thing the test is about.

Pods run on fake nodes: ``duration`` is how long they do (forever without it), ``fail_attempts`` at
which starts of the gang they fail instead of succeeding. Nodes in ``refused_by`` do not admit them;
with ``pull_error`` their images never come.
"""

from pathlib import Path
from typing import Any, Final

import yaml

Manifest = dict[str, Any]

API_VERSION: Final = "bireme.dev/v1alpha1"
POD_GROUP_LABEL: Final = "bireme.dev/pod-group"
PLAN_GATE: Final = "bireme.dev/plan"
GPU: Final = "nvidia.com/gpu"


def annotations(
    duration: str = "",
    fail_attempts: str = "",
    fail_message: str = "",
    *,
    refused_by: str = "",
    pull_error: str = "",
) -> Manifest:
    """Return the annotations by which fake nodes run a pod."""
    given = {"duration": duration, "fail-attempts": fail_attempts, "fail-message": fail_message}
    given |= {"refused-by": refused_by, "pull-error": pull_error}
    return {f"fake.bireme.dev/{name}": value for name, value in given.items() if value}


def pod_spec(gpus: int = 1, cpu: str = "1", **fields: Any) -> Manifest:
    """Return a pod spec with one container; ``fields`` are laid over it."""
    resources: Manifest = {"requests": {"cpu": cpu}}
    if gpus:
        resources["limits"] = {GPU: str(gpus)}
    container = {"name": "train", "image": "trainer", "resources": resources}
    return {"containers": [container], **fields}


def task(
    name: str = "worker",
    replicas: int = 1,
    *,
    role: str = "",
    gpus: int = 1,
    fake: Manifest | None = None,
    spec: Manifest | None = None,
    **fields: Any,
) -> Manifest:
    """Return a task, by default with its name as role; ``fake`` comes of ``annotations``."""
    template: Manifest = {"spec": spec or pod_spec(gpus)}
    if fake:
        template["metadata"] = {"annotations": fake}
    return {
        "name": name,
        "role": role or name,
        "replicas": replicas,
        "template": template,
        **fields,
    }


def _made(kind: str, name: str, spec: Manifest, api_version: str = API_VERSION) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def training_job(name: str, *tasks: Manifest, **spec: Any) -> Manifest:
    """Return a TrainingJob, by default with a worker of one GPU."""
    return _made("TrainingJob", name, {"tasks": list(tasks) or [task()], **spec})


def torch_job(name: str, workers: int = 3, **run: Any) -> Manifest:
    """Return a master and ``workers`` workers of one GPU that find each other by torch's variables.

    ``run`` holds ``gpus`` and ``fake`` of every task, and fields of the spec.
    """
    shape = {key: run.pop(key) for key in ("gpus", "fake") if key in run}
    tasks = (task("master", **shape), task("worker", workers, **shape))
    return training_job(name, *tasks, **{"rendezvous": "torch", **run})


def queue(name: str, **spec: Any) -> Manifest:
    return _made("Queue", name, spec)


def scheduling_policy(name: str, **spec: Any) -> Manifest:
    return _made("SchedulingPolicy", name, spec)


def pod_group(name: str, min_member: int, **spec: Any) -> Manifest:
    return _made("PodGroup", name, {"minMember": min_member, **spec})


def priority_class(name: str, value: int) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def disruption_budget(name: str, least: int, **labels: str) -> Manifest:
    """Return a budget that keeps ``least`` pods of these labels."""
    spec = {"minAvailable": least, "selector": {"matchLabels": labels}}
    return _made("PodDisruptionBudget", name, spec, "policy/v1")


def pod(name: str, gpus: int = 1, *, fake: Manifest | None = None, **spec: Any) -> Manifest:
    """Return an ordinary pod, by default of the default scheduler."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": fake or {}},
        "spec": {**pod_spec(gpus), "restartPolicy": "Never", **spec},
    }


def member_template(
    group: str, gpus: int = 1, fake: Manifest | None = None, **spec: Any
) -> Manifest:
    """Return a template whose pods join the PodGroup ``group``: label, scheduler and gate."""
    return {
        "metadata": {"labels": {POD_GROUP_LABEL: group, "app": group}, "annotations": fake or {}},
        "spec": {
            **pod_spec(gpus),
            "schedulerName": "bireme",
            "schedulingGates": [{"name": PLAN_GATE}],
            **spec,
        },
    }


def batch_job(name: str, pods: int, template: Manifest) -> Manifest:
    template = {**template, "spec": {"restartPolicy": "Never", **template["spec"]}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return _made("Job", name, spec, "batch/v1")


def stateful_set(name: str, pods: int, template: Manifest) -> Manifest:
    spec = {
        "serviceName": name,
        "replicas": pods,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": name}},
        "template": template,
    }
    return _made("StatefulSet", name, spec, "apps/v1")


_FOLDER = Path(__file__).parents[2] / "manifests" / "examples"


def documents(name: str) -> list[Manifest]:
    """Return all objects of one example, in the order of the file."""
    return list(yaml.safe_load_all((_FOLDER / name).read_text()))
