"""Allocations: gangs that hold places, from a plan and its pods to the core's RunningGang.

:func:`view_of` compares a plan with the pods that exist (:class:`GangView`). Only trusted pods
count. A TrainingJob's pod has the job as its owner and a planned name. A pod of another controller
has a planned uid. :func:`job_allocation`, :func:`of_leftovers` and :func:`of_others` turn an
:class:`Allocation` into a RunningGang with rows of the node table.

A plan belongs to a job by the owner's uid, never by name. The pods of a deleted job hold their
places until they are removed, even if a new job has the same name.
"""

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from bireme.core.estimates import apply_progress_report
from bireme.core.gangs import Gang, Key, Role, Task
from bireme.core.nodes import NodeTable
from bireme.core.placement import Placement, TaskPlacement, smallest_domain
from bireme.core.reasons import Reason
from bireme.core.resources import NODE_ONLY, Request, add
from bireme.core.running import RunningGang
from bireme.kube import names, resuming
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts, pod_of_record
from bireme.kube.training_jobs import JobFacts
from bireme.kube.volume_objects import LOCAL_VOLUMES


@dataclass(frozen=True)
class GangView:
    """The members of a plan, each with its pod or None, and the pods of earlier plans."""

    plan: PlanFacts
    members: tuple[tuple[Member, PodFacts | None], ...]
    leftovers: tuple[PodFacts, ...]
    """Pods of the same owner that are not in the plan or belong to an earlier attempt."""
    disruptions: Mapping[Member, str] = field(default_factory=dict)
    """Disruption message of members whose pod was deleted, where there was one."""

    def count(self, task: str) -> dict[str, int]:
        """Return the number of replicas of ``task`` by state, as in ``status.tasks``."""
        pods = [pod for member, pod in self.members if member.task == task]
        existing = [pod for pod in pods if pod is not None]
        return {
            "planned": len(pods),
            "bound": sum(bool(pod.node) for pod in existing),
            "ready": sum(pod.is_ready for pod in existing),
            "succeeded": sum(pod.phase == "Succeeded" for pod in existing),
            "failed": sum(pod.phase == "Failed" for pod in existing),
        }

    @cached_property
    def missing(self) -> tuple[Member, ...]:
        """Members without a pod."""
        return tuple(member for member, pod in self.members if pod is None)

    @cached_property
    def unbound(self) -> tuple[Member, ...]:
        """Members without a bound pod."""
        return tuple(member for member, pod in self.members if pod is None or not pod.node)

    @property
    def is_ready(self) -> bool:
        """True if every member is ready or has already succeeded."""
        return all(
            p is not None and (p.is_ready or p.phase == "Succeeded") for _, p in self.members
        )

    @cached_property
    def ended(self) -> frozenset[tuple[str, int]]:
        """(task, index) of the job's replicas that have succeeded, recorded or not."""
        return self.plan.ended | {
            (member.task, member.index)
            for member, pod in self.members
            if not member.uid and pod is not None and pod.phase == "Succeeded"
            if not pod.is_leaving
        }

    @cached_property
    def is_whole(self) -> bool:
        """True if every member is bound and has not ended, and there are no leftovers."""
        return not self.leftovers and all(
            p is not None and p.node and not p.is_leaving and not p.is_terminal
            for _, p in self.members
        )

    @property
    def plan_in_place(self) -> PlanFacts:
        """The plan with the actual node of every member; it can differ in Score mode only."""
        pairs = zip(self.members, self.nodes, strict=True)
        members = tuple(replace(member, node=node) for (member, _), node in pairs)
        return replace(self.plan, members=members)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The node of every member: the node of its pod, else the reserved node."""
        bound_nodes = [pod.node if pod is not None else "" for _, pod in self.members]
        if self.plan.mode != "Score" or not any(bound_nodes):
            return tuple(
                node or member.node
                for (member, _), node in zip(self.members, bound_nodes, strict=True)
            )
        # A pod without a pin may take the place of another member of its task. That member then
        # gets the place of the pod.
        reserved = Counter((member.task, member.node) for member, _ in self.members)
        reserved -= Counter(
            (member.task, node) for (member, _), node in zip(self.members, bound_nodes, strict=True)
        )
        nodes = list(bound_nodes)
        unassigned = []
        for index, (member, _) in enumerate(self.members):
            if not nodes[index] and reserved[member.task, member.node] > 0:
                nodes[index] = member.node
                reserved[member.task, member.node] -= 1
            elif not nodes[index]:
                unassigned.append(index)
        for index in unassigned:
            task = self.members[index][0].task
            node = next(node for (name, node), n in reserved.items() if name == task and n > 0)
            nodes[index] = node
            reserved[task, node] -= 1
        return tuple(nodes)

    @cached_property
    def leftovers_on_nodes(self) -> tuple[PodFacts, ...]:
        """The leftovers that still use a node."""
        return tuple(pod for pod in self.leftovers if pod.node and not pod.is_terminal)

    @cached_property
    def uids(self) -> frozenset[str]:
        """UIDs of all pods, including leftovers."""
        pods = (pod for _, pod in self.members if pod is not None and not pod.is_record)
        return frozenset(pod.uid for pod in itertools.chain(pods, self.leftovers))

    @cached_property
    def demand(self) -> dict[str, int]:
        """Sum of the requests of members and leftovers that have not ended.

        Each resource counts with the larger of plan and pod: a pod can be resized in place.
        """
        total: dict[str, int] = {}
        for (task, request), count in Counter(
            (member.task, pod.request if pod is not None else ())
            for member, pod in self.members
            if not _frees_place(member, pod)
        ).items():
            planned = self.plan.requests.get(task, ())
            total = add(total, planned if request == planned else _larger(planned, request), count)
        for pod in self.leftovers_on_nodes:
            total = add(total, pod.request)
        return total

    @cached_property
    def places(self) -> dict[str, dict[str, int]]:
        """Number of members by task and node, bound or only planned."""
        by_task: dict[str, dict[str, int]] = {}
        for (member, pod), node in zip(self.members, self.nodes, strict=True):
            if not _frees_place(member, pod):
                nodes = by_task.setdefault(member.task, {})
                nodes[node] = nodes.get(node, 0) + 1
        return by_task

    @cached_property
    def anchor(self) -> str:
        """The node of replica 0 of the first task, the rendezvous; empty for none."""
        return self.nodes[0] if self.nodes else ""

    def usage(self) -> Iterable[tuple[str, Request]]:
        """Yield (node, request) of every member whose place no counted pod uses."""
        for node, member, _ in self.open_places():
            yield node, self.plan.requests.get(member.task, ())

    def open_places(self) -> Iterator[tuple[str, Member, PodFacts | None]]:
        """Yield node, member and pod of every member whose place no counted pod uses."""
        for (member, pod), node in zip(self.members, self.nodes, strict=True):
            holds = pod is not None and pod.node and not pod.is_terminal
            if not holds and not _frees_place(member, pod):
                yield node, member, pod


def _larger(first: Request, second: Request) -> Request:
    amounts = dict(first)
    for name, amount in second:
        amounts[name] = max(amount, amounts.get(name, 0))
    return tuple(sorted(amounts.items()))


def _frees_place(member: Member, pod: PodFacts | None) -> bool:
    """Return whether an ended member frees its place before its gang does.

    A failed replica of a job does not: its gang restarts or ends as a whole.
    """
    if pod is None or not pod.is_terminal:
        return False
    return pod.phase == "Succeeded" or bool(member.uid)


@dataclass(frozen=True, slots=True)
class AssumedPlan:
    """A decided plan that is being written; its gang counts as placed."""

    job_uid: str
    """Empty for pods of other controllers."""
    plan: PlanFacts


def view_of(
    key: Key,
    job_uid: str,
    plan: PlanFacts,
    pods: Iterable[PodFacts],
    disruptions: Mapping[str, str] | None = None,
    succeeded: Container[str] = (),
) -> GangView:
    """Return the view of gang ``key``; an empty ``job_uid`` means pods of another controller.

    ``disruptions`` has the disruption messages of deleted pods, by name. ``succeeded`` are names of
    pods of this plan that were seen to succeed. They stay ended after their pods are deleted, as
    the replicas that the plan records do.
    """
    if not job_uid:
        # Drop a member whose pod is gone: its controller creates a pod with another uid, which
        # waits for a new place.
        by_uid = {pod.uid: pod for pod in pods}
        members_with_pods = tuple((m, by_uid[m.uid]) for m in plan.members if m.uid in by_uid)
        return GangView(plan, members_with_pods, ())
    pod_by_name = {pod.key[1]: pod for pod in pods if job_uid in pod.owner_uids}
    members: list[tuple[Member, PodFacts | None]] = []
    disruption_of: dict[Member, str] = {}
    for member in plan.members:
        name = names.pod_name(key[1], member.task, member.index)
        pod = pod_by_name.get(name)
        has_ended = name in succeeded or (member.task, member.index) in plan.ended
        if pod is not None and pod.labels.get(names.PLAN_LABEL) == plan.label:
            del pod_by_name[name]
            is_over = has_ended and pod.phase == "Succeeded" and pod.is_leaving
            members.append((member, replace(pod, is_leaving=False) if is_over else pod))
        elif has_ended:
            labels = {names.POD_GROUP_LABEL: key[1], names.TASK_LABEL: member.task}
            request = plan.requests.get(member.task, ())
            members.append((member, pod_of_record((key[0], name), member.node, request, labels)))
        else:
            members.append((member, None))
            if disruptions and name in disruptions:
                disruption_of[member] = disruptions[name]
    return GangView(plan, tuple(members), tuple(pod_by_name.values()), disruption_of)


def in_the_way(
    job: JobFacts, group: GroupFacts | None, pods: Iterable[PodFacts]
) -> tuple[Reason, str] | None:
    """Return the fault that an object with a name that ``job`` needs keeps it from starting."""
    if group is not None:  # pods name their gang by one label
        return Reason.SPEC_INVALID, (
            f"a PodGroup {job.key[1]!r} exists that is not this job's; delete or rename one"
        )
    pods = list(pods)
    if not pods:
        return None
    needed = {
        names.pod_name(job.key[1], task.name, index)
        for task in job.tasks
        for index in range(task.replicas)
    }
    blocking = [p for p in pods if job.uid in p.owner_uids or p.key[1] in needed]
    stranger = next((p for p in blocking if not p.owner_uids and not p.is_leaving), None)
    if stranger is not None:
        return Reason.PODS_REFUSED, (
            f"a pod {stranger.key[1]!r} exists that is not this job's; delete it or rename the job"
        )
    if blocking:
        return Reason.STOPPING, f"{len(blocking)} pods of the last start are still ending"
    return None


@dataclass(frozen=True, slots=True)
class Allocation:
    """Plan and pods of a gang that holds places; the plan is assumed or written."""

    key: Key
    job_uid: str
    """Empty for pods of other controllers."""
    view: GangView

    @property
    def queue(self) -> str:
        """The queue of the plan; a later change of the job or PodGroup does not matter."""
        return self.view.plan.queue


def queue_usage(
    allocations: Iterable[Allocation], strays: Iterable[PodFacts]
) -> dict[str, dict[str, int]]:
    """Return the usage by queue of all allocations and of admitted pods without a gang.

    Such pods remain when a job or PodGroup is deleted without its pods.
    """
    usage: dict[str, dict[str, int]] = {}
    for allocation in allocations:
        of_queue = usage.setdefault(allocation.queue, {})
        for resource, amount in allocation.view.demand.items():
            if not resource.startswith(NODE_ONLY):
                of_queue[resource] = of_queue.get(resource, 0) + amount
    for pod in strays:
        queue = pod.labels.get(names.QUEUE_LABEL)
        if queue and pod.node and not pod.is_terminal:
            usage[queue] = add(usage.get(queue, {}), pod.request)
    return usage


def job_allocation(
    job: JobFacts, gang: Gang, allocation: Allocation, nodes: NodeTable
) -> RunningGang | None:
    """Return a TrainingJob's ``gang`` with its placement; None if no node of it exists."""
    view = allocation.view
    tasks = _tasks(gang.tasks, view)
    # The sum of all its waits lies just before this start.
    gang = replace(gang.in_line(view.plan.planned), queue=allocation.queue, tasks=tasks)
    # No resize while members start or end: the set of running members is not known yet.
    is_same = view.plan.spec_hash == job.spec_hash
    is_steady = job.phase == "Running" and is_same and view.is_whole
    gang = replace(gang, is_elastic=gang.is_elastic and is_steady)
    if job.is_finished:
        gang = replace(gang, is_preemptible=False)
    running = _running(gang, view, nodes, _is_leaving(job, view))
    if running is None:
        return None
    is_starting = not (job.phase == "Running" or job.is_finished)
    running = replace(running, is_starting=is_starting and not running.is_leaving)
    if gang.progress is None:
        return running
    return replace(running, gang=apply_progress_report(running.gang, running))


