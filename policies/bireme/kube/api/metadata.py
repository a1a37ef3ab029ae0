"""The parts every Bireme resource has: apiVersion, kind, metadata, conditions."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from bireme.kube.api.fields import DnsSubdomain, Message, Reason, Timestamp
from bireme.kube.api.model import Model


def keyed_by(key: str) -> dict[str, Any]:
    """The schema addition that makes a list a map with unique ``key``, merged entry by entry."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class Metadata(Model):
    """``metadata`` of an object; fields Bireme does not write are carried along untouched."""

    model_config = ConfigDict(extra="allow")

    name: DnsSubdomain | None = None
    namespace: DnsSubdomain | None = None


class Resource(Model):
    """A whole object of the group, as in a manifest file."""

    api_version: Literal["bireme.dev/v1alpha1"] = "bireme.dev/v1alpha1"
    kind: str
    metadata: Metadata = Metadata()


class Condition(Model):
    """One aspect of an object's state, in the form every Kubernetes tool reads."""

    type: str = Field(max_length=64)
    status: Literal["True", "False", "Unknown"]
    reason: Reason
    message: Message = ""
    last_transition_time: Timestamp
    observed_generation: int | None = Field(default=None, ge=0)


Conditions = Annotated[
    tuple[Condition, ...], Field(max_length=16, json_schema_extra=keyed_by("type"))
]
