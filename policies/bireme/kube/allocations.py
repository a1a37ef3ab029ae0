"""Allocations: gangs that hold places, from a plan and its pods to the core's RunningGang.

:func:`view_of` compares a plan with the pods that exist (:class:`GangView`); only trusted pods
count: for a TrainingJob those that its uid owns and whose name is planned, for other controllers
those whose uid is planned. :func:`job_allocation`, :func:`of_leftovers` and :func:`of_others` turn
an :class:`Allocation` into a RunningGang with rows of the node table.

A plan belongs to a job by the owner's uid, never by name: what a deleted job left behind holds its
places until it is removed, even if a new job has the same name.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from bireme.core import finished_runs
from bireme.core.accelerators import Accelerators
from bireme.core.estimates import MAX_GROUPS, RuntimeHistory, apply_progress_report
from bireme.core.finished_runs import NO_RUNS, FinishedRun
from bireme.core.gangs import Gang, Key, Role, Task
from bireme.core.nodes import NodeTable
from bireme.core.placement import Placement, TaskPlacement, smallest_domain
from bireme.core.reasons import Reason
from bireme.core.resources import NODE_ONLY, Request, add
from bireme.core.running import RunningGang
from bireme.core.service import devices_of
from bireme.kube import names, quantities, resuming
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts, ended_pod
from bireme.kube.training_jobs import JobFacts
from bireme.kube.volume_objects import LOCAL_VOLUMES


@dataclass(frozen=True)
class GangView:
    """The members of a plan, each with its pod or None, and the pods of earlier plans."""

    plan: PlanFacts
    members: tuple[tuple[Member, PodFacts | None], ...]
    leftovers: tuple[PodFacts, ...]
    """Pods of the same owner that the plan does not name, or that are of an earlier attempt."""
    disruptions: Mapping[Member, str] = field(default_factory=dict)
    """Why the pods of members that have none now were taken from them, as far as that was said."""

    def count(self, task: str) -> dict[str, int]:
        """Return the number of replicas of ``task`` by state, as in ``status.tasks``."""
        pods = [pod for member, pod in self.members if member.task == task]
        there = [pod for pod in pods if pod is not None]
        return {
            "planned": len(pods),
            "bound": sum(bool(pod.node) for pod in there),
            "ready": sum(pod.is_ready for pod in there),
            "succeeded": sum(pod.phase == "Succeeded" for pod in there),
            "failed": sum(pod.phase == "Failed" for pod in there),
        }

    @cached_property
    def missing(self) -> tuple[Member, ...]:
        """Members without a pod."""
        return tuple(member for member, pod in self.members if pod is None)

    @cached_property
    def unbound(self) -> tuple[Member, ...]:
        """Members that are planned but hold no node yet."""
        return tuple(member for member, pod in self.members if pod is None or not pod.node)

    @property
    def is_ready(self) -> bool:
        """True if every member is ready or has already succeeded."""
        return all(
            p is not None and (p.is_ready or p.phase == "Succeeded") for _, p in self.members
        )

    @cached_property
    def ended(self) -> frozenset[tuple[str, int]]:
        """(task, index) of own replicas that have ended well, recorded or not."""
        return self.plan.ended | {
            (member.task, member.index)
            for member, pod in self.members
            if not member.uid and pod is not None and pod.phase == "Succeeded"
            if not pod.is_leaving
        }

    @cached_property
    def is_whole(self) -> bool:
        """True if every member is bound and has not ended, and no other pod is left."""
        return not self.leftovers and all(
            p is not None and p.node and not p.is_leaving and not p.is_terminal
            for _, p in self.members
        )

    @property
    def plan_in_place(self) -> PlanFacts:
        """The plan with every member where it is or has room, which only Score mode leaves open."""
        there = zip(self.members, self.nodes, strict=True)
        members = tuple(replace(member, node=node) for (member, _), node in there)
        return replace(self.plan, members=members)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The node of every member: where its pod is, else where room is kept for it."""
        bound = [pod.node if pod is not None else "" for _, pod in self.members]
        if self.plan.mode != "Score" or not any(bound):
            return tuple(
                at or member.node for (member, _), at in zip(self.members, bound, strict=True)
            )
        # A pod without a pin may be in room that was kept for another member of its task: that one
        # then has the room that the pod left.
        kept = Counter((member.task, member.node) for member, _ in self.members)
        kept -= Counter(
            (member.task, at) for (member, _), at in zip(self.members, bound, strict=True)
        )
        nodes = list(bound)
        homeless = []
        for place, (member, _) in enumerate(self.members):
            if not nodes[place] and kept[member.task, member.node] > 0:
                nodes[place] = member.node
                kept[member.task, member.node] -= 1
            elif not nodes[place]:
                homeless.append(place)
        for place in homeless:
            task = self.members[place][0].task
            node = next(node for (name, node), n in kept.items() if name == task and n > 0)
            nodes[place] = node
            kept[task, node] -= 1
        return tuple(nodes)

    @cached_property
    def held_by_leftovers(self) -> tuple[PodFacts, ...]:
        """The leftovers that still hold a node."""
        return tuple(pod for pod in self.leftovers if pod.node and not pod.is_terminal)

    @cached_property
    def uids(self) -> frozenset[str]:
        """UIDs of all pods, leftovers too."""
        there = (pod for _, pod in self.members if pod is not None and not pod.is_record)
        return frozenset(pod.uid for pod in itertools.chain(there, self.leftovers))

    @cached_property
    def demand(self) -> dict[str, int]:
        """Sum of the requests of members and leftovers that have not ended.

        Of each resource what was planned or what the pod asks, the larger: requests of pods can be
        raised in place.
        """
        total: dict[str, int] = {}
        for (task, asked), count in Counter(
            (member.task, pod.request if pod is not None else ())
            for member, pod in self.members
            if not _released_its_place(member, pod)
        ).items():
            planned = self.plan.requests.get(task, ())
            total = add(total, planned if asked == planned else _larger(planned, asked), count)
        for pod in self.held_by_leftovers:
            total = add(total, pod.request)
        return total

    @cached_property
    def places(self) -> dict[str, dict[str, int]]:
        """Task to node to the number of members that hold room there, bound or only planned."""
        found: dict[str, dict[str, int]] = {}
        for (member, pod), node in zip(self.members, self.nodes, strict=True):
            if not _released_its_place(member, pod):
                nodes = found.setdefault(member.task, {})
                nodes[node] = nodes.get(node, 0) + 1
        return found

    @cached_property
    def anchor(self) -> str:
        """The node of replica 0 of the first task, where the others meet; empty for none."""
        return self.nodes[0] if self.nodes else ""

    def usage(self) -> Iterable[tuple[str, Request]]:
        """Yield (node, request) of every member whose place no counted pod uses."""
        for node, member, _ in self.kept():
            yield node, self.plan.requests.get(member.task, ())

    def kept(self) -> Iterator[tuple[str, Member, PodFacts | None]]:
        """Yield node, member and pod of every member whose place no counted pod uses."""
        for (member, pod), node in zip(self.members, self.nodes, strict=True):
            holds = pod is not None and pod.node and not pod.is_terminal
            if not holds and not _released_its_place(member, pod):
                yield node, member, pod


