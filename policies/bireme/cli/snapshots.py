"""How the operator of a cluster decides: its settings, and the SchedulingPolicy that counts.

The settings are those of a file that is named, else of the ConfigMap that the chart installs; as
for the operator itself, ``BIREME_`` variables of the environment win. What cannot be known here is
told in remarks, never passed over.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bireme import settings_source
from bireme.cli.cluster import ConsoleError, Json, Reader
from bireme.core.errors import BiremeError
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.kube import names, quantities
from bireme.kube.conditions import cleaned
from bireme.kube.policy_source import PolicyFacts
from bireme.registry import CHECKPOINT, make_policy
from bireme.rl import builtin
from bireme.settings_source import CONFIG_VARIABLE

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
    source = builtin.source_of(active)
    _refuse_classes(active.name, source.orderer, source.placer, source.sizer)
    directory = settings.checkpoint_directory
    policy, _ = builtin.policy_of(source, settings.scheduling, make_policy, directory)
    return policy


def _refuse_classes(whose: str, *policies: str) -> None:
    """ConsoleError for a class: no cluster has a say in which modules are imported here."""
    for name in policies:
        if ":" in name and not name.startswith(CHECKPOINT):
            raise ConsoleError(
                f"{whose} names {name!r}, code of the cluster's own, which is run here only from a "
                "settings file that you name by --config"
            )


# One gang as its object tells of it: a TrainingJob, or a PodGroup of another controller.
#
# Everything is read from fields that the operator writes; what is missing stays None, because an
# object may be new, or the operator may be away.

ENDED = frozenset({"Succeeded", "Failed", "Completed"})


@dataclass(frozen=True, slots=True)
class Factor:
    """One term of a priority: ``contribution = value * weight``."""

    name: str
    value: float
    weight: float
    contribution: float


@dataclass(frozen=True, slots=True)
class GangLine:
    """What a listing shows of a gang. Times in POSIX seconds.

    Attributes:
        position: 1 is the next to be admitted, over all queues; None when it does not wait.
        waits: Whether it wants to start and has no places.
        earliest, latest: When it should start, as far as anybody can say.
        coverage_percent: How many of 100 such ranges hold the start, where that is known.
        since: When it was last given its places.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    queue: str
    phase: str
    reason: str
    message: str
    position: int | None
    waits: bool
    gpus: int | None
    ready: str
    priority_class: str
    score: float | None
    factors: tuple[Factor, ...]
    created: float | None
    queued: float | None
    waited_before_seconds: float
    earliest: float | None
    latest: float | None
    coverage_percent: int | None
    since: float | None
    counters: tuple[tuple[str, int], ...]
    nodes: str
    progress: float | None

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    def waiting_seconds(self, now: float) -> float:
        """How long it has waited in all, while it waits."""
        since = self.queued if self.queued is not None else self.created
        return self.waited_before_seconds + (max(0.0, now - since) if since is not None else 0.0)


_COUNTERS = ("restarts", "interruptions", "preemptions")


def line_of(manifest: Json) -> GangLine:
    """The line of a TrainingJob or PodGroup."""
    about, spec = manifest.get("metadata") or {}, manifest.get("spec") or {}
    status = manifest.get("status") or {}
    phase = status.get("phase") or "Pending"
    start, priority = status.get("estimatedStart") or {}, status.get("priority") or {}
    placement = status.get("placement") or {}
    return GangLine(
        kind=manifest.get("kind", ""),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        uid=about.get("uid", ""),
        queue=spec.get("queue") or names.DEFAULT_QUEUE,
        phase=phase,
        reason=cleaned(status.get("reason") or ""),
        message=cleaned(status.get("message") or ""),
        position=status.get("queuePosition"),
        waits=_waits(manifest.get("kind", ""), phase, status),
        gpus=status.get("gpus"),
        ready=status.get("ready") or "",
        priority_class=spec.get("priorityClassName") or "",
        score=priority.get("score"),
        factors=tuple(
            Factor(cleaned(f["name"]), f["value"], f["weight"], f["contribution"])
            for f in priority.get("factors") or ()
        ),
        created=quantities.parse_timestamp(about.get("creationTimestamp")),
        queued=quantities.parse_timestamp(status.get("queuedTime")),
        waited_before_seconds=float(status.get("waitSeconds") or 0),
        earliest=quantities.parse_timestamp(start.get("earliest")),
        latest=quantities.parse_timestamp(start.get("latest")),
        coverage_percent=start.get("coveragePercent"),
        since=quantities.parse_timestamp(status.get("admittedTime")),
        counters=tuple((name, status[name]) for name in _COUNTERS if status.get(name)),
        nodes=cleaned(placement.get("summary") or ""),
        progress=(status.get("progress") or {}).get("percentage"),
    )


def _waits(kind: str, phase: str, status: Json) -> bool:
    if kind == "TrainingJob":
        return phase in ("Pending", "Restarting")
    if status.get("queuePosition") is not None:  # its newest pods, while the others run
        return True
    return phase in ("Pending", "Interrupted") and not status.get("plan")


def in_line(manifests: Iterable[Json]) -> list[GangLine]:
    """All that wait, the next to be admitted first; those without a position last, by age."""
    lines = [line_of(manifest) for manifest in manifests if not is_owned(manifest)]
    waiting = [line for line in lines if line.waits]
    far = float("inf")
    return sorted(
        waiting,
        key=lambda line: (line.position or far, line.created or far, line.key),
    )


def is_owned(manifest: Json) -> bool:
    """Whether a PodGroup is that of a TrainingJob, which speaks for it."""
    owners = (manifest.get("metadata") or {}).get("ownerReferences") or ()
    return manifest.get("kind") == "PodGroup" and any(
        names.is_training_job(o.get("apiVersion", ""), o.get("kind", "")) for o in owners
    )
