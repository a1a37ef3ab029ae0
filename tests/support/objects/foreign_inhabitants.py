"""PodGroups of users in a random world: members planned, in any state, and pods behind the gate."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from bireme.core.gangs import Gang, Role, Task
from bireme.core.reasons import Reason
from bireme.core.resources import Request
from bireme.kube import names, plans, quantities
from bireme.kube.plans import Member, PlanFacts
from tests.support.objects import encoding, facts, strategies
from tests.support.objects.facts import served
from tests.support.objects.held import Held
from tests.support.objects.worlds import CLASSES, NOW, World
from tests.support.scenario.manifests import Manifest, pod_group

STYLES = st.integers(0, encoding.STYLES - 1)
PLANNED_NODES = st.sampled_from(("n0", "n1", "n2", "gone"))


@dataclass(frozen=True)
class _Shape:
    """Equal pods of one task label."""

    label: str
    role: Role
    request: Request
    spec: Manifest
    task: Task


def _shapes(draw: st.DrawFn) -> list[_Shape]:
    roles = draw(st.sampled_from(strategies.ROLES))
    shapes = []
    for index, role in enumerate(roles):
        task = draw(strategies.tasks(f"t{index}", role))
        task = replace(task, priority=role.default_priority, min_replicas=0, max_replicas=0)
        spec = encoding.pod_spec(task.request, task.constraints, draw(STYLES))
        shapes.append(_Shape(task.name, role, task.request, spec, task))
    return shapes


def _foreign_pod(group: str, shape: _Shape, number: int, node: str, is_gated: bool) -> Manifest:
    labels = {names.TASK_LABEL: shape.label, names.ROLE_LABEL: shape.role.value}
    pod = facts.gated_pod(f"{group}-{shape.label}-{number}", group, labels=labels)
    pod["spec"] |= shape.spec
    pod["metadata"]["creationTimestamp"] = quantities.format_timestamp(_made(number))
    if not is_gated:
        pod["spec"]["schedulingGates"] = []
    if node:
        pod["spec"]["nodeName"] = node
    return pod


def _made(number: int) -> float:
    """When the pod of that number was: some before their group was."""
    return NOW - 90 + 30 * number


def foreign_group(draw: st.DrawFn, world: World, index: int) -> None:
    """A user's PodGroup: some members planned, in any state, and some waiting behind the gate."""
    name, queue = (
        f"group{index}",
        draw(st.sampled_from(("free", "free", "free", "small", "unknown"))),
    )
    shapes = _shapes(draw)
    plan, there, lost = None, 0, Counter[str]()
    if draw(st.booleans()):
        plan, there, lost = _planned_members(draw, world, name, queue, shapes)
    gated = _gated_tasks(draw, world, name, shapes)
    least = draw(st.sampled_from((1, 1, 2, 3, 5)))
    has_minima = draw(st.booleans()) and bool(gated)
    minima = {gated[0].name: draw(st.integers(1, 3))} if has_minima else {}
    status: Manifest = {"phase": draw(st.sampled_from(("Pending", "Interrupted")))}
    if plan is not None:
        status["plan"] = plans.to_manifest(plan)
    spec = pod_group(name, least, queue=queue, minTaskMember=minima, priorityClassName="high")
    is_leaving = draw(st.sampled_from((False, False, False, True)))
    stamps = {"deletionTimestamp": quantities.format_timestamp(NOW)} if is_leaving else {}
    group = served(
        spec, f"{name}-uid", creationTimestamp=quantities.format_timestamp(NOW - 60), **stamps
    )
    world.add_object("group", {**group, "status": status})
    if plan is not None:
        world.held[-1].is_leaving = is_leaving
    if not is_leaving and (gated or not there):
        interrupted = status["phase"] == "Interrupted"
        gang = _foreign_gang(name, queue, gated, least, there, {} if there else minima)
        gang = replace(gang, interrupted=interrupted)
        needed = gang.at_minimum
        if there and least > there and not gang.fault and Counter(needed.demand) <= lost:
            gang = replace(needed, displaced=True)
        world.waiting.append(gang)