def _larger(left: Request, right: Request) -> Request:
    amounts = dict(left)
    for name, amount in right:
        amounts[name] = max(amount, amounts.get(name, 0))
    return tuple(sorted(amounts.items()))


def _released_its_place(member: Member, pod: PodFacts | None) -> bool:
    """Return whether an ended member frees its place before its gang does.

    A failed replica of a job does not: its gang restarts, or ends, as a whole.
    """
    if pod is None or not pod.is_terminal:
        return False
    return pod.phase == "Succeeded" or bool(member.uid)


@dataclass(frozen=True, slots=True)
class AssumedPlan:
    """A plan that was decided and is being written: its gang counts as placed already."""

    job_uid: str
    """Empty for pods of other controllers."""
    plan: PlanFacts


def view_of(
    key: Key,
    job_uid: str,
    plan: PlanFacts,
    pods: Iterable[PodFacts],
    disruptions: Mapping[str, str] | None = None,
    ended: Container[str] = (),
) -> GangView:
    """Return the view of gang ``key``; an empty ``job_uid`` means pods of another controller.

    ``disruptions`` says by name of pods that are gone what they were deleted for. ``ended`` are
    names of pods of this plan that were seen to have ended well: like replicas that the plan
    records, they stay ended whatever becomes of their pods.
    """
    if not job_uid:
        # A member whose pod is gone is dropped: its controller creates another pod with another
        # uid, which waits for a place of its own.
        by_uid = {pod.uid: pod for pod in pods}
        there = tuple((m, by_uid[m.uid]) for m in plan.members if m.uid in by_uid)
        return GangView(plan, there, ())
    own = {pod.key[1]: pod for pod in pods if job_uid in pod.owner_uids}
    members: list[tuple[Member, PodFacts | None]] = []
    taken: dict[Member, str] = {}
    for member in plan.members:
        name = names.pod_name(key[1], member.task, member.index)
        pod = own.get(name)
        has_ended = name in ended or (member.task, member.index) in plan.ended
        if pod is not None and pod.labels.get(names.PLAN_LABEL) == plan.label:
            del own[name]
            is_over = has_ended and pod.phase == "Succeeded" and pod.is_leaving
            members.append((member, replace(pod, is_leaving=False) if is_over else pod))
        elif has_ended:
            labels = {names.POD_GROUP_LABEL: key[1], names.TASK_LABEL: member.task}
            request = plan.requests.get(member.task, ())
            members.append((member, ended_pod((key[0], name), member.node, request, labels)))
        else:
            members.append((member, None))
            if disruptions and name in disruptions:
                taken[member] = disruptions[name]
    return GangView(plan, tuple(members), tuple(own.values()), taken)


