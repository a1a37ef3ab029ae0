"""Gangs, two in each cycle: planned by the core, created as Bireme creates them, then scheduled.

A scheduler must take every planned pod on its node, and must be unable to place whole what the
planner refuses. What a pin hides from it, spread over domains, is asked about pods without a pin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Hold
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import plans, training_jobs
from bireme.kube.names import SCHEDULER_NAME
from bireme.kube.pod_builder import PodFactory
from bireme.registry import make_policy
from testbed.filters.comparison import PLANNED
from testbed.filters.drawing import NAMESPACE, DrawnGang, Gangs
from testbed.filters.judge import Judge, Refusal
from testbed.filters.planner import a_job, fed
from testbed.objects.facts import CREATED
from testbed.scenario.manifests import Manifest

_IN_A_CYCLE: Final = 2


class Scheduler(Protocol):
    """Something that puts pods on the nodes of a cluster."""

    def objects(self) -> Sequence[Manifest]:
        """Return nodes and whatever else there is, but pods."""

    def pods(self) -> Sequence[Manifest]:
        """Return the pods on nodes, as the API server has them."""

    def bind(self, pods: Sequence[Manifest]) -> Mapping[str, str]:
        """Create the pods, and return words by name of each that got no node."""

    def remove(self, pods: Sequence[Manifest]) -> None:
        """Delete pods that were created."""


@dataclass(frozen=True, slots=True)
class Dispute:
    """A gang on which planner and scheduler differ."""

    seed: int
    gang: str
    planner: str
    scheduler: str

    def __str__(self) -> str:
        return (
            f"seed {self.seed}, gang {self.gang}: planner: {self.planner}; "
            f"kube-scheduler: {self.scheduler}"
        )


@dataclass
class Course:
    """What became of the gangs of one seed."""

    admitted: int
    held: int
    disputes: list[Dispute]


def followed(gangs: Gangs, scheduler: Scheduler, judge: Judge) -> Course:
    """Plan and bind the gangs in turn; one that is held is tried without the planner."""
    course = Course(0, 0, [])
    for first in range(0, len(gangs.gangs), _IN_A_CYCLE):
        drawn = {each.name: each for each in gangs.gangs[first : first + _IN_A_CYCLE]}
        state = fed(scheduler.objects(), scheduler.pods())
        for name, each in drawn.items():
            state.objects.put_job((NAMESPACE, name), a_job(name, each.tasks))
        snapshot = state.snapshot(CREATED)
        # In the order in which they were decided, each beside those before it.
        for action in run_cycle(snapshot, make_policy(state.settings)).actions:
            if isinstance(action, Admit) and action.gang.left_to_scheduler:
                # Its pods are not pinned: what was decided after it counts on where it is planned.
                loose = _all_loose(drawn[action.gang.name])
                if scheduler.bind(loose):
                    scheduler.remove(loose)
                break
            if isinstance(action, Admit):
                plan = _planned(action, drawn[action.gang.name], snapshot)
                _bind(plan, drawn[action.gang.name], scheduler, judge, gangs.seed, course)
            elif isinstance(action, Hold) and action.reason is not Reason.WAITING_BEHIND:
                _refute(action, drawn[action.gang.name], scheduler, gangs.seed, course)
    return course


def _planned(action: Admit, drawn: DrawnGang, snapshot: ClusterSnapshot) -> PodFactory:
    job = training_jobs.from_manifest(a_job(drawn.name, drawn.tasks))
    plan = plans.make_plan(
        action.gang,
        action.placement,
        snapshot.nodes,
        epoch=1,
        attempt=0,
        spec_hash=job.spec_hash,
        now=CREATED,
    )
    return PodFactory(job, plan)


def _bind(
    factory: PodFactory,
    drawn: DrawnGang,
    scheduler: Scheduler,
    judge: Judge,
    seed: int,
    course: Course,
) -> None:
    """Have a gang that was admitted bound as planned."""
    course.admitted += 1
    members = list(factory.in_order())
    free = {pod["metadata"]["name"]: pod for pod in _all_loose(drawn)}
    named = [(free[f"{drawn.name}-{m.task}-{m.index}"], m.node) for m in members]
    lost = out_of_turn(judge, [*scheduler.objects(), *scheduler.pods()], named)
    lost = lost or scheduler.bind([factory.manifest(member) for member in members])
    if lost:
        places = ", ".join(f"{m.task}-{m.index} on {m.node}" for m in members)
        words = "; ".join(f"{pod} has no node: {why}" for pod, why in lost.items())
        course.disputes.append(Dispute(seed, drawn.name, f"plans {places}", words))


def _refute(
    action: Hold, drawn: DrawnGang, scheduler: Scheduler, seed: int, course: Course
) -> None:
    """Try to place a gang that is held, without the planner."""
    course.held += 1
    loose = _all_loose(drawn)
    if not scheduler.bind(loose):
        said = f"holds it, {action.reason}: {action.message}"
        course.disputes.append(Dispute(seed, drawn.name, said, f"takes all {len(loose)}"))
    scheduler.remove(loose)


def _all_loose(drawn: DrawnGang) -> list[Manifest]:
    return [
        _loose(f"{drawn.name}-{task}-{index}", pod)
        for task, (replicas, pod) in drawn.tasks.items()
        for index in range(replicas)
    ]


def _loose(name: str, template: Manifest) -> Manifest:
    """Return a pod of the template for whatever node kube-scheduler finds."""
    meta = {"name": name, "namespace": NAMESPACE, "labels": template["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


def out_of_turn(
    judge: Judge, there: Sequence[Manifest], pods: Sequence[tuple[Manifest, str]]
) -> Mapping[str, str]:
    """Return words on pods that cannot come to their nodes in any order; none if all can.

    What is free to come may be in the way of others, so the last are tried first as well.
    """
    return _out_of_turn(judge, there, pods) and _out_of_turn(judge, there, pods[::-1])


def _out_of_turn(
    judge: Judge, there: Sequence[Manifest], pods: Sequence[tuple[Manifest, str]]
) -> Mapping[str, str]:
    waiting, placed = list(pods), [_as_written(made) for made in there]
    while waiting:
        blocked, words = [], {}
        for pod, node in waiting:
            (verdict,) = judge.ask(placed, [pod]).tried
            against = [each for each in verdict.refusals[node] if each.plugin in PLANNED]
            if against:
                blocked.append((pod, node))
                words[pod["metadata"]["name"]] = _words({node: against})
            else:
                placed.append(_bound(pod, node))
        if len(blocked) == len(waiting):
            return words
        waiting = blocked
    return {}


def _as_written(made: Manifest) -> Manifest:
    """Return a pod without the label keys that the API server has made requirements of."""
    if made["kind"] != "Pod":
        return made
    found: Manifest = msgspec.json.decode(msgspec.json.encode(made))
    found["spec"].pop("topologySpreadConstraints", None)  # of pods on nodes nobody asks
    affinity = found["spec"].get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        for term in rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            term.pop("matchLabelKeys", None)
            term.pop("mismatchLabelKeys", None)
    return found


def _bound(pod: Manifest, node: str) -> Manifest:
    """Return the pod on a node, as it was written: the judge completes it for every question."""
    return {
        **pod,
        "metadata": {**pod["metadata"], "uid": f"uid-{pod['metadata']['name']}"},
        "spec": {**pod["spec"], "nodeName": node},
        "status": {"phase": "Running"},
    }


class JudgedCluster:
    """A cluster that exists only in what is asked of the judge; its controllers do nothing.

    What a plugin outside of ``PLANNED`` refuses is bound all the same where the plan says so.
    """

    def __init__(self, judge: Judge, objects: Sequence[Manifest]) -> None:
        self._judge = judge
        self._objects = [made for made in objects if made["kind"] != "Pod"]
        self._pods = {made["metadata"]["name"]: made for made in objects if made["kind"] == "Pod"}

    def objects(self) -> Sequence[Manifest]:
        return self._objects

    def pods(self) -> Sequence[Manifest]:
        return judged_pods(self._judge, [*self._objects, *self._pods.values()])

    def bind(self, pods: Sequence[Manifest]) -> Mapping[str, str]:
        waiting = {pod["metadata"]["name"]: pod for pod in pods}
        words: dict[str, str] = {}
        # A pod that found no node is tried again when another has got one.
        while waiting:
            words = {name: self._bind(pod) for name, pod in waiting.items()}
            if all(words.values()):
                return words
            waiting = {name: pod for name, pod in waiting.items() if words[name]}
        return {}

    def _bind(self, pod: Manifest) -> str:
        """Put the pod on the first node that takes it; return words if none does."""
        answer = self._judge.ask([*self._objects, *self._pods.values()], [pod])
        (verdict,) = answer.tried
        is_pinned = pod["spec"].get("schedulerName") == SCHEDULER_NAME
        for node in sorted(verdict.refusals):
            against = verdict.refusals[node]
            if is_pinned:
                against = tuple(each for each in against if each.plugin in PLANNED)
            if not against:
                self._pods[pod["metadata"]["name"]] = _bound(pod, node)
                return ""
        return _words(verdict.refusals)

    def remove(self, pods: Sequence[Manifest]) -> None:
        for pod in pods:
            self._pods.pop(pod["metadata"]["name"], None)


def judged_pods(judge: Judge, objects: Sequence[Manifest]) -> Sequence[Manifest]:
    """Return the pods among ``objects`` with the API server's defaults."""
    return judge.ask(objects, []).pods


def _words(refusals: Mapping[str, Sequence[Refusal]]) -> str:
    return "; ".join(
        f"{node}: {', '.join(f'{each.plugin}: {each.words}' for each in against)}"
        for node, against in sorted(refusals.items())
    )
