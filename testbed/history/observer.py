"""Observe a recorded history: every invariant, at every revision.

:func:`check` is pure. A GAP is no violation: what is known of both its sides is checked.

This is the one observer: the demo, the cluster tier, the simulated cluster and the benchmarks use
it. It shares no code with Bireme; the other place where invariants are written, on purpose, is the
reference model of the core (:mod:`testbed.model`).
"""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from testbed.history.amounts import Amounts, amounts, request_of, shown, total
from testbed.history.observed import (
    ENDED,
    GANGS,
    ObservedCluster,
    Pod,
    ended_members,
    fewest,
    is_elastic,
    phase_of,
    planned_nodes,
)
from testbed.history.records import Key, Manifest, Record, in_order


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant, in words with numbers."""

    invariant: str
    seconds: float
    revision: int
    subject: str
    message: str

    def __str__(self) -> str:
        where = f"{self.seconds:.2f} s, revision {self.revision}"
        return f"{self.invariant}: {self.subject}: {self.message} ({where})"


Findings = Iterator[tuple[str, str | Key, str]]
"""Invariant, subject and message of each violation."""
Check = Callable[[ObservedCluster, Record], Findings]
"""Called after every record; yields what it brought about, or what has lasted too long by now."""


# --- room of nodes and queues -------------------------------------------------------------
#
# Both are checked when a pod gets its node: only then can Bireme have taken too much. A node that
# shrinks under its pods, or a limit that is lowered later, breaks nothing.


def node_overcommitted(world: ObservedCluster, record: Record) -> Findings:
    """The pods of a node ask no more than it offers, of any resource."""
    pod = world.newly_bound
    offered = world.allocatable(pod.node) if pod is not None else None
    if pod is None or offered is None:
        return
    here = [p.request for p in world.pods.values() if p.node == pod.node and p.holds_node]
    for resource, excess in _excess(total(here), offered).items():
        words = f"{excess} of {resource} with pod {pod.name}"
        yield "node-overcommitted", f"node {pod.node}", words


def queue_limit_exceeded(world: ObservedCluster, record: Record) -> Findings:
    """The gangs on nodes ask no more together than the limit of their queue."""
    pod = world.newly_bound
    if pod is None or not pod.is_ours or not pod.gang[1]:
        return
    # A job may be another one by now, of the same name, and in another queue.
    name = pod.queue or world.queue_of(pod.gang)
    queue = world.get("Queue", ("", name)) or {}
    limit = amounts(queue.get("spec", {}).get("limit"))
    if not limit:
        return
    held = [
        p.request
        for gang, pods in world.gangs.items()
        if gang[1]
        for p in pods.values()
        if p.is_active and (p.queue or world.queue_of(gang)) == name
    ]
    for resource, excess in _excess(_named(total(held), limit), limit).items():
        yield "queue-limit-exceeded", f"queue {name}", f"{excess} of {resource}"


def _named(used: Amounts, limit: Amounts) -> Amounts:
    return {name: value for name, value in used.items() if name in limit}


def _excess(used: Amounts, most: Amounts) -> dict[str, str]:
    """Describe resources of which more is used than there is; an unnamed one is not there."""
    return {
        name: f"{shown(value)} used, {shown(most.get(name, Fraction(0)))} there"
        for name, value in used.items()
        if value > most.get(name, 0)
    }


# --- gangs --------------------------------------------------------------------------------

GANG_KINDS: Final = ("Pod", *GANGS)
ON_THEIR_WAY_SECONDS: Final = 5.0
"""Longest way of a binding from the scheduler to the API server."""


def gang_of(world: ObservedCluster, record: Record) -> Key | None:
    if record.kind == "Pod":
        pod = world.pods.get(record.key) or world.pod_before
        return pod.gang if pod is not None and pod.gang[1] else None
    return record.key if record.kind in GANG_KINDS else None


@dataclass
class Lasting:
    """Reports what stays wrong with a gang for longer than ``grace_seconds``, once each time."""

    name: str
    grace_seconds: float
    not_counted: Callable[[float, float], float]
    """Returns how many seconds between two times do not count."""
    wrong: Callable[[ObservedCluster, Key], str]
    """Returns the fault of a gang right now; empty when there is none."""
    _since: dict[Key, tuple[float, str]] = field(default_factory=dict)

    def see(self, world: ObservedCluster, record: Record) -> Findings:
        now, overdue = record.seconds, record.seconds - self.grace_seconds
        early = [(gang, since) for gang, (since, _) in self._since.items() if since < overdue]
        for late in [gang for gang, at in early if at + self.not_counted(at, now) < overdue]:
            _, wrong = self._since[late]
            # Reported once: a fault that lasts would fill the list.
            self._since[late] = (float("inf"), wrong)
            yield self.name, late, f"{wrong} for more than {self.grace_seconds:g} s"
        gang = gang_of(world, record)
        if gang is None:
            return
        if wrong := self.wrong(world, gang):
            self._since.setdefault(gang, (record.seconds, wrong))
        else:
            self._since.pop(gang, None)


def partial(world: ObservedCluster, gang: Key) -> str:
    """Describe a gang that holds nodes with fewer members than it needs.

    An elastic gang may run at any size from the fewest it starts with. Members that are recorded
    as ended well count once their pods are gone.
    """
    owner = world.job(gang) or world.get("PodGroup", gang)
    if owner is None or phase_of(owner) in (*ENDED, "Completed"):
        return ""
    members = [p for p in world.members(gang) if p.node and not p.is_leaving]
    placed = sum(p.phase != "Failed" for p in members)
    there = {of for p in members for of in (p.replica, p.uid)}
    placed += len(ended_members(owner) - there)
    needed = fewest(owner)
    if not 0 < placed < needed or not any(p.holds_node for p in members):
        return ""
    return f"only {placed} of {needed} members on nodes"


BUDGET_PATIENCE_SECONDS: Final = 300.0
"""Longest time for which budgets may keep pods of a gang that is being stopped."""


def half_stopped(world: ObservedCluster, gang: Key) -> str:
    """Describe a job that is being stopped, of which a part is gone and a part runs on.

    It counts from the moment its first pod is gone, whatever the stop is for. Pods that are being
    deleted do not run on: they have their own grace.
    """
    job, plan = world.job(gang), world.plan(gang)
    if job is None or plan is None:
        return ""
    if _attempt(job) <= int(plan["attempt"]) and phase_of(job) != "Suspended":
        return ""
    number = f"{plan['epoch']}.{plan['attempt']}"
    members = [pod for pod in world.members(gang) if pod.plan == number]
    stay = sum(pod.is_active and not pod.is_leaving for pod in members)
    planned = len(planned_nodes(plan))
    if not 0 < stay < planned:
        return ""
    return f"{stay} of {planned} members run on in a gang that was stopped"


def leftover(world: ObservedCluster, gang: Key) -> str:
    """Name replicas of a finished job that hold nodes and are not being deleted."""
    job = world.job(gang)
    if job is None or phase_of(job) not in ENDED:
        return ""
    if job["spec"].get("runPolicy", {}).get("cleanPodPolicy") == "None":
        return ""
    left = sorted(p.name for p in world.members(gang) if p.is_active)
    return f"{phase_of(job)}, but {', '.join(left)} on nodes" if left else ""


def unadopted(world: ObservedCluster, gang: Key) -> str:
    """Name pods that run in the queue of a PodGroup without a plan, which could adopt them."""
    group = world.get("PodGroup", gang)
    if group is None or world.plan(gang) or phase_of(group) not in ("Pending", "Inqueue"):
        return ""
    members = [p for p in world.members(gang) if p.is_ours and not p.plan and not p.is_leaving]
    runs = [p.name for p in members if p.phase == "Running" and p.queue == world.queue_of(gang)]
    return f"{', '.join(sorted(runs))} on nodes, and the PodGroup has no plan" if runs else ""


def deserted(world: ObservedCluster, gang: Key) -> str:
    """Describe a Running job without a replica on any node."""
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

    def see(self, world: ObservedCluster, record: Record) -> Findings:
        if record.kind in GANGS:
            if _plan_id(world.before) != _plan_id(world.get(record.kind, record.key)):
                self._bound.pop(record.key, None)
            return
        gone = world.pod_before
        if record.change != "DELETED" and gone is None and record.kind == "Pod":
            yield from self._twins(world, world.pods[record.key])
        if record.change == "DELETED" and gone is not None and _may_come_back(world, gone):
            self._bound.get(gone.gang, {}).pop(gone.replica, None)
        pod = world.newly_bound
        if pod is None or not pod.plan or not pod.replica[1]:
            return
        yield from self._beside(world, pod)
        uid = self._bound.setdefault(pod.gang, {}).setdefault(pod.replica, pod.uid)
        if uid != pod.uid:
            words = f"replica {'-'.join(pod.replica)} was bound and made again in one plan"
            yield self.name, pod.gang, words

    def _twins(self, world: ObservedCluster, pod: Pod) -> Findings:
        """Yield others of the same plan that a new pod was made beside, on nodes or not."""
        if not pod.plan or not pod.replica[1]:
            return
        for other in world.members(pod.gang):
            is_same = (other.plan, other.replica) == (pod.plan, pod.replica)
            goes_on = not other.is_leaving and other.phase not in ENDED
            if is_same and goes_on and other.uid != pod.uid:
                words = f"replica {'-'.join(pod.replica)} was made as {pod.name} and {other.name}"
                yield self.name, pod.gang, words

    def _beside(self, world: ObservedCluster, pod: Pod) -> Findings:
        for other in world.members(pod.gang):
            if not other.is_active or other.uid == pod.uid:
                continue
            if other.replica == pod.replica:
                words = f"replica {'-'.join(pod.replica)} runs as {other.name} and {pod.name}"
                yield self.name, pod.gang, words
            elif other.plan != pod.plan:
                words = f"{other.name} of plan {other.plan} beside {pod.name} of plan {pod.plan}"
                yield "plans-mixed", pod.gang, words
                return


def _may_come_back(world: ObservedCluster, pod: Pod) -> bool:
    job, plan = world.job(pod.gang), world.plan(pod.gang)
    if job is None or plan is None or not is_elastic(job):
        return False
    return pod.replica != next(iter(planned_nodes(plan)), None)


def _plan_id(owner: dict[str, Any] | None) -> tuple[Any, ...] | None:
    plan = (owner or {}).get("status", {}).get("plan")
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

    def see(self, world: ObservedCluster, record: Record) -> Findings:
        if record.change == "DELETED" and record.kind in GANGS:
            self._remember(world, record)
        pod = world.newly_bound
        if pod is None or not pod.is_ours or not pod.gang[1]:
            return
        plan = world.plan(pod.gang)
        if plan is None and pod.gang in self._left_behind:
            deleted, left = self._left_behind[pod.gang]
            plan = left if record.seconds - deleted <= ON_THEIR_WAY_SECONDS else None
        if plan is None:
            yield self.name, pod.gang, f"{pod.name} was bound without a plan"
            return
        nodes = planned_nodes(plan)
        planned = nodes.get(pod.uid) or nodes.get(pod.replica)
        if plan["mode"] == "Pinned" and planned != pod.node:
            yield self.name, pod.gang, f"{pod.name} is on {pod.node}, its plan says {planned}"

    def _remember(self, world: ObservedCluster, record: Record) -> None:
        plan = world.plan(record.key) or record.manifest.get("status", {}).get("plan")
        if plan:
            self._left_behind[record.key] = (record.seconds, plan)


def gate_kept(world: ObservedCluster, gang: Key) -> str:
    """Name members that a plan has places for and that stay behind Bireme's gate."""
    plan = world.plan(gang)
    planned = planned_nodes(plan) if plan is not None else {}
    kept = sorted(p.name for p in world.members(gang) if p.is_gated and p.uid in planned)
    return f"{', '.join(kept)} behind a gate, with a place in the plan" if kept else ""


def role_affinity_broken(world: ObservedCluster, record: Record) -> Findings:
    """With Required role affinity every worker shares its topology domain with a server."""
    if record.kind != "TrainingJob" or record.change == "DELETED":
        return
    began = world.before is None or phase_of(world.before) != "Running"
    wish = record.manifest["spec"].get("roleAffinity", {})
    if phase_of(record.manifest) != "Running" or not began or wish.get("mode") != "Required":
        return
    key = wish.get("topologyKey", "kubernetes.io/hostname")
    # A server may have failed since the operator saw all of them run.
    members = [p for p in world.members(record.key) if p.node]
    domains = {p.name: world.node_labels(p.node).get(key, "") for p in members}
    served = {domains[p.name] for p in members if p.role == "ps"} - {""}
    # A node is nearer than any domain, also one without the label.
    there = {p.node for p in members if p.role == "ps"}
    for pod in members:
        if pod.role == "worker" and domains[pod.name] not in served and pod.node not in there:
            words = f"{pod.name} is in {key}={domains[pod.name]}, servers in {sorted(served)}"
            yield "role-affinity-broken", record.key, words


# --- order --------------------------------------------------------------------------------

ONE_CYCLE_SECONDS: Final = 5.0
"""Longest time between the writes of two plans that were decided together."""
PAUSE_SECONDS: Final = 60.0
"""Longest pause of a gang whose writes have failed: others need not wait for it."""
_HISTORY: Final = ("attempt", "preemptions", "interruptions", "restarts", "startFailures")
"""Counts in a job's status; one that has started before is as good as no other."""


