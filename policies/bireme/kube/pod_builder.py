"""Build the Service and the pods of a planned TrainingJob.

A pod is the task's template with: (1) fields that a tenant may not choose: scheduler, priority
class, Bireme's labels, and the pin to its node; (2) the rendezvous environment, by which the
replicas find each other; (3) access to the progress endpoint. All other fields come from the
template, with two safer defaults: pods are not restarted in place and get no API token.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from bireme.core.accelerators import DEFAULT, Accelerators, Kind
from bireme.core.gangs import Key, Role, Task
from bireme.kube import names, pods
from bireme.kube.job_sizes import TENSORFLOW_PORT
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_rules import spread_under_pin
from bireme.kube.training_jobs import JobFacts

TORCH_PORT = 29500
# Restarts of an elastic replica's processes before it counts as failed. Every resize is a restart
# too. A job may set PET_MAX_RESTARTS itself.
ELASTIC_RESTARTS = 100
# Rendezvous of elastic replicas, in seconds and heartbeats. last_call: time that a complete
# rendezvous waits for more replicas. keep_alive: missed heartbeats after which a replica counts as
# gone. (Torch's defaults, 30 s and 15 s, would stop training that long at every resize.) read: time
# that an early replica tries to reach the first one, whose image may still be pulled (torch: 60 s).
ELASTIC_TIMEOUTS = {
    "last_call_timeout": 5,
    "keep_alive_interval": 2,
    "keep_alive_max_attempt": 4,
    "read_timeout": 300,
}


def tasks_by_rank(job: JobFacts) -> list[Task]:
    """Return the tasks in the order of their ranks: the task of the leader comes first."""
    return sorted(job.tasks, key=lambda task: (not task.role.is_leading, -task.priority))


class Rendezvous:
    """Environment variables for the rendezvous of the replicas of one planned job.

    torch: ``MASTER_ADDR``, ``MASTER_PORT``, ``WORLD_SIZE`` and ``RANK`` for ``torch.distributed``,
    one process per replica; ``PET_*`` are torchrun's arguments and let it start one process per
    accelerator. The master, or else the first replica in intra-job order, is rank 0; neighbours in
    rank are neighbours in the cluster.

    elastic torch: torchrun agents, between the minimum and the maximum of replicas. They meet at
    the first replica of the plan, which is never removed and is rank 0. Torchrun numbers the
    others.

    tensorflow: ``TF_CONFIG`` with the addresses of every role.

    Addresses are host names under the job's headless Service. They exist before the pods and do not
    change over restarts.
    """

    def __init__(
        self, job: JobFacts, plan: PlanFacts, accelerators: Accelerators = DEFAULT
    ) -> None:
        self._kind = job.spec.rendezvous if job.spec else "none"
        self._is_elastic = job.spec is not None and job.spec.is_elastic
        self._job = job
        self._plan = plan
        self._accelerators = accelerators
        order = tasks_by_rank(job)
        self._replicas = {t.name: plan.replicas[t.name] for t in order if t.name in plan.replicas}
        self._tasks = {task.name: task for task in order}

    @property
    def needs_service(self) -> bool:
        """True if the replicas need a headless Service for their names."""
        return self._kind != "none"

    def environment(self, task: str, index: int) -> dict[str, str]:
        """Return the variables of replica ``index`` of ``task``."""
        if self._is_elastic:
            return self._elastic(task, index)
        if self._kind == "torch":
            return self._torch(task, index)
        if self._kind == "tensorflow":
            return {"TF_CONFIG": self._tensorflow(task, index)}
        return {}

    def _address(self, task: str, index: int) -> str:
        return names.address(self._job.key, task, index)

    def _torch(self, task: str, index: int) -> dict[str, str]:
        first = next(iter(self._replicas))
        earlier = itertools.takewhile(lambda name: name != task, self._replicas)
        rank = sum(self._replicas[name] for name in earlier) + index
        world, master = sum(self._replicas.values()), self._address(first, 0)
        return {
            "MASTER_ADDR": master,
            "MASTER_PORT": str(TORCH_PORT),
            "WORLD_SIZE": str(world),
            "RANK": str(rank),
            "PET_NNODES": str(world),
            "PET_NODE_RANK": str(rank),
            "PET_NPROC_PER_NODE": self._processes(self._tasks[task]),
            "PET_MASTER_ADDR": master,
            "PET_MASTER_PORT": str(TORCH_PORT),
            "PET_RDZV_ID": self._job.uid,
        }

    def _elastic(self, task: str, index: int) -> dict[str, str]:
        """Return the variables of an elastic replica, which are the same for every gang size."""
        first = self._plan.members[0]
        host = self._address(first.task, first.index)
        min_replicas = self._job.gang(0).at_minimum.replicas
        is_host = (task, index) == (first.task, first.index)
        max_replicas = sum(task_spec.maximum for task_spec in self._tasks.values())
        rendezvous = {"is_host": int(is_host), **ELASTIC_TIMEOUTS}
        return {
            "PET_NNODES": f"{min_replicas}:{max_replicas}",
            "PET_NPROC_PER_NODE": self._processes(self._tasks[task]),
            "PET_MAX_RESTARTS": str(ELASTIC_RESTARTS),
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"{host}:{TORCH_PORT}",
            "PET_RDZV_CONF": ",".join(f"{name}={value}" for name, value in rendezvous.items()),
            "PET_RDZV_ID": f"{self._job.uid}-{self._plan.attempt}",
            # Torchrun ranks agents in the order of their addresses. Capitals sort first, and DNS
            # ignores case.
            "PET_LOCAL_ADDR": host.upper() if is_host else self._address(task, index),
            # By default rank 0 shares its address only in the first round (torch 2.4 to 2.15 at
            # least). An agent that joins a later round would wait for it in vain.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }

    def _processes(self, task: Task) -> str:
        """Return the processes per replica for torchrun: one per accelerator, else one.

        "auto" lets torchrun find out: an unknown device may be an accelerator, and some claims get
        their devices only from kube-scheduler.
        """
        # The planned request includes the devices of claims.
        request = self._plan.requests.get(task.name, task.request)
        if count := self._accelerators.count(request):
            return str(count)
        is_unknown = any(self._accelerators.kind(name) is Kind.UNKNOWN for name, _ in request)
        return "auto" if is_unknown or task.name in self._tasks_with_claims else "1"

    @cached_property
    def _tasks_with_claims(self) -> set[str]:
        """The tasks with device claims in their templates."""
        tasks = self._job.spec.tasks if self._job.spec is not None else ()
        templates = zip(tasks, self._job.templates, strict=True)
        return {
            task.name
            for task, template in templates
            if pods.spec_of_template(template).resource_claims
        }

    def _tensorflow(self, task: str, index: int) -> str:
        """Return ``TF_CONFIG``; its cluster is the same for all replicas."""
        role = self._tasks[task].role
        earlier = itertools.takewhile(lambda name: name != task, self._replicas)
        offset = sum(self._replicas[name] for name in earlier if self._tasks[name].role is role)
        task_entry = {"type": role.value, "index": offset + index}
        return msgspec.json.encode(
            {"cluster": self._tensorflow_cluster, "task": task_entry}
        ).decode()

    @cached_property
    def _tensorflow_cluster(self) -> msgspec.Raw:
        """The addresses by role; TensorFlow does not count evaluators as part of the cluster."""
        cluster: dict[str, list[str]] = {}
        for name, replicas in self._replicas.items():
            role = self._tasks[name].role
            if role is not Role.EVALUATOR:
                addresses = [f"{self._address(name, i)}:{TENSORFLOW_PORT}" for i in range(replicas)]
                cluster.setdefault(role.value, []).extend(addresses)
        return msgspec.Raw(msgspec.json.encode(cluster))


def service_manifest(job: JobFacts) -> dict[str, Any]:
    """Return the headless Service that gives every replica its DNS name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job),
        "spec": {
            "clusterIP": "None",
            # Replicas look each other up before they are ready.
            "publishNotReadyAddresses": True,
            "selector": {names.JOB_LABEL: job.key[1]},
        },
    }


