"""The ``status`` of a TrainingJob: pure functions from facts to its fields.

Users ask ``kubectl get`` and ``describe`` first why a job is pending, so the status has one
dominant reason, in plain words with numbers. :func:`urgency` returns how soon a difference must be
written: events at once, counts every second, other numbers when there is time.
"""

import math
from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np
import structlog

from bireme.core import messages
from bireme.core.accelerators import DEFAULT, Accelerators
from bireme.core.decision import Admit, Hold
from bireme.core.eta import StartRange
from bireme.core.nodes import NodeTable
from bireme.core.placement import smallest_domain
from bireme.core.policy import Ranked, ScoreFactor
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import plans, quantities, resuming, waits
from bireme.kube.allocations import GangView
from bireme.kube.conditions import cleaned, with_condition
from bireme.kube.plans import PlanFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator.lifecycle import (
    ACTIVE,
    MAX_REFUSING_NODES,
    Transition,
    retry_time,
    running_message,
    starting_message,
)

_log = structlog.get_logger(__name__)
Status = dict[str, Any]
_REASONS = frozenset(reason.value for reason in Reason)
# An estimate stays as written if it moves by no more than these seconds, by this share of the
# remaining time, or by this share of its width.
_STEADY_SECONDS = 30.0
_STEADY_SHARE = 0.05
_STEADY_WIDTH = 0.2


class Urgency(IntEnum):
    """Urgency of writing a difference between two statuses."""

    NONE = 0
    NUMBERS = 1
    """Position, message or priority: write when there is time."""
    COUNTS = 2
    """Numbers of bound, ready and finished replicas: write within about a second."""
    EVENT = 3
    """A change of phase, reason or the like: write at once."""


_EVENT_FIELDS = ("phase", "reason", "attempt", "observedGeneration", "queue")
_COUNT_FIELDS = ("tasks", "ready", "placement", "plan")
# Reasons whose message has no numbers: a changed message means an event.
TELLING = (Reason.CLAIM_NOT_READY.value,)


def urgency(current: Mapping[str, Any], new: Mapping[str, Any]) -> Urgency:
    """Return how urgent it is to write ``new`` over ``current``."""
    if any(current.get(name) != new.get(name) for name in _EVENT_FIELDS):
        return Urgency.EVENT
    if any(current.get(name) != new.get(name) for name in _COUNT_FIELDS):
        return Urgency.COUNTS
    if new.get("reason") in TELLING and current.get("message") != new.get("message"):
        return Urgency.COUNTS
    return Urgency.NUMBERS if current != new else Urgency.NONE


def _holds(status: Status, kind: str) -> bool:
    conditions = status.get("conditions") or ()
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


def waiting_status(
    job: JobFacts,
    hold: Hold,
    now: float,
    start: StartRange | None = None,
    accelerators: Accelerators = DEFAULT,
) -> Status:
    """Return the status of a waiting job, with its reason and place in the queue.

    ``start`` is its estimated start, if there is one; ``accelerators`` define which resources are
    GPUs.
    """
    status = _base(job)
    _end_pause(status, job, now)
    phase = "Restarting" if job.phase == "Restarting" else "Pending"
    _set_phase(status, phase, hold.reason, hold.message)
    status.setdefault("queuedTime", quantities.format_timestamp(job.queue_time))
    status.pop("estimatedSeconds", None)
    if (
        status.pop("admittedTime", None) is not None
    ):  # admission undone: waitSeconds has the wait so far
        status["queuedTime"] = quantities.format_timestamp(now)
    _record_wait(status, job, now, is_parked=hold.is_parked, is_counted=hold.counts_as_wait)
    status["queue"] = hold.gang.queue
    status["gpus"] = accelerators.units(hold.gang.demand)
    status["ready"] = f"0/{hold.gang.replicas}"
    status["tasks"] = _task_counts(job, None)
    status |= resuming.status_fields(hold.gang)
    previous = status.get("estimatedStart")
    for stale in ("queuePosition", "priority", "placement", "estimatedStart"):
        status.pop(stale, None)
    if start is not None:
        estimate = start_estimate(start)
        status["estimatedStart"] = previous if _is_close(previous, estimate, now) else estimate
    if hold.position is not None:
        status["queuePosition"] = hold.position
    if hold.ranked is not None:
        status["priority"] = priority(hold.ranked)
    with_condition(status, "Admitted", False, hold.reason, status["message"], now)
    return status


