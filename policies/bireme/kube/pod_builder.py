"""A planned job to the PodGroup and pods that carry it out: template, pin, labels, rendezvous.

What a tenant may not choose is set here whatever the template says: the scheduler, the priority
class of the job, Bireme's labels. What they may, is kept; two safer defaults apply where the
template is silent: pods are not restarted in place, and get no API token.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bireme.core.gangs import Key, Role, Task
from bireme.kube import names, pods
from bireme.kube.allocations import pod_name
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.training_jobs import JobFacts

# How the replicas of a gang find each other: environment variables and a headless Service.
#
# torch: the variables ``torch.distributed`` reads (``MASTER_ADDR``, ``MASTER_PORT``,
# ``WORLD_SIZE``, ``RANK``) count replicas, one process each; ``PET_*`` are torchrun's own
# arguments as environment variables and let it start one process per GPU. The master, or else the
# first replica in intra-job order, is rank 0; neighbours in rank are neighbours in the cluster.
# elastic torch: agents of torchrun that come and go, between the fewest and the most replicas. They
# meet at the first replica of the plan, which stays to the end and is rank 0; the others number
# themselves.
# tensorflow: ``TF_CONFIG`` with the addresses of every role.
#
# Addresses are pod host names under the job's headless Service; they exist before the pods do and
# stay the same over restarts.

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


# How the pods of a TrainingJob reach the progress endpoint, and prove whose they are.
#
# Every container gets the endpoint's address and a ServiceAccount token that is good for nothing
# else: the kubelet keeps it fresh, it names the pod, and its audience is the endpoint alone. The
# same
# variables stand there under the names of Kubeflow Trainer (KEP-2779), so that what reports to that
# reports here. A template annotated ``bireme.dev/progress: "none"`` gets none of it.

AUDIENCE: Final = "progress.bireme.dev"
ANNOTATION: Final = f"{names.GROUP}/progress"
_TOKEN_SECONDS: Final = 3600
_VOLUME: Final = "bireme-progress"
_FOLDER: Final = "/var/run/secrets/bireme.dev/progress"
_CA_FILE: Final = "ca.crt"
_TOKEN_FILE: Final = "token"  # noqa: S105  # a file's name


def path(job: Key) -> str:
    """Where reports of ``job`` go, below the address of the endpoint."""
    return f"{names.path('trainingjobs', *job)}/progress"


@dataclass(frozen=True, slots=True)
class ProgressAccess:
    """What the pods are told.

    Attributes:
        url: Where the endpoint is for them, such as
            ``https://bireme-progress.bireme-system.svc:8082``.
        ca_config_map: The ConfigMap in the job's namespace whose ``ca.crt`` vouches for it; empty
            where the usual authorities do, or for plain HTTP.
    """

    url: str
    ca_config_map: str = ""

    def environment(self, job: Key) -> dict[str, str]:
        """Variables for every container."""
        told = {
            "URL": self.url.rstrip("/") + path(job),
            "TOKEN_FILE": f"{_FOLDER}/{_TOKEN_FILE}",
            "CA_FILE": f"{_FOLDER}/{_CA_FILE}" if self.ca_config_map else "",
        }
        known = {key: value for key, value in told.items() if value}
        kubeflow = {"URL": "URL", "TOKEN_FILE": "TOKEN", "CA_FILE": "CA_CERT"}
        return {
            **{f"BIREME_PROGRESS_{key}": value for key, value in known.items()},
            **{f"KUBEFLOW_TRAINER_SERVER_{kubeflow[key]}": value for key, value in known.items()},
        }

    def mounted(self, spec: dict[str, Any]) -> dict[str, Any]:
        """``spec`` of a pod with the volume in every container; as it is where it is malformed."""
        volumes, containers = spec.get("volumes") or [], spec["containers"]
        mounts = [c.get("volumeMounts") or [] for c in containers]
        if not all(isinstance(given, list) for given in (volumes, *mounts)):
            return spec  # the API server will refuse it, and say why
        mount = {"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}
        return {
            **spec,
            "volumes": [*volumes, self._volume()],
            "containers": [
                {**container, "volumeMounts": [*given, mount]}
                for container, given in zip(containers, mounts, strict=True)
            ],
        }

    def _volume(self) -> dict[str, Any]:
        token = {
            "audience": AUDIENCE,
            "expirationSeconds": _TOKEN_SECONDS,
            "path": _TOKEN_FILE,
        }
        sources: list[dict[str, Any]] = [{"serviceAccountToken": token}]
        if self.ca_config_map:
            items = [{"key": _CA_FILE, "path": _CA_FILE}]
            sources.append({"configMap": {"name": self.ca_config_map, "items": items}})
        return {"name": _VOLUME, "projected": {"sources": sources}}


class PodFactory:
    """Makes the pods of one planned job; ``progress`` is where they may report, if anywhere."""

    def __init__(
        self, job: JobFacts, plan: PlanFacts, progress: ProgressAccess | None = None
    ) -> None:
        self._job = job
        self._plan = plan
        self._progress = progress
        self._rendezvous = Rendezvous(job, plan)
        self._templates = {task["name"]: task["template"] for task in job.raw_tasks}
        self._priority = {task.name: task.priority for task in job.tasks}

    def in_order(self) -> Iterator[Member]:
        """All members, tasks with the highest intra-job priority first."""
        yield from sorted(
            self._plan.members, key=lambda m: (-self._priority.get(m.task, 0), m.task, m.index)
        )

    def manifest(self, member: Member) -> dict[str, Any]:
        """The pod of one member, ready to be created."""
        template = self._templates[member.task]
        namespace, job = self._job.key
        given = template.get("metadata") or {}
        name = pod_name(job, member.task, member.index)
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": namespace,
            "labels": {**(given.get("labels") or {}), **self._labels(member)},
            "ownerReferences": [owner_reference(self._job)],
        }
        if given.get("annotations"):
            metadata["annotations"] = given["annotations"]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": self._spec(template, member, name),
        }

    def _labels(self, member: Member) -> dict[str, str]:
        job = self._job.key[1]
        return {
            names.JOB_LABEL: job,
            names.POD_GROUP_LABEL: job,
            names.TASK_LABEL: member.task,
            names.ROLE_LABEL: self._plan.roles.get(member.task, ""),
            names.INDEX_LABEL: str(member.index),
            names.ATTEMPT_LABEL: str(self._plan.attempt),
            names.PLAN_LABEL: self._plan.label,
            names.QUEUE_LABEL: self._plan.queue,
        }

    def _spec(self, template: dict[str, Any], member: Member, name: str) -> dict[str, Any]:
        given = template["spec"]
        spec = dict(given)
        spec["schedulerName"] = names.SCHEDULER_NAME
        spec.setdefault("restartPolicy", "Never")
        spec.setdefault("automountServiceAccountToken", False)
        for chosen in ("nodeName", "priority", "priorityClassName", "schedulingGates"):
            spec.pop(chosen, None)
        if self._job.spec is not None and self._job.spec.priority_class_name:
            spec["priorityClassName"] = self._job.spec.priority_class_name
        if self._rendezvous.needs_service:
            spec["hostname"] = name
            spec["subdomain"] = self._job.key[1]
        environment = self._rendezvous.environment(member.task, member.index)
        if self._progress is not None and _may_report(template):
            spec = self._progress.mounted(spec)
            environment |= self._progress.environment(self._job.key)
        if environment:
            spec["containers"] = [_with(c, environment) for c in spec["containers"]]
        if self._plan.mode == "Pinned":
            spec["affinity"] = pods.pinned_affinity(given, member.node)
        return spec


def _may_report(template: dict[str, Any]) -> bool:
    metadata = template.get("metadata") or {}
    return (metadata.get("annotations") or {}).get(ANNOTATION) != "none"


def _with(container: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """The container with ``environment``; a variable it sets itself stays as it is."""
    given = container.get("env") or []
    if not (isinstance(given, list) and all(isinstance(variable, dict) for variable in given)):
        return container  # the API server will refuse it, and say why
    own = {variable.get("name") for variable in given}
    added = [{"name": k, "value": v} for k, v in environment.items() if k not in own]
    return {**container, "env": [*given, *added]}


def group_manifest(job: JobFacts) -> dict[str, Any]:
    """The PodGroup of a TrainingJob, made at its first admission."""
    namespace, name = job.key
    spec: dict[str, Any] = {"minMember": job.gang(0).at_minimum.replicas}
    if job.spec is not None:
        spec["queue"] = job.spec.queue
        if job.spec.priority_class_name:
            spec["priorityClassName"] = job.spec.priority_class_name
    return {
        "apiVersion": names.API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names.JOB_LABEL: name},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }
