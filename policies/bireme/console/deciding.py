"""How the operator of a cluster decides: its settings, and the SchedulingPolicy that counts.

The settings are those of a file that is named, else of the ConfigMap that the chart installs; as
for the operator itself, ``BIREME_`` variables of the environment win. What cannot be known here is
told in remarks, never passed over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bireme.console.errors import ConsoleError
from bireme.console.reading import Reader
from bireme.core.errors import BiremeError
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.kube import settings_source
from bireme.kube.conditions import cleaned
from bireme.kube.scheduling_policies import PolicyFacts
from bireme.kube.settings_source import CONFIG_VARIABLE
from bireme.registry import CHECKPOINT, make_policy
from bireme.rl import named

_CONFIG_MAPS: Final = "/api/v1/configmaps"
_OF_OPERATOR: Final = "app.kubernetes.io/name=bireme,app.kubernetes.io/component=operator"
_KEY: Final = "settings.yaml"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator runs with.

    Attributes:
        source: Where that was read, in words.
        checkpoint_directory: Where the operator looks for checkpoints, on its own machine.
        remarks: What the reader of an answer must know.
    """

    scheduling: SchedulingSettings
    source: str
    checkpoint_directory: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """A policy as the operator has it; ``name`` of its SchedulingPolicy, empty without one."""

    policy: Policy
    name: str = ""
    remarks: tuple[str, ...] = ()


async def settings_of(reader: Reader, environ: Mapping[str, str]) -> Settings:
    """The settings of the operator that ``reader`` is connected to.

    Raises:
        ConsoleError: the cluster has the settings of several operators, or theirs name code.
        SettingError: a setting has a value it cannot have.
    """
    remarks: tuple[str, ...] = ()
    if named_file := environ.get(CONFIG_VARIABLE):
        document, source = settings_source.document(environ), f"the file {named_file}"
    else:
        document, source, remarks = await _installed(reader)
        told = settings_source.read(SchedulingSettings, {}, document)
        _refuse_classes(source, told.orderer, told.placer, told.sizer)
    scheduling = settings_source.read(SchedulingSettings, environ, document)
    operator = document.get("operator") or {}
    directory = str(operator.get("checkpointDirectory") or "")
    return Settings(scheduling, source, directory, remarks)


async def _installed(reader: Reader) -> tuple[Mapping[str, Any], str, tuple[str, ...]]:
    """Document, source and remarks of the chart's ConfigMap; the defaults without one."""
    listed = await reader.objects_if_allowed(_CONFIG_MAPS, labelSelector=_OF_OPERATOR)
    found = {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}": each["data"][_KEY]
        for each in listed or ()
        if _KEY in (each.get("data") or {})
    }
    if len(found) > 1:
        raise ConsoleError(
            f"the cluster has settings of several operators, in the ConfigMaps "
            f"{', '.join(sorted(found))}; save {_KEY} of the right one and name it by --config"
        )
    for name, text in found.items():
        source = f"ConfigMap {name}"
        return settings_source.parse(text, f"{_KEY} of {source}"), source, ()
    why = (
        "you may not list ConfigMaps of all namespaces"
        if listed is None
        else "the cluster has no ConfigMap of Bireme's chart"
    )
    remark = f"the operator's settings are unknown, as {why}; name their file by --config"
    return {}, "the default settings", (remark,)


def policy_in_force(active: PolicyFacts | None, settings: Settings) -> PolicyInForce:
    """What decides: ``active``, the SchedulingPolicy that counts, or else the settings.

    Raises:
        ConsoleError: the settings name a policy that cannot be loaded here.
    """
    remarks: tuple[str, ...] = ()
    if active is not None:
        try:
            return PolicyInForce(_policy_of(active, settings), active.name)
        except (BiremeError, ImportError) as error:
            remark = (
                f"SchedulingPolicy {active.name} counts in the cluster and cannot be loaded here: "
                f"{cleaned(str(error))}; the policy of the settings has decided instead"
            )
            remarks = (remark,)
    try:
        return PolicyInForce(make_policy(settings.scheduling), remarks=remarks)
    except (BiremeError, ImportError) as error:
        raise ConsoleError(
            f"the policy of {settings.source} cannot be loaded here: {error}; save the settings, "
            "name another policy in them, and name the file by --config"
        ) from error


def _policy_of(active: PolicyFacts, settings: Settings) -> Policy:
    if active.spec is None:
        raise ConsoleError(active.fault)
    source = named.source_of(active)
    _refuse_classes(active.name, source.orderer, source.placer, source.sizer)
    directory = settings.checkpoint_directory
    policy, _ = named.policy_of(source, settings.scheduling, make_policy, directory)
    return policy


def _refuse_classes(whose: str, *policies: str) -> None:
    """ConsoleError for a class: no cluster has a say in which modules are imported here."""
    for name in policies:
        if ":" in name and not name.startswith(CHECKPOINT):
            raise ConsoleError(
                f"{whose} names {name!r}, code of the cluster's own, which is run here only from a "
                "settings file that you name by --config"
            )