def _is_leaving(job: JobFacts, view: GangView) -> bool:
    """Return whether the job frees its places soon, without an eviction."""
    if job.is_finished and not job.is_leaving:
        return job.spec is None or job.spec.run_policy.clean_pod_policy != "None"
    return job.is_leaving or job.is_suspended or view.plan.attempt != job.attempt


def of_leftovers(job: JobFacts, allocation: Allocation, nodes: NodeTable) -> RunningGang | None:
    """Return the leftovers of a job's plan as a leaving gang; None without any."""
    pods = allocation.view.leftovers_on_nodes
    if not pods:
        return None
    return _leaving(job.gang(0), allocation.queue, pods, allocation.view.plan.planned, nodes)


def of_strays(key: Key, strays: Iterable[PodFacts], nodes: NodeTable) -> RunningGang | None:
    """Return the bound pods of a job without a plan as a leaving gang; None without any.

    ``strays`` carry the label of gang ``key``, belong to no plan, and are about to be deleted. The
    job may be gone.
    """
    bound_pods = sorted(
        (pod for pod in strays if pod.node and not pod.is_terminal), key=lambda pod: pod.key
    )
    if not bound_pods:
        return None
    gang = Gang(
        uid=bound_pods[0].job_uid,
        name=key[1],
        namespace=key[0],
        queue="",
        tasks=(),
        arrived=0.0,
        user=key[0],
    )
    return _leaving(gang, bound_pods[0].labels.get(names.QUEUE_LABEL, ""), bound_pods, 0.0, nodes)


