"""Gangs that hold places, as the core sees them: from a plan and its pods to a RunningGang."""

from dataclasses import replace

import numpy as np

from bireme.core.gangs import Gang, Role, Task
from bireme.core.nodes import NodeTable
from bireme.core.placement import Placement, TaskPlacement, smallest_domain
from bireme.core.running import RunningGang
from bireme.kube.gang_views import GangView
from bireme.kube.plans import PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.training_jobs import JobFacts

_TASK_OF_PLAN_PRIORITY = 50


def of_job(
    job: JobFacts, view: GangView, priority: int, nodes: NodeTable, now: float
) -> RunningGang | None:
    """The places of a TrainingJob's gang; None when it holds none on nodes that exist."""
    gang = job.gang(priority)
    # As it would wait if it had to start again now: its run time is no wait.
    gang = replace(gang, arrived=now - job.waited, tasks=_tasks(gang.tasks, view.plan))
    is_leaving = (
        job.is_leaving or job.is_finished or job.is_suspended or view.plan.attempt != job.attempt
    )
    return _running(gang, view, nodes, is_leaving)


def of_group(group: GroupFacts, view: GangView, nodes: NodeTable) -> RunningGang | None:
    """The places of pods that another controller made; it alone may stop them."""
    gang = Gang(
        uid=group.uid,
        name=group.key[1],
        namespace=group.key[0],
        queue=group.spec.queue if group.spec is not None else "",
        tasks=_tasks((), view.plan),
        arrived=group.created,
        kind="PodGroup",
        is_preemptible=False,
    )
    return _running(gang, view, nodes, group.is_leaving)


def _running(gang: Gang, view: GangView, nodes: NodeTable, is_leaving: bool) -> RunningGang | None:
    tasks = []
    for task in gang.tasks:
        places = view.places.get(task.name, {})
        known = sorted((nodes.row[name], n) for name, n in places.items() if name in nodes.row)
        if known:
            rows, counts = np.array(known, dtype=np.int64).T
            tasks.append(TaskPlacement(task.name, rows, counts))
    if not tasks:
        return None
    every = np.unique(np.concatenate([task.rows for task in tasks]))
    placement = Placement(tuple(tasks), *smallest_domain(nodes, every))
    return RunningGang(
        gang=gang,
        placement=placement,
        started=view.plan.planned,
        is_leaving=is_leaving,
        anchor_row=nodes.row.get(view.anchor, -1),
    )


def _tasks(known: tuple[Task, ...], plan: PlanFacts) -> tuple[Task, ...]:
    """``known`` with what was planned for them; tasks that only the plan knows are added."""
    names = {task.name for task in known}
    added = [
        Task(name, count, plan.requests.get(name, ()), _role(plan, name), 0, _TASK_OF_PLAN_PRIORITY)
        for name, count in plan.replicas.items()
        if name not in names
    ]
    planned = [replace(t, request=plan.requests.get(t.name, t.request)) for t in known]
    return (*planned, *added)


def _role(plan: PlanFacts, task: str) -> Role:
    text = plan.roles.get(task, "")
    return Role(text) if text in set(Role) else Role.WORKER
