"""PodGroup manifests to facts, and the gangs of pods that other controllers made.

Members of such a gang are counted by UID: a label or an owner reference is only a claim, so a
pod joins by its label *and* by carrying Bireme's scheduler name and gate, and what was planned
for one UID is never given to another.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from bireme.core.gangs import Gang, Role, Task
from bireme.core.reasons import Reason
from bireme.core.resources import Request
from bireme.kube import names, plans, timestamps, wire
from bireme.kube.api.pod_group import Plan, PodGroupSpec
from bireme.kube.pods import PodFacts, constraints_of_spec
from bireme.kube.training_jobs import Key


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One PodGroup as the operator and the extender see it."""

    key: Key
    uid: str
    resource_version: str
    created: float
    is_leaving: bool
    job_uid: str
    """UID of the TrainingJob that owns it; empty for PodGroups that users made."""
    spec: PodGroupSpec | None
    fault: tuple[Reason, str] | None
    plan: plans.PlanFacts | None
    status: dict[str, object]


def from_manifest(group: wire.Custom) -> GroupFacts:
    """The facts of one PodGroup; never raises, a fault says what is wrong."""
    meta = group.metadata
    spec, fault, plan = None, None, None
    try:
        spec = PodGroupSpec.model_validate(group.spec, extra="ignore")
    except ValidationError as error:
        fault = (Reason.SPEC_INVALID, str(error.errors(include_url=False)[0]["msg"]))
    if (raw := group.status.get("plan")) is not None:
        try:
            plan = plans.from_model(Plan.model_validate(raw, extra="ignore"))
        except ValueError:
            plan = None  # written by nobody we know: the gang is planned anew
    owners = [o.uid for o in meta.owner_references or () if o.kind == "TrainingJob"]
    return GroupFacts(
        key=(meta.namespace, meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        created=timestamps.parse(meta.creation_timestamp) or 0.0,
        is_leaving=meta.deletion_timestamp is not None,
        job_uid=owners[0] if owners else "",
        spec=spec,
        fault=fault,
        plan=plan,
        status=group.status,
    )


def count_placed(
    pods: Iterable[PodFacts], planned: Container[str], gated: Iterable[tuple[PodFacts, Task]]
) -> int:
    """How many of a group's ``pods`` no longer need a place for it to be whole.

    Those with a planned UID that go on, and those that have succeeded: a Job never makes them
    again. What an earlier controller left behind does not count for the pods of another.
    """
    owners = {uid for pod, _ in gated for uid in pod.owner_uids}
    return sum(
        pod.phase == "Succeeded" and not owners.isdisjoint(pod.owner_uids)
        if pod.is_terminal
        else pod.uid in planned
        for pod in pods
    )


def waiting_gang(
    group: GroupFacts,
    members: Iterable[tuple[PodFacts, Task]],
    planned: int,
    priority: int,
    fault: tuple[Reason, str] | None,
    may_preempt: bool = True,
    learned_seconds: float | None = None,
) -> Gang | None:
    """The gated, unplanned pods of ``group`` as a gang; None when there are none.

    ``planned`` members (:func:`count_placed`) already have their place: pods beyond ``minMember``
    join a group that runs in any number. A completed group waits for nothing, until its controller
    makes new pods. It should run for ``learned_seconds``; None when nobody knows.
    """
    spec = group.spec
    gated = sorted(members, key=lambda member: member[0].key)
    if not gated and (planned or group.status.get("phase") == "Completed"):
        return None
    needed = spec.min_member - planned if spec is not None else 0
    if needed > len(gated):
        fault = fault or _too_few(len(gated) + planned, needed + planned)
    minima = dict(spec.min_task_member) if spec is not None and not planned else {}
    return Gang(
        uid=group.uid,
        name=group.key[1],
        namespace=group.key[0],
        queue=spec.queue if spec is not None else "",
        tasks=_tasks(gated, minima),
        arrived=group.created,
        priority=priority,
        kind="PodGroup",
        min_available=max(needed, 1),
        interrupted=group.status.get("phase") == "Interrupted",
        fault=group.fault or fault,
        user=group.key[0],
        estimated_seconds=learned_seconds,
        is_learned_estimate=learned_seconds is not None,
        may_preempt=may_preempt,
    )


def _too_few(there: int, least: int) -> tuple[Reason, str]:
    return Reason.WAITING_FOR_PODS, (
        f"{there} of minMember {least} pods exist with label {names.POD_GROUP_LABEL}, "
        f"schedulerName {names.SCHEDULER_NAME} and gate {names.PLAN_GATE}"
    )


def _tasks(gated: list[tuple[PodFacts, Task]], minima: dict[str, int]) -> tuple[Task, ...]:
    """Equal pods of one task label are one task; a second shape of it gets a name of its own."""
    shapes: dict[tuple[str, Request, object], list[tuple[PodFacts, Task]]] = {}
    for pod, task in gated:
        shapes.setdefault((task.name, task.request, task.constraints), []).append((pod, task))
    tasks: list[Task] = []
    used: dict[str, int] = {}
    for (name, _, _), group in shapes.items():
        used[name] = used.get(name, 0) + 1
        least = minima.pop(name, 0)
        first = group[0][1]
        tasks.append(
            Task(
                name=name if used[name] == 1 else f"{name}-{used[name]}",
                replicas=len(group),
                request=first.request,
                role=first.role,
                min_replicas=min(max(least, 1), len(group)),
                priority=first.priority,
                constraints=first.constraints,
                members=tuple(pod.uid for pod, _ in group),
            )
        )
    return tuple(tasks)


def member_task(pod: wire.Pod, facts: PodFacts) -> Task:
    """One pod of another controller as a task of one replica."""
    label = facts.labels.get(names.ROLE_LABEL, "")
    role = Role(label) if label in set(Role) else Role.WORKER
    name = facts.labels.get(names.TASK_LABEL) or (label or "pod")
    return Task(
        name, 1, facts.request, role, 1, role.default_priority, constraints_of_spec(pod.spec)
    )
