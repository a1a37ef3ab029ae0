"""Read PodGroups, and turn the gated pods of other controllers into waiting gangs.

Members of such a gang are known by UID, because anybody can set a label. A pod joins with the
label *and* Bireme's scheduler name and gate, and a place that was planned for one UID is never
given to another.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bireme.core.gangs import NO_PREFERENCES, Gang, Key, Preferences, Role, Task
from bireme.core.reasons import Reason
from bireme.core.resources import Amounts, Request, add, request_of
from bireme.kube import names, plans, preferences, quantities, resuming, waits, wire
from bireme.kube.api.base import MAX_LABEL, MAX_PLANNED_TASKS, MAX_TASKS
from bireme.kube.api.pod_group import MAX_UID, PodGroupSpec
from bireme.kube.pod_rules import demands_of_spec
from bireme.kube.pods import PodFacts, constraints_of_spec
from bireme.kube.tenancy import queue_of, queue_source
from bireme.kube.training_jobs import is_pause


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
    """What its namespace names for groups that name no queue; empty for ``default``."""
    resumable: str | None = None
    """Its annotation about that, as it is written."""

    @property
    def queue(self) -> str:
        """The queue it has its places in, or asks for; empty if not understood."""
        if self.plan is not None:  # pods that join it count where the others do
            return self.plan.queue
        return queue_of(self.spec.queue, self.default_queue) if self.spec is not None else ""

    @property
    def ended_pods(self) -> dict[str, str]:
        """UID of each pod that is recorded as ended well, and that of its controller."""
        record = self.status.get("endedPods") or ()
        return {uid: part["owner"] for part in record for uid in part["pods"]}

    @property
    def is_between_runs(self) -> bool:
        """True once all members have ended well, until others have places: that is another run."""
        is_idle = self.plan is None and self.status.get("phase") in ("Completed", "Pending")
        return is_idle and not self.status.get("endedPods")

    @property
    def has_ever_run(self) -> bool:
        """True if it has run at least once."""
        given = self.status.get("conditions") or ()
        return any(condition["type"] == "Running" for condition in given)

    @property
    def is_stopping(self) -> bool:
        """True while all its pods are being stopped to make room for another gang."""
        return self.plan is not None and bool(self.status.get("stop"))

    @property
    def start_failures(self) -> int:
        """The number of starts in a row that failed; an edit of the spec begins anew."""
        if self.status.get("observedGeneration") != self.generation:
            return 0
        return int(self.status.get("startFailures") or 0)

    @property
    def has_timed_out(self) -> bool:
        """True if its last start took too long, for which images may have been the reason."""
        return bool(self.start_failures) and self.status.get("reason") == Reason.START_TIMED_OUT

    @property
    def retry_time(self) -> float:
        """When it is tried again after a start that failed, POSIX seconds; 0 without one."""
        return quantities.parse_timestamp(self.status.get("retryTime")) or 0.0

    def wait(self, since: float, asked: Amounts) -> waits.Wait:
        """Return how long it has waited whose pods wait ``since`` then and have ``asked`` so much.

        After a failed start it is as old as before, and has not waited in its pause.
        """
        status = self.status
        if waits.is_raised(status, asked) or waits.is_other(status, self.queue):
            return waits.ANEW
        seconds, uncounted = waits.uncounted(status)
        before, parked = float(status.get("waitSeconds") or 0), waits.parked_since(status)
        queued = quantities.parse_timestamp(status.get("queuedTime"))
        if queued is not None and queued >= since:  # else other pods have joined it since
            return waits.Wait(queued, before, parked, uncounted=seconds, uncounted_since=uncounted)
        if self.plan is not None or not self.start_failures:
            return waits.Wait(since, parked=parked, uncounted=seconds, uncounted_since=uncounted)
        return waits.Wait(
            max(since, self.retry_time),
            before,
            parked,
            uncounted=seconds,
            uncounted_since=uncounted,
        )

    def is_pausing(self, now: float) -> bool:
        """Return whether it is not to be tried yet, because its last start failed."""
        return is_pause(self.retry_time - now, self.start_failures)


def from_manifest(
    group: wire.CustomObject, before: GroupFacts | None = None, default_queue: str = ""
) -> GroupFacts:
    """Return the facts of one PodGroup. Never raises: ``fault`` says what is wrong.

    ``before`` are those of its last version, ``default_queue`` is what its namespace names for
    groups that name none.
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
        plan=plans.read(group.status, before),
        status=group.status,
        generation=meta.generation,
        default_queue=default_queue,
        resumable=resumable,
    )


