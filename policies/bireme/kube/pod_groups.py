"""Read PodGroups, and turn the gated pods of other controllers into waiting gangs.

Members of such a gang are identified by UID, because anybody can set a label. A pod joins with the
label *and* Bireme's scheduler name and gate. A place that was planned for one UID never goes to
another pod.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from bireme.core.gangs import Gang, Key, Role, Task
from bireme.core.pod_constraints import NO_PREFERENCES, Preferences
from bireme.core.reasons import Reason
from bireme.core.resources import Amounts, Request, add, request_of
from bireme.kube import names, plans, preferences, quantities, resuming, waits, wire
from bireme.kube.api.base import MAX_LABEL, MAX_PLANNED_TASKS, MAX_TASKS
from bireme.kube.api.pod_group import MAX_UID, PodGroupSpec
from bireme.kube.integrations import INTEGRATIONS
from bireme.kube.pod_rules import demands_of_spec
from bireme.kube.pods import PodFacts, constraints_of_spec
from bireme.kube.tenancy import queue_of, queue_source
from bireme.kube.waits import is_pause

_COUNTING: Final = " or ".join(each.kind for each in INTEGRATIONS if each.counts_succeeded)
"""Kinds that count their succeeded pods."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One PodGroup as the operator and the extender use it."""

    key: Key
    uid: str
    resource_version: str
    created: float
    is_leaving: bool
    spec: PodGroupSpec | None
    fault: tuple[Reason, str] | None
    plan: plans.PlanFacts | None
    status: dict[str, Any]
    generation: int = 0
    default_queue: str = ""
    """Default queue of its namespace for groups that name no queue; empty for ``default``."""
    resumable: str | None = None
    """Raw value of its annotation ``resumable``."""

    @property
    def queue(self) -> str:
        """The queue of its plan, or else of its spec; empty for an invalid spec."""
        if self.plan is not None:  # pods that join a planned group count in its queue
            return self.plan.queue
        return queue_of(self.spec.queue, self.default_queue) if self.spec is not None else ""

    @property
    def priority_class(self) -> str | None:
        """The name of its PriorityClass; None for the cluster's default class."""
        return self.spec.priority_class_name if self.spec is not None else None

    @property
    def ended_pods(self) -> dict[str, str]:
        """The controller's UID of each pod in ``status.endedPods``, by UID of the pod."""
        record = self.status.get("endedPods") or ()
        return {uid: part["owner"] for part in record for uid in part["pods"]}

    @property
    def is_between_runs(self) -> bool:
        """True after all members have succeeded, until other pods get places: a new run."""
        is_idle = self.plan is None and self.status.get("phase") in ("Completed", "Pending")
        return is_idle and not self.status.get("endedPods")

    @property
    def has_ever_run(self) -> bool:
        """True if it has run at least once."""
        conditions = self.status.get("conditions") or ()
        return any(condition["type"] == "Running" for condition in conditions)

    @property
    def is_stopping(self) -> bool:
        """True while all its pods are being stopped for another gang."""
        return self.plan is not None and bool(self.status.get("stop"))

    @property
    def start_failures(self) -> int:
        """The number of failed starts in a row; an edit of the spec resets it."""
        if self.status.get("observedGeneration") != self.generation:
            return 0
        return int(self.status.get("startFailures") or 0)

    @property
    def has_timed_out(self) -> bool:
        """True if its last start timed out, possibly because of image pulls."""
        return bool(self.start_failures) and self.status.get("reason") == Reason.START_TIMED_OUT

    @property
    def retry_time(self) -> float:
        """Time of the next start after a failed one, POSIX seconds; 0 without a failed start."""
        return quantities.parse_timestamp(self.status.get("retryTime")) or 0.0

    def wait(self, since: float, request: Amounts) -> waits.Wait:
        """Return its wait, if its pods wait ``since`` and have the total ``request``.

        A failed start keeps the earlier wait; the pause after it does not count.
        """
        status = self.status
        if waits.is_raised(status, request) or waits.is_other(status, self.queue):
            return waits.ANEW
        seconds, uncounted = waits.self_caused_wait(status)
        earlier_seconds, parked = float(status.get("waitSeconds") or 0), waits.park_time(status)
        queued = quantities.parse_timestamp(status.get("queuedTime"))
        if queued is not None and queued >= since:  # else other pods have joined later
            return waits.Wait(
                queued, earlier_seconds, parked, uncounted=seconds, uncounted_since=uncounted
            )
        if self.plan is not None or not self.start_failures:
            return waits.Wait(since, parked=parked, uncounted=seconds, uncounted_since=uncounted)
        return waits.Wait(
            max(since, self.retry_time),
            earlier_seconds,
            parked,
            uncounted=seconds,
            uncounted_since=uncounted,
        )

    def is_pausing(self, now: float) -> bool:
        """Return whether it pauses after a failed start."""
        return is_pause(self.retry_time - now, self.start_failures)


