"""A request as admission sees it, and the cluster around it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bireme_lab.embedded.api.errors import Object as Manifest
from bireme_lab.embedded.api.requests import ApiUser


@dataclass(frozen=True, kw_only=True)
class AdmissionRequest:
    """One request; ``object`` is None for a deletion, ``old`` for a creation."""

    operation: str
    resource: str
    kind: str
    user: ApiUser
    group: str = ""
    version: str = "v1"
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    object: Manifest | None = None
    old: Manifest | None = None
    is_dry_run: bool = False

    @property
    def target(self) -> str:
        """Resource and name as the API server writes them in a refusal."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        name = self.name or (self.object or {}).get("metadata", {}).get("generateName", "Unknown")
        return f'{resource} "{name}"'

    def to_variable(self) -> Manifest:
        """Return the value of ``request``, in which names that are empty have no field."""
        resource = {"group": self.group, "version": self.version, "resource": self.resource}
        kind = {"group": self.group, "version": self.version, "kind": self.kind}
        # A namespace is in itself.
        namespace = self.name if self.resource == "namespaces" else self.namespace
        names = {
            "namespace": namespace,
            "name": self.name,
            "subResource": self.subresource,
            "requestSubResource": self.subresource,
        }
        return {
            **{field: name for field, name in names.items() if name},
            "operation": self.operation,
            "kind": kind,
            "requestKind": kind,
            "resource": resource,
            "requestResource": resource,
            "userInfo": self.user.to_info(),
            "dryRun": self.is_dry_run,
        }


Check = Mapping[str, str]
"""Parts of a check of the authorizer: group, resource, subresource, namespace, name and verb."""


@dataclass(frozen=True)
class Surroundings:
    """The cluster around a request.

    Attributes:
        namespaces: Namespaces by name.
        may: Answers the authorizer for a user.
        objects: Returns the objects of a kind in a namespace, for policies with parameters.
    """

    namespaces: Mapping[str, Manifest]
    may: Callable[[ApiUser, Check], bool]
    objects: Callable[[str, str], list[Any]]