def _record_wait(
    status: Status, job: JobFacts, now: float, *, is_parked: bool, is_counted: bool = True
) -> None:
    wait = job.wait
    waits.record(
        status,
        wait.seconds(now),
        now,
        job.request_manifest,
        is_anew=wait.is_anew,
        is_parked=is_parked,
        is_counted=is_counted,
        key=job.wait_key,
    )


def _end_pause(status: Status, job: JobFacts, now: float) -> None:
    """Let the job queue from the end of its pause, once that is over."""
    if status.get("retryTime") is None or job.is_pausing(now):
        return
    del status["retryTime"]
    status["queuedTime"] = quantities.format_timestamp(min(now, job.retry_time))


def start_estimate(start: StartRange) -> Status:
    """Return the estimated start of a gang in the form of its status."""
    estimate: Status = {"earliest": quantities.format_timestamp(start.earliest)}
    if start.latest is not None:
        estimate["latest"] = quantities.format_timestamp(start.latest)
    if start.coverage is not None:
        estimate["coveragePercent"] = round(100 * start.coverage)
    return estimate


def _is_close(old: Mapping[str, Any] | None, new: Mapping[str, Any], now: float) -> bool:
    """Return whether two estimates differ too little for a write."""
    if old is None or old.keys() != new.keys():
        return False
    ends = [
        tuple(map(quantities.parse_timestamp, (old[name], new[name])))
        for name in ("earliest", "latest")
        if name in new
    ]
    moves = [(was, to) for was, to in ends if was is not None and to is not None]
    if len(moves) < len(ends):
        return False
    width = moves[-1][1] - moves[0][1]
    return all(
        abs(was - to) <= max(_STEADY_SECONDS, _STEADY_SHARE * (to - now), _STEADY_WIDTH * width)
        for was, to in moves
    )


def admission_status(
    job: JobFacts, plan: PlanFacts, admit: Admit, snapshot: ClusterSnapshot
) -> Status:
    """Return the status of a job that has its places by ``plan`` and no pods yet.

    ``snapshot`` is that of the decision.
    """
    view = GangView(plan, tuple((member, None) for member in plan.members), ())
    status, since = with_counts(_base(job), job, view), plan.planned
    _end_pause(status, job, since)
    for stale in ("queuePosition", "estimatedStart"):
        status.pop(stale, None)
    progress = starting_message(view) + messages.scheduler_note(admit.gang)
    _set_phase(status, "Starting", Reason.ADMITTED, progress)
    status["queue"] = plan.queue
    status["priority"] = priority(admit.ranked)
    status["gpus"] = snapshot.nodes.accelerators.units(plan.demand)
    status |= resuming.status_fields(admit.gang)
    status["admittedTime"] = quantities.format_timestamp(since)
    status["estimatedSeconds"] = job.owner_estimate_seconds or 0.0
    status.setdefault("queuedTime", quantities.format_timestamp(job.queue_time))
    _record_wait(status, job, since, is_parked=False)
    status["waitSeconds"] = int(job.wait.seconds(since))
    status["attempt"] = job.attempt
    status["plan"] = plans.to_manifest(plan)
    status["placement"] = _placement(view, snapshot.nodes)
    message = str(status["placement"]["summary"])
    if admit.passed is not None:
        passed_gangs = messages.ahead_of(admit.passed, admit.gang, admit.is_opportunistic)
        message += f"; {passed_gangs}"
    message += messages.runtime_cap_note(admit.gang, snapshot)
    with_condition(status, "Admitted", True, Reason.ADMITTED, cleaned(message), since)
    return status


