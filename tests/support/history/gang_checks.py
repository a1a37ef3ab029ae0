"""Promises about gangs: whole or absent, each replica once, where the plan says, close together."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.history.records import Key, Manifest, Record
from tests.support.history.violations import Violation, violation
from tests.support.history.world import ENDED, Pod, World, is_elastic, phase_of, planned_nodes

GANG_KINDS: Final = ("Pod", "PodGroup", "TrainingJob")
ON_THEIR_WAY_SECONDS: Final = 5.0
"""How long a decision to bind a pod may take from the scheduler to the API server."""


def gang_of(world: World, record: Record) -> Key | None:
    """The gang that a record is about, if any."""
    if record.kind == "Pod":
        pod = world.pods.get(record.key) or world.pod_before
        return pod.gang if pod is not None and pod.gang[1] else None
    return record.key if record.kind in GANG_KINDS else None


@dataclass
class Lasting:
    """Reports what stays wrong with a gang for longer than ``grace_seconds``, once each time."""

    name: str
    grace_seconds: float
    wrong: Callable[[World, Key], str]
    """What is wrong with a gang right now; empty when nothing is."""
    _since: dict[Key, tuple[float, str]] = field(default_factory=dict)

    def see(self, world: World, record: Record) -> Iterator[Violation]:
        overdue = record.seconds - self.grace_seconds
        for late in [gang for gang, (since, _) in self._since.items() if since < overdue]:
            _, wrong = self._since[late]
            self._since[late] = (float("inf"), wrong)  # told
            lasting = f"{wrong} for more than {self.grace_seconds:g} s"
            yield violation(self.name, record, late, lasting)
        gang = gang_of(world, record)
        if gang is None:
            return
        if wrong := self.wrong(world, gang):
            self._since.setdefault(gang, (record.seconds, wrong))
        else:
            self._since.pop(gang, None)


def partial(world: World, gang: Key) -> str:
    """A gang that holds nodes with fewer members than it needs to make progress.

    An elastic gang may run at any size from ``minMember``, the fewest it starts with.
    """
    group, job = world.get("PodGroup", gang), world.job(gang)
    if group is None or group.get("status", {}).get("phase") == "Completed":
        return ""
    if job is not None and phase_of(job) in ENDED:
        return ""
    members = [p for p in world.members(gang) if p.node and not p.is_leaving]
    placed = sum(p.phase != "Failed" for p in members)
    needed = int(group["spec"]["minMember"])
    if not 0 < placed < needed or not any(p.holds_node for p in members):
        return ""
    return f"only {placed} of {needed} members on nodes"


def leftover(world: World, gang: Key) -> str:
    """Replicas of a finished job that still hold nodes and are not being deleted."""
    job = world.job(gang)
    if job is None or phase_of(job) not in ENDED:
        return ""
    if job["spec"].get("runPolicy", {}).get("cleanPodPolicy") == "None":
        return ""
    left = sorted(p.name for p in world.members(gang) if p.is_active)
    return f"{phase_of(job)}, but {', '.join(left)} on nodes" if left else ""


def deserted(world: World, gang: Key) -> str:
    """A job that says it runs and has no replica on any node."""
    job = world.job(gang)
    if job is None or phase_of(job) != "Running":
        return ""
    return "" if any(p.node for p in world.members(gang)) else "Running without a replica on a node"


class ReplicasOnce:
    """No replica of a job exists twice: neither side by side, nor one after the other.

    A bound replica comes back only after its gang's plan was cleared or replaced; in an elastic
    gang, all but the first may be made again once they are gone.
    """

    name: Final = "replica-twice"

    def __init__(self) -> None:
        self._bound: dict[Key, dict[tuple[str, str], str]] = {}

    def see(self, world: World, record: Record) -> Iterator[Violation]:
        if record.kind == "PodGroup":
            if _plan_id(world.before) != _plan_id(world.get("PodGroup", record.key)):
                self._bound.pop(record.key, None)
            return
        gone = world.pod_before
        if record.change != "DELETED" and gone is None and record.kind == "Pod":
            yield from self._twins(world, record, world.pods[record.key])
        if record.change == "DELETED" and gone is not None and _may_come_back(world, gone):
            self._bound.get(gone.gang, {}).pop(gone.replica, None)
        pod = world.newly_bound(record)
        if pod is None or not pod.plan or not pod.replica[1]:
            return
        yield from self._beside(world, record, pod)
        uid = self._bound.setdefault(pod.gang, {}).setdefault(pod.replica, pod.uid)
        if uid != pod.uid:
            message = f"replica {'-'.join(pod.replica)} was bound and made again in one plan"
            yield violation(self.name, record, pod.gang, message)

    def _twins(self, world: World, record: Record, pod: Pod) -> Iterator[Violation]:
        """Others of the same plan that a new pod was made beside, on nodes or not."""
        if not pod.plan or not pod.replica[1]:
            return
        for other in world.members(pod.gang):
            is_same = (other.plan, other.replica) == (pod.plan, pod.replica)
            goes_on = not other.is_leaving and other.phase not in ENDED
            if is_same and goes_on and other.uid != pod.uid:
                message = f"replica {'-'.join(pod.replica)} was made as {pod.name} and {other.name}"
                yield violation(self.name, record, pod.gang, message)

    def _beside(self, world: World, record: Record, pod: Pod) -> Iterator[Violation]:
        for other in world.members(pod.gang):
            if not other.is_active or other.uid == pod.uid:
                continue
            if other.replica == pod.replica:
                message = f"replica {'-'.join(pod.replica)} runs as {other.name} and {pod.name}"
                yield violation(self.name, record, pod.gang, message)
            elif other.plan != pod.plan:
                message = f"{other.name} of plan {other.plan} beside {pod.name} of plan {pod.plan}"
                yield violation("plans-mixed", record, pod.gang, message)
                return


def _may_come_back(world: World, pod: Pod) -> bool:
    job, plan = world.job(pod.gang), world.plan(pod.gang)
    if job is None or plan is None or not is_elastic(job):
        return False
    return pod.replica != next(iter(planned_nodes(plan)), None)


def _plan_id(group: dict[str, Any] | None) -> tuple[Any, ...] | None:
    plan = (group or {}).get("status", {}).get("plan")
    return plan and (plan["epoch"], plan["attempt"], plan["plannedTime"])


class OnPlan:
    """A member is bound where the published plan puts it, and never without a plan.

    A user may delete a job or its PodGroup while members are on their way to the API server: those
    follow the plan it had.
    """

    name: Final = "off-plan"

    def __init__(self) -> None:
        self._left_behind: dict[Key, tuple[float, Manifest]] = {}
        """Gang to when it was deleted, and the plan it had then."""

    def see(self, world: World, record: Record) -> Iterator[Violation]:
        if record.change == "DELETED" and record.kind in ("PodGroup", "TrainingJob"):
            self._remember(world, record)
        pod = world.newly_bound(record)
        if pod is None or not pod.is_ours or not pod.gang[1]:
            return
        plan = world.plan(pod.gang)
        if plan is None and pod.gang in self._left_behind:
            deleted, left = self._left_behind[pod.gang]
            plan = left if record.seconds - deleted <= ON_THEIR_WAY_SECONDS else None
        if plan is None:
            yield violation(self.name, record, pod.gang, f"{pod.name} was bound without a plan")
            return
        nodes = planned_nodes(plan)
        planned = nodes.get(pod.uid) or nodes.get(pod.replica)
        if plan["mode"] == "Pinned" and planned != pod.node:
            message = f"{pod.name} is on {pod.node}, its plan says {planned}"
            yield violation(self.name, record, pod.gang, message)

    def _remember(self, world: World, record: Record) -> None:
        plan = world.plan(record.key) or record.manifest.get("status", {}).get("plan")
        if plan:
            self._left_behind[record.key] = (record.seconds, plan)


class RoleAffinityHeld:
    """With Required role affinity every worker shares its topology domain with a server."""

    name: Final = "role-affinity-broken"

    def see(self, world: World, record: Record) -> Iterator[Violation]:
        if record.kind != "TrainingJob" or record.change == "DELETED":
            return
        began = world.before is None or phase_of(world.before) != "Running"
        wish = record.manifest["spec"].get("roleAffinity", {})
        if phase_of(record.manifest) != "Running" or not began or wish.get("mode") != "Required":
            return
        key = wish.get("topologyKey", "kubernetes.io/hostname")
        members = [p for p in world.members(record.key) if p.holds_node]
        domains = {p.name: world.node_labels(p.node).get(key, "") for p in members}
        served = {domains[p.name] for p in members if p.role == "ps"} - {""}
        for pod in members:
            if pod.role == "worker" and domains[pod.name] not in served:
                message = f"{pod.name} is in {key}={domains[pod.name]}, servers in {sorted(served)}"
                yield violation(self.name, record, record.key, message)