class InTurn:
    """Of two jobs that are alike in everything, the one that has waited longer starts first.

    Alike are jobs of one namespace whose specs are equal, queue, priority class and estimate
    included, and which were never started, edited or told that they never fit. What is right for
    one of them at any time is right for the other, so no reservation, backfill or size can excuse
    that the later one goes first. Only an API server that has just refused the writes about it can.
    An API server tells the time of creation in whole seconds: jobs of one second have no order.
    Where the clocks of leaders do not agree, a job that left the line and came back is like no
    other: when it did is told by another clock than when they came.
    """

    name: Final = "overtaken"

    def __init__(
        self, not_counted: Callable[[float, float], float], *, clocks_agree: bool = True
    ) -> None:
        self._not_counted = not_counted
        self._clocks_agree = clocks_agree
        self._made: dict[Key, float] = {}
        self._in_line: dict[Key, float] = {}
        """Job to since when it has a place in the line and a history of nothing else."""
        self._excused: set[Key] = set()
        self._suspected: dict[Key, tuple[Key, float]] = {}
        """A job that was overtaken, to who did, and when."""

    def see(self, world: ObservedCluster, record: Record) -> Findings:
        yield from self._overdue(record.seconds)
        if record.kind != "TrainingJob":
            return
        key, job = record.key, record.manifest
        if record.change == "DELETED":
            self._forget(key)
            return
        if world.before is None:
            self._forget(key)
            self._made[key] = record.seconds
        came_back = job.get("status", {}).keys() & {"parkedTime", "waitSeconds"}
        if _has_a_past(job) or (came_back and not self._clocks_agree):
            self._excused.add(key)
        had_plan = "plan" in (world.before or {}).get("status", {})
        if "plan" in job.get("status", {}) and not had_plan and key not in self._excused:
            self._accuse(world, key, job, record.seconds)
        if self._may_wait(key, job):
            self._in_line.setdefault(key, record.seconds)
        else:
            self._in_line.pop(key, None)
            self._suspected.pop(key, None)

    def _may_wait(self, key: Key, job: Manifest) -> bool:
        status = job.get("status", {})
        return key not in self._excused and "plan" not in status and "queuePosition" in status

    def _accuse(self, world: ObservedCluster, key: Key, job: Manifest, now: float) -> None:
        if self._not_counted(now - PAUSE_SECONDS, now):
            return
        for other, since in self._in_line.items():
            if other[0] != key[0] or since >= self._made[key]:
                continue
            earlier = world.objects["TrainingJob"][other]
            if _created(earlier) < _created(job) and earlier["spec"] == job["spec"]:
                self._suspected.setdefault(other, (key, now))

    def _overdue(self, now: float) -> Findings:
        for key, (winner, since) in list(self._suspected.items()):
            if now - since > ONE_CYCLE_SECONDS:
                del self._suspected[key]
                self._excused.add(key)  # reported once
                words = f"{'/'.join(winner)}, which is alike and came later, started {since:.2f} s"
                yield self.name, key, f"waits, while {words}"

    def _forget(self, key: Key) -> None:
        self._excused.discard(key)
        for known in (self._made, self._in_line, self._suspected):
            known.pop(key, None)