def without_plan(job: JobFacts) -> Status:
    """Return the status of a job that has given its places back."""
    status = {name: value for name, value in job.status.items() if name != "plan"}
    if job.phase in ACTIVE:  # its admission is undone, so it waits again
        status["phase"] = "Restarting" if job.attempt else "Pending"
    return status


def _placement(view: GangView, nodes: NodeTable) -> dict[str, Any]:
    """Return the gang's placement, as far as it is planned or bound."""
    per_node: dict[str, int] = {}
    for node in view.nodes:
        per_node[node] = per_node.get(node, 0) + 1
    rows = np.array([nodes.row[name] for name in per_node if name in nodes.row], dtype=np.int64)
    level, domain = smallest_domain(nodes, rows) if len(rows) else ("", "")
    level = level.rsplit("/", 1)[-1]
    parts = [f"{count} on {name}" for name, count in sorted(per_node.items())]
    more = f" and {len(parts) - 4} more nodes" if len(parts) > 4 else ""
    domain_text = f"{level} {domain}".strip()
    return {
        "level": level,
        "domain": domain,
        "nodes": len(per_node),
        "summary": cleaned(f"{', '.join(parts[:4])}{more} ({domain_text})"),
    }


def with_counts(status: Status, job: JobFacts, view: GangView) -> Status:
    """Return ``status`` with the counts of ``view``, and a message with the same numbers.

    It also updates the plan's record of succeeded replicas.
    """
    tasks = _task_counts(job, view)
    ready = sum(task["ready"] + task["succeeded"] for task in tasks)
    counts: Status = {"tasks": tasks, "ready": f"{ready}/{len(view.members)}"}
    if status.get("reason") == Reason.ADMITTED and status.get("phase") == "Starting":
        remark = str(status.get("message") or "").partition(messages.LEFT_TO_SCHEDULER)
        counts["message"] = cleaned(starting_message(view) + "".join(remark[1:]))
    elif status.get("reason") == Reason.GANG_RUNNING and status.get("phase") == "Running":
        counts["message"] = cleaned(running_message(view))
    if "plan" in status and view.ended != view.plan.ended:
        counts["plan"] = {**status["plan"], "endedReplicas": plans.manifest_of_ends(view.ended)}
    return {**status, **counts}


def with_size(status: Status, view: GangView, nodes: NodeTable) -> Status:
    """Return ``status`` with the present size of an elastic gang."""
    return {
        **status,
        "placement": _placement(view, nodes),
        "gpus": nodes.accelerators.units(view.plan.demand),
    }


def with_placement(status: Status, view: GangView, nodes: NodeTable) -> Status:
    """Return ``status`` with the placement of a gang whose nodes kube-scheduler chooses."""
    return {**status, "placement": _placement(view, nodes)}


