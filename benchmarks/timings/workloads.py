"""The pods that are scheduled: the same template for plain pods and for TrainingJobs."""

from typing import Final

from bireme.core.gpus import GPU
from testbed.scenario import manifests
from testbed.scenario.manifests import Manifest, annotations, task

NAMESPACE: Final = "bench"
GANG_LABEL: Final = "gang"


def pod_spec(gpus: int, variant: str = "") -> Manifest:
    """Return the pod of a replica; specs of other variants differ in a variable."""
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {GPU: str(gpus)}}
    container: Manifest = {"name": "train", "image": "pytorch", "resources": resources}
    if variant:
        container["env"] = [{"name": "VARIANT", "value": variant}]
    return {
        "containers": [container],
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
    }


def plain_pods(
    gang: str, replicas: int, gpus: int, *, duration: str = "", variant: str = ""
) -> list[Manifest]:
    """Return pods for the default scheduler, named as the replicas of a TrainingJob ``gang``."""
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": pod_spec(gpus, variant)}
    metadata: Manifest = {"namespace": NAMESPACE, "labels": {GANG_LABEL: gang}}
    metadata["annotations"] = annotations(duration)
    names = replica_names(gang, replicas)
    return [{**pod, "metadata": {"name": name, **metadata}} for name in names]


def training_job(
    gang: str,
    replicas: int,
    gpus: int,
    *,
    duration: str = "",
    rendezvous: str = "none",
    variant: str = "",
) -> Manifest:
    """Return workers that run for ``duration`` ("2s"), or without end."""
    workers = task(replicas=replicas, fake=annotations(duration), spec=pod_spec(gpus, variant))
    made = manifests.training_job(gang, workers, rendezvous=rendezvous)
    return {**made, "metadata": {"name": gang, "namespace": NAMESPACE}}


def replica_names(gang: str, replicas: int) -> list[str]:
    return [f"{gang}-worker-{index}" for index in range(replicas)]
