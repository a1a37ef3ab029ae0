"""Gangs that hold places, as the core sees them: from a plan and its pods to a RunningGang.

Whom a plan belongs to is told by the uid that owns it, never by its name: what a job left behind
that is gone, or was replaced by another of its name, holds its places until it is cleared away.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from bireme.core.claims import believed
from bireme.core.gangs import Gang, Key, Role, Task
from bireme.core.nodes import NodeTable
from bireme.core.placement import Placement, TaskPlacement, smallest_domain
from bireme.core.resources import add
from bireme.core.running import RunningGang
from bireme.kube import names
from bireme.kube.gang_views import GangView
from bireme.kube.plans import PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts
from bireme.kube.run_times import RunTimes
from bireme.kube.standing import Standing
from bireme.kube.training_jobs import JobFacts


@dataclass(frozen=True, slots=True)
class Holding:
    """Plan and pods of a gang that holds places: as they were promised, or as they are written.

    ``queue`` is the one they count in. ``job_uid`` is empty for pods of other controllers, as in
    ``GroupFacts``.
    """

    key: Key
    job_uid: str
    queue: str
    view: GangView


def queue_of(group: GroupFacts, plan: PlanFacts) -> str:
    """The queue that a planned gang counts in, whatever its job or PodGroup says by now."""
    return plan.queue or (group.spec.queue if group.spec is not None else "")


def queue_usage(
    placed: Iterable[Holding],
    labelled: Mapping[Key, Collection[Key]],
    pods: Mapping[Key, PodFacts],
) -> dict[str, dict[str, int]]:
    """By queue what gangs hold, and bound pods that were admitted and belong to no gang any more.

    Such are left behind when a job or PodGroup is deleted without its pods. ``labelled`` has, by
    gang, the keys of all of ``pods`` that carry its label.
    """
    usage: dict[str, dict[str, int]] = {}
    counted = dict.fromkeys(labelled, frozenset[str]())
    for held in placed:
        usage[held.queue] = add(usage.get(held.queue, {}), held.view.demand)
        counted[held.key] = held.view.uids
    # Where a gang has counted as many as there are, nobody need look at tens of thousands of pods.
    strays = (
        pods[key]
        for gang, keys in labelled.items()
        if len(keys) > len(counted[gang])
        for key in keys
        if pods[key].uid not in counted[gang]
    )
    for pod in strays:
        queue = pod.labels.get(names.QUEUE_LABEL)
        if queue and pod.node and not pod.is_terminal:
            usage[queue] = add(usage.get(queue, {}), pod.request)
    return usage


def of_job(
    job: JobFacts,
    held: Holding,
    standing: Standing,
    run_times: RunTimes,
    nodes: NodeTable,
) -> RunningGang | None:
    """The places of a TrainingJob's gang; None when it holds none on nodes that exist."""
    view = held.view
    class_name = job.spec.priority_class_name if job.spec else None
    priority, _ = standing.priority(class_name)
    may_preempt, learned_seconds = standing.may_preempt(class_name), run_times.of_job(job)
    gang = job.gang(priority, may_preempt=may_preempt, learned_seconds=learned_seconds)
    tasks = _tasks(gang.tasks, view)
    gang = replace(gang, queue=held.queue, arrived=_arrived(job, view), tasks=tasks)
    # What comes, goes or ends is resized afterwards: only then is it known who is there.
    is_same = view.plan.spec_hash == job.spec_hash
    is_steady = job.phase == "Running" and is_same and view.is_whole
    gang = replace(gang, is_elastic=gang.is_elastic and is_steady)
    if job.is_finished:
        gang = replace(gang, is_preemptible=False)
    running = _running(gang, view, nodes, _is_leaving(job, view))
    if running is None or gang.progress is None:
        return running
    return replace(running, gang=believed(running.gang, running))


def _is_leaving(job: JobFacts, view: GangView) -> bool:
    """Whether its places come free soon, without anybody stopping it."""
    if job.is_finished and not job.is_leaving:
        return not job.keeps_pods
    return job.is_leaving or job.is_suspended or view.plan.attempt != job.attempt


