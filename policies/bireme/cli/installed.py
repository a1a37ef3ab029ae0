"""The objects that the chart has installed, found by their labels, in any namespace."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bireme import settings_source
from bireme.cli.arguments import Json
from bireme.cli.cluster import ClusterReader
from bireme.core.errors import SettingError

SETTINGS: Final = "settings.yaml"
"""Key of the ConfigMap with the settings of operator and extender."""
_PART_OF: Final = "app.kubernetes.io/part-of=bireme"
_COMPONENT: Final = "app.kubernetes.io/component"


def component_of(manifest: Json) -> str:
    """Return the component that an object of the chart is part of, such as ``operator``."""
    labels = manifest["metadata"].get("labels") or {}
    return str(labels.get(_COMPONENT, ""))


async def settings_texts(reader: ClusterReader) -> dict[str, str] | None:
    """Return the settings of every operator, by namespace and name of its ConfigMap.

    None if the caller may not list ConfigMaps.
    """
    selector = f"{_PART_OF},{_COMPONENT}=operator"
    listed = await reader.objects_if_allowed("/api/v1/configmaps", labelSelector=selector)
    if listed is None:
        return None
    return {
        f"{config_map['metadata']['namespace']}/{config_map['metadata']['name']}": config_map[
            "data"
        ][SETTINGS]
        for config_map in listed
        if SETTINGS in (config_map.get("data") or {})
    }


async def objects(reader: ClusterReader, path: str) -> list[Json] | None:
    """Return the chart's objects of a collection; None if the caller may not list them."""
    return await reader.objects_if_allowed(path, labelSelector=_PART_OF)


@dataclass(frozen=True, slots=True)
class Installation:
    """The objects and settings of the chart, on a cluster of Kubernetes 1.``cluster_minor``.

    Deployments, pods and the names of settings are None where the caller may not list them.
    Settings are empty if they are unknown; ``fault`` says why existing ones cannot be read.
    """

    cluster_minor: int
    deployments: list[Json] | None
    pods: list[Json] | None
    settings_of: tuple[str, ...] | None
    settings: Mapping[str, Any]
    fault: str

    def setting(self, section: str, name: str, default: Any) -> Any:
        """Return a setting of the chart's file, by its name there."""
        return (self.settings.get(section) or {}).get(name, default)

    @property
    def observes(self) -> bool:
        """Whether the operator was installed to write nothing, without a scheduler."""
        return bool(self.setting("operator", "mode", "Apply") == "Observe")

    @property
    def namespace(self) -> str:
        """The operator's namespace, or else the documented default."""
        for deployment in self.deployments or ():
            return str(deployment["metadata"]["namespace"])
        return str(self.setting("operator", "leaseNamespace", "bireme-system"))

    def deployment(self, component: str) -> Json | None:
        """Return the Deployment of ``operator`` or ``scheduler``, if it is known."""
        of = (d for d in self.deployments or () if component_of(d) == component)
        return next(of, None)


async def installation(reader: ClusterReader, minor: int) -> Installation:
    """Return the objects and settings of the chart on a cluster of Kubernetes 1.``minor``."""
    texts = await settings_texts(reader)
    settings: Mapping[str, Any] = {}
    fault = ""
    if texts is not None and len(texts) == 1:
        ((where, text),) = texts.items()
        try:
            settings = settings_source.parse(text, f"{SETTINGS} of ConfigMap {where}")
        except SettingError as error:
            fault = str(error)
    return Installation(
        minor,
        await objects(reader, "/apis/apps/v1/deployments"),
        await objects(reader, "/api/v1/pods"),
        None if texts is None else tuple(sorted(texts)),
        settings,
        fault,
    )
