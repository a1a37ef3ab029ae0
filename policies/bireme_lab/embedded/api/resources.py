"""Kinds that the API server serves, and the documents by which clients discover them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bireme_lab.embedded.api.errors import Object, Subject

_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of ``kubectl get``: the value at a JSON path of the object.

    Attributes:
        priority: 0 for always, 1 for ``-o wide`` alone.
    """

    name: str
    type: str
    path: str
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """One kind as it is served in one version.

    Attributes:
        subresources: Such as ``status``, ``scale``, ``eviction``.
        selectable: Fields that field selectors may name, beside name and namespace.
        schema: The OpenAPI schema of a custom kind; None for the kinds of Kubernetes.
        is_create_only: Its objects are answered and never stored, such as reviews.
    """

    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    selectable: frozenset[str] = frozenset()
    columns: tuple[TableColumn, ...] = ()
    schema: Mapping[str, Any] | None = field(default=None, compare=False)
    is_create_only: bool = False

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def prefix(self) -> str:
        """The path of its group and version, such as ``/apis/batch/v1``."""
        return f"/apis/{self.group_version}" if self.group else f"/api/{self.version}"

    @property
    def path(self) -> str:
        """The path of all its objects, such as ``/api/v1/pods``."""
        return f"{self.prefix}/{self.plural}"

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def name(self) -> str:
        """The plural with the group, as messages have it: ``jobs.batch``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def is_custom(self) -> bool:
        """True for a kind that a CustomResourceDefinition defines."""
        return self.schema is not None

    def subject(self, name: str) -> Subject:
        """Return the object ``name`` as refusals name it."""
        return Subject(self.kind, self.group, self.name, name)

    def entries(self) -> Iterator[Object]:
        """Yield its entries in the discovery document of its group."""
        entry: Object = {
            "name": self.plural,
            "singularName": self.singular,
            "namespaced": self.is_namespaced,
            "kind": self.kind,
            "verbs": ["create"] if self.is_create_only else list(_VERBS),
        }
        if self.short_names:
            entry["shortNames"] = list(self.short_names)
        if self.categories:
            entry["categories"] = list(self.categories)
        yield entry
        for name in sorted(self.subresources):
            kind, group, version, verbs = _SUBRESOURCES.get(
                name, (self.kind, "", "", ("get", "patch", "update"))
            )
            of_subresource: Object = {
                "name": f"{self.plural}/{name}",
                "singularName": "",
                "namespaced": self.is_namespaced,
                "kind": kind,
                "verbs": list(verbs),
            }
            if version:
                of_subresource |= {"group": group, "version": version}
            yield of_subresource


_SUBRESOURCES: Final = {
    "scale": ("Scale", "autoscaling", "v1", ("get", "patch", "update")),
    "eviction": ("Eviction", "policy", "v1", ("create",)),
    "binding": ("Binding", "", "v1", ("create",)),
    "log": ("Pod", "", "v1", ("get",)),
}


class ResourceKinds:
    """All kinds that are served, by the path of their objects."""

    def __init__(self, resources: Iterable[ResourceKind]) -> None:
        self._by_path = {resource.path: resource for resource in resources}

    def __iter__(self) -> Iterator[ResourceKind]:
        return iter(self._by_path.values())

    def get(self, path: str) -> ResourceKind | None:
        """Return the kind whose objects are at ``path``."""
        return self._by_path.get(path)

    def of_kind(self, api_version: str, kind: str) -> ResourceKind | None:
        """Return the kind by the fields ``apiVersion`` and ``kind`` of an object."""
        return next((r for r in self if r.kind == kind and r.group_version == api_version), None)

    def add(self, resource: ResourceKind) -> None:
        self._by_path[resource.path] = resource

    def remove(self, path: str) -> None:
        self._by_path.pop(path, None)

    def document(self, path: str) -> Object | None:
        """Return the discovery document at ``path``; None where there is none."""
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        groups: dict[str, list[str]] = {}
        for resource in self:
            versions = groups.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        if path == "/apis":
            named = [_group(name, versions) for name, versions in groups.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
        if (name := path.removeprefix("/apis/")) in groups and path.startswith("/apis/"):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, groups[name])}
        members = [resource for resource in self if resource.prefix == path]
        if not members:
            return None
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": members[0].group_version,
            "resources": [entry for resource in members for entry in resource.entries()],
        }


def _group(name: str, versions: Iterable[str]) -> Object:
    offered = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": offered, "preferredVersion": offered[0]}


def custom_resources(definition: Object) -> Iterator[ResourceKind]:
    """Yield the kinds of a CustomResourceDefinition, one for each version that it serves."""
    spec = definition["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        selectable = (each["jsonPath"] for each in version.get("selectableFields", ()))
        columns = [
            TableColumn(
                each["name"],
                each["type"],
                each["jsonPath"],
                int(each.get("priority", 0)),
                each.get("description", ""),
            )
            for each in version.get("additionalPrinterColumns", ())
        ] or [TableColumn("Age", "date", ".metadata.creationTimestamp")]
        yield ResourceKind(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            is_namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames", ())),
            categories=tuple(names.get("categories", ())),
            subresources=frozenset(version.get("subresources") or ()),
            selectable=frozenset(path.removeprefix(".") for path in selectable),
            columns=tuple(columns),
            schema=version["schema"]["openAPIV3Schema"],
        )