def _created(job: Manifest) -> str:
    return str(job["metadata"]["creationTimestamp"])


def _has_a_past(job: Manifest) -> bool:
    status = job.get("status", {})
    is_edited = job["metadata"].get("generation", 1) != 1
    return is_edited or status.get("reason") == "NeverFits" or any(map(status.get, _HISTORY))


# --- jobs ---------------------------------------------------------------------------------

LOST: Final = "job-lost"


def job_went_back(world: ObservedCluster, record: Record) -> Findings:
    """A finished job stays finished, and attempts are only ever counted up."""
    before = world.before
    if record.kind != "TrainingJob" or record.change == "DELETED" or before is None:
        return
    was, now = phase_of(before), phase_of(record.manifest)
    if was in ENDED and now != was:
        yield "job-went-back", record.key, f"{was} became {now}"
    first, second = _attempt(before), _attempt(record.manifest)
    if second < first:
        yield "job-went-back", record.key, f"attempt {first} became {second}"


def _attempt(job: dict[str, Any]) -> int:
    return int(job.get("status", {}).get("attempt") or 0)


class EpochsGrow:
    """A deposed leader writes no more plans, in any gang.

    A plan that is resized keeps the epoch of the leader that admitted the gang.
    """

    name: Final = "epoch-went-back"

    def __init__(self) -> None:
        self._highest = 0

    def see(self, world: ObservedCluster, record: Record) -> Findings:
        if record.kind not in GANGS or record.change == "DELETED":
            return
        plan = record.manifest.get("status", {}).get("plan")
        # A resize changes a plan, but not what it is known by.
        if plan is None or _plan_id(world.before) == _plan_id(record.manifest):
            return
        epoch = int(plan["epoch"])
        if epoch < self._highest:
            words = f"a plan of epoch {epoch} was written after one of epoch {self._highest}"
            yield self.name, record.key, words
        self._highest = max(self._highest, epoch)


