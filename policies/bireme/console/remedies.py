"""What helps a gang that waits, by the reason it waits for.

Configuration faults name their remedy in the operator's own message; waiting needs somebody who
knows what time does by itself and what only a person can do.
"""

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
    Reason.SUSPENDED: "resume it: spec.runPolicy.suspend: false",
}
"""For every reason a gang without places can have."""


def remedy(reason: str) -> str:
    """What helps; empty where there is nothing to say."""
    return next((said for known, said in REMEDIES.items() if known == reason), "")
