"""A fake API server that also says what it serves, for programs that ask before they begin.

kopf does, and so do kubectl and client-go's dynamic clients. Only Bireme's own kinds, CRDs and
the core kinds that are watched are announced.
"""

from typing import Any, Final

from tests.support.fakeapi.server import FakeApi

_VERBS: Final = ["create", "delete", "get", "list", "patch", "update", "watch"]
_GROUPS: Final = {
    "apiextensions.k8s.io/v1": {"customresourcedefinitions": ("CustomResourceDefinition", False)},
    "bireme.dev/v1alpha1": {
        "podgroups": ("PodGroup", True),
        "queues": ("Queue", False),
        "trainingjobs": ("TrainingJob", True),
    },
}
_CORE: Final = {
    "namespaces": ("Namespace", False),
    "nodes": ("Node", False),
    "pods": ("Pod", True),
}


class DiscoverableApi(FakeApi):
    """:class:`FakeApi` with the discovery documents of a real server."""

    def __init__(self) -> None:
        super().__init__()
        self.documents |= _DOCUMENTS


def resources(
    group_version: str, kinds: dict[str, tuple[str, bool]], scalable: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The document of a group: kinds by their plural, whether namespaced, which have a scale."""
    entries = [
        {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": is_namespaced}
        | {"verbs": _VERBS}
        for plural, (kind, is_namespaced) in kinds.items()
    ]
    entries += [
        {"name": f"{plural}/scale", "kind": "Scale", "namespaced": kinds[plural][1]}
        | {"verbs": ["get", "patch", "update"]}
        for plural in scalable
    ]
    return {"kind": "APIResourceList", "groupVersion": group_version, "resources": entries}


def _group(group_version: str) -> dict[str, Any]:
    name, _, version = group_version.partition("/")
    offered = {"groupVersion": group_version, "version": version}
    return {"name": name, "versions": [offered], "preferredVersion": offered}


_DOCUMENTS: Final[dict[str, dict[str, Any]]] = {
    "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.1"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": resources("v1", _CORE),
    "/apis": {"kind": "APIGroupList", "groups": [_group(name) for name in _GROUPS]},
    **{f"/apis/{name}": resources(name, kinds) for name, kinds in _GROUPS.items()},
}
