"""Every kind that the operator watches, with a good object of each, as lines of its watches.

The watches are the operator's own; what they bring goes into a cluster state, which is decided on.
"""

import json
from typing import Any, Final, cast

from bireme.core.cycle import run_cycle
from bireme.core.settings import SchedulingSettings
from bireme.kube import names, plans
from bireme.kube.client import ApiClient
from bireme.kube.cluster_state import ClusterState
from bireme.kube.node_pool_scalers import NodePoolScalers
from bireme.kube.watch import Reflector
from bireme.registry import make_policy
from bireme.testing import a_node
from bireme_operator.watches import Watches
from testbed.objects import devices, volumes
from testbed.objects.facts import CREATED, a_job, a_plan, node_manifest, pod_manifest, served
from testbed.scenario.manifests import (
    Manifest,
    annotations,
    member_template,
    pod,
    pod_group,
    pod_spec,
    priority_class,
    queue,
    scheduling_policy,
    task,
    training_job,
)
from testbed.simcluster.resources import ReflectedResources

_POLICY: Final = make_policy(SchedulingSettings())
_RULES: Final[Manifest] = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": volumes.selector("rack", "r0"),
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 5, "preference": volumes.selector("rack", "r0")["nodeSelectorTerms"][0]}
            ],
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {
                        "matchLabels": {"app": "a"},
                        "matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}],
                    },
                }
            ]
        },
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "rack",
            "whenUnsatisfiable": "DoNotSchedule",
            "minDomains": 1,
            "labelSelector": {"matchLabels": {"app": "a"}},
        }
    ],
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}],
    "nodeSelector": {"rack": "r0"},
    "overhead": {"cpu": "100m"},
    "initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always"}],
    "hostNetwork": True,
    **volumes.named("data"),
    **devices.claims("gpus"),
}


def _rich_spec() -> Manifest:
    spec = pod_spec(1, **_RULES)
    spec["containers"][0] |= {"ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]}
    return spec


def _job(name: str, **status: Any) -> Manifest:
    workers = task("worker", 2, minReplicas=1, maxReplicas=3, spec=_rich_spec())
    spec: Manifest = {"rendezvous": "torch", "estimatedDuration": "1h", "queue": "default"}
    spec |= {"roleAffinity": {"mode": "Preferred", "topologyKey": "rack"}, "minAvailable": 1}
    spec |= {"runPolicy": {"backoffLimit": 2, "minRuntimeSeconds": 5, "suspend": False}}
    made = served(training_job(name, workers, **spec), f"{name}-uid")
    return {**made, "status": {"phase": "Pending", "reason": "WaitingForCapacity", **status}}


def _planned() -> tuple[Manifest, Manifest]:
    """A job that runs, and one of its pods."""
    workers = task("worker", 2, gpus=1)
    facts = a_job(workers, name="runs")
    plan = a_plan(facts, ("n0", "n1"))
    status = {"phase": "Running", "attempt": 0, "plan": plans.to_manifest(plan)}
    job = {**served(training_job("runs", workers), facts.uid), "status": status}
    return job, pod_manifest(facts, plan, plan.members[0])


def _pod_status() -> Manifest:
    state = {"terminated": {"exitCode": 1, "reason": "Error", "message": "gone"}}
    container = {"name": "train", "restartCount": 1, "state": state, "lastState": state}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    times = {"startTime": "2030-01-01T00:00:00Z", "reason": "Evicted", "message": "low"}
    return {"phase": "Failed", "conditions": [condition], "containerStatuses": [container], **times}


def _objects() -> dict[str, tuple[Manifest, ...]]:
    """Good objects by collection, those that others need first."""
    running, member = _planned()
    guest = member_template("group", fake=annotations("5s"), **_RULES)
    foreign = {"metadata": {**guest["metadata"], "name": "guest"}, "spec": guest["spec"]}
    quota: Manifest = {"metadata": {"name": "quota", "namespace": "default"}}
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    quota["spec"] = {"hard": {"pods": "10", "requests.nvidia.com/gpu": "8"}}
    quota["spec"] |= {"scopes": ["NotTerminating"], "scopeSelector": {"matchExpressions": [scope]}}
    quota["status"] = {"hard": {"pods": "10"}, "used": {"pods": "1"}}
    pool: Manifest = {"metadata": {"name": "pool"}, "kind": "NodePoolScaler"}
    target = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "pool"}
    pool["spec"] = {"nodeSelector": {"rack": "r0"}, "scaleTargetRef": target, "min": 0, "max": 4}
    attached = {"attacher": "disks", "nodeName": "n0", "source": {"persistentVolumeName": "disk"}}
    attachment = {"metadata": {"name": "attached"}, "spec": attached, "status": {"attached": True}}
    driver = {"metadata": {"name": "disks"}, "spec": {"storageCapacity": True}}
    capacity: Manifest = {"metadata": {"name": "left", "namespace": "kube-system"}}
    capacity |= {"storageClassName": "local", "capacity": "5Gi", "nodeTopology": {}}
    rule: Manifest = {"metadata": {"name": "broken"}}
    taint = {"key": "broken", "effect": "NoSchedule"}
    rule["spec"] = {"deviceSelector": {"driver": devices.DRIVER, "pool": "n0"}, "taint": taint}
    used: Manifest = {"metadata": {"name": "in-use", "namespace": "default"}}
    template = devices.claim_template("gpus", devices.request(selectors=[_cel("true")]))
    used["spec"] = template["spec"]["spec"]
    result = {"request": "gpus", "driver": devices.DRIVER, "pool": "n0", "device": "gpu-0"}
    used["status"] = {"allocation": {"devices": {"results": [result]}}}
    in_namespace = {"metadata": {**template["metadata"], "namespace": "default"}}
    claim = volumes.claim("data", metadata={"namespace": "default"})
    owner = {"apiVersion": names.API_VERSION, "kind": "TrainingJob", "name": "waits", "uid": "1"}
    service: Manifest = {"metadata": {"name": "waits", "namespace": "default"}, "spec": {}}
    service["metadata"] |= {"labels": {names.JOB_LABEL: "waits"}, "ownerReferences": [owner]}
    unbound = {**pod("other", fake={}, nodeName="n1", **_RULES), "status": _pod_status()}
    nominated = {**pod("next"), "status": {"phase": "Pending", "nominatedNodeName": "n1"}}
    return {
        "/api/v1/nodes": tuple(node_manifest(a_node(name, rack="r0")) for name in ("n0", "n1")),
        "/api/v1/namespaces": ({"metadata": {"name": "default", "labels": {"team": "a"}}},),
        "/apis/scheduling.k8s.io/v1/priorityclasses": (priority_class("high", 1000),),
        "/api/v1/resourcequotas": (quota,),
        names.path("queues"): (
            queue("default", limit={"nvidia.com/gpu": "8"}, guaranteed={"cpu": "1"}, weight=2),
        ),
        names.path("schedulingpolicies"): (
            scheduling_policy("rules", orderer="fifo", placer="packing", stage="Active"),
        ),
        names.path("nodepoolscalers"): (pool,),
        "/api/v1/persistentvolumeclaims": (claim,),
        "/api/v1/persistentvolumes": (volumes.volume("disk", host="n0"),),
        "/apis/storage.k8s.io/v1/storageclasses": (volumes.storage_class(),),
        "/apis/storage.k8s.io/v1/csinodes": (volumes.csi_node("n0", disks=2),),
        "/apis/storage.k8s.io/v1/volumeattachments": (attachment,),
        "/apis/storage.k8s.io/v1/csidrivers": (driver,),
        "/apis/storage.k8s.io/v1/csistoragecapacities": (capacity,),
        "/apis/resource.k8s.io/v1/resourceslices": (
            devices.resource_slice("n0", devices.device("gpu-0"), devices.device("gpu-1")),
        ),
        "/apis/resource.k8s.io/v1/deviceclasses": (devices.device_class(extended="a.com/gpu"),),
        "/apis/resource.k8s.io/v1/devicetaintrules": (rule,),
        "/apis/resource.k8s.io/v1/resourceclaimtemplates": ({**template, **in_namespace},),
        "/apis/resource.k8s.io/v1/resourceclaims": (used,),
        names.path("trainingjobs"): (_job("waits"), running),
        "services of jobs": (service,),
        names.path("podgroups"): (
            {**pod_group("group", 1), "status": {"phase": "Pending", "reason": "WaitingForPods"}},
        ),
        "members": (foreign, member),
        "other pods": (unbound,),
        "nominated pods": (nominated,),
    }


