"""One namespace as its user sees it: create, read, wait, delete."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from testbed.controlplane.cluster import Cluster
from testbed.controlplane.errors import ControlPlaneError
from testbed.scenario.manifests import Manifest
from testbed.scenario.promises import history_of
from testbed.scenario.waiting import PATIENCE_SECONDS, eventually

KUBEFLOW_KINDS: Final = {
    "PyTorchJob": ("/apis/kubeflow.org/v1", "pytorchjobs"),
    "TFJob": ("/apis/kubeflow.org/v1", "tfjobs"),
    "MPIJob": ("/apis/kubeflow.org/v1", "mpijobs"),
    "XGBoostJob": ("/apis/kubeflow.org/v1", "xgboostjobs"),
    "PaddleJob": ("/apis/kubeflow.org/v1", "paddlejobs"),
}
PLURALS: Final = {
    "TrainingJob": ("/apis/bireme.dev/v1alpha1", "trainingjobs"),
    "PodGroup": ("/apis/bireme.dev/v1alpha1", "podgroups"),
    "Pod": ("/api/v1", "pods"),
    "Service": ("/api/v1", "services"),
    "Event": ("/api/v1", "events"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "ResourceClaim": ("/apis/resource.k8s.io/v1", "resourceclaims"),
    "ResourceClaimTemplate": ("/apis/resource.k8s.io/v1", "resourceclaimtemplates"),
    "Job": ("/apis/batch/v1", "jobs"),
    "StatefulSet": ("/apis/apps/v1", "statefulsets"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    **KUBEFLOW_KINDS,
}
CLUSTER_PLURALS: Final = {
    "Queue": ("/apis/bireme.dev/v1alpha1", "queues"),
    "SchedulingPolicy": ("/apis/bireme.dev/v1alpha1", "schedulingpolicies"),
    "PriorityClass": ("/apis/scheduling.k8s.io/v1", "priorityclasses"),
    "Node": ("/api/v1", "nodes"),
    "PersistentVolume": ("/api/v1", "persistentvolumes"),
    "StorageClass": ("/apis/storage.k8s.io/v1", "storageclasses"),
    "CSINode": ("/apis/storage.k8s.io/v1", "csinodes"),
    "CSIDriver": ("/apis/storage.k8s.io/v1", "csidrivers"),
    "DeviceClass": ("/apis/resource.k8s.io/v1", "deviceclasses"),
    "ResourceSlice": ("/apis/resource.k8s.io/v1", "resourceslices"),
    "NodePool": ("/apis/karpenter.sh/v1", "nodepools"),
    "KWOKNodeClass": ("/apis/karpenter.kwok.sh/v1alpha1", "kwoknodeclasses"),
    "NodePoolScaler": ("/apis/bireme.dev/v1alpha1", "nodepoolscalers"),
}
ENDED: Final = ("Succeeded", "Failed")


def _is_shared(made: Manifest) -> bool:
    """Return whether other tests could meet ``made``, and no installation needs it."""
    kind, name = str(made["kind"]), str(made["metadata"]["name"])
    return kind in CLUSTER_PLURALS and (kind, name) != ("Queue", "default")


@dataclass(frozen=True)
class Tenant:
    """A namespace of ``cluster``; ``explain`` adds to every failed wait."""

    cluster: Cluster
    namespace: str
    explain: Callable[[], str] = str
    _shared: list[Manifest] = field(default_factory=list, repr=False, compare=False)
    """Cluster-scoped objects that it made. They go with it: a test that is run again would be
    refused a second one, or find at once what it waits for."""

    @classmethod
    @contextmanager
    def staying(cls, cluster: Cluster, explain: Callable[[], str] = str) -> Iterator["Tenant"]:
        """A tenant with a new namespace, which is cleared at the end of the block.

        Where Bireme runs, its gangs must have come to rest by then.
        """
        tenant = cls(cluster, cluster.create_namespace(f"tenant-{secrets.token_hex(3)}"), explain)
        try:
            yield tenant
            if history := history_of(cluster):
                history.await_rest(tenant.namespace)
        finally:
            tenant.leave()

    def leave(self) -> None:
        self.clear()
        self.cluster.api.request("DELETE", f"/api/v1/namespaces/{self.namespace}")
        for made in reversed(self._shared):
            self.delete(made["kind"], made["metadata"]["name"])

    def clear(self) -> None:
        """Delete what the tenant has, and return when none of its pods is left."""
        if history := history_of(self.cluster):
            history.forgive(self.namespace)
        for kind in ("TrainingJob", "PodGroup", "Job", "StatefulSet", "Service"):
            self._delete_all(kind, propagationPolicy="Background")

        def left() -> list[str]:
            # By force: no kubelet confirms the end of a pod whose fake node is gone.
            self._delete_all("Pod", gracePeriodSeconds=0)
            return [pod["metadata"]["name"] for pod in self.pods()]

        self.eventually(left, lambda names: not names)

    def _delete_all(self, kind: str, **options: Any) -> None:
        """Delete all objects of a kind, where the cluster has that kind."""
        self.cluster.api.request("DELETE", self.path(kind), options)

    # --- objects ---------------------------------------------------------------------------

    def path(self, kind: str, name: str = "") -> str:
        if kind in CLUSTER_PLURALS:
            group, plural = CLUSTER_PLURALS[kind]
            base = f"{group}/{plural}"
        else:
            group, plural = PLURALS[kind]
            base = f"{group}/namespaces/{self.namespace}/{plural}"
        return f"{base}/{name}" if name else base

    def create(self, *manifests: Manifest) -> Manifest:
        """Create objects in order; return the last as the API server returned it."""
        created: Manifest = {}
        for manifest in manifests:
            if _is_shared(manifest):
                # A finalizer keeps that of an earlier run of the test for a while.
                self._await_end(manifest["kind"], manifest["metadata"]["name"])
            created = self.cluster.api.post(self.path(manifest["kind"]), manifest)
            if _is_shared(created):
                self._shared.append(created)
        return created

    def _await_end(self, kind: str, name: str) -> None:
        """Return once no object of this name is being deleted."""

        def ends() -> bool:
            found = self.find(kind, name)
            return found is not None and "deletionTimestamp" in found["metadata"]

        self.eventually(ends, lambda ending: not ending)

    def refusal(self, manifest: Manifest) -> str:
        """Return the API server's refusal of ``manifest``, which is not made; empty without one."""
        path = f"{self.path(manifest['kind'])}?dryRun=All"
        reply = self.cluster.api.request("POST", path, manifest)
        return str(reply.json()["message"]) if reply.status >= 400 else ""

    def get(self, kind: str, name: str) -> Manifest:
        return self.cluster.api.get(self.path(kind, name))

    def find(self, kind: str, name: str) -> Manifest | None:
        reply = self.cluster.api.request("GET", self.path(kind, name))
        if reply.status == 404:
            return None
        if reply.status != 200:
            raise ControlPlaneError(f"{kind} {name}: {reply.status} {reply.body[:500]!r}")
        return reply.json()

    def all(self, kind: str, selector: str = "") -> list[Manifest]:
        query = f"?labelSelector={selector}" if selector else ""
        items: list[Manifest] = self.cluster.api.get(self.path(kind) + query)["items"]
        return items

    def delete(self, kind: str, name: str, grace_seconds: int | None = None) -> None:
        """Delete an object with its dependents, and wait for neither."""
        if kind == "TrainingJob" and (history := history_of(self.cluster)):
            history.forgive(self.namespace, name)
        options: Manifest = {"propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        reply = self.cluster.api.request("DELETE", self.path(kind, name), options)
        if reply.status not in (200, 202, 404):
            raise ControlPlaneError(f"delete {kind} {name}: {reply.status} {reply.body[:500]!r}")

    def patch(self, kind: str, name: str, change: Manifest, subresource: str = "") -> None:
        """Merge ``change`` into an object, or into ``status`` or another subresource of it."""
        path = self.path(kind, name)
        self.cluster.api.patch(f"{path}/{subresource}" if subresource else path, change)

    # --- what came of them -----------------------------------------------------------------

    def status(self, name: str, kind: str = "TrainingJob") -> Manifest:
        status: Manifest = self.get(kind, name).get("status", {})
        return status

    def plan(self, name: str) -> Manifest | None:
        """Return the plan of a TrainingJob, or else of a PodGroup; None without one."""
        owner = self.find("TrainingJob", name) or self.find("PodGroup", name) or {}
        plan: Manifest | None = owner.get("status", {}).get("plan")
        return plan

    def pods(self, group: str = "") -> list[Manifest]:
        """Return the pods of one gang, or all of the namespace."""
        return self.all("Pod", f"bireme.dev/pod-group={group}" if group else "")

    def eventually(
        self,
        read: Callable[[], Any],
        is_right: Callable[[Any], object] = bool,
        timeout_seconds: float = PATIENCE_SECONDS,
    ) -> Any:
        """See :func:`testbed.scenario.waiting.eventually`."""
        return eventually(read, is_right, timeout_seconds, explain=self._story)

    def _story(self) -> str:
        try:
            told = [_line_of_pod(pod) for pod in self.pods()]
            told += [_line_of_event(event) for event in self.all("Event")[-60:]]
        except ControlPlaneError as error:
            told = [f"the namespace cannot be read: {error}"]
        return "\n".join((*told, self.explain()))

    def await_phase(
        self, name: str, phase: str, timeout_seconds: float = PATIENCE_SECONDS
    ) -> Manifest:
        return self._await(name, "phase", phase, timeout_seconds)

    def await_reason(self, name: str, reason: str) -> Manifest:
        return self._await(name, "reason", reason, PATIENCE_SECONDS)

    def _await(self, name: str, field: str, value: str, timeout_seconds: float) -> Manifest:
        found: Manifest = self.eventually(
            lambda: self.status(name), lambda s: s.get(field) == value, timeout_seconds
        )
        return found

    def await_group(self, name: str, **fields: str) -> Manifest:
        """Return the status of a PodGroup once it has these values; ``message`` may be a part."""
        words = fields.pop("message", "")
        found: Manifest = self.eventually(
            lambda: self.status(name, "PodGroup"),
            lambda status: (
                words in status.get("message", "")
                and all(status.get(key) == value for key, value in fields.items())
            ),
        )
        return found

    def await_gone(self, kind: str, name: str) -> None:
        """Return when the object is gone; the garbage collector may take 30 s for new CRDs."""
        self.eventually(lambda: self.find(kind, name), lambda o: o is None, 90.0)

    def events(self, name: str) -> list[tuple[str, str, str]]:
        """Return (type, reason, message) of the events about an object."""
        return [
            (event["type"], event["reason"], event["message"])
            for event in self.all("Event")
            if event["involvedObject"]["name"] == name
        ]


def nodes_of(pods: list[Manifest]) -> dict[str, str]:
    bound = {p["metadata"]["name"]: p["spec"].get("nodeName") for p in pods}
    return {name: node for name, node in bound.items() if node}


def uids_of(pods: list[Manifest]) -> dict[str, str]:
    return {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods}


def environment(pod: Manifest) -> dict[str, str]:
    """Return the variables of a pod's first container."""
    return {v["name"]: v["value"] for v in pod["spec"]["containers"][0].get("env", ())}


def _line_of_pod(pod: Manifest) -> str:
    meta, node = pod["metadata"], pod["spec"].get("nodeName")
    times = f"made {meta['creationTimestamp']}, deleted {meta.get('deletionTimestamp')}"
    return f"{meta['name']} ({meta['uid']}): {pod['status'].get('phase')} on {node}, {times}"


def _line_of_event(event: Manifest) -> str:
    about, when = event["involvedObject"], event.get("lastTimestamp") or event.get("eventTime")
    return f"{when} {about['kind']} {about['name']}: {event['reason']}: {event.get('message')}"