def in_the_way(
    job: JobFacts, group: GroupFacts | None, labelled: Iterable[PodFacts]
) -> tuple[Reason, str] | None:
    """Return the fault that keeps ``job`` from starting: objects that hold names it needs."""
    if group is not None:  # pods name their gang by one label
        return Reason.SPEC_INVALID, (
            f"a PodGroup {job.key[1]!r} exists that is not this job's; delete or rename one"
        )
    labelled = list(labelled)
    if not labelled:
        return None
    needed = {
        names.pod_name(job.key[1], task.name, index)
        for task in job.tasks
        for index in range(task.replicas)
    }
    left = [p for p in labelled if job.uid in p.owner_uids or p.key[1] in needed]
    stranger = next((p for p in left if not p.owner_uids and not p.is_leaving), None)
    if stranger is not None:
        return Reason.PODS_REFUSED, (
            f"a pod {stranger.key[1]!r} exists that is not this job's; delete it or rename the job"
        )
    if left:
        return Reason.STOPPING, f"{len(left)} pods of the last start are still ending"
    return None


MAX_KINDS: Final = MAX_GROUPS
"""Kinds of jobs that write checkpoints are remembered up to so many."""


class RunTimes:
    """What TrainingJobs that succeeded in their first start teach: run times, and runs by node.

    The API server knows no other owner of a job than its namespace, which is therefore the user of
    :class:`~bireme.core.estimates.RuntimeHistory`. All of it lives in memory. When a term of
    leadership begins, it is rebuilt from the finished jobs that still exist, and where they ran
    from those pods of theirs that do.

    Attributes:
        finished: The last runs that ended, by node.
    """

    def __init__(self) -> None:
        self.revision = 0
        """Number of runs learned from."""
        self.finished = NO_RUNS
        self._history = RuntimeHistory()
        self._with_checkpoints: dict[tuple[str, str], None] = {}
        self._learned: set[str] = set()

    def learn(
        self,
        jobs: Iterable[JobFacts],
        about: Callable[[Key], AbstractContextManager[object]] = nullcontext,
        run_of: Callable[[JobFacts, float], FinishedRun | None] = lambda *_: None,
    ) -> None:
        """Learn the run of each finished job of ``jobs`` once, in the order they ended.

        ``about(key)`` is a context that is entered while the job is read, to isolate errors.
        ``run_of(job, seconds)`` says where a job ran that took so long.
        """
        fresh = [job for job in jobs if job.is_finished and job.uid not in self._learned]
        for job in sorted(fresh, key=lambda job: (str(job.status.get("completionTime")), job.uid)):
            self._learned.add(job.uid)
            with about(job.key):
                seconds = run_seconds(job)
                if seconds is not None:
                    self._history.observe(job.key[0], job.template, seconds)
                    self.finished = self.finished.plus(run_of(job, seconds))
                    self.revision += 1

    def note_checkpoint(self, job: JobFacts) -> None:
        """Remember the kind of a job that has reported a checkpoint: jobs like it write some too.

        That holds for as long as the leader leads, and for the next one while the job exists.
        """
        kind = (job.key[0], job.template)
        if not job.template or not job.has_checkpoint:
            return
        if kind in self._with_checkpoints:
            del self._with_checkpoints[kind]
        else:
            self.revision += 1
        self._with_checkpoints[kind] = None  # the last to be forgotten
        while len(self._with_checkpoints) > MAX_KINDS:
            del self._with_checkpoints[next(iter(self._with_checkpoints))]

    def writes_checkpoints(self, job: JobFacts) -> bool:
        """Return whether a job of the namespace and template of ``job`` has reported one."""
        return (job.key[0], job.template) in self._with_checkpoints

    def forget(self, uids: set[str]) -> None:
        """Drop the record of learned jobs that no longer exist; ``uids`` are those that do."""
        self._learned &= uids

    def of_job(self, job: JobFacts) -> float | None:
        """Return the estimated run time of ``job`` in seconds; None if unknown.

        Also None if the owner gave ``estimatedDuration``, which takes precedence.
        """
        if job.spec is None or job.stated_seconds is not None or not job.tasks:
            return None
        return self._history.estimate(job.key[0], job.template)

    def of_group(self, key: Key, pods: Iterable[PodFacts | None]) -> float | None:
        """Return the estimated run time of another controller's ``pods``; None if unknown.

        It is unknown if one of them restarts whenever it ends. Others are estimated from the
        TrainingJobs of their namespace, because nothing is learned from pods of others.
        """
        if any(pod is not None and pod.runs_forever for pod in pods):
            return None
        return self._history.estimate(key[0], "")