@dataclass(frozen=True, slots=True)
class Placed:
    """The part of a group that needs no place any more.

    Attributes:
        count: Planned pods that are not over, and succeeded pods, which a Job never creates again,
            whether they still exist or not. Succeeded pods of another owner than the gated pods' do
            not count. A Job's own count includes those that nobody saw.
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
        ended: Mapping[str, str],
        job_counts: Mapping[str, int],
    ) -> "Placed":
        """Count ``pods`` by ``plan``, for the ``gated`` pods of the same owners.

        ``ended`` are the uids of pods that have ended well, and of their owners. ``job_counts``
        are the numbers of such pods by uid of the Job that counts them.
        """
        planned = plan.member_by_uid if plan is not None else {}
        owners = {uid for pod in gated for uid in pod.owner_uids}
        count, there = 0, set()
        seen: Counter[str] = Counter()
        for pod in pods:
            if not pod.is_terminal or pod.phase == "Succeeded":
                there.add(pod.uid)
                is_akin = not owners.isdisjoint(pod.owner_uids)
                count += is_akin if pod.is_terminal else pod.uid in planned
                seen.update(pod.owner_uids if pod.is_terminal else ())
        gone = {uid: owner for uid, owner in ended.items() if uid not in there}
        count += sum(owner in owners for owner in gone.values())
        seen.update(gone.values())
        count += sum(max(0, job_counts.get(owner, 0) - seen[owner]) for owner in owners)
        lost: dict[str, int] = {}
        for uid, member in planned.items():
            if uid not in there and uid not in gone and plan is not None:
                lost = add(lost, plan.requests.get(member.task, ()))
        return cls(count, lost)


def ended_manifest(ended: Mapping[str, str], limit: int) -> list[dict[str, Any]]:
    """Return ``status.endedPods`` for uids of pods and of their controllers, newest last.

    It has at most ``limit`` pods of each controller, more of which say nothing more, and the
    controllers that came last. Anybody may write an owner, and no long one fits.
    """
    by_owner: dict[str, list[str]] = {}
    for uid, owner in ended.items():
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
    placed: Placed,
    priority: int,
    fault: tuple[Reason, str] | None,
    may_preempt: bool = True,
    learned_seconds: float | None = None,
) -> Gang | None:
    """Return the gated, unplanned pods of ``group`` as a gang, or None if it waits for nothing.

    ``placed`` members already have their place: further pods join a running group in any number.
    A completed group waits again once its controller creates new pods. ``learned_seconds`` is the
    estimated run time, None if unknown.
    """
    spec, planned = group.spec, placed.count
    gated = sorted(members, key=lambda member: member[0].key)
    if group.is_stopping:  # its new pods are no replacements: they wait once the others have gone
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
        least = spec.min_resources.items()
        foretold = request_of({r: quantities.parse_quantity(r, asked) for r, asked in least})
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
    return _as_replacement(gang, placed) if planned and needed > 0 and gang.fault is None else gang


def with_remedy(gang: Gang, remedy: str) -> Gang:
    """Return ``gang``; where it waits for pods, it says what has their controller create them."""
    if not remedy or gang.fault is None or gang.fault[0] is not Reason.WAITING_FOR_PODS:
        return gang
    return replace(gang, fault=(Reason.WAITING_FOR_PODS, f"{gang.fault[1]}; {remedy}"))


def with_other_gates(gang: Gang, behind: Mapping[Key, tuple[str, ...]]) -> Gang:
    """Return ``gang``; where it waits for pods, it says which gates of others keep some back.

    ``behind`` are those pods and their gates.
    """
    if not behind or gang.fault is None or gang.fault[0] is not Reason.WAITING_FOR_PODS:
        return gang
    gates = sorted({gate for of_pod in behind.values() for gate in of_pod})
    first = min(behind)[1]
    which = f"pod {first} waits" if len(behind) == 1 else f"{len(behind)} pods ({first}, ...) wait"
    message = f"{gang.fault[1]}; {which} behind scheduling gates of others: {', '.join(gates)}"
    return replace(gang, fault=(Reason.WAITING_FOR_PODS, message))


def with_other_queues(gang: Gang, others: Iterable[PodFacts]) -> Gang:
    """Return ``gang``; where it waits for pods, it says in which queues ``others`` of it count."""
    counts = Counter(pod.labels[names.QUEUE_LABEL] for pod in others)
    if not counts or gang.fault is None or gang.fault[0] is not Reason.WAITING_FOR_PODS:
        return gang
    there = (f"{n} pods still count in queue {queue}" for queue, n in sorted(counts.items()))
    return replace(gang, fault=(Reason.WAITING_FOR_PODS, "; ".join((gang.fault[1], *there))))


def _bare_gang(group: GroupFacts, tasks: tuple[Task, ...], wait: waits.Wait) -> Gang:
    """Return the gang with what the group's own spec and status say."""
    gang = Gang(
        uid=group.uid,
        name=group.key[1],
        namespace=group.key[0],
        queue=group.queue,
        queue_source=""
        if group.spec is None or group.spec.queue or group.plan
        else queue_source(group.key[0], group.default_queue),
        tasks=tasks,
        arrived=wait.arrived,
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
    """Return how long the gang has waited: since the last pod that it needed was made, at most."""
    # Time without waiting pods must not count as waiting, or old groups would go first.
    made = sorted(pod.gated_since for pod, _ in gated)
    asked = asked_by(pod for pod, _ in gated)
    return group.wait(max([group.created, *made[:needed]]), asked)


def asked_by(pods: Iterable[PodFacts]) -> dict[str, int]:
    """Return the total request of waiting pods."""
    total: dict[str, int] = {}
    for pod in pods:
        total = add(total, pod.request)
    return total


def _as_replacement(gang: Gang, placed: Placed) -> Gang:
    """Return ``gang`` as a displaced one of minimum size, if the lost members had as much.

    Displaced gangs go ahead of the queue: only as many pods as the group needs, that ask no more.
    """
    least = gang.at_minimum
    is_within = all(n <= placed.lost.get(name, 0) for name, n in least.demand.items())
    return replace(least, displaced=True) if is_within else gang


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
            "; pods that ended well while no operator watched count only if a Job owns them: "
            "lower minMember by their number"
        )
    return Reason.WAITING_FOR_PODS, message