def _arrived(job: JobFacts, view: GangView) -> float:
    """As if all its waiting, over all its times in the queue, had come just before this start.

    Until its admission is recorded, ``job.waited`` is what it had waited before.
    """
    since = view.plan.planned if "admittedTime" in job.status else job.queued
    return since - job.waited


def of_leftovers(job: JobFacts, held: Holding, nodes: NodeTable) -> RunningGang | None:
    """Pods that a job's gang has given up, as a gang that leaves; None without any."""
    pods: dict[str, list[PodFacts]] = {}
    for pod in held.view.held_by_leftovers:
        pods.setdefault(pod.labels.get(names.TASK_LABEL, ""), []).append(pod)
    if not pods:
        return None
    gang = replace(
        job.gang(0),
        uid=f"{job.uid}/leaving",
        queue=held.queue,
        tasks=tuple(Task(name, len(some), some[0].request) for name, some in pods.items()),
        is_elastic=False,
    )
    places = {name: Counter(pod.node for pod in some) for name, some in pods.items()}
    return _running(gang, held.view, nodes, True, places)


def of_others(
    group: GroupFacts, held: Holding, run_times: RunTimes, nodes: NodeTable, is_over: bool
) -> RunningGang | None:
    """The places of pods that another controller made, which alone may stop them.

    Also of those whose job ``is_over``, so that they are leaving, or was not understood.
    """
    learned_seconds = run_times.of_group(held.key, (pod for _, pod in held.view.members))
    gang = Gang(
        uid=held.job_uid or group.uid,
        name=held.key[1],
        namespace=held.key[0],
        queue=held.queue,
        tasks=_tasks((), held.view),
        arrived=group.created,
        kind="TrainingJob" if held.job_uid else "PodGroup",
        user=held.key[0],
        estimated_seconds=learned_seconds,
        is_learned_estimate=learned_seconds is not None,
        is_preemptible=False,
    )
    return _running(gang, held.view, nodes, group.is_leaving or is_over)


def _running(
    gang: Gang,
    view: GangView,
    nodes: NodeTable,
    is_leaving: bool,
    places: Mapping[str, Mapping[str, int]] | None = None,
) -> RunningGang | None:
    """``gang`` on ``places``, by task and node; the view's unless given."""
    tasks = []
    for task in gang.tasks:
        there = (view.places if places is None else places).get(task.name, {})
        known = sorted((nodes.row[name], n) for name, n in there.items() if name in nodes.row)
        if known:
            rows, counts = np.array(known, dtype=np.int64).T
            tasks.append(TaskPlacement(task.name, rows, counts))
    if not tasks:
        return None
    every = np.unique(np.concatenate([task.rows for task in tasks]))
    placement = Placement(tuple(tasks), *smallest_domain(nodes, every))
    # Replicas that have ended or lost their node are not to be replaced one by one.
    has_all = sum(int(task.counts.sum()) for task in tasks) == len(view.members)
    return RunningGang(
        gang=replace(gang, is_elastic=gang.is_elastic and has_all),
        placement=placement,
        started=view.plan.planned,
        resized=view.plan.resized,
        is_leaving=is_leaving,
        anchor_row=nodes.row.get(view.anchor, -1),
    )


def _tasks(known: tuple[Task, ...], view: GangView) -> tuple[Task, ...]:
    """``known`` with what was planned for them; tasks that only the plan knows are added."""
    plan = view.plan
    told = {task.name for task in known}
    planned = Counter(member.task for member, _ in view.members)
    added = [
        _only_planned(view, name, count) for name, count in planned.items() if name not in told
    ]
    return (*(replace(t, request=plan.requests.get(t.name, t.request)) for t in known), *added)


def _only_planned(view: GangView, name: str, replicas: int) -> Task:
    text = view.plan.roles.get(name, "")
    role = Role(text) if text in set(Role) else Role.WORKER
    request = view.plan.requests.get(name, ())
    return Task(name, replicas, request, role, priority=role.default_priority)
