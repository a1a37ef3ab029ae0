"""How the replicas of a gang find each other: environment variables and a headless Service.

torch: the variables ``torch.distributed`` reads (``MASTER_ADDR``, ``MASTER_PORT``,
``WORLD_SIZE``, ``RANK``) count replicas, one process each; ``PET_*`` are torchrun's own
arguments as environment variables and let it start one process per GPU. The master, or else the
first replica in intra-job order, is rank 0; neighbours in rank are neighbours in the cluster.
elastic torch: agents of torchrun that come and go, between the fewest and the most replicas. They
meet at the first replica of the plan, which stays to the end and is rank 0; the others number
themselves.
tensorflow: ``TF_CONFIG`` with the addresses of every role.

Addresses are pod host names under the job's headless Service; they exist before the pods do and
stay the same over restarts.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from bireme.core.gangs import Role, Task
from bireme.kube import names
from bireme.kube.gang_views import pod_name
from bireme.kube.plans import PlanFacts
from bireme.kube.training_jobs import JobFacts

TORCH_PORT = 29500
TENSORFLOW_PORT = 2222
ELASTIC_RESTARTS = 100
"""How often an elastic replica's processes start anew before it counts as failed; they also do
when others come or leave. A job that sets PET_MAX_RESTARTS itself decides for itself."""
ELASTIC_TIMEOUTS = {
    "last_call_timeout": 5,
    "keep_alive_interval": 2,
    "keep_alive_max_attempt": 4,
    "read_timeout": 300,
}
"""Seconds (and heartbeats) of the rendezvous of elastic replicas: how long those that met wait for
more; after how many missed heartbeats one that left is no longer waited for (torch's own 30 s and
15 s would stop training for that long at every resize); how long one that is ready early tries to
reach the first replica, whose image may still be on its way (torch: 60 s)."""


class Rendezvous:
    """Environment of every replica of one planned job."""

    def __init__(self, job: JobFacts, plan: PlanFacts) -> None:
        self._kind = job.spec.rendezvous if job.spec else "none"
        self._is_elastic = job.spec is not None and job.spec.is_elastic
        self._job = job
        self._plan = plan
        order = sorted(job.tasks, key=lambda task: (not _leads(task), -task.priority))
        self._replicas = {t.name: plan.replicas[t.name] for t in order if t.name in plan.replicas}
        self._tasks = {task.name: task for task in order}

    @property
    def needs_service(self) -> bool:
        """Whether the replicas must find each other by name."""
        return self._kind != "none"

    def environment(self, task: str, index: int) -> dict[str, str]:
        """Variables for replica ``index`` of ``task``."""
        if self._is_elastic:
            return self._elastic(task, index)
        if self._kind == "torch":
            return self._torch(task, index)
        if self._kind == "tensorflow":
            return {"TF_CONFIG": self._tensorflow(task, index)}
        return {}

    def _address(self, task: str, index: int) -> str:
        namespace, name = self._job.key
        return f"{pod_name(name, task, index)}.{name}.{namespace}.svc"

    def _torch(self, task: str, index: int) -> dict[str, str]:
        first = next(iter(self._replicas))
        before = 0
        for name, replicas in self._replicas.items():
            if name == task:
                break
            before += replicas
        world, rank = sum(self._replicas.values()), before + index
        master = self._address(first, 0)
        return {
            "MASTER_ADDR": master,
            "MASTER_PORT": str(TORCH_PORT),
            "WORLD_SIZE": str(world),
            "RANK": str(rank),
            "PET_NNODES": str(world),
            "PET_NODE_RANK": str(rank),
            "PET_NPROC_PER_NODE": str(_devices(self._tasks[task])),
            "PET_MASTER_ADDR": master,
            "PET_MASTER_PORT": str(TORCH_PORT),
            "PET_RDZV_ID": self._job.uid,
        }

    def _elastic(self, task: str, index: int) -> dict[str, str]:
        """The same for every size of the gang, so that nobody must be told of a resize."""
        first = self._plan.members[0]
        host = self._address(first.task, first.index)
        fewest = self._job.gang(0).at_minimum.replicas
        is_host = (task, index) == (first.task, first.index)
        most = sum(known.maximum for known in self._tasks.values())
        rendezvous = {"is_host": int(is_host), **ELASTIC_TIMEOUTS}
        return {
            "PET_NNODES": f"{fewest}:{most}",
            "PET_NPROC_PER_NODE": str(_devices(self._tasks[task])),
            "PET_MAX_RESTARTS": str(ELASTIC_RESTARTS),
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"{host}:{TORCH_PORT}",
            "PET_RDZV_CONF": ",".join(f"{name}={value}" for name, value in rendezvous.items()),
            "PET_RDZV_ID": f"{self._job.uid}-{self._plan.attempt}",
            # Agents are ranked in the order of their addresses. Capitals come first, and are the
            # same name to DNS.
            "PET_LOCAL_ADDR": host.upper() if is_host else self._address(task, index),
            # By default rank 0 tells its address in the first round alone (torch 2.4 to 2.15 at
            # least), and an agent that joins a later one waits for it in vain.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }

    def _tensorflow(self, task: str, index: int) -> str:
        """``TF_CONFIG``; evaluators are no part of the cluster they are told about."""
        cluster: dict[str, list[str]] = {}
        for name, replicas in self._replicas.items():
            role = self._tasks[name].role
            if role is not Role.EVALUATOR:
                addresses = [f"{self._address(name, i)}:{TENSORFLOW_PORT}" for i in range(replicas)]
                cluster.setdefault(role.value, []).extend(addresses)
        role = self._tasks[task].role
        before = 0
        for name, replicas in self._replicas.items():
            if name == task:
                break
            before += replicas if self._tasks[name].role is role else 0
        own = {"type": role.value, "index": before + index}
        return msgspec.json.encode({"cluster": cluster, "task": own}).decode()


def _leads(task: Task) -> bool:
    return task.role in (Role.MASTER, Role.CHIEF)


def _devices(task: Task) -> int:
    """Processes per replica for torchrun: one per GPU or else per device, one without any."""
    devices = {name: count for name, count in task.request if "/" in name}
    gpus = [count for name, count in devices.items() if name.endswith("/gpu")]
    return max(gpus or devices.values(), default=1)


def service_manifest(job: JobFacts) -> dict[str, Any]:
    """The headless Service that gives every replica its name, ready or not."""
    namespace, name = job.key
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names.JOB_LABEL: name},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.JOB_LABEL: name},
        },
    }


def owner_reference(job: JobFacts) -> Mapping[str, object]:
    """Ties an object's life to the job's, without holding up the job's own deletion."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingJob",
        "name": job.key[1],
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