def _too_few_of(
    gated: list[tuple[PodFacts, Task]], minima: Mapping[str, int]
) -> tuple[Reason, str] | None:
    there = Counter(task.name for _, task in gated)
    for name, least in minima.items():
        if there[name] < least:
            return Reason.WAITING_FOR_PODS, (
                f"{there[name]} of minTaskMember {least} pods exist with label "
                f"{names.TASK_LABEL}: {name}"
            )
    return None


def _too_many(shapes: int) -> tuple[Reason, str]:
    return Reason.SPEC_INVALID, (
        f"the pods are of {shapes} kinds by label {names.TASK_LABEL}, requests and node demands, "
        f"and a plan holds {MAX_PLANNED_TASKS}: make more of them alike"
    )


def tasks_of_pods(
    gated: list[tuple[PodFacts, Task]], minima: dict[str, int], plan: plans.PlanFacts | None
) -> tuple[Task, ...]:
    """Group equal pods of one task label into tasks; each further shape gets a numbered name.

    A name that ``plan`` uses keeps the request that it has there.
    """
    shapes: dict[tuple[str, Request, object], list[tuple[PodFacts, Task]]] = {}
    for pod, task in gated:
        demands = task.constraints, task.pod
        shapes.setdefault((task.name, task.request, demands), []).append((pod, task))
    tasks: list[Task] = []
    planned = dict(plan.requests) if plan is not None else {}
    taken: set[str] = set()
    free: dict[str, Iterator[str]] = {}
    for (label, request, _), group in shapes.items():
        fresh = free.setdefault(label, _names(label))
        name = next(n for n in fresh if n not in taken and planned.get(n, request) == request)
        taken.add(name)
        least = minima.get(label, 0)
        first = group[0][1]
        at_least = min(max(least, 1), len(group))
        minima[label] = least - at_least
        tasks.append(
            Task(
                name=name,
                replicas=len(group),
                request=first.request,
                role=first.role,
                min_replicas=at_least,
                priority=first.priority,
                constraints=first.constraints,
                pod=first.pod,
                preferences=_common([task.preferences for _, task in group]),
                members=tuple(pod.uid for pod, _ in group),
            )
        )
    return tuple(tasks)


def _common(given: list[Preferences]) -> Preferences:
    """Return what pods of one task all prefer: no two tasks differ by their preferences alone."""
    first = given[0]
    if all(each is first for each in given):
        return first
    found = Preferences(
        tuple(each for each in first.nodes if all(each in other.nodes for other in given)),
        tuple(each for each in first.pods if all(each in other.pods for other in given)),
    )
    return found if found != NO_PREFERENCES else NO_PREFERENCES


def _names(label: str) -> Iterator[str]:
    """Yield the label, then numbered forms of it that are valid labels too."""
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
    """Return a pod of another controller as a task without what it demands of nodes and pods."""
    label = facts.labels.get(names.ROLE_LABEL, "")
    role = Role(label) if label in set(Role) else Role.WORKER
    name = facts.labels.get(names.TASK_LABEL) or (label or "pod")
    return Task(name, 1, facts.request, role, 1, role.default_priority)