def job_lost(removed: Collection[Key], world: ObservedCluster, record: Record) -> Findings:
    """No job disappears before it has finished, but by the hand of its user."""
    if record.kind != "TrainingJob" or record.change != "DELETED":
        return
    phase = phase_of(record.manifest)
    if phase not in ENDED and record.key not in removed:
        yield LOST, record.key, f"deleted while {phase}"


# --- texts --------------------------------------------------------------------------------

_TOKEN: Final = re.compile(r"[a-z0-9](?:[a-z0-9./-]*[a-z0-9])?")
_OUR_EVENTS: Final = "bireme"
"""Component of events by operator and kube-scheduler, or its beginning."""


class NamesKeptApart:
    """No text of an object names an object of another namespace, or that namespace.

    A name counts as one where it cannot be a word: with its namespace, a hyphen or a digit.
    """

    name: Final = "names-leaked"

    def __init__(self) -> None:
        self._homes: dict[str, set[str]] = {}
        """Name of a job, group or pod to the namespaces that have or had one."""
        self._namespaces: set[str] = set()

    def see(self, world: ObservedCluster, record: Record) -> Findings:
        if record.kind in ("Pod", *GANGS):
            space, name = record.key
            self._homes.setdefault(name, set()).add(space)
            self._namespaces.add(space)
        if record.kind == "Pod" or record.change == "DELETED":
            return
        about = record.manifest.get("involvedObject") or record.manifest.get("metadata", {})
        home = about.get("namespace") or ""
        before = set(_texts(world.before or {}))
        for text in _texts(record.manifest):
            found = () if text in before else self._foreign(text, home)
            for name in found:
                yield self.name, f"{record.kind} {'/'.join(record.key)}", f"{name} in {text!r}"

    def _foreign(self, text: str, home: str) -> Iterator[str]:
        for token in _TOKEN.findall(text):
            space, _, name = token.partition("/")
            if name:
                if space != home and space in self._homes.get(name, ()):
                    yield token
            elif token.isalpha():
                continue
            elif (token in self._namespaces and token != home) or (
                token in self._homes and not self._is_at(home, token)
            ):
                yield token

    def _is_at(self, home: str, name: str) -> bool:
        """Return whether a name is one of a namespace, or of a pod that a gang there may have."""
        parts = name.split("-")
        own = ("-".join(parts[:length]) for length in range(1, len(parts) + 1))
        return any(home in self._homes.get(each, ()) for each in own)


