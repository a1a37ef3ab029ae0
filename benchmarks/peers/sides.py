"""What takes part: how each scheduler is started, what a gang is for it, and its first word on one.

Every side gets the same pods; it adds its label or annotation, its scheduler's name and, where it
has one, an object for the group. All programs are the cluster's administrator.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.timings.arena import JOBS, Status
from benchmarks.timings.workloads import NAMESPACE, plain_pods, training_job
from bireme.core.gpus import GPU
from bireme.kube import names
from testbed.controlplane.binaries import KUBERNETES_VERSION
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.process import Process
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import install_api
from testbed.scenario.manifests import Manifest, queue

QPS: Final = 5000
BURST: Final = 10000
"""Client limits of every program that takes any: those of the cluster's own kube-scheduler here."""

Size = tuple[int, int]
"""Pods of a gang, and GPUs of each."""


@dataclass(frozen=True, slots=True)
class Gang:
    """Requests that make one gang, by path: at first its own object, where there is one."""

    name: str
    group: tuple[str, Manifest] | None
    pods: tuple[Manifest, ...] = ()


class Side(ABC):
    """One scheduler; an object of it belongs to one cluster."""

    name: ClassVar[str]
    settings: ClassVar[str]
    """What differs from the program's defaults, and what it is recommended by."""
    arguments: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Flags of the cluster's own components."""
    components: ClassVar[tuple[str, ...]] = ()
    """The cluster's own components that do a part of the scheduling."""
    groups: ClassVar[str] = ""
    """Where its groups stand; those of a namespace, as a path."""

    def __init__(self, cluster: Cluster, workdir: Path) -> None:
        self.cluster = cluster
        self.workdir = workdir
        self.programs: list[Process] = []

    @property
    @abstractmethod
    def version(self) -> str:
        """The version that is measured."""

    @abstractmethod
    def gang(self, name: str, size: Size) -> Gang:
        """Return what a user, or the user's job controller, creates for a gang."""

    @abstractmethod
    def install(self, nodes: Sequence[Manifest]) -> None:
        """Bring in what it needs in the cluster of these nodes, and start its programs."""

    def word(self, status: Status) -> str:
        """Return why a group waits, as its status has it; empty while it says nothing."""
        return ""

    def stop(self) -> None:
        for program in reversed(self.programs):
            program.terminate()

    def pids(self) -> dict[str, int]:
        """Return the programs that do the scheduling."""
        pids = {name: self.cluster.component(name).pid for name in self.components}
        pids |= {program.name: program.pid for program in self.programs}
        return {name: pid for name, pid in pids.items() if pid is not None}

    def run(self, *programs: Process, ready_seconds: float = 60.0) -> None:
        self.programs += programs
        for program in programs:
            program.start()
        for program in programs:
            program.wait_ready(ready_seconds)


def pods_of(
    name: str,
    size: Size,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> tuple[Manifest, ...]:
    """Return the pods of a gang with a side's own labels, annotations and fields of the spec."""
    replicas, gpus = size
    return tuple(
        {
            **pod,
            "metadata": {
                **pod["metadata"],
                "labels": {**pod["metadata"]["labels"], **(labels or {})},
                "annotations": {**pod["metadata"]["annotations"], **(annotations or {})},
            },
            "spec": {**pod["spec"], **spec},
        }
        for pod in plain_pods(name, replicas, gpus)
    )


def group_of(api_version: str, kind: str, name: str, spec: Manifest) -> Manifest:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def requests_of(size: Size) -> dict[str, str]:
    """Return what a whole gang requests, for groups that say it."""
    replicas, gpus = size
    return {"cpu": str(replicas), "memory": f"{replicas}Gi", GPU: str(replicas * gpus)}


def condition(status: Status, kind: str, value: str) -> str:
    """Return reason and message of a condition with this value; empty where there is none."""
    for found in status.conditions or ():
        if found.get("type") == kind and found.get("status") == value:
            return f"{found.get('reason', '')}: {found.get('message', '')}"
    return ""


# --- the cluster's own kube-scheduler, and Bireme -----------------------------------------------


class Stock(Side):
    name = "stock"
    components = ("kube-scheduler",)
    settings = (
        f"the cluster's kube-scheduler, client limits {QPS}/{BURST}; no gangs: what plain pods cost"
    )

    @property
    def version(self) -> str:
        return KUBERNETES_VERSION

    def install(self, nodes: Sequence[Manifest]) -> None:
        """Do nothing: its only program is the cluster's own."""

    def gang(self, name: str, size: Size) -> Gang:
        return Gang(name, None, pods_of(name, size))


class Native(Stock):
    """The gang scheduling of Kubernetes' own scheduler."""

    name = "native gate"
    arguments: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "kube-apiserver": {
            "feature-gates": "GenericWorkload=true",
            "runtime-config": "scheduling.k8s.io/v1beta1=true",
        },
        "kube-controller-manager": {"feature-gates": "GenericWorkload=true"},
        "kube-scheduler": {"feature-gates": "GenericWorkload=true"},
    }
    groups = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{NAMESPACE}/podgroups"
    settings = (
        "GenericWorkload on in API server, controller manager and kube-scheduler; a PodGroup "
        f"v1beta1 with gang.minCount per gang; client limits {QPS}/{BURST}"
    )

    def gang(self, name: str, size: Size) -> Gang:
        spec = {"schedulingPolicy": {"gang": {"minCount": size[0]}}}
        group = group_of("scheduling.k8s.io/v1beta1", "PodGroup", name, spec)
        pods = pods_of(name, size, schedulingGroup={"podGroupName": name})
        return Gang(name, (self.groups, group), pods)

    def word(self, status: Status) -> str:
        return condition(status, "PodGroupInitiallyScheduled", "False")


class Bireme(Side):
    name = "Bireme"
    groups = JOBS
    settings = (
        "operator, extender and second kube-scheduler as shipped (that one's client limits "
        "1000/2000); a TrainingJob per gang, whose pods the operator creates"
    )

    def __init__(self, cluster: Cluster, workdir: Path) -> None:
        super().__init__(cluster, workdir)
        self._stack = BiremeStack(cluster, workdir)

    @property
    def version(self) -> str:
        return "this revision"

    def install(self, nodes: Sequence[Manifest]) -> None:
        install_api(self.cluster)
        self.cluster.api.post(names.path("queues"), queue(names.DEFAULT_QUEUE))
        self._stack.start()

    def stop(self) -> None:
        self._stack.stop()

    def pids(self) -> dict[str, int]:
        stack = self._stack
        # The cluster's own scheduler runs, too.
        return {
            "operator": stack.operator().pid,
            "extender": stack.extender.pid,
            "kube-scheduler (second)": stack.scheduler.pid,
        }

    def gang(self, name: str, size: Size) -> Gang:
        return Gang(name, (JOBS, training_job(name, *size)))

    def word(self, status: Status) -> str:
        return status.reason or ""
