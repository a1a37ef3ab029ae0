"""Integration: all that Bireme knows of one kind of workload that another controller runs.

The idea is that of Kueue's ``GenericJob``. Each kind has a file beside this one, and the package
registers it. Operator and commands ask the integration of an object and name no kind themselves.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bireme.core.gangs import Key
from bireme.kube import wire

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExternalWorkload:
    """One object of a kind, as its integration reads it.

    Attributes:
        managed_by: Name of the controller that runs it; None for the one of its kind.
        template_labels: Labels of the pods that it creates, one mapping for each template.
        has_acted: True if its controller has seen the suspension, or the workload is over.
        succeeded: Number of its succeeded pods, also of deleted ones.
    """

    meta: wire.V1ObjectMeta
    is_suspended: bool = False
    managed_by: str | None = None
    template_labels: tuple[Mapping[str, str], ...] = ()
    has_acted: bool = False
    succeeded: int = 0


def read_metadata(body: bytes) -> ExternalWorkload:
    """Decode the metadata of an object. Raises msgspec.DecodeError."""
    return ExternalWorkload(msgspec.json.decode(body, type=wire.MetadataOnly).metadata)


@dataclass(frozen=True, slots=True)
class Recreation:
    """A release from Bireme that deletes the object and creates it again, as it cannot be edited.

    ``pod_of`` removes the fields that the API server sets from a manifest, in place, and returns
    the pod template in it.
    """

    pod_of: Callable[[Json], Json]


@dataclass(frozen=True, slots=True)
class TemplateEdit:
    """A release from Bireme through the pod template in ``spec.template``.

    ``replaces_pods`` is true if the controller then replaces its waiting pods by itself.
    """

    replaces_pods: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Integration:
    """A kind of workload.

    Attributes:
        controls: Kinds of the objects that an object of this kind is the controller of.
        read: Decodes an object; raises msgspec.DecodeError.
        suspend_field: Path of the field that suspends an object. It is empty for a kind without
            one, whose pods are evicted. A suspension costs no retry.
        controller: Name of its own controller, as in ``managedBy``.
        bystanders: Kinds of controllers of such an object that leave its suspension alone.
        counts_succeeded: Whether ``read`` gives the number of succeeded pods.
        is_service: Whether each of its pods serves alone, so that they are no gang.
        creation_remedy: Returns how to make the controller of a pod create all pods at once, with
            the condition under which that applies; empty if the pod is of another kind.
        release: How its waiting pods leave Bireme; None where only their user can do that.
    """

    api_version: str
    kind: str
    plural: str
    controls: tuple[str, ...] = ("Pod",)
    read: Callable[[bytes], ExternalWorkload] = read_metadata
    suspend_field: tuple[str, ...] = ()
    controller: str = ""
    bystanders: tuple[str, ...] = ()
    counts_succeeded: bool = False
    is_service: bool = False
    creation_remedy: Callable[[wire.V1Pod], str] = lambda _: ""
    release: Recreation | TemplateEdit | None = None

    @property
    def api_group(self) -> str:
        """API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def collection_path(self, namespace: str | None = None) -> str:
        """Return the API path of all objects, or of those in ``namespace``."""
        root = "/apis" if self.api_group else "/api"
        parts = [root, self.api_version, *(["namespaces", namespace] if namespace else ())]
        return "/".join([*parts, self.plural])

    def path(self, key: Key) -> str:
        """Return the API path of one object."""
        return f"{self.collection_path(key[0])}/{key[1]}"

    def suspend_patch(self, value: bool) -> Json:
        """Return the merge patch that suspends an object, or resumes it."""
        patch: Any = value
        for name in reversed(self.suspend_field):
            patch = {name: patch}
        return dict(patch)


def has_condition(conditions: Iterable[wire.V1Condition] | None, *types: str) -> bool:
    """Return whether a condition of one of ``types`` is true."""
    return any(c.type in types and c.status == "True" for c in conditions or ())


def controller_of(meta: wire.V1ObjectMeta) -> wire.V1OwnerReference | None:
    """Return the controller among the owners of an object; None without one."""
    return next((owner for owner in meta.owner_references or () if owner.controller), None)


def owner_name(pod: wire.V1Pod, kind: str) -> str:
    """Return the name of an owner of ``pod`` by its kind; empty without one."""
    owners = {owner.kind: owner.name for owner in pod.metadata.owner_references or ()}
    return owners.get(kind, "")


def label_of(pod: wire.V1Pod, name: str) -> str:
    """Return the value of a label of ``pod``; empty without it."""
    return (pod.metadata.labels or {}).get(name, "")