def from_manifest(
    group: wire.CustomObject, previous: GroupFacts | None = None, default_queue: str = ""
) -> GroupFacts:
    """Return the facts of one PodGroup. Never raises: ``fault`` says what is wrong.

    ``previous`` are the facts of its last version. ``default_queue`` is the queue of its namespace
    for groups that name none.
    """
    meta = group.metadata
    spec, problem = PodGroupSpec.read(group.fields)
    resumable = meta.annotations.resumable if meta.annotations is not None else None
    return GroupFacts(
        key=(meta.namespace, meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        created=quantities.parse_timestamp(meta.creation_timestamp) or 0.0,
        is_leaving=meta.deletion_timestamp is not None,
        spec=spec,
        fault=(Reason.SPEC_INVALID, problem)
        if problem
        else resuming.fault_of_annotation(resumable),
        plan=plans.read(group.status, previous),
        status=group.status,
        generation=meta.generation,
        default_queue=default_queue,
        resumable=resumable,
    )


@dataclass(frozen=True, slots=True)
class Placed:
    """The part of a group that needs no place any more.

    Attributes:
        count: Planned pods that have not ended, and succeeded pods, which nobody creates again.
            Deleted succeeded pods count too, but only pods with the owner of the gated pods. The
            owner's own count includes pods that no operator saw.
        lost: Sum of the requests of planned pods that are gone or failed.
    """

    count: int
    lost: dict[str, int]

    @classmethod
    def of(
        cls,
        plan: plans.PlanFacts | None,
        pods: Iterable[PodFacts],
        gated: Iterable[PodFacts],
        succeeded: Mapping[str, str],
        job_counts: Mapping[str, int],
    ) -> "Placed":
        """Count ``pods`` by ``plan``, for the ``gated`` pods of the same owners.

        ``succeeded`` has the uid of the owner of succeeded pods, by uid of the pod. ``job_counts``
        are the numbers of succeeded pods by uid of the workload that counts them.
        """
        planned = plan.member_by_uid if plan is not None else {}
        owners = {uid for pod in gated for uid in pod.owner_uids}
        count, existing = 0, set()
        counts_by_owner: Counter[str] = Counter()
        for pod in pods:
            if not pod.is_terminal or pod.phase == "Succeeded":
                existing.add(pod.uid)
                is_akin = not owners.isdisjoint(pod.owner_uids)
                count += is_akin if pod.is_terminal else pod.uid in planned
                counts_by_owner.update(pod.owner_uids if pod.is_terminal else ())
        deleted = {uid: owner for uid, owner in succeeded.items() if uid not in existing}
        count += sum(owner in owners for owner in deleted.values())
        counts_by_owner.update(deleted.values())
        count += sum(max(0, job_counts.get(owner, 0) - counts_by_owner[owner]) for owner in owners)
        lost: dict[str, int] = {}
        for uid, member in planned.items():
            if uid not in existing and uid not in deleted and plan is not None:
                lost = add(lost, plan.requests.get(member.task, ()))
        return cls(count, lost)


def manifest_of_ends(owner_by_uid: Mapping[str, str], limit: int) -> list[dict[str, Any]]:
    """Return ``status.endedPods`` for uids of pods and of their controllers, newest last.

    It has at most ``limit`` pods of each controller, because more make no difference, and only the
    newest controllers. Anybody may write an owner, so a too long uid is left out.
    """
    by_owner: dict[str, list[str]] = {}
    for uid, owner in owner_by_uid.items():
        if len(owner) > MAX_UID:
            continue
        of_owner = by_owner.setdefault(owner, [])
        if len(of_owner) < limit:
            of_owner.append(uid)
    newest = list(by_owner.items())[-MAX_TASKS:]
    return [{"owner": owner, "pods": uids} for owner, uids in newest]


def waiting_gang(
    group: GroupFacts,
    members: Iterable[tuple[PodFacts, Task]],
    placement: Placed,
    priority: int,
    fault: tuple[Reason, str] | None,
    may_preempt: bool = True,
    learned_seconds: float | None = None,
) -> Gang | None:
    """Return the gated, unplanned pods of ``group`` as a gang, or None if it waits for nothing.

    ``placement`` counts the members with a place. Any number of further pods may join a running
    group. A completed group waits again once its controller creates new pods. ``learned_seconds``
    is the estimated run time, None if unknown.
    """
    spec, planned = group.spec, placement.count
    gated = sorted(members, key=lambda member: member[0].key)
    if group.is_stopping:  # new pods wait until the old ones are gone: they replace no pods
        return None
    if not gated and (planned or group.status.get("phase") == "Completed"):
        return None
    needed = spec.min_member - planned if spec is not None else 0
    minima = dict(spec.min_task_member) if spec is not None and not planned else {}
    lack = None
    if fault is None and spec is not None:
        lack = _too_few(group, len(gated) + planned) or _too_few_of(gated, minima)
    tasks, fault = tasks_of_pods(gated, minima, group.plan), fault or lack
    kinds = {task.name for task in tasks} | (group.plan.replicas.keys() if group.plan else set())
    if len(kinds) > MAX_PLANNED_TASKS:
        tasks, fault = (), fault or _too_many(len(kinds))
    foretold: Request = ()
    if lack is not None and spec is not None:  # the group's request before its pods exist
        min_resources = spec.min_resources.items()
        foretold = request_of(
            {r: quantities.parse_quantity(r, amount) for r, amount in min_resources}
        )
    gang = replace(
        _bare_gang(group, tasks, _wait(group, gated, max(needed, 1))),
        priority=priority,
        min_available=max(needed, 1),
        fault=group.fault or fault,
        foretold=foretold,
        estimated_seconds=learned_seconds,
        is_learned_estimate=learned_seconds is not None,
        may_preempt=may_preempt,
    )
    return (
        _as_replacement(gang, placement) if planned and needed > 0 and gang.fault is None else gang
    )


def with_remedy(gang: Gang, remedy: str) -> Gang:
    """Return ``gang``; if it waits for pods, its fault tells how their controller creates them."""
    if not remedy or gang.fault is None or gang.fault[0] is not Reason.WAITING_FOR_PODS:
        return gang
    return replace(gang, fault=(Reason.WAITING_FOR_PODS, f"{gang.fault[1]}; {remedy}"))


def with_other_gates(gang: Gang, gates_by_pod: Mapping[Key, tuple[str, ...]]) -> Gang:
    """Return ``gang``; if it waits for pods, its fault names the foreign gates of some pods.

    ``gates_by_pod`` has these pods and their gates.
    """
    if not gates_by_pod or gang.fault is None or gang.fault[0] is not Reason.WAITING_FOR_PODS:
        return gang
    gates = sorted({gate for of_pod in gates_by_pod.values() for gate in of_pod})
    first = min(gates_by_pod)[1]
    which = (
        f"pod {first} waits"
        if len(gates_by_pod) == 1
        else f"{len(gates_by_pod)} pods ({first}, ...) wait"
    )
    message = f"{gang.fault[1]}; {which} for others to remove scheduling gates: {', '.join(gates)}"
    return replace(gang, fault=(Reason.WAITING_FOR_PODS, message))


def with_other_queues(gang: Gang, pods: Iterable[PodFacts]) -> Gang:
    """Return ``gang``; if it waits for pods, its fault names the queues of its other ``pods``."""
    counts = Counter(pod.labels[names.QUEUE_LABEL] for pod in pods)
    if not counts or gang.fault is None or gang.fault[0] is not Reason.WAITING_FOR_PODS:
        return gang
    messages = (f"{n} pods still count in queue {queue}" for queue, n in sorted(counts.items()))
    return replace(gang, fault=(Reason.WAITING_FOR_PODS, "; ".join((gang.fault[1], *messages))))


def _bare_gang(group: GroupFacts, tasks: tuple[Task, ...], wait: waits.Wait) -> Gang:
    """Return the gang with the fields of the group's spec and status."""
    gang = Gang(
        uid=group.uid,
        name=group.key[1],
        namespace=group.key[0],
        queue=group.queue,
        queue_source=""
        if group.spec is None or group.spec.queue or group.plan
        else queue_source(group.key[0], group.default_queue),
        tasks=tasks,
        arrived=wait.arrival_time,
        parked=wait.parked,
        uncounted_seconds=wait.uncounted,
        uncounted_since=wait.uncounted_since,
        kind="PodGroup",
        interrupted=group.status.get("phase") == "Interrupted" and not group.start_failures,
        user=group.key[0],
        evictions=int(group.status.get("preemptions") or 0),
        yields=int(group.status.get("yields") or 0),
    )
    return resuming.of_group(group.resumable).apply(gang)


def _wait(group: GroupFacts, gated: list[tuple[PodFacts, Task]], needed: int) -> waits.Wait:
    """Return the wait of the gang; it begins with the last pod that it needed."""
    # Time without gated pods must not count as waiting: otherwise old groups would go first.
    creation_times = sorted(pod.gated_since for pod, _ in gated)
    request = total_request(pod for pod, _ in gated)
    return group.wait(max([group.created, *creation_times[:needed]]), request)


def total_request(pods: Iterable[PodFacts]) -> dict[str, int]:
    """Return the total request of ``pods``."""
    total: dict[str, int] = {}
    for pod in pods:
        total = add(total, pod.request)
    return total


def _as_replacement(gang: Gang, placement: Placed) -> Gang:
    """Return ``gang`` as a displaced gang of minimum size, if the lost members requested as much.

    Displaced gangs go ahead of the queue. So it has only as many pods as the group needs, and they
    must not request more than the lost ones.
    """
    smallest = gang.at_minimum
    is_within = all(n <= placement.lost.get(name, 0) for name, n in smallest.demand.items())
    return replace(smallest, displaced=True) if is_within else gang


def _too_few(group: GroupFacts, count: int) -> tuple[Reason, str] | None:
    needed = group.spec.min_member if group.spec is not None else 1
    if count >= needed:
        return None
    message = (
        f"{count} of minMember {needed} pods exist with label {names.POD_GROUP_LABEL}, "
        f"schedulerName {names.SCHEDULER_NAME} and gate {names.PLAN_GATE}"
    )
    if group.has_ever_run:
        message += (
            f"; pods that ended well while no operator watched count only if a {_COUNTING} owns "
            "them: lower minMember by their number"
        )
    return Reason.WAITING_FOR_PODS, message


def _too_few_of(
    gated: list[tuple[PodFacts, Task]], minima: Mapping[str, int]
) -> tuple[Reason, str] | None:
    counts = Counter(task.name for _, task in gated)
    for name, minimum in minima.items():
        if counts[name] < minimum:
            return Reason.WAITING_FOR_PODS, (
                f"{counts[name]} of minTaskMember {minimum} pods exist with label "
                f"{names.TASK_LABEL}: {name}"
            )
    return None


def _too_many(shapes: int) -> tuple[Reason, str]:
    return Reason.SPEC_INVALID, (
        f"the pods have {shapes} combinations of label {names.TASK_LABEL}, requests and node "
        f"demands, and a plan holds {MAX_PLANNED_TASKS}; use fewer combinations"
    )


def tasks_of_pods(
    gated: list[tuple[PodFacts, Task]], minima: dict[str, int], plan: plans.PlanFacts | None
) -> tuple[Task, ...]:
    """Group equal pods of one task label into tasks; each further shape gets a numbered name.

    A name in ``plan`` is used only for pods with the request of the plan.
    """
    shapes: dict[tuple[str, Request, object], list[tuple[PodFacts, Task]]] = {}
    for pod, task in gated:
        demands = task.constraints, task.pod
        shapes.setdefault((task.name, task.request, demands), []).append((pod, task))
    tasks: list[Task] = []
    planned = dict(plan.requests) if plan is not None else {}
    used_names: set[str] = set()
    free: dict[str, Iterator[str]] = {}
    for (label, request, _), group in shapes.items():
        fresh = free.setdefault(label, _names(label))
        name = next(n for n in fresh if n not in used_names and planned.get(n, request) == request)
        used_names.add(name)
        minimum = minima.get(label, 0)
        first = group[0][1]
        min_replicas = min(max(minimum, 1), len(group))
        minima[label] = minimum - min_replicas
        tasks.append(
            Task(
                name=name,
                replicas=len(group),
                request=first.request,
                role=first.role,
                min_replicas=min_replicas,
                priority=first.priority,
                constraints=first.constraints,
                pod=first.pod,
                preferences=_common([task.preferences for _, task in group]),
                members=tuple(pod.uid for pod, _ in group),
            )
        )
    return tuple(tasks)


def _common(preference_sets: list[Preferences]) -> Preferences:
    """Return the common preferences of the pods of one task; preferences do not split tasks."""
    first = preference_sets[0]
    if all(other is first for other in preference_sets):
        return first
    common = Preferences(
        tuple(
            node for node in first.nodes if all(node in other.nodes for other in preference_sets)
        ),
        tuple(pod for pod in first.pods if all(pod in other.pods for other in preference_sets)),
    )
    return common if common != NO_PREFERENCES else NO_PREFERENCES


def _names(label: str) -> Iterator[str]:
    """Yield the label, then numbered valid labels."""
    yield label
    for number in itertools.count(2):
        yield f"{label[: MAX_LABEL - len(str(number)) - 1]}-{number}"


def member_task(pod: wire.V1Pod, facts: PodFacts) -> Task:
    """Return one pod of another controller as a task of one replica."""
    return replace(
        bare_task(facts),
        constraints=constraints_of_spec(pod.spec),
        pod=demands_of_spec(pod.spec, facts.key[0], facts.labels),
        preferences=preferences.of_spec(pod.spec, facts.key[0], facts.labels),
    )


def bare_task(facts: PodFacts) -> Task:
    """Return a pod of another controller as a task without its demands on nodes and pods."""
    label = facts.labels.get(names.ROLE_LABEL, "")
    role = Role(label) if label in set(Role) else Role.WORKER
    name = facts.labels.get(names.TASK_LABEL) or (label or "pod")
    return Task(name, 1, facts.request, role, 1, role.default_priority)
