"""The scheduler's configuration: profiles and extenders of a KubeSchedulerConfiguration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bireme.kube.quantities import parse_duration

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
_DEFAULT_WEIGHTS: Final[Mapping[str, int]] = {
    "NodeAffinity": 2,
    "TaintToleration": 3,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
}
"""Score plugins that are modelled, with their weights."""


@dataclass(frozen=True, slots=True)
class Extender:
    """One extender: where it is, and how far its answers count."""

    url: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 1
    is_ignorable: bool = False
    sends_names: bool = False
    timeout_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Profile:
    """The pods of one scheduler name, and how their nodes are scored.

    Attributes:
        weights: Weight of each score plugin that is on.
        strategy: LeastAllocated or MostAllocated, of NodeResourcesFit.
        resource_weights: Resources that NodeResourcesFit scores.
        preempts: Whether pods of lower priority go for one that finds no node.
    """

    name: str
    weights: Mapping[str, int]
    strategy: str
    resource_weights: Mapping[str, int]
    preempts: bool


@dataclass(frozen=True, slots=True)
class Configuration:
    """The profiles and extenders of a scheduler.

    Attributes:
        lease: Namespace and name of the Lease that its leader holds; None without an election.
    """

    profiles: tuple[Profile, ...]
    extenders: tuple[Extender, ...] = ()
    lease: tuple[str, str] | None = None

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "Configuration":
        """Read a document.

        Raises:
            ValueError: It is of another kind or version; the message names field and value.
        """
        if document.get("apiVersion") != API_VERSION:
            version = document.get("apiVersion")
            raise ValueError(f"apiVersion is {version!r}; the scheduler reads {API_VERSION}")
        profiles = document.get("profiles") or [{"schedulerName": "default-scheduler"}]
        return cls(
            tuple(map(_profile, profiles)),
            tuple(map(_extender, document.get("extenders") or ())),
            _lease(document.get("leaderElection") or {}),
        )


def _profile(profile: Mapping[str, Any]) -> Profile:
    plugins = profile.get("plugins") or {}
    weights = dict(_DEFAULT_WEIGHTS)
    for point in ("multiPoint", "score"):
        of = plugins.get(point) or {}
        for each in of.get("disabled") or ():
            weights = (
                {}
                if each["name"] == "*"
                else {name: weight for name, weight in weights.items() if name != each["name"]}
            )
        for each in of.get("enabled") or ():
            if each["name"] in _DEFAULT_WEIGHTS:
                weights[each["name"]] = int(each.get("weight") or _DEFAULT_WEIGHTS[each["name"]])
    strategy, resources = "LeastAllocated", {"cpu": 1, "memory": 1}
    for each in profile.get("pluginConfig") or ():
        if each["name"] == "NodeResourcesFit":
            of = (each.get("args") or {}).get("scoringStrategy") or {}
            strategy = of.get("type", strategy)
            if of.get("resources"):
                resources = {r["name"]: int(r.get("weight", 1)) for r in of["resources"]}
    preempts = not any(
        plugin["name"] in ("*", "DefaultPreemption")
        for point in ("multiPoint", "postFilter")
        for plugin in (plugins.get(point) or {}).get("disabled") or ()
    )
    return Profile(profile["schedulerName"], weights, strategy, resources, preempts)


def _lease(election: Mapping[str, Any]) -> tuple[str, str] | None:
    if not election.get("leaderElect"):
        return None
    namespace = election.get("resourceNamespace", "kube-system")
    return namespace, election.get("resourceName", "kube-scheduler")


def _extender(extender: Mapping[str, Any]) -> Extender:
    return Extender(
        url=extender["urlPrefix"].rstrip("/"),
        filter_verb=extender.get("filterVerb", ""),
        prioritize_verb=extender.get("prioritizeVerb", ""),
        weight=int(extender.get("weight", 1)),
        is_ignorable=bool(extender.get("ignorable")),
        sends_names=bool(extender.get("nodeCacheCapable")),
        timeout_seconds=parse_duration(extender.get("httpTimeout", "5s")),
    )


DEFAULT: Final = Configuration.parse({"apiVersion": API_VERSION})