def _texts(manifest: Manifest) -> Iterator[str]:
    """Yield what people read: messages in the status, or of an event of Bireme's."""
    if "involvedObject" in manifest:
        if str((manifest.get("source") or {}).get("component", "")).startswith(_OUR_EVENTS):
            yield manifest.get("message") or ""
        return
    status = manifest.get("status") or {}
    for part in (status, *(status.get("conditions") or ())):
        yield from (part[key] for key in ("message", "why") if isinstance(part.get(key), str))


def unsettled(world: ObservedCluster) -> Findings:
    """Yield jobs that at the end are neither finished nor waiting for a stated reason."""
    for key, job in world.objects.get("TrainingJob", {}).items():
        if phase_of(job) == "Running":
            yield LOST, key, f"at the end {_state(job)}"
    yield from restless(world)


# --- rest ---------------------------------------------------------------------------------
#
# Once nobody changes anything, a gang has ended, runs whole, or waits and says why. What waits
# holds nothing, and does not wait for room that is there.

NO_ROOM: Final = ("WaitingForCapacity", "NeverFits")
_LIMITS: Final = ("ResourceQuota", "queue ")
"""In messages of what room is not the matter of."""
_RULES: Final = frozenset(
    {"nodeSelector", "affinity", "topologySpreadConstraints", "resourceClaims", "volumes"}
    | {"runtimeClassName", "hostNetwork"}
)
"""Fields of a pod's spec by which it may not fit where there is room for what it asks."""


def restless(world: ObservedCluster, namespace: str = "") -> Findings:
    """Yield gangs, of one namespace or of all, that have not come to rest."""
    for kind in GANGS:
        for key, owner in world.objects.get(kind, {}).items():
            # The members of a group of a job's name are the job's.
            is_apart = kind == "TrainingJob" or world.job(key) is None
            if namespace in ("", key[0]) and is_apart:
                yield from _restless(world, kind, key, owner)


def _restless(world: ObservedCluster, kind: str, key: Key, owner: Manifest) -> Findings:
    status, phase = owner.get("status", {}), phase_of(owner)
    if phase in (*ENDED, "Completed"):
        # What goes on after the end, as its policy wants it, keeps its places.
        if "plan" in status and not any(p.is_active for p in world.members(key)):
            yield "plan-left-over", key, f"at the end {phase}, with a plan"
        return
    if phase == "Running":
        if wrong := partial(world, key):
            yield "gang-partial", key, f"at the end {wrong}"
        elif wrong := deserted(world, key):
            yield LOST, key, f"at the end {wrong}"
        return
    # A gang that was stopped waits again once it has a place in the queue or a time to try again,
    # or is known to stand in no line.
    is_queued = phase in ("Restarting", "Interrupted") and status.keys() & {
        "queuePosition",
        "retryTime",
        "parkedTime",
    }
    waits = is_queued or phase in ("Pending", "Interrupted", "Suspended")
    if not waits or not status.get("reason") or not status.get("message"):
        yield LOST, key, f"at the end {_state(owner)}"
    elif held := _held(world, key, owner):
        yield "places-kept", key, f"{_state(owner)}, and holds {held}"
    elif kind == "TrainingJob" and _waits_in_vain(world, owner):
        yield "waits-in-vain", key, f"its replicas fit as they are, but {_state(owner)}"