def run_seconds(job: JobFacts) -> float | None:
    """Return the seconds that a succeeded job held its places; None if it was ever restarted.

    Reservations and backfill need the time from admission to the end.
    """
    # After a restart the last run may be only a part of the work: the job may have resumed from a
    # checkpoint. Resized jobs do count, as similar jobs are resized too.
    started, admitted, ended = (
        quantities.parse_timestamp(job.status.get(name))
        for name in ("startTime", "admittedTime", "completionTime")
    )
    if job.phase != "Succeeded" or not job.tasks or admitted is None or ended is None:
        return None
    # ``startTime`` is when the gang first ran; absent if it ended before it was observed running.
    is_undisturbed = started is None or started >= admitted
    # Times have whole seconds: a run of less than one second is not zero.
    return (ended - admitted or 1.0) if is_undisturbed else None


def earlier_service(job: JobFacts, now: float, accelerators: Accelerators) -> tuple[float, float]:
    """Return the device-seconds of ``job`` so far, and when the last of them ended, POSIX seconds.

    By its status: a new leader did not see it run.
    """
    admitted, completed = (
        quantities.parse_timestamp(job.status.get(name))
        for name in ("admittedTime", "completionTime")
    )
    ended = now if completed is None else completed
    seconds = job.attained + (0.0 if admitted is None else max(0.0, ended - admitted))
    return seconds * devices_of(job.tasks, accelerators), ended


def run_on_nodes(
    job: JobFacts, seconds: float, pods: Iterable[PodFacts], nodes: NodeTable
) -> FinishedRun | None:
    """Return the run of a succeeded ``job`` that took ``seconds``; None if it tells nothing.

    ``pods`` are those it owns. Its plan goes with the write that says that it succeeded, so they
    alone say where it ran; a job of which some are gone does not count.
    """
    if job.spec is None or job.spec.is_elastic:
        return None
    pods = list(pods)
    replicas = Counter(pod.labels.get(names.TASK_LABEL, "") for pod in pods)
    is_whole = replicas == {task.name: task.replicas for task in job.tasks}
    if not is_whole or len({pod.labels.get(names.PLAN_LABEL) for pod in pods}) > 1:
        return None
    stated = job.spec.estimated_duration
    return finished_runs.make_finished_run(
        Counter(pod.node for pod in pods),
        nodes,
        seconds,
        None if stated is None else quantities.parse_duration(stated),
        job.key[0],
        job.template,
    )


