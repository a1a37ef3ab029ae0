"""Client of the ``/scale`` subresource of the objects that create nodes.

Replicas that something else manages are left to it. To find out, a server-side apply without force
is sent as a dry run: the API server then names the managers of the field. A forced apply cannot be
used to write: for custom resources the API server answers it with 500, as of 1.37.
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
    """The target cannot be scaled; ``reason`` and the message say why and what to do."""

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
class Owner:
    """A field manager of the replicas: by apply, by ``/scale``, or by an update."""

    manager: str
    applied: bool
    by_scale: bool

    @property
    def is_lasting(self) -> bool:
        """True if it manages the replicas, and did not only create the object with some number."""
        # An autoscaler and kubectl scale write by /scale.
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
    """Reads and writes scales; caches the path at which each kind is served.

    Every method raises ApiError if a request fails.
    """

    client: ApiClient
    _served: dict[tuple[str, str], _Resource] = field(default_factory=dict)

    async def read(self, target: ScaleTarget) -> Scale:
        """Return the current scale of ``target``.

        Raises:
            ScaleFault: nothing of its kind can be scaled here.
        """
        path = await self._path(target)
        try:
            body = await self.client.get(path, timeout_seconds=_TIMEOUT_SECONDS)
        except ApiError:
            self._served.pop((target.api_version, target.kind), None)
            raise
        found = msgspec.json.decode(body, type=_Scale)
        return Scale(path, found.spec.replicas, found.metadata.resource_version)

    async def owners(self, scale: Scale, replicas: int) -> tuple[Owner, ...]:
        """Return the managers that setting ``replicas`` would overrule. Writes nothing."""
        name = scale.path.split("/")[-2]
        # A dry run of an apply without force is refused with the names of all that manage the
        # field: there is no other way to ask that holds for every kind.
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
            if error.is_conflict and (found := _OWNER.findall(error.message)):
                return tuple(Owner(who, not using, bool(by)) for who, by, using in found)
            if _NO_OWNER not in error.message:
                raise
        return ()

    async def write(self, scale: Scale, replicas: int) -> Scale:
        """Set ``replicas`` if the target has not changed since it was read, else a conflict."""
        body = _manifest({"resourceVersion": scale.resource_version}, replicas)
        params = {"fieldManager": names.FIELD_MANAGER}
        answer = await self.client.merge_patch(
            scale.path, body, params=params, timeout_seconds=_TIMEOUT_SECONDS
        )
        version = msgspec.json.decode(answer, type=_Scale).metadata.resource_version
        return Scale(scale.path, replicas, version)

    async def occupied(self, nodes: Iterable[str]) -> frozenset[str]:
        """Return those of ``nodes`` with pods, ended or not, but DaemonSet and static pods."""
        found = set()
        for node in nodes:
            # Version 0 is answered from the API server's memory, without a read of etcd.
            params = {"fieldSelector": f"spec.nodeName={node}", "resourceVersion": "0"}
            timeout = _TIMEOUT_SECONDS
            answer = await self.client.get(pods.PATH, params=params, timeout_seconds=timeout)
            here = msgspec.json.decode(answer, type=_Pods).items or ()
            if not all(map(pods.never_leaves, here)):
                found.add(node)
        return frozenset(found)

    async def _path(self, target: ScaleTarget) -> str:
        """Return the path of the scale of ``target``; raises as :meth:`read` does."""
        known = self._served.get((target.api_version, target.kind))
        if known is None:
            known = await self._discover(target)
            self._served[target.api_version, target.kind] = known
        if known.namespaced != (target.namespace is not None):
            wrong = "needs a namespace" if known.namespaced else "has no namespace"
            raise _not_found(f"{target.kind} {wrong}; correct scaleTargetRef.namespace")
        home = f"/namespaces/{target.namespace}" if known.namespaced else ""
        return f"{_root(target)}{home}/{known.name}/{target.name}/scale"

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
        scalable = {each.name.removesuffix("/scale") for each in served if "/scale" in each.name}
        kinds = [each for each in served if each.kind == target.kind and "/" not in each.name]
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
    """Return what a failed request for ``target`` means for the pool."""
    shown = f"{target.kind} {target.name}"
    if error.is_not_found:
        return _not_found(f"{shown} does not exist; create it or correct scaleTargetRef")
    if error.is_forbidden:
        needs = "allow the operator get and patch on its scale"
        return ScaleFault(Reason.TARGET_FORBIDDEN, f"{shown}: {error.message}; {needs}")
    return ScaleFault(Reason.TARGET_UNAVAILABLE, f"{shown}: {error}; it is tried again")
