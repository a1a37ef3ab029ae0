"""Where the planner and kube-scheduler's filters differ, plugin by plugin."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from testbed.filters.drawing import Case, case_of
from testbed.filters.judge import Answer, Judge, Refusal
from testbed.filters.planner import Planned, planned
from testbed.scenario.manifests import Manifest

PLANNED: Final = frozenset(
    {
        "DynamicResources",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeDeclaredFeatures",
        "NodeName",
        "NodePorts",
        "NodeResourcesFit",
        "NodeUnschedulable",
        "NodeVolumeLimits",
        "PodTopologySpread",
        "SchedulingGates",
        "TaintToleration",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
    }
)
"""Plugins whose every refusal the planner foresees, but what it says that it leaves to them."""
MAY_BE_LEFT: Final = frozenset(
    {
        "DynamicResources",
        "InterPodAffinity",
        "NodeVolumeLimits",
        "PodTopologySpread",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
    }
)
"""Those of them of which it leaves something to kube-scheduler, and says so on the job."""
DISABLED: Final = frozenset({"DefaultPreemption"})
"""All others of the default profile: Bireme's has them not."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A node on which the planner says something else than the plugins it plans for."""

    seed: int
    planned: Planned
    node: str
    refusals: tuple[Refusal, ...]

    def __str__(self) -> str:
        takes = "takes" if self.planned.takes[self.node] else "refuses"
        why = self.planned.refusal or self.planned.left
        said = f" ({why})" if why else ""
        words = "; ".join(f"{each.plugin}: {each.words}" for each in self.refusals)
        return (
            f"seed {self.seed}, pod {self.planned.pod} as {self.planned.kind} on {self.node}: "
            f"the planner {takes} it{said}, kube-scheduler {words or 'takes it'}"
        )


@dataclass
class VerdictCounts:
    """What a run of many cases has compared."""

    verdicts: int = 0
    refused: int = 0
    plugins: set[str] = field(default_factory=set)
    alone: Counter[str] = field(default_factory=Counter)
    """How often each plugin was the only one that refused a pod on a node."""
    disagreements: list[Disagreement] = field(default_factory=list)

    def count(self, answer: Answer) -> None:
        self.plugins.update(answer.plugins)
        for verdict in answer.tried:
            for refusals in verdict.refusals.values():
                self.verdicts += 1
                self.refused += bool(refusals)
                if len(refusals) == 1:
                    self.alone[refusals[0].plugin] += 1

    def __str__(self) -> str:
        alone = ", ".join(f"{name} {count}" for name, count in self.alone.most_common())
        return (
            f"{self.verdicts} verdicts, {self.refused / max(1, self.verdicts):.0%} no, "
            f"{len(self.disagreements)} disagreements; refused by one plugin alone: {alone}"
        )


def compared(seeds: Iterable[int], judge: Judge) -> VerdictCounts:
    """Try every pod of the cases of ``seeds`` on every node, by both."""
    counts = VerdictCounts()
    for seed in seeds:
        case = case_of(seed)
        try:
            answer = judge.ask(case.objects, case.tried)
        except ValueError as error:
            raise ValueError(f"seed {seed}: {error}") from error
        counts.count(answer)
        counts.disagreements += disagreements(case, answer)
    return counts


def disagreements(case: Case, answer: Answer) -> Iterator[Disagreement]:
    """Yield every node of every pod on which the planned plugins say other than the planner."""
    refusals = {verdict.pod["metadata"]["name"]: verdict.refusals for verdict in answer.tried}
    unready = {node["metadata"]["name"] for node in case.of("Node") if not _is_ready(node)}
    tried = [verdict.pod for verdict in answer.tried]
    for found in planned(case, answer.pods, tried):
        for node, takes in found.takes.items():
            # On purpose: a pod that tolerates every taint is not planned on a node that is not
            # ready, where kube-scheduler would bind it.
            if node in unready and not takes:
                continue
            said = refusals[found.pod][node]
            if found.kind == "TrainingJob":  # its pods are made without the gates of its template
                said = tuple(each for each in said if each.plugin != "SchedulingGates")
            foreseen = {each.plugin for each in said if each.plugin in PLANNED}
            if found.left and takes:
                foreseen -= MAY_BE_LEFT
            if takes == bool(foreseen):
                yield Disagreement(case.seed, found, node, said)


def _is_ready(node: Manifest) -> bool:
    conditions = node["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
