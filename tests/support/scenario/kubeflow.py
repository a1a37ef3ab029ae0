"""Jobs of Kubeflow as their users write them for Bireme, and what becomes of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.scenario.clusters import gpu_stack
from tests.support.scenario.manifests import Manifest, member_template
from tests.support.scenario.tenant import KUBEFLOW_KINDS, Tenant
from tools.controlplane.kubeflow import training_operator
from tools.controlplane.stack import BiremeStack

_SHAPES: Final = {
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch"),
    "TFJob": ("tfReplicaSpecs", "tensorflow"),
    "MPIJob": ("mpiReplicaSpecs", "mpi"),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost"),
    "PaddleJob": ("paddleReplicaSpecs", "paddle"),
}
"""Kind to the field of its replica types and the name that its main container must have."""


@contextmanager
def kubeflow_stack(purpose: str, folder: Path, env: dict[str, str]) -> Iterator[BiremeStack]:
    """Bireme and Kubeflow's controllers on two nodes of eight GPUs."""
    with (
        gpu_stack(purpose, folder / "bireme", env) as stack,
        training_operator(stack.cluster, folder / "kubeflow"),
    ):
        yield stack


@contextmanager
def kubeflow_tenant(stack: BiremeStack) -> Iterator[Tenant]:
    """A tenant whose Kubeflow jobs go before its pods, which would come back otherwise."""
    with Tenant.staying(stack.cluster, stack.log_tails) as tenant:
        yield tenant
        kinds = ",".join(plural for _, plural in KUBEFLOW_KINDS.values())
        stack.cluster.kubectl("delete", kinds, "--all", "-n", tenant.namespace)


def replicas(
    count: int,
    group: str,
    gpus: int = 1,
    *,
    fake: Manifest | None = None,
    restart: str = "Never",
    labels: Manifest | None = None,
    **spec: Any,
) -> Manifest:
    """One replica type whose pods are members of the PodGroup ``group``; ``labels`` come on top."""
    template = member_template(group, gpus, fake, **spec)
    template["metadata"]["labels"] |= labels or {}
    return {"replicas": count, "restartPolicy": restart, "template": template}


def kubeflow_job(kind: str, name: str, specs: dict[str, Manifest], **spec: Any) -> Manifest:
    """A job of ``kind`` with the replica types ``specs``, such as ``{"Worker": replicas(...)}``."""
    field, container = _SHAPES[kind]
    for replica in specs.values():
        replica["template"]["spec"]["containers"][0]["name"] = container
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {field: specs, **spec},
    }


def pytorch_job(name: str, workers: int = 3, gpus: int = 2, **shape: Any) -> Manifest:
    """A master and ``workers`` workers, members of the PodGroup ``name``."""
    master = replicas(1, name, gpus, labels={"bireme.dev/role": "master"}, **shape)
    specs = {"Master": master, "Worker": replicas(workers, name, gpus, **shape)}
    return kubeflow_job("PyTorchJob", name, specs)


def holds(job: Manifest, condition: str) -> bool:
    """Whether a Kubeflow job has ``condition``: Created, Running, Restarting, Succeeded, Failed."""
    conditions = job.get("status", {}).get("conditions") or ()
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)
