"""Adoptions: a PodGroup that was created again takes the pods that run already as its members.

Anybody can write a label into a pod of their own. Only a pod that the operator let in is adopted:
one of Bireme's scheduler, on a node, that counts in the very queue which the PodGroup names.
"""

from collections.abc import Callable, Iterable

from bireme.kube import names
from bireme.kube.api.base import MAX_PLANNED_TASKS
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import GroupFacts, bare_task, tasks_of_pods
from bireme.kube.pods import PodFacts


def released_pods(queue: str | None, pods: Iterable[PodFacts]) -> list[PodFacts]:
    """Return those of ``pods`` that the operator let into ``queue`` and that are not over.

    None stands for any queue.
    """
    return sorted(
        (
            pod
            for pod in pods
            if pod.scheduler == names.SCHEDULER_NAME
            and not (pod.is_gated or pod.is_leaving or pod.is_terminal)
            and not (pod.job_uid or names.PLAN_LABEL in pod.labels)
            and (counts := pod.labels.get(names.QUEUE_LABEL))
            and queue in (None, counts)
        ),
        key=lambda pod: pod.key,
    )


def adopted_plan(
    group: GroupFacts,
    pods: Iterable[PodFacts],
    *,
    epoch: int,
    now: float,
    is_lent: Callable[[PodFacts], bool] = lambda _: False,
) -> PlanFacts | None:
    """Return the plan by which ``group`` holds the places of ``pods``, in POSIX seconds.

    It is as old as the first of them on its node. None where no pod has a place that it may adopt,
    or they are of more kinds than a plan holds. ``is_lent`` tells of a pod whether its place is
    reserved for another gang, which then may have it back.
    """
    if group.spec is None or group.fault is not None or group.plan is not None:
        return None
    there = [pod for pod in released_pods(group.queue, pods) if pod.node]
    tasks = tasks_of_pods([(pod, bare_task(pod)) for pod in there], {}, None)
    if not there or len(tasks) > MAX_PLANNED_TASKS:
        return None
    nodes = {pod.uid: pod.node for pod in there}
    # To apply a group again and again must not renew the time for which nobody may stop it.
    since = min((pod.bound_since for pod in there if pod.bound_since), default=now)
    return PlanFacts(
        epoch=epoch,
        attempt=0,
        spec_hash="",
        mode="Pinned",
        planned=float(int(min(since, now))),
        requests={task.name: task.request for task in tasks},
        roles={task.name: task.role.value for task in tasks},
        members=tuple(
            Member(task.name, nodes[uid], uid=uid) for task in tasks for uid in task.members
        ),
        queue=group.queue,
        is_opportunistic=any(map(is_lent, there)),
    )