@dataclass(frozen=True, slots=True)
class Allocation:
    """Plan and pods of a gang that holds places: an assumed plan, or one that is written."""

    key: Key
    job_uid: str
    """Empty for pods of other controllers."""
    view: GangView

    @property
    def queue(self) -> str:
        """The queue they count in, even if their job or PodGroup has changed."""
        return self.view.plan.queue


def queue_usage(
    placed: Iterable[Allocation], strays: Iterable[PodFacts]
) -> dict[str, dict[str, int]]:
    """Return usage by queue: of all allocations, and of admitted pods that no gang has any more.

    Such pods remain when a job or PodGroup is deleted without its pods.
    """
    usage: dict[str, dict[str, int]] = {}
    for held in placed:
        of_queue = usage.setdefault(held.queue, {})
        for resource, amount in held.view.demand.items():
            if not resource.startswith(NODE_ONLY):
                of_queue[resource] = of_queue.get(resource, 0) + amount
    for pod in strays:
        queue = pod.labels.get(names.QUEUE_LABEL)
        if queue and pod.node and not pod.is_terminal:
            usage[queue] = add(usage.get(queue, {}), pod.request)
    return usage


def job_allocation(
    job: JobFacts, gang: Gang, held: Allocation, nodes: NodeTable
) -> RunningGang | None:
    """Return a TrainingJob's ``gang`` where it runs; None if it has no place on existing nodes."""
    view = held.view
    tasks = _tasks(gang.tasks, view)
    # Its whole wait, over all its times in line, lies just before this start.
    gang = replace(gang.in_line(view.plan.planned), queue=held.queue, tasks=tasks)
    # No resize while members start or end: it is not yet known which will be there.
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
    """Return whether its places will soon be free, without an eviction."""
    if job.is_finished and not job.is_leaving:
        return not job.keeps_pods
    return job.is_leaving or job.is_suspended or view.plan.attempt != job.attempt


def of_leftovers(job: JobFacts, held: Allocation, nodes: NodeTable) -> RunningGang | None:
    """Return the pods that a job's plan does not name as a leaving gang; None without any."""
    pods = held.view.held_by_leftovers
    if not pods:
        return None
    return _leaving(job.gang(0), held.queue, pods, held.view.plan.planned, nodes)


def of_strays(key: Key, strays: Iterable[PodFacts], nodes: NodeTable) -> RunningGang | None:
    """Return pods of a job that is gone, or has no plan, as a leaving gang; None without any there.

    ``strays`` carry the label of gang ``key``, belong to no plan, and are about to go.
    """
    held = sorted(
        (pod for pod in strays if pod.node and not pod.is_terminal), key=lambda pod: pod.key
    )
    if not held:
        return None
    gang = Gang(
        uid=held[0].job_uid,
        name=key[1],
        namespace=key[0],
        queue="",
        tasks=(),
        arrived=0.0,
        user=key[0],
    )
    return _leaving(gang, held[0].labels.get(names.QUEUE_LABEL, ""), held, 0.0, nodes)


@dataclass(frozen=True, slots=True)
class Orphans:
    """Admitted pods on nodes that no plan names any more, of one gang key and one queue.

    They remain where a PodGroup is deleted, or a TrainingJob without its pods. They run on, and
    are stopped for others as the pods of a PodGroup are.
    """

    key: Key
    queue: str
    """The queue they were admitted in, and count in."""
    pods: tuple[PodFacts, ...]

    @property
    def uid(self) -> str:
        return f"{self.key[0]}/{self.key[1]}/orphans/{self.queue}"


def orphans_of(key: Key, uncounted: Iterable[PodFacts]) -> list[Orphans]:
    """Return those of ``uncounted``, pods with the label of gang ``key``, that nobody stops.

    A pod that a TrainingJob owns goes with that job; one without the label of a queue was never
    admitted.
    """
    by_queue: dict[str, list[PodFacts]] = {}
    for pod in uncounted:
        queue = pod.labels.get(names.QUEUE_LABEL)
        if queue and pod.node and not (pod.job_uid or pod.is_terminal or pod.is_leaving):
            by_queue.setdefault(queue, []).append(pod)
    return [Orphans(key, queue, tuple(some)) for queue, some in sorted(by_queue.items())]