@dataclass(frozen=True, slots=True)
class Orphans:
    """Bound, admitted pods without a plan, of one gang key and one queue.

    They remain when a PodGroup is deleted, or a TrainingJob without its pods. They keep running.
    Other gangs may preempt them like the pods of a PodGroup.
    """

    key: Key
    queue: str
    """The queue that admitted them, and that their usage counts in."""
    pods: tuple[PodFacts, ...]

    @property
    def uid(self) -> str:
        return f"{self.key[0]}/{self.key[1]}/orphans/{self.queue}"


def orphans_of(key: Key, strays: Iterable[PodFacts]) -> list[Orphans]:
    """Return the orphans among ``strays``, the pods with the label of gang ``key``.

    A pod of a TrainingJob is no orphan: it is deleted with the job. A pod without a queue label was
    never admitted.
    """
    by_queue: dict[str, list[PodFacts]] = {}
    for pod in sorted(strays, key=lambda pod: pod.key):
        queue = pod.labels.get(names.QUEUE_LABEL)
        if queue and pod.node and not (pod.job_uid or pod.is_terminal or pod.is_leaving):
            by_queue.setdefault(queue, []).append(pod)
    return [
        Orphans(key, queue, tuple(queue_pods)) for queue, queue_pods in sorted(by_queue.items())
    ]


