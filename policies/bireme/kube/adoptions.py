"""Adoptions: a recreated PodGroup takes its running pods as members.

Anybody can set a label on their own pods. So only admitted pods are adopted: they have Bireme's
scheduler, are bound, and count in the queue that the PodGroup names.
"""

from collections.abc import Callable, Iterable

from bireme.kube import names
from bireme.kube.api.base import MAX_PLANNED_TASKS
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import GroupFacts, bare_task, tasks_of_pods
from bireme.kube.pods import PodFacts


def list_released_pods(queue: str | None, pods: Iterable[PodFacts]) -> list[PodFacts]:
    """Return the ``pods`` that were admitted to ``queue`` and have not ended.

    None means any queue.
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


def adoption_plan(
    group: GroupFacts,
    pods: Iterable[PodFacts],
    *,
    epoch: int,
    now: float,
    is_lent: Callable[[PodFacts], bool] = lambda _: False,
) -> PlanFacts | None:
    """Return a plan that gives ``group`` the places of ``pods``; ``now`` in POSIX seconds.

    It is as old as the first binding of its pods. None if no pod can be adopted, or if the pods are
    of more kinds than a plan can hold. ``is_lent`` tells whether the place of a pod is reserved for
    another gang: the plan then yields it.
    """
    if group.spec is None or group.fault is not None or group.plan is not None:
        return None
    adoptable = [pod for pod in list_released_pods(group.queue, pods) if pod.node]
    tasks = tasks_of_pods([(pod, bare_task(pod)) for pod in adoptable], {}, None)
    if not adoptable or len(tasks) > MAX_PLANNED_TASKS:
        return None
    nodes = {pod.uid: pod.node for pod in adoptable}
    # Recreating a group again and again must not renew its protection against preemption.
    since = min((pod.bound_since for pod in adoptable if pod.bound_since), default=now)
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
        is_opportunistic=any(map(is_lent, adoptable)),
    )