def _metadata(job: JobFacts) -> dict[str, Any]:
    namespace, name = job.key
    return {
        "name": name,
        "namespace": namespace,
        "labels": {names.JOB_LABEL: name},
        "ownerReferences": [owner_reference(job)],
    }


def owner_reference(job: JobFacts) -> Mapping[str, object]:
    """Return the reference that deletes an object with the job without delaying that deletion."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingJob",
        "name": job.key[1],
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


AUDIENCE: Final = "progress.bireme.dev"
ANNOTATION: Final = f"{names.GROUP}/progress"
_TOKEN_SECONDS: Final = 3600
_VOLUME: Final = "bireme-progress"
_FOLDER: Final = "/var/run/secrets/bireme.dev/progress"
_CA_FILE: Final = "ca.crt"
_TOKEN_FILE: Final = "token"  # noqa: S105  # a file's name


def path(job: Key) -> str:
    """Return the path for reports of ``job`` at the progress endpoint."""
    return f"{names.path('trainingjobs', *job)}/progress"


@dataclass(frozen=True, slots=True)
class ProgressAccess:
    """Gives pods the address of the progress endpoint and a token to identify themselves.

    Every container gets a ServiceAccount token with the endpoint as its only audience. The token
    names the pod, and the kubelet renews it. The variables are also set under the names of Kubeflow
    Trainer (KEP-2779), so that scripts for it work here. A template with the annotation
    ``bireme.dev/progress: "none"`` gets nothing.

    Attributes:
        url: Address of the endpoint inside the cluster, such as
            ``https://bireme-progress.bireme-system.svc:8082``.
        ca_config_map: The ConfigMap in the job's namespace with the CA of the endpoint's
            certificate as ``ca.crt``; empty for a public CA or plain HTTP.
    """

    url: str
    ca_config_map: str = ""

    def environment(self, job: Key) -> dict[str, str]:
        """Return the variables for every container."""
        values = {
            "URL": self.url.rstrip("/") + path(job),
            "TOKEN_FILE": f"{_FOLDER}/{_TOKEN_FILE}",
            "CA_FILE": f"{_FOLDER}/{_CA_FILE}" if self.ca_config_map else "",
        }
        variables = {key: value for key, value in values.items() if value}
        kubeflow = {"URL": "URL", "TOKEN_FILE": "TOKEN", "CA_FILE": "CA_CERT"}
        return {
            **{f"BIREME_PROGRESS_{key}": value for key, value in variables.items()},
            **{
                f"KUBEFLOW_TRAINER_SERVER_{kubeflow[key]}": value
                for key, value in variables.items()
            },
        }

    @property
    def is_in_cluster(self) -> bool:
        """True if the address is the name of a Service."""
        host = urlsplit(self.url).hostname or ""
        return host.endswith((".svc", ".svc.cluster.local"))

    def with_token(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return the pod ``spec`` with the token mounted; unchanged if it is malformed."""
        volumes, containers = spec.get("volumes") or [], spec["containers"]
        mounts = [c.get("volumeMounts") or [] for c in containers]
        if not all(isinstance(container_mounts, list) for container_mounts in mounts):
            return spec  # the API server will refuse it with a reason
        mount = {"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}
        return {
            **spec,
            "volumes": [*volumes, self._volume()],
            "containers": [
                {**container, "volumeMounts": [*container_mounts, mount]}
                for container, container_mounts in zip(containers, mounts, strict=True)
            ],
        }

    def _volume(self) -> dict[str, Any]:
        token = {"audience": AUDIENCE, "expirationSeconds": _TOKEN_SECONDS, "path": _TOKEN_FILE}
        sources: list[dict[str, Any]] = [{"serviceAccountToken": token}]
        if self.ca_config_map:
            items = [{"key": _CA_FILE, "path": _CA_FILE}]
            sources.append({"configMap": {"name": self.ca_config_map, "items": items}})
        return {"name": _VOLUME, "projected": {"sources": sources}}


class PodFactory:
    """Builds the pods of one planned job.

    ``progress`` is their access to the progress endpoint, None for no access. ``label_of`` gives
    the value of a node's label, empty without the label. Torchrun starts one process for each of
    ``accelerators``.
    """

    def __init__(
        self,
        job: JobFacts,
        plan: PlanFacts,
        progress: ProgressAccess | None = None,
        label_of: Callable[[str, str], str] = lambda *_: "",
        accelerators: Accelerators = DEFAULT,
    ) -> None:
        self._job = job
        self._plan = plan
        self._progress = progress
        self._label_of = label_of
        self._rendezvous = Rendezvous(job, plan, accelerators)
        tasks = job.spec.tasks if job.spec is not None else ()
        templates = zip(tasks, job.templates, strict=True)
        self._templates = {task.name: msgspec.json.decode(template) for task, template in templates}
        self._priority = {task.name: task.priority for task in job.tasks}

    @property
    def needs_service(self) -> bool:
        """True if the replicas need a headless Service for their names."""
        return self._rendezvous.needs_service

    def in_order(self) -> Iterator[Member]:
        """Yield all members, tasks with the highest intra-job priority first."""
        yield from sorted(
            self._plan.members, key=lambda m: (-self._priority.get(m.task, 0), m.task, m.index)
        )

    def manifest(self, member: Member) -> dict[str, Any]:
        """Return the pod of one member, ready to be created."""
        template, (namespace, job) = self._templates[member.task], self._job.key
        template_metadata = template.get("metadata") or {}
        name = names.pod_name(job, member.task, member.index)
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": namespace,
            "labels": {**(template_metadata.get("labels") or {}), **self._labels(member)},
            # A gang that loses one replica restarts as a whole.
            "annotations": {**names.KEPT_IN_PLACE, **(template_metadata.get("annotations") or {})},
            "ownerReferences": [owner_reference(self._job)],
        }
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
        template_spec = template["spec"]
        spec = dict(template_spec)
        spec["schedulerName"] = names.SCHEDULER_NAME
        # The gang restarts as a whole: a replica that restarts in place cannot rejoin the others.
        spec.setdefault("restartPolicy", "Never")
        # Training code seldom needs the API server, and a token would be a risk.
        spec.setdefault("automountServiceAccountToken", False)
        # With nodeName a pod would bypass the scheduler. With another gate it would block its gang.
        for field in ("nodeName", "priority", "priorityClassName", "schedulingGates"):
            spec.pop(field, None)
        if self._job.spec is not None and self._job.spec.priority_class_name:
            spec["priorityClassName"] = self._job.spec.priority_class_name
        if self._rendezvous.needs_service:
            spec["hostname"] = name
            spec["subdomain"] = self._job.key[1]
        if self._looks_names_up() and spec.get("hostNetwork"):
            # By default such a pod uses the resolver of its node, which knows no cluster names.
            spec["dnsPolicy"] = spec.get("dnsPolicy") or "ClusterFirstWithHostNet"
        environment = self._rendezvous.environment(member.task, member.index)
        annotations = (template.get("metadata") or {}).get("annotations") or {}
        if self._progress is not None and annotations.get(ANNOTATION) != "none":
            spec = self._progress.with_token(spec)
            environment |= self._progress.environment(self._job.key)
        if environment:
            spec["containers"] = [_with(c, environment) for c in spec["containers"]]
        if self._plan.mode == "Pinned":
            spec["affinity"] = pods.affinity_on_node(template_spec, member.node)
            if limits := template_spec.get("topologySpreadConstraints"):
                spec["topologySpreadConstraints"] = [*map(spread_under_pin, limits)]
        else:
            spec |= self._role_affinity(template_spec, member)
        return spec

    def _looks_names_up(self) -> bool:
        """Return whether its pods look up names that only the cluster's resolver knows."""
        return self._rendezvous.needs_service or (
            self._progress is not None and self._progress.is_in_cluster
        )

    def _role_affinity(self, template_spec: dict[str, Any], member: Member) -> dict[str, Any]:
        """Return the affinity of a member without a pin that a required role affinity needs.

        Servers stay in their planned domain, which has room for the workers. Workers stay near the
        servers of their plan. A pinned member needs no affinity. Empty if nothing is required, or
        if no server is planned, as in a dry run.
        """
        role_affinity = self._job.spec.role_affinity if self._job.spec is not None else None
        roles = self._plan.roles
        has_servers = any(roles.get(other.task) == Role.PS for other in self._plan.members)
        if role_affinity is None or role_affinity.mode != "Required" or not has_servers:
            return {}
        key = role_affinity.topology_key
        if roles.get(member.task) == Role.WORKER:
            labels = {names.JOB_LABEL: self._job.key[1], names.ROLE_LABEL: Role.PS.value}
            labels |= {names.PLAN_LABEL: self._plan.label}
            term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
            return {"affinity": pods.affinity_with(template_spec, term)}
        domain = self._label_of(member.node, key)
        if roles.get(member.task) == Role.PS and domain:
            return {"affinity": pods.affinity_within(template_spec, key, domain)}
        return {}


def _with(container: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """Return the container with ``environment``; its own variables take precedence."""
    env = container.get("env") or []
    if not (isinstance(env, list) and all(isinstance(variable, dict) for variable in env)):
        return container  # the API server will refuse it with a reason
    existing = {variable.get("name") for variable in env}
    added = [{"name": k, "value": v} for k, v in environment.items() if k not in existing]
    return {**container, "env": [*env, *added]}