def _cel(expression: str) -> Manifest:
    return {"cel": {"expression": expression}}


OBJECTS: Final = {
    collection: tuple(
        served(each, f"{collection}-{number}", namespace=each["metadata"].get("namespace", ""))
        if collection not in ("members", "other pods", "nominated pods")
        else served(each, f"{collection}-{number}")
        for number, each in enumerate(found)
    )
    for collection, found in _objects().items()
}


class WatchedCluster:
    """An operator's watches and what they feed, without an API server; every object is there."""

    def __init__(self) -> None:
        self.state = ClusterState(SchedulingSettings())
        self.scalers = NodePoolScalers()
        client = cast(ApiClient, None)  # nothing is asked: lines are handed over
        custom = ReflectedResources(client, lambda: 0.0)
        watches = Watches(client, self.state, self.scalers, custom, lambda: 0.0)
        mirrors: list[Reflector[Any]] = [*watches._reflectors, *custom._reflectors]
        for wanted in watches._on_demand:
            mirrors += wanted._reflectors
            wanted._cache.all_listed()
        self.mirrors = {each.name or each.path: each for each in mirrors}
        self._version = 100
        for collection, found in OBJECTS.items():
            for manifest in found:
                self.tell(collection, manifest)

    def tell(self, collection: str, manifest: Any, change: str = "ADDED") -> None:
        """Have a watch bring an object, with a version of its own where it may have one."""
        self._version += 1
        if isinstance(manifest, dict) and isinstance(manifest.get("metadata"), dict):
            given = {"resourceVersion": str(self._version)}
            manifest = {**manifest, "metadata": {**manifest["metadata"], **given}}
        line = json.dumps({"type": change, "object": manifest})
        self.bring(collection, line.encode("utf-8", "surrogatepass"))

    def bring(self, collection: str, line: bytes) -> None:
        self.mirrors[collection]._take_event(line)

    def decide(self) -> None:
        """Decide as a turn of the operator does: a gang that trips it is reported and left out."""
        run_cycle(self.state.snapshot(CREATED + 100.0, on_error=lambda *_: None), _POLICY)
