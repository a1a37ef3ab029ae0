"""What helps, by reason: what time does by itself and what only a person can do."""

from collections.abc import Mapping
from typing import Final

from bireme.core.reasons import Reason

REMEDIES: Final[Mapping[Reason, str]] = {
    Reason.QUEUE_NOT_FOUND: "change spec.queue, or ask an administrator for the queue",
    Reason.QUEUE_CLOSED: "change spec.queue, or ask an administrator to open the queue",
    Reason.QUEUE_FORBIDDEN: "change spec.queue, or ask for the namespace to be selected",
    Reason.QUEUE_INVALID: "an administrator must mend the queue or one above it",
    Reason.PRIORITY_CLASS_NOT_FOUND: "change spec.priorityClassName, or ask for the class",
    Reason.SPEC_INVALID: "change the spec as the message says; waiting does not help",
    Reason.TEMPLATE_INVALID: "change the pod template as the message says; waiting does not help",
    Reason.NEVER_FITS: "ask for fewer or smaller replicas, or have larger nodes added; waiting"
    " does not help",
    Reason.WAITING_FOR_CAPACITY: "time, as others end. Sooner: a lower minReplicas, smaller"
    " replicas, a higher priority class, or more nodes",
    Reason.SCALING_UP: "time: nodes were asked for. If none come, see kubectl describe bnps",
    Reason.WAITING_BEHIND: "time: an earlier gang keeps places. spec.estimatedDuration lets this"
    " one go first where it ends soon enough to delay nobody",
    Reason.OVER_QUEUE_LIMIT: "time, as jobs of the queue end; or another queue, or a higher limit",
    Reason.WAITING_FOR_PREEMPTION: "nothing: gangs of lower priority are making room",
    Reason.WAITING_FOR_PODS: "its controller must create the missing pods, each with the label, the"
    " scheduler and the gate; or minMember is larger than what it creates",
    Reason.STOPPING: "nothing: pods of its last run are still ending",
    Reason.PODS_REFUSED: "the API server refuses its pods: see the message (quota, admission)",
    Reason.OPERATOR_FAILED: "time cannot be counted on: show an administrator the message and the"
    " operator's log; a change of what it names may help",
    Reason.SUSPENDED: "resume it: spec.runPolicy.suspend: false",
    Reason.PREEMPTED: "time, as others end; what has a higher priority class is stopped by fewer",
    Reason.GANG_NOT_BOUND_IN_TIME: "kubectl describe its pods: volumes, taints, ports; where all"
    " gangs say so, the second kube-scheduler is dead",
    Reason.NODE_LOST: "nothing: it goes elsewhere. See kubectl describe node",
    Reason.POD_LOST: "nothing: it starts again. The pod's events say who did it",
    Reason.TASKS_EDITED: "nothing: it starts again as edited",
    Reason.POD_FAILED: "the logs of the replica that the message names",
    Reason.BACKOFF_LIMIT_EXCEEDED: "mend what its logs show and create it anew, or allow more"
    " restarts by spec.runPolicy.backoffLimit",
    Reason.DEADLINE_EXCEEDED: "a longer spec.runPolicy.activeDeadlineSeconds, in a new job",
    Reason.LOAD_FAILED: "correct what the message names; it is tried again every 30 s",
    Reason.SUPERSEDED: "delete one of the two, or make one a Shadow",
    Reason.TOO_MANY_SHADOWS: "delete a shadow that has been seen enough",
    Reason.POLICY_OVERRULED: "the message has the last fault; a network that is late needs a"
    " smaller one, and an invalid answer another checkpoint",
    Reason.AT_MAX: "a higher spec.max, or time",
    Reason.ABOVE_MAX: "a higher spec.max, or fewer replicas in the target",
    Reason.TARGET_NOT_FOUND: "create the target, or correct spec.scaleTargetRef",
    Reason.TARGET_FORBIDDEN: "name the target in the chart's operator.scaleTargets",
    Reason.TARGET_SHARED: "delete one of the two",
    Reason.TARGET_UNAVAILABLE: "time; else whatever serves the target's kind",
    Reason.REPLICAS_OWNED_BY_ANOTHER: "have the other leave the field out, as the message shows",
    Reason.TOO_LITTLE_HISTORY: "time: models take 14 days",
    Reason.HISTORY_HAS_GAPS: "time: models take 14 days without a gap",
    Reason.HISTORY_UNAVAILABLE: "correct spec.history.prometheus, or open the way to it"
    " (networkPolicies.egress)",
    Reason.FORECAST_STALE: "the jobs of the forecast CronJob, and their logs",
    Reason.FORECAST_FAILED: "correct what the message names",
}
"""For every reason with which something is to be done, or only time helps."""


def remedy(reason: str) -> str:
    """What helps; empty where there is nothing to say."""
    return next((said for known, said in REMEDIES.items() if known == reason), "")