def of_orphans(
    orphans: Orphans, nodes: NodeTable, priority: int, is_preemptible: bool
) -> RunningGang | None:
    """Return ``orphans`` as a running gang; None if none of their nodes exists."""
    # Their tasks are unknown: only their requests matter.
    by_request: dict[Request, list[PodFacts]] = {}
    for pod in orphans.pods:
        by_request.setdefault(pod.request, []).append(pod)
    by_task = {str(number): some for number, some in enumerate(by_request.values())}
    started = min(pod.bound_since for pod in orphans.pods)
    gang = Gang(
        uid=orphans.uid,
        name=orphans.key[1],
        namespace=orphans.key[0],
        queue=orphans.queue,
        tasks=_tasks_of(by_task),
        arrived=started,
        kind="PodGroup",
        user=orphans.key[0],
        priority=priority,
        is_preemptible=is_preemptible,
        is_resumable=False,
    )
    placement = _placement(gang.tasks, _places_of(by_task), nodes)
    return None if placement is None else RunningGang(gang, placement, started)


def _leaving(
    gang: Gang, queue: str, pods: Iterable[PodFacts], started: float, nodes: NodeTable
) -> RunningGang | None:
    """Return the leaving ``pods`` of ``gang`` as a separate gang."""
    by_task: dict[str, list[PodFacts]] = {}
    for pod in pods:
        by_task.setdefault(pod.labels.get(names.TASK_LABEL, ""), []).append(pod)
    leaving = replace(
        gang,
        uid=f"{gang.uid}/leaving",
        queue=queue,
        tasks=_tasks_of(by_task),
        is_elastic=False,
    )
    placement = _placement(leaving.tasks, _places_of(by_task), nodes)
    if placement is None:
        return None
    return RunningGang(leaving, placement, started, is_leaving=True)