def after_transition(status: Status, job: JobFacts, move: Transition, now: float) -> Status:
    """Return ``status`` after a change of phase."""
    status = dict(status)
    _set_phase(status, move.phase, move.reason, move.message)
    status["observedGeneration"] = job.generation
    stamp = quantities.format_timestamp(now)
    if move.starts_again:
        status["attempt"] = job.attempt + 1
        status["restarts"] = int(status.get("restarts") or 0) + move.restarts
        status["interruptions"] = int(status.get("interruptions") or 0) + move.interruptions
        status["preemptions"] = int(status.get("preemptions") or 0) + move.preemptions
        if move.yields:
            status["yields"] = int(status.get("yields") or 0) + move.yields
    _count_failures(status, job, move, now)
    for field in ("parkedTime", "uncountedTime"):
        status.pop(field, None)
    if move.starts_again or move.phase == "Pending":
        status["queuedTime"] = stamp
    if move.starts_again or move.phase in ("Pending", "Suspended"):
        began = quantities.parse_timestamp(status.get("admittedTime"))
        if began is not None:
            status["runSeconds"] = int(job.earlier_run_seconds + max(0.0, now - began))
        for stale in (
            "placement",
            "admittedTime",
            "estimatedSeconds",
            "queuePosition",
            "estimatedStart",
        ):
            status.pop(stale, None)
        # The gang is stopping; its remaining pods do not count as a gang.
        status["tasks"] = _task_counts(job, None)
        status["ready"] = f"0/{sum(task.replicas for task in job.tasks)}"
        with_condition(status, "Admitted", False, move.reason, status["message"], now)
    if move.phase == "Running":
        status.setdefault("startTime", stamp)
        if not _holds(status, "Admitted"):
            with_condition(
                status, "Admitted", True, Reason.ADMITTED, "the gang has its places", now
            )
    # An overridden budget does not change the cause of the stop.
    is_same_stop = move.reason is Reason.BUDGET_OVERRIDDEN and not move.starts_again
    cause = Reason(job.last_stop) if is_same_stop and job.last_stop in _REASONS else move.reason
    with_condition(status, "Running", move.phase == "Running", cause, status["message"], now)
    if move.phase in ("Succeeded", "Failed"):
        status["completionTime"] = stamp
        with_condition(status, "Finished", True, move.reason, status["message"], now)
        with_condition(status, "Succeeded", move.phase == "Succeeded", move.reason, "", now)
    return status


def _count_failures(status: Status, job: JobFacts, move: Transition, now: float) -> None:
    """Count a failed start, or drop earlier failures if the gang runs or was edited."""
    if move.start_failures:
        failures = status["startFailures"] = job.start_failures + move.start_failures
        status["retryTime"] = quantities.format_timestamp(retry_time(failures, now))
    elif move.phase != "Failed":
        status.pop("retryTime", None)
    if not (job.start_failures or move.start_failures):  # none with the present spec
        status.pop("startFailures", None)
    if move.rejections and move.node not in job.rejecting_nodes:
        status["rejectedBy"] = [*job.rejecting_nodes, move.node][-MAX_REFUSING_NODES:]
    if move.phase == "Running":
        for field in ("startFailures", "rejectedBy"):
            status.pop(field, None)


def priority(ranked: Ranked) -> dict[str, Any]:
    """Return the score, with its factors if the policy can explain it."""
    try:
        factors = list(map(_factor, ranked.factors))
    except Exception as error:  # noqa: BLE001  # a bug of the policy: keep its order without an explanation
        _warn_of(type(error).__name__)
        factors = []
    return {"score": round(ranked.score, 4), "factors": factors}


def _factor(factor: ScoreFactor) -> dict[str, Any]:
    numbers = {
        "value": round(factor.value, 4),
        "weight": round(factor.weight, 4),
        "contribution": round(factor.contribution, 4),
    }
    if not all(map(math.isfinite, numbers.values())):
        raise ValueError(f"factor {factor.name} has the numbers {numbers}; they must be finite")
    return {"name": factor.name, **numbers}


@cache
def _warn_of(kind: str) -> None:
    """Log every kind of error once, since it recurs with every gang in every cycle."""
    _log.warning("policy cannot explain its scores", kind=kind, exc_info=True)


def _base(job: JobFacts) -> Status:
    status = {**job.status, "observedGeneration": job.generation}
    if not job.start_failures:  # none with the present spec
        status.pop("startFailures", None)
    return status


def _set_phase(status: Status, phase: str, reason: Reason, message: str) -> None:
    status["phase"] = phase
    status["reason"] = reason.value
    status["message"] = cleaned(message)


def _task_counts(job: JobFacts, view: GangView | None) -> list[dict[str, Any]]:
    zeros = dict.fromkeys(("planned", "bound", "ready", "succeeded", "failed"), 0)
    return [
        {"name": task.name, "replicas": task.replicas, **(view.count(task.name) if view else zeros)}
        for task in job.tasks
    ]