def miscounted(world: ObservedCluster) -> Findings:
    """Yield queues whose status counts gangs that hold nothing, or misses one that does.

    It is written now and then: to be asked until it is empty.
    """
    queues = world.objects.get("Queue", {})
    holding: dict[str, int] = dict.fromkeys((name for _, name in queues), 0)
    in_use: set[str] = set()
    for kind in GANGS:
        for key, owner in world.objects.get(kind, {}).items():
            has_plan = "plan" in owner.get("status", {})
            name = world.queue_of(key)
            if has_plan and name in holding:
                holding[name] += 1
            if has_plan or any(p.is_active for p in world.members(key)):
                in_use |= set(_with_those_above(queues, name))
    for (_, name), queue in queues.items():
        status = queue.get("status") or {}
        if int(status.get("admitted") or 0) != holding[name]:
            words = f"{status.get('admitted')} gangs admitted, {holding[name]} have a plan"
            yield "usage-left-over", f"queue {name}", words
        elif (used := status.get("usage")) and name not in in_use:
            yield "usage-left-over", f"queue {name}", f"{used} in use by nobody"


def _with_those_above(queues: dict[Key, Manifest], name: str) -> Iterator[str]:
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        yield name
        name = (queues.get(("", name)) or {}).get("spec", {}).get("parent") or ""


def _state(owner: Manifest) -> str:
    status = owner.get("status", {})
    words = f"reason {status.get('reason')}, message {status.get('message')!r}"
    return f"{phase_of(owner)}, {words}"


def _held(world: ObservedCluster, key: Key, owner: Manifest) -> str:
    """Name what a gang that waits holds; empty when it is nothing."""
    on_nodes = sorted(p.name for p in world.members(key) if p.is_active and p.is_ours)
    return "a plan" if "plan" in owner.get("status", {}) else ", ".join(on_nodes)


def _waits_in_vain(world: ObservedCluster, job: Manifest) -> bool:
    """Return whether a job waits for room, is the next in line, and would fit as it is.

    False where more than its request decides where its pods may be, or others are on their way.
    """
    status, spec = job["status"], job["spec"]
    reason, message = status.get("reason"), status.get("message", "")
    is_next = reason == "NeverFits" or status.get("queuePosition") == 1
    if reason not in NO_ROOM or not is_next or any(word in message for word in _LIMITS):
        return False
    tasks = [(int(t.get("minReplicas", t["replicas"])), t["template"]) for t in spec["tasks"]]
    others = (pod["spec"].get("affinity") or {} for pod in world.objects.get("Pod", {}).values())
    has_rules = any(map(_has_rules, (template["spec"] for _, template in tasks)))
    has_rules |= spec.get("roleAffinity", {}).get("mode") == "Required"
    has_rules |= any("podAntiAffinity" in affinity for affinity in others)
    if has_rules or _under_way(world):
        return False
    asked = [request_of(template["spec"]) for count, template in tasks for _ in range(count)]
    # First fit, the largest first: where it finds places, there are some.
    asked.sort(key=lambda request: sorted(request.items()), reverse=True)
    free = _free(world)
    for request in asked:
        node = next((name for name, there in free.items() if not _excess(request, there)), "")
        if not node:
            return False
        free[node] = {n: left - request.get(n, Fraction(0)) for n, left in free[node].items()}
    return True


def _has_rules(spec: Manifest) -> bool:
    containers = (*spec["containers"], *(spec.get("initContainers") or ()))
    ports = (port for container in containers for port in container.get("ports") or ())
    return bool(_RULES & spec.keys()) or any("hostPort" in port for port in ports)


def _under_way(world: ObservedCluster) -> bool:
    """Return whether a gang has places that its pods have not taken yet, or leaves them."""
    phases = {phase_of(o) for kind in GANGS for o in world.objects.get(kind, {}).values()}
    return bool(phases & {"Starting", "Inqueue"}) or any(p.is_leaving for p in world.pods.values())