def _foreign_gang(
    name: str, queue: str, gated: list[Task], least: int, there: int, minima: dict[str, int]
) -> Gang:
    count = sum(task.replicas for task in gated)
    fault = None
    if least - there > count:
        words = (
            f"{count + there} of minMember {least} pods exist with label bireme.dev/pod-group, "
            "schedulerName bireme and gate bireme.dev/plan"
        )
        fault = (Reason.WAITING_FOR_PODS, words)
    few = next((task for task in gated if task.replicas < minima.get(task.name, 0)), None)
    if fault is None and few is not None:
        words = f"{few.replicas} of minTaskMember {minima[few.name]} pods exist with label "
        fault = (Reason.WAITING_FOR_PODS, f"{words}bireme.dev/task: {few.name}")
    tasks = tuple(
        replace(task, min_replicas=min(minima.get(task.name, 1), task.replicas)) for task in gated
    )
    needed = max(least - there, 1)
    made = sorted(_made(number) for task in gated for number in range(task.replicas))
    return Gang(
        uid=f"{name}-uid",
        name=name,
        namespace="default",
        queue=queue,
        tasks=tasks,
        arrived=max([NOW - 60, *made[:needed]]),
        priority=CLASSES["high"],
        kind="PodGroup",
        user="default",
        min_available=needed,
        fault=fault,
    )


def _holder(name: str, queue: str) -> Gang:
    """The group as far as it holds places, which its controller alone may stop."""
    return Gang(
        uid=f"{name}-uid",
        name=name,
        namespace="default",
        queue=queue,
        tasks=(),
        arrived=NOW - 60,
        kind="PodGroup",
        user="default",
        is_preemptible=False,
    )


def _held_tasks(shapes: Sequence[_Shape], counts: Counter[str]) -> tuple[Task, ...]:
    return tuple(
        Task(s.label, counts[s.label], s.request, s.role, priority=s.role.default_priority)
        for s in shapes
        if counts[s.label]
    )


def _gated_tasks(draw: st.DrawFn, world: World, group: str, shapes: Sequence[_Shape]) -> list[Task]:
    tasks = []
    for shape in shapes:
        count = draw(st.integers(0, 3))
        pods = [_foreign_pod(group, shape, number, "", True) for number in range(count)]
        for pod in pods:
            world.add_object("member", pod)
        uids = tuple(pod["metadata"]["uid"] for pod in pods)
        if count:
            tasks.append(replace(shape.task, replicas=count, members=uids))
    if draw(st.booleans()):  # gated, but another scheduler's
        stray = facts.gated_pod(f"{group}-stray", group, schedulerName="default-scheduler")
        world.add_object("member", stray)
    return tasks


def _planned_members(
    draw: st.DrawFn, world: World, group: str, queue: str, shapes: Sequence[_Shape]
) -> tuple[PlanFacts, int, Counter[str]]:
    """The plan, how many of its members are alive, and what those asked that are gone."""
    members, there, lost = [], 0, Counter[str]()
    held = Held(_holder(group, queue), started=NOW, is_leaving=False)
    world.held.append(held)
    counts = Counter[str]()
    for shape in shapes:
        for number in range(7, 7 + draw(st.integers(0, 2))):
            node = draw(PLANNED_NODES)
            members.append(Member(shape.label, node, uid=f"{group}-{shape.label}-{number}-uid"))
            state = draw(st.sampled_from(("gone", "gated", "released", "bound", "Succeeded")))
            if state == "gone":
                lost.update(dict(shape.request))
                continue
            where = node if state in ("bound", "Succeeded") else ""
            pod = _foreign_pod(group, shape, number, where, state == "gated")
            pod["status"] = {"phase": "Succeeded" if state == "Succeeded" else "Pending"}
            world.add_object("member", pod)
            counts[shape.label] += 1
            held.anchor = held.anchor or node
            if state != "Succeeded":
                there += 1
                held.add_place(shape.label, node)
                world.add_usage(node, shape.request)
                world.add_demand(queue, shape.request)
    world.add_demand(queue, ())
    held.gang = replace(held.gang, tasks=_held_tasks(shapes, counts))
    requests = {shape.label: shape.request for shape in shapes}
    roles = {shape.label: shape.role.value for shape in shapes}
    return PlanFacts(1, 0, "", "Pinned", NOW, requests, roles, tuple(members)), there, lost
