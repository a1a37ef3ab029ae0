"""The pods that are scheduled: the same template for plain pods and for TrainingJobs."""

from typing import Any, Final

from bireme.core.gpus import GPU
from bireme.kube import names

NAMESPACE: Final = "bench"
GANG_LABEL: Final = "gang"
Manifest = dict[str, Any]


def pod_spec(gpus: int) -> Manifest:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {GPU: str(gpus)}}
    container = {"name": "train", "image": "pytorch", "resources": resources}
    return {
        "containers": [container],
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
    }


def plain_pods(gang: str, replicas: int, gpus: int, *, duration: str = "") -> list[Manifest]:
    """Return pods for the default scheduler, named as the replicas of a TrainingJob ``gang``."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": {GANG_LABEL: gang},
                "annotations": _run_time(duration),
            },
            "spec": pod_spec(gpus),
        }
        for name in replica_names(gang, replicas)
    ]


def training_job(
    gang: str, replicas: int, gpus: int, *, duration: str = "", rendezvous: str = "none"
) -> Manifest:
    """Return workers that run for ``duration`` ("2s"), or without end."""
    template = {"metadata": {"annotations": _run_time(duration)}, "spec": pod_spec(gpus)}
    task = {"name": "worker", "role": "worker", "replicas": replicas, "template": template}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": gang, "namespace": NAMESPACE},
        "spec": {"rendezvous": rendezvous, "tasks": [task]},
    }


def _run_time(duration: str) -> dict[str, str]:
    return {"fake.bireme.dev/duration": duration} if duration else {}


def replica_names(gang: str, replicas: int) -> list[str]:
    return [f"{gang}-worker-{index}" for index in range(replicas)]