def _tasks_of(by_task: Mapping[str, Sequence[PodFacts]]) -> tuple[Task, ...]:
    return tuple(Task(name, len(some), some[0].request) for name, some in by_task.items())


def _places_of(by_task: Mapping[str, Sequence[PodFacts]]) -> dict[str, Counter[str]]:
    return {name: Counter(pod.node for pod in some) for name, some in by_task.items()}


def of_others(
    owner: GroupFacts | JobFacts,
    allocation: Allocation,
    learned_seconds: float | None,
    nodes: NodeTable,
    priority: int = 0,
    is_preemptible: bool = False,
) -> RunningGang | None:
    """Return another controller's pods with their placement.

    The same holds for the pods of a TrainingJob with an invalid spec, which are never stopped.
    ``owner`` has the plan.
    """
    gang = Gang(
        uid=owner.uid,
        name=allocation.key[1],
        namespace=allocation.key[0],
        queue=allocation.queue,
        tasks=_tasks((), allocation.view),
        arrived=owner.created,
        kind="TrainingJob" if allocation.job_uid else "PodGroup",
        user=allocation.key[0],
        estimated_seconds=learned_seconds,
        is_learned_estimate=learned_seconds is not None,
        is_preemptible=False,
    )
    is_leaving = owner.is_leaving
    if isinstance(owner, GroupFacts):
        is_leaving = is_leaving or owner.is_stopping
        gang = replace(
            resuming.of_group(owner.resumable).apply(gang),
            priority=priority,
            is_preemptible=is_preemptible,
            evictions=int(owner.status.get("preemptions") or 0),
            yields=int(owner.status.get("yields") or 0),
        )
    running = _running(gang, allocation.view, nodes, is_leaving)
    is_starting = owner.status.get("phase") != "Running" and not owner.is_leaving
    return running and replace(running, is_starting=is_starting)


def _running(gang: Gang, view: GangView, nodes: NodeTable, is_leaving: bool) -> RunningGang | None:
    """Return ``gang`` on the nodes of ``view``; None if none of these nodes exists."""
    placement = _placement(gang.tasks, view.places, nodes)
    if placement is None:
        return None
    # Ended replicas and lost nodes are not replaced one by one: such a gang is not elastic.
    has_all = sum(int(task.counts.sum()) for task in placement.tasks) == len(view.members)
    return RunningGang(
        gang=replace(gang, is_elastic=gang.is_elastic and has_all),
        placement=placement,
        started=view.plan.planned,
        resized=view.plan.resized,
        is_leaving=is_leaving,
        anchor_row=nodes.row.get(view.anchor, -1),
        is_opportunistic=view.plan.is_opportunistic,
    )


def _placement(
    tasks: Iterable[Task], places: Mapping[str, Mapping[str, int]], nodes: NodeTable
) -> Placement | None:
    """Return ``places`` (count by task and node) as rows; None without an existing node."""
    task_placements = []
    for task in tasks:
        count_by_node = places.get(task.name, {})
        row_counts = sorted(
            (nodes.row[name], n) for name, n in count_by_node.items() if name in nodes.row
        )
        if row_counts:
            rows, counts = np.array(row_counts, dtype=np.int64).T
            task_placements.append(TaskPlacement(task.name, rows, counts))
    if not task_placements:
        return None
    every = np.unique(np.concatenate([task.rows for task in task_placements]))
    return Placement(tuple(task_placements), *smallest_domain(nodes, every))


def _tasks(job_tasks: tuple[Task, ...], view: GangView) -> tuple[Task, ...]:
    """Return ``job_tasks`` with their planned requests, plus the tasks that only the plan has."""
    plan = view.plan
    requests = {name: _request_at_end(request) for name, request in plan.requests.items()}
    job_task_names = {task.name for task in job_tasks}
    planned = Counter(member.task for member, _ in view.members)
    added = []
    for name, count in planned.items():
        if name not in job_task_names:
            role = Role(plan.roles[name]) if plan.roles.get(name) in set(Role) else Role.WORKER
            request = requests.get(name, ())
            added.append(Task(name, count, request, role, priority=role.default_priority))
    return (*(replace(t, request=requests.get(t.name, t.request)) for t in job_tasks), *added)


def _request_at_end(request: Request) -> Request:
    """Return the resources that a pod frees at its end: a local volume stays with its claim."""
    if not any(name.startswith(LOCAL_VOLUMES) for name, _ in request):
        return request
    return tuple((name, n) for name, n in request if not name.startswith(LOCAL_VOLUMES))