def of_orphans(
    orphans: Orphans, nodes: NodeTable, priority: int, is_preemptible: bool
) -> RunningGang | None:
    """Return ``orphans`` as a gang that runs; None where no node of theirs exists."""
    # Whose tasks they were is forgotten: what they ask is all that matters.
    alike: dict[Request, list[PodFacts]] = {}
    for pod in orphans.pods:
        alike.setdefault(pod.request, []).append(pod)
    by_task = {str(number): some for number, some in enumerate(alike.values())}
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
    )
    placement = _placement(gang.tasks, _places_of(by_task), nodes)
    return None if placement is None else RunningGang(gang, placement, started)


def _leaving(
    gang: Gang, queue: str, held: Iterable[PodFacts], started: float, nodes: NodeTable
) -> RunningGang | None:
    """Return ``held``, pods of ``gang`` that are about to go, as a gang of their own."""
    by_task: dict[str, list[PodFacts]] = {}
    for pod in held:
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
    held: Allocation,
    learned_seconds: float | None,
    nodes: NodeTable,
    priority: int = 0,
    is_preemptible: bool = False,
) -> RunningGang | None:
    """Return another controller's pods where they run.

    Also the pods of a TrainingJob that is not understood, which nobody stops. ``owner`` has the
    plan.
    """
    gang = Gang(
        uid=owner.uid,
        name=held.key[1],
        namespace=held.key[0],
        queue=held.queue,
        tasks=_tasks((), held.view),
        arrived=owner.created,
        kind="TrainingJob" if held.job_uid else "PodGroup",
        user=held.key[0],
        estimated_seconds=learned_seconds,
        is_learned_estimate=learned_seconds is not None,
        is_preemptible=False,
    )
    is_leaving = owner.is_leaving
    if isinstance(owner, GroupFacts):
        is_leaving = is_leaving or owner.is_stopping
        gang = replace(
            resuming.of_group(owner.resumable).applied_to(gang),
            priority=priority,
            is_preemptible=is_preemptible,
            evictions=int(owner.status.get("preemptions") or 0),
            yields=int(owner.status.get("yields") or 0),
        )
    running = _running(gang, held.view, nodes, is_leaving)
    is_starting = owner.status.get("phase") != "Running" and not owner.is_leaving
    return running and replace(running, is_starting=is_starting)


def _running(gang: Gang, view: GangView, nodes: NodeTable, is_leaving: bool) -> RunningGang | None:
    """Return ``gang`` where the members of ``view`` are; None if on no existing node."""
    placement = _placement(gang.tasks, view.places, nodes)
    if placement is None:
        return None
    # With ended replicas or lost nodes the gang is not elastic: they are not replaced one by one.
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
    """Return ``places`` (task to node to count) in rows; None without an existing node."""
    placed = []
    for task in tasks:
        there = places.get(task.name, {})
        known = sorted((nodes.row[name], n) for name, n in there.items() if name in nodes.row)
        if known:
            rows, counts = np.array(known, dtype=np.int64).T
            placed.append(TaskPlacement(task.name, rows, counts))
    if not placed:
        return None
    every = np.unique(np.concatenate([task.rows for task in placed]))
    return Placement(tuple(placed), *smallest_domain(nodes, every))


def _tasks(known: tuple[Task, ...], view: GangView) -> tuple[Task, ...]:
    """Return ``known`` with their planned requests, plus the tasks that only the plan has."""
    plan = view.plan
    requests = {name: _given_back(request) for name, request in plan.requests.items()}
    known_names = {task.name for task in known}
    planned = Counter(member.task for member, _ in view.members)
    added = []
    for name, count in planned.items():
        if name not in known_names:
            role = Role(plan.roles[name]) if plan.roles.get(name) in set(Role) else Role.WORKER
            request = requests.get(name, ())
            added.append(Task(name, count, request, role, priority=role.default_priority))
    return (*(replace(t, request=requests.get(t.name, t.request)) for t in known), *added)


def _given_back(request: Request) -> Request:
    """Return what a pod gives back at its end: a local volume stays with its claim."""
    if not any(name.startswith(LOCAL_VOLUMES) for name, _ in request):
        return request
    return tuple((name, n) for name, n in request if not name.startswith(LOCAL_VOLUMES))
