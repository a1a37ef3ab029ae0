"""Statuses of PodGroups: of one that is admitted, runs, makes progress or waits."""

from typing import Any

from bireme.core.decision import Admit, Hold
from bireme.core.reasons import Reason
from bireme.core.resources import Amounts
from bireme.kube import plans, quantities, resuming, waits
from bireme.kube.allocations import GangView
from bireme.kube.conditions import cleaned, with_condition
from bireme.kube.plans import PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts
from bireme_operator.group_failures import has_started

# Status fields that a gang has until it runs or ends.
_OF_FAILURES = ("startFailures", "observedGeneration", "retryTime")
_PREEMPTIONS = ("preemptions", "yields")
_OF_WAIT = (
    *("waitSeconds", "queuedTime", "parkedTime", "request"),
    *("uncountedSeconds", "uncountedTime"),
)


def preemption_counts(group: GroupFacts) -> dict[str, Any]:
    """Return the preemption counters that the gang's status keeps."""
    return {name: group.status[name] for name in _PREEMPTIONS if name in group.status}


def failure_fields(group: GroupFacts) -> dict[str, Any]:
    """Return the status fields that a gang keeps over its retries after failed starts."""
    if not group.start_failures:
        return {}
    fields = ("startFailures", "observedGeneration", "waitSeconds")
    return {name: group.status[name] for name in fields if name in group.status}


def wait_fields(group: GroupFacts) -> dict[str, Any]:
    """Return the status fields of the wait, which go on if the same pods wait again."""
    fields: tuple[str, ...] = ("request", "uncountedSeconds")
    if "queuedTime" in group.status:
        fields = (*fields, "waitSeconds", "queuedTime")
    return {name: group.status[name] for name in fields if name in group.status}


def admission_status(
    group: GroupFacts, admit: Admit, plan: PlanFacts, now: float
) -> dict[str, Any]:
    """Return a PodGroup's status at the time of its plan."""
    message = cleaned(admit.message)
    new_status: dict[str, Any] = {
        **failure_fields(group),
        **preemption_counts(group),
        **wait_fields(group),
        "phase": "Inqueue",
        "reason": Reason.ADMITTED.value,
        "queue": plan.queue,
        "message": message,
        "conditions": group.status.get("conditions") or [],
        "plan": plans.to_manifest(plan),
        **resuming.status_fields(admit.gang),
    }
    if group.plan is None:
        new_status["waitSeconds"] = int(admit.gang.wait_seconds(now))
        if {"queuedTime", "parkedTime"} & group.status.keys():  # the wait is younger than the pods
            new_status["queuedTime"] = quantities.format_timestamp(now)
    elif "waitSeconds" in group.status:
        new_status["waitSeconds"] = group.status["waitSeconds"]
    with_condition(new_status, "Admitted", True, Reason.ADMITTED, message, now)
    return new_status


def progress_status(
    group: GroupFacts, view: GangView, now: float, *, joins: bool = False
) -> dict[str, Any]:
    """Return a planned PodGroup's status; ``joins`` is true if more pods wait to join."""
    alive: list[PodFacts] = [p for _, p in view.members if p is not None and not p.is_terminal]
    new_status = dict(group.status)
    if not alive:
        for stale in ("plan", "queuePosition", *_OF_FAILURES, *_OF_WAIT):
            new_status.pop(stale, None)
        failure = _failure(view)
        reason = Reason.POD_FAILED if failure else Reason.SUCCEEDED
        new_status |= {"phase": "Completed", "reason": reason.value}
        new_status["message"] = cleaned(f"all members have ended{failure}")
        set_not_running(new_status, now)
        return new_status
    needed = group.spec.min_member if group.spec is not None else 1
    started = _count_started(view)
    is_reported = new_status.get("phase") == "Running" and (
        joins or new_status.get("reason") == Reason.GANG_RUNNING.value
    )
    if not is_reported and started >= min(needed, len(view.members)):
        for field_name in ("queuePosition", *_OF_FAILURES, *_OF_WAIT):
            new_status.pop(field_name, None)
        set_running(new_status, view, now)
    return new_status


def set_running(new_status: dict[str, Any], view: GangView, now: float) -> None:
    """Set the phase and the condition Running in a status, in place."""
    message = running_message(view)
    new_status |= {"phase": "Running", "reason": Reason.GANG_RUNNING.value, "message": message}
    with_condition(new_status, "Running", True, Reason.GANG_RUNNING, message, now)


def running_message(view: GangView) -> str:
    """Return a message with the numbers of started and failed members, and the first failure."""
    return cleaned(f"{_count_started(view)} members have started{_failure(view)}")


def _count_started(view: GangView) -> int:
    return sum(pod is not None and has_started(pod) for _, pod in view.members)


def _failure(view: GangView) -> str:
    """Return the number of failed members and the first failure, as the end of a message."""
    failed = [pod for _, pod in view.members if pod is not None and pod.phase == "Failed"]
    if not failed:
        return ""
    first = failed[0]
    return f"; {len(failed)} of {len(view.members)} failed, pod {first.key[1]}: {first.ending}"


def set_not_running(new_status: dict[str, Any], now: float) -> None:
    """Set the condition Running to False, if there is one."""
    if any(condition["type"] == "Running" for condition in new_status.get("conditions") or ()):
        with_condition(
            new_status, "Running", False, new_status["reason"], new_status["message"], now
        )


def waiting_status(
    group: GroupFacts, hold: Hold, now: float, total_request: Amounts
) -> dict[str, Any]:
    """Return the status of a PodGroup that waits, or whose newest pods wait to join it.

    ``total_request`` is the sum of the requests of all waiting pods.
    """
    new_status = {k: v for k, v in group.status.items() if k != "queuePosition"}
    new_status["reason"] = hold.reason.value
    new_status["queue"] = hold.gang.queue
    new_status |= resuming.status_fields(hold.gang)
    if not group.start_failures:  # no start failed with the present spec
        for field_name in _OF_FAILURES:
            new_status.pop(field_name, None)
    elif "retryTime" in new_status and not group.is_pausing(now):
        # The wait begins at the retry time. The clock of its writer may have been ahead.
        new_status["retryTime"] = quantities.format_timestamp(min(now, group.retry_time))
    if "queuedTime" not in new_status and not group.start_failures:
        new_status.pop("waitSeconds", None)
    is_anew = waits.is_raised(group.status, total_request)
    is_anew = is_anew or waits.is_other(group.status, hold.gang.queue)
    seconds, request = hold.gang.wait_seconds(now), waits.request_manifest(total_request)
    waits.record(
        new_status,
        seconds,
        now,
        request,
        is_anew=is_anew,
        is_parked=hold.is_parked,
        is_counted=hold.counts_as_wait,
    )
    if hold.position is not None:
        new_status["queuePosition"] = hold.position
    if group.plan is not None:
        new_status["message"] = cleaned(
            f"{hold.gang.replicas} more pods wait to join: {hold.message}"
        )
        return new_status
    new_status["phase"] = "Interrupted" if new_status.get("phase") == "Interrupted" else "Pending"
    message = new_status["message"] = cleaned(hold.message)
    with_condition(new_status, "Admitted", False, hold.reason, message, now)
    return new_status
