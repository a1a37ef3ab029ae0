"""The pod template of a task: any pod spec, of which only what is counted is declared.

Everything else is carried through unread, so a pod field newer than Bireme works the day
Kubernetes ships it. Whether the whole is a valid pod is asked of the API server by a dry run.
"""

from typing import Annotated

from pydantic import ConfigDict, Field

from bireme.kube.api.fields import DnsLabel, LabelValue, ResourceMap
from bireme.kube.api.metadata import keyed_by
from bireme.kube.api.model import Model

_OPEN = ConfigDict(extra="allow")


class ContainerResources(Model):
    """What a container asks for and may use at most."""

    model_config = _OPEN

    requests: ResourceMap | None = None
    limits: ResourceMap | None = None


class Container(Model):
    """A container; its fields are those of a pod's container."""

    model_config = _OPEN

    name: DnsLabel
    resources: ContainerResources | None = None


class PodSpec(Model):
    """A pod's spec. Bireme sets the node pin, schedulerName and rendezvous environment itself."""

    model_config = _OPEN

    containers: tuple[Container, ...] = Field(
        min_length=1, max_length=64, json_schema_extra=keyed_by("name")
    )
    init_containers: tuple[Container, ...] | None = Field(
        default=None, max_length=64, json_schema_extra=keyed_by("name")
    )


class TemplateMetadata(Model):
    """Labels and annotations for the pods; Bireme adds its own labels."""

    labels: dict[str, LabelValue] = Field(default={}, max_length=64)
    annotations: dict[str, Annotated[str, Field(max_length=65536)]] = Field(
        default={}, max_length=64
    )


class PodTemplate(Model):
    """The pod every replica of a task is made from."""

    metadata: TemplateMetadata | None = None
    spec: PodSpec