def _free(world: ObservedCluster) -> dict[str, Amounts]:
    """Return what is free on nodes that take every pod."""
    free: dict[str, Amounts] = {}
    for (_, name), node in world.objects.get("Node", {}).items():
        spec, conditions = node.get("spec", {}), node.get("status", {}).get("conditions", ())
        is_ready = any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)
        if is_ready and not spec.get("unschedulable") and not spec.get("taints"):
            here = [p.request for p in world.pods.values() if p.node == name and p.holds_node]
            used, offered = total(here), world.allocatable(name) or {}
            free[name] = {n: amount - used.get(n, Fraction(0)) for n, amount in offered.items()}
    return free


# --- all of them ----------------------------------------------------------------------------

INVARIANTS: Final = {
    "node-overcommitted": "no node is asked for more than it has, of any resource",
    "queue-limit-exceeded": "no queue holds more than its limit",
    "gang-partial": "no gang stays on nodes with only a part of it",
    "half-stopped": "no gang that is being stopped stays halfway, whatever the stop is for",
    "replica-twice": "no replica exists twice",
    "plans-mixed": "no gang runs replicas of two plans",
    "off-plan": "every replica is bound where its plan says",
    "role-affinity-broken": "workers share the domain of a parameter server where required",
    "replica-left-over": "a finished job leaves no replica on a node",
    "overtaken": "of two jobs alike, who came first starts first",
    "gang-unadopted": "what runs of a PodGroup has places in its plan",
    "gate-left-over": "who has a place in a plan is let go to it",
    "epoch-went-back": "a deposed leader writes no plan",
    "job-went-back": "a finished job stays finished, attempts count up",
    "job-lost": "every job finishes, or waits and says why",
    "places-kept": "what waits holds no place",
    "plan-left-over": "what has ended holds no place",
    "usage-left-over": "a queue counts who holds places, and nobody else",
    "waits-in-vain": "nothing waits for room that is there",
    "names-leaked": "no text names an object of another namespace",
}


def check(
    records: Iterable[Record],
    *,
    grace_seconds: float = 10.0,
    settled: bool = False,
    removed: Collection[Key] = (),
    not_counted: Callable[[float, float], float] = lambda *_: 0.0,
    clocks_agree: bool = True,
) -> list[Violation]:
    """Return every violation, in the order of the history.

    ``grace_seconds`` is how long what several writes must change (a gang on its nodes, the end of
    a job) may be halfway; seconds that are ``not_counted`` between two times come on top. With
    ``settled`` jobs must have ended at the end of the history or wait for a reason. ``removed`` are
    keys of the jobs that the user deleted unfinished. ``clocks_agree`` is whether all leaders had
    the same time.
    """
    checks: tuple[Check, ...] = (
        node_overcommitted,
        queue_limit_exceeded,
        Lasting("gang-partial", grace_seconds, not_counted, partial).see,
        Lasting(
            "half-stopped", BUDGET_PATIENCE_SECONDS + grace_seconds, not_counted, half_stopped
        ).see,
        Lasting("replica-left-over", grace_seconds, not_counted, leftover).see,
        Lasting(LOST, grace_seconds, not_counted, deserted).see,
        Lasting("gang-unadopted", grace_seconds, not_counted, unadopted).see,
        Lasting("gate-left-over", grace_seconds, not_counted, gate_kept).see,
        InTurn(not_counted, clocks_agree=clocks_agree).see,
        ReplicasOnce().see,
        OnPlan().see,
        role_affinity_broken,
        job_went_back,
        EpochsGrow().see,
        NamesKeptApart().see,
        functools.partial(job_lost, removed),
    )
    world = ObservedCluster()
    found: list[Violation] = []

    def note(at: Record, findings: Findings) -> None:
        for invariant, subject, message in findings:
            about = subject if isinstance(subject, str) else "/".join(subject)
            found.append(Violation(invariant, at.seconds, at.revision, about, message))

    last: Record | None = None
    for last in in_order(record for record in records if record.change != "GAP"):
        world.apply(last)
        for one in checks:
            note(last, one(world, last))
    if settled and last is not None:
        note(last, unsettled(world))
    return found
