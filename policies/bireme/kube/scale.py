"""Client of the ``/scale`` subresource of the objects that create nodes.

Bireme does not write replicas that another manager owns. To find the managers, it sends a
server-side apply without force as a dry run: the API server then names the managers of the field. A
forced apply cannot write the replicas: for custom resources the API server answers 500 (1.37).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from bireme.core.reasons import Reason
from bireme.kube import names, pods, wire
from bireme.kube.api.node_pool_scaler import ScaleTarget
from bireme.kube.client import ApiClient, ApiError

_TIMEOUT_SECONDS: Final = 10.0
_OWNER: Final = re.compile(r'conflicts? with "([^"]+)"( with subresource "scale")?( using)?')
# Part of the 500 that the API server sends if a custom resource's field has no manager.
_NO_OWNER: Final = "to proper version"


class ScaleFault(Exception):  # noqa: N818  # a state of the target, which is reported
    """The target cannot be scaled; ``reason`` and the message name the cause and the remedy."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Scale:
    """The replicas of a target at one resource version."""

    path: str
    replicas: int
    resource_version: str


@dataclass(frozen=True, slots=True)
class ReplicaManager:
    """A field manager of the replicas: by apply, by ``/scale``, or by an update."""

    manager: str
    applied: bool
    by_scale: bool

    @property
    def is_lasting(self) -> bool:
        """True if it manages the replicas; false if it only created the object with a number."""
        # An autoscaler and kubectl scale write through /scale.
        return self.applied or (self.by_scale and self.manager != names.FIELD_MANAGER)


class _Spec(wire.Wire, frozen=True):
    replicas: int = 0


class _Scale(wire.MetadataOnly, frozen=True):
    spec: _Spec = _Spec()


class _Resource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False


class _Resources(msgspec.Struct):
    resources: list[_Resource] = []


class _Pods(wire.Wire, frozen=True):
    items: tuple[wire.V1Pod, ...] | None = None


@dataclass(frozen=True, slots=True)
class ScaleTargets:
    """Reads and writes scales; caches the path of each kind.

    Every method raises ApiError if a request fails.
    """

    client: ApiClient
    _resource_by_kind: dict[tuple[str, str], _Resource] = field(default_factory=dict)

    async def read(self, target: ScaleTarget) -> Scale:
        """Return the current scale of ``target``.

        Raises:
            ScaleFault: its kind does not exist or cannot be scaled.
        """
        path = await self._path(target)
        try:
            body = await self.client.get(path, timeout_seconds=_TIMEOUT_SECONDS)
        except ApiError:
            self._resource_by_kind.pop((target.api_version, target.kind), None)
            raise
        scale = msgspec.json.decode(body, type=_Scale)
        return Scale(path, scale.spec.replicas, scale.metadata.resource_version)

    async def owners(self, scale: Scale, replicas: int) -> tuple[ReplicaManager, ...]:
        """Return the managers whose value ``replicas`` would overwrite. Writes nothing."""
        name = scale.path.split("/")[-2]
        # The API server refuses an apply without force, and names all managers of the field. No
        # other query works for every kind.
        body = msgspec.json.encode(_manifest({"name": name}, replicas))
        params = {"fieldManager": names.FIELD_MANAGER, "force": "false", "dryRun": "All"}
        kind, timeout = "application/apply-patch+yaml", _TIMEOUT_SECONDS
        try:
            await self.client.request(
                "PATCH",
                scale.path,
                params=params,
                body=body,
                content_type=kind,
                timeout_seconds=timeout,
            )
        except ApiError as error:
            if error.is_conflict and (conflicts := _OWNER.findall(error.message)):
                return tuple(
                    ReplicaManager(who, not using, bool(by)) for who, by, using in conflicts
                )
            if _NO_OWNER not in error.message:
                raise
        return ()

    async def write(self, scale: Scale, replicas: int) -> Scale:
        """Set ``replicas`` at the resource version of ``scale``; a changed target is a conflict."""
        body = _manifest({"resourceVersion": scale.resource_version}, replicas)
        params = {"fieldManager": names.FIELD_MANAGER}
        answer = await self.client.merge_patch(
            scale.path, body, params=params, timeout_seconds=_TIMEOUT_SECONDS
        )
        version = msgspec.json.decode(answer, type=_Scale).metadata.resource_version
        return Scale(scale.path, replicas, version)

    async def nodes_with_pods(self, nodes: Iterable[str]) -> frozenset[str]:
        """Return the ``nodes`` with pods, ended or not, other than DaemonSet and static pods."""
        nodes_in_use = set()
        for node in nodes:
            # Version 0 is answered from the API server's memory, without a read of etcd.
            params = {"fieldSelector": f"spec.nodeName={node}", "resourceVersion": "0"}
            timeout = _TIMEOUT_SECONDS
            answer = await self.client.get(pods.PATH, params=params, timeout_seconds=timeout)
            node_pods = msgspec.json.decode(answer, type=_Pods).items or ()
            if not all(map(pods.never_leaves, node_pods)):
                nodes_in_use.add(node)
        return frozenset(nodes_in_use)

    async def _path(self, target: ScaleTarget) -> str:
        """Return the path of the scale of ``target``; raises as :meth:`read` does."""
        resource = self._resource_by_kind.get((target.api_version, target.kind))
        if resource is None:
            resource = await self._discover(target)
            self._resource_by_kind[target.api_version, target.kind] = resource
        if resource.namespaced != (target.namespace is not None):
            wrong = "needs a namespace" if resource.namespaced else "has no namespace"
            raise _not_found(f"{target.kind} {wrong}; correct scaleTargetRef.namespace")
        home = f"/namespaces/{target.namespace}" if resource.namespaced else ""
        return f"{_root(target)}{home}/{resource.name}/{target.name}/scale"

    async def _discover(self, target: ScaleTarget) -> _Resource:
        root = _root(target)
        try:
            body = await self.client.get(root, timeout_seconds=_TIMEOUT_SECONDS)
        except ApiError as error:
            if not error.is_not_found:
                raise
            raise _not_found(
                f"{target.api_version} is not served here; install it or correct scaleTargetRef"
            ) from error
        served = msgspec.json.decode(body, type=_Resources).resources
        scalable = {item.name.removesuffix("/scale") for item in served if "/scale" in item.name}
        kinds = [item for item in served if item.kind == target.kind and "/" not in item.name]
        for resource in kinds:
            if resource.name in scalable:
                return resource
        lacks = "has no /scale" if kinds else f"is no kind of {target.api_version}"
        raise _not_found(f"{target.kind} {lacks}; name something that can be scaled")


def _root(target: ScaleTarget) -> str:
    prefix = "apis" if "/" in target.api_version else "api"
    return f"/{prefix}/{target.api_version}"


def _manifest(metadata: dict[str, str], replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": metadata,
        "spec": {"replicas": replicas},
    }


def _not_found(message: str) -> ScaleFault:
    return ScaleFault(Reason.TARGET_NOT_FOUND, message)


def fault_of(target: ScaleTarget, error: ApiError) -> ScaleFault:
    """Return the fault of the pool for a failed request for ``target``."""
    name = f"{target.kind} {target.name}"
    if error.is_not_found:
        return _not_found(f"{name} does not exist; create it or correct scaleTargetRef")
    if error.is_forbidden:
        needs = "allow the operator get and patch on its scale"
        return ScaleFault(Reason.TARGET_FORBIDDEN, f"{name}: {error.message}; {needs}")
    return ScaleFault(Reason.TARGET_UNAVAILABLE, f"{name}: {error}; it is tried again")
