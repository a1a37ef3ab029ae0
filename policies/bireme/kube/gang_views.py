"""A planned gang beside the pods that exist: who is bound, ready, missing, in the way.

A pure comparison of plan and pods. Only trusted pods count: for a TrainingJob those that its
own uid controls and whose name is planned, for other controllers those whose UID is planned.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.core.resources import Request, add
from bireme.kube import names
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts


@dataclass(frozen=True)
class GangView:
    """The members of one plan, each with its pod or None, and pods of earlier plans."""

    plan: PlanFacts
    members: tuple[tuple[Member, PodFacts | None], ...]
    leftovers: tuple[PodFacts, ...]
    """Pods of the same owner that this plan does not name, or of an earlier attempt."""

    def count(self, task: str) -> dict[str, int]:
        """How many replicas of ``task`` have come how far, as ``status.tasks`` reports it."""
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
    def is_bound(self) -> bool:
        """Whether every member is on a node."""
        return not self.unbound

    @property
    def is_ready(self) -> bool:
        """Whether every member is ready or has already succeeded."""
        return all(
            p is not None and (p.is_ready or p.phase == "Succeeded") for _, p in self.members
        )

    @cached_property
    def is_whole(self) -> bool:
        """Whether every member is on its node and goes on, and no other pod is left."""
        return not self.leftovers and all(
            p is not None and p.node and not p.is_leaving and not p.is_terminal
            for _, p in self.members
        )

    @property
    def plan_in_place(self) -> PlanFacts:
        """The plan with every bound member where it is, which only Score mode leaves open."""
        members = tuple(
            replace(m, node=pod.node) if pod is not None and pod.node else m
            for m, pod in self.members
        )
        return replace(self.plan, members=members)

    @cached_property
    def held_by_leftovers(self) -> tuple[PodFacts, ...]:
        """The leftovers that still hold a node."""
        return tuple(pod for pod in self.leftovers if pod.node and not pod.is_terminal)

    @cached_property
    def uids(self) -> frozenset[str]:
        """Of all pods seen here."""
        there = (pod for _, pod in self.members if pod is not None)
        return frozenset(pod.uid for pod in itertools.chain(there, self.leftovers))

    @cached_property
    def demand(self) -> dict[str, int]:
        """What the members that have not ended ask together, and leftovers until they have."""
        total: dict[str, int] = {}
        for task, count in Counter(
            member.task for member, pod in self.members if not _gave_its_room_back(member, pod)
        ).items():
            total = add(total, self.plan.requests.get(task, ()), count)
        for pod in self.held_by_leftovers:
            total = add(total, pod.request)
        return total

    @cached_property
    def places(self) -> dict[str, dict[str, int]]:
        """Task to node to how many members hold room there, bound or only planned."""
        found: dict[str, dict[str, int]] = {}
        for member, pod in self.members:
            if not _gave_its_room_back(member, pod):
                node = pod.node if pod is not None and pod.node else member.node
                nodes = found.setdefault(member.task, {})
                nodes[node] = nodes.get(node, 0) + 1
        return found

    @cached_property
    def anchor(self) -> str:
        """The node of replica 0 of the first task, where the others meet; empty for none."""
        first = (pod.node if pod is not None and pod.node else m.node for m, pod in self.members)
        return next(first, "")

    def usage(self) -> Iterable[tuple[str, Request]]:
        """(node, request) of every member that has room but no pod which counts there itself."""
        for member, pod in self.members:
            holds = pod is not None and pod.node and not pod.is_terminal
            if not holds and not _gave_its_room_back(member, pod):
                node = pod.node if pod is not None and pod.node else member.node
                yield node, self.plan.requests.get(member.task, ())


def _gave_its_room_back(member: Member, pod: PodFacts | None) -> bool:
    """A replica of a job keeps its room when it fails: its gang starts again, or ends, whole."""
    if pod is None or not pod.is_terminal:
        return False
    return pod.phase == "Succeeded" or bool(member.uid)


@dataclass(frozen=True, slots=True)
class Promise:
    """A plan that was decided and is being written: its gang counts as placed already.

    ``job_uid`` is empty for pods of other controllers, as in ``GroupFacts``.
    """

    queue: str
    job_uid: str
    plan: PlanFacts


def pod_name(job: str, task: str, index: int) -> str:
    """The name of a replica's pod; also its host name, so it stays the same over restarts."""
    return f"{job}-{task}-{index}"


def view_of(key: Key, job_uid: str, plan: PlanFacts, pods: Iterable[PodFacts]) -> GangView:
    """The view of the gang ``key``: a TrainingJob's, or with no ``job_uid`` that of others."""
    return of_job(key, job_uid, plan, pods) if job_uid else of_group(plan, pods)


def of_job(key: Key, job_uid: str, plan: PlanFacts, pods: Iterable[PodFacts]) -> GangView:
    """The view of a TrainingJob's gang."""
    own = {pod.key[1]: pod for pod in pods if job_uid in pod.owner_uids}
    members: list[tuple[Member, PodFacts | None]] = []
    for member in plan.members:
        name = pod_name(key[1], member.task, member.index)
        pod = own.get(name)
        if pod is not None and pod.labels.get(names.PLAN_LABEL) == plan.label:
            del own[name]
            members.append((member, pod))
        else:
            members.append((member, None))
    return GangView(plan, tuple(members), tuple(own.values()))


def of_group(plan: PlanFacts, pods: Iterable[PodFacts]) -> GangView:
    """The view of a PodGroup whose pods other controllers made.

    A member whose pod is gone is no member any more: its controller makes another, with another
    UID, which asks for a place of its own.
    """
    by_uid = {pod.uid: pod for pod in pods}
    return GangView(plan, tuple((m, by_uid[m.uid]) for m in plan.members if m.uid in by_uid), ())


def in_the_way(
    job: JobFacts, group: GroupFacts | None, labelled: Iterable[PodFacts]
) -> tuple[Reason, str] | None:
    """What must go before ``job`` can start: objects that hold the names it needs."""
    if group is not None and group.job_uid != job.uid:
        if group.job_uid:
            return Reason.STOPPING, "the PodGroup of an earlier job of this name is going away"
        return Reason.SPEC_INVALID, (
            f"a PodGroup {job.key[1]!r} exists that is not this job's; delete or rename one"
        )
    labelled = list(labelled)
    if not labelled:
        return None
    needed = {
        pod_name(job.key[1], task.name, index)
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
