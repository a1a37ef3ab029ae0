"""Gangs in every state of their life, for tests of what happens next."""

from collections.abc import Callable, Mapping
from typing import Any

from bireme.core.reasons import Reason
from bireme.kube import quantities
from bireme.kube.allocations import GangView
from bireme.kube.plans import PlanFacts
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator.lifecycle import transition
from bireme_operator.reconcile_context import ReconcileContext
from testbed.objects.facts import CREATED, a_job, a_plan, a_pod, a_view, running
from testbed.scenario.manifests import task

Pods = Callable[[JobFacts, PlanFacts], list[PodFacts]]
WORKERS = (task("worker", 2),)
TRAINING = (task("ps", 1), task("worker", 2))


def situation(
    after: float = 1.0,
    lost: str | None = None,
    unusable: str | None = None,
    taken: str | None = None,
    emptying: str | None = None,
    serves_others: bool = False,
) -> ReconcileContext:
    """``after`` seconds after the plan, with one node lost, unusable, full or being left.

    ``serves_others`` tells whether kube-scheduler does.
    """
    return ReconcileContext(
        now=CREATED + after,
        bind_timeout_seconds=60.0,
        start_timeout_seconds=lambda _: 900.0,
        lost_node=lambda node: "it is lost" if node == lost else "",
        unusable_node=lambda node, _: "it is cordoned" if node == unusable else "",
        taken_node=lambda node: "it is full" if node == taken else "",
        is_emptying=lambda node: node == emptying,
        label_drift=lambda *_: {},
        serves_others=lambda *_: serves_others,
        seconds_since=lambda _, since: CREATED + after - since,
    )


def gang(
    phase: str = "Running",
    *,
    tasks: tuple[dict[str, Any], ...] = WORKERS,
    pods: Pods | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> tuple[JobFacts, GangView]:
    """A job in ``phase`` whose replicas alternate between n0 and n1."""
    job = a_job(*tasks, status={"phase": phase, **(status or {})}, **spec)
    plan = a_plan(job, ("n0", "n1"))
    return job, a_view(job, plan, (pods or running)(job, plan))


def failed(index: int = 0, also_leaving: bool = False, **status: Any) -> Pods:
    """All replicas run but one worker, which has failed."""

    def pods(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
        made = running(job, plan)
        at = next(i for i, m in enumerate(plan.members) if (m.task, m.index) == ("worker", index))
        ended = {"name": "train", "state": {"terminated": {"exitCode": 3, "message": "no disk"}}}
        leaving = (
            {"deletionTimestamp": quantities.format_timestamp(CREATED)} if also_leaving else {}
        )
        pod_status = {"containerStatuses": [ended], **status}
        made[at] = a_pod(job, plan, plan.members[at], "Failed", status=pod_status, **leaving)
        return made

    return pods


def without(index: int) -> Pods:
    return lambda job, plan: [p for i, p in enumerate(running(job, plan)) if i != index]


def none(*_: object) -> list[PodFacts]:
    return []


def unbound(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
    return [a_pod(job, plan, member, "Pending", node="") for member in plan.members]


def ended(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
    return running(job, plan, worker_0="Succeeded", worker_1="Succeeded")


def moved(
    job: JobFacts, view: GangView | None, at: ReconcileContext | None = None
) -> tuple[str, Reason] | None:
    move = transition(job, view, at or situation())
    return None if move is None else (move.phase, move.reason)
