"""The one vocabulary of *why*, used alike in conditions, events, metrics and reports.

Reasons are API: people alert on them. Three kinds are kept apart because they ask for different
people: a configuration fault needs its author, waiting needs patience or more machines, and
progress needs nobody.
"""

from enum import StrEnum


class Reason(StrEnum):
    """Why a gang is where it is, or what became of a policy or a node pool."""

    # Configuration faults: waiting longer does not help.
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_CLOSED = "QueueClosed"
    QUEUE_FORBIDDEN = "QueueForbidden"
    QUEUE_INVALID = "QueueInvalid"
    PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"
    SPEC_INVALID = "SpecInvalid"
    TEMPLATE_INVALID = "TemplateInvalid"
    NEVER_FITS = "NeverFits"

    # Waiting: time or capacity helps.
    WAITING_FOR_CAPACITY = "WaitingForCapacity"
    WAITING_BEHIND = "WaitingBehind"
    OVER_QUEUE_LIMIT = "OverQueueLimit"
    WAITING_FOR_PREEMPTION = "WaitingForPreemption"
    SCALING_UP = "ScalingUp"
    WAITING_FOR_PODS = "WaitingForPods"
    STOPPING = "Stopping"
    PODS_REFUSED = "PodsRefused"

    # Progress.
    ADMITTED = "Admitted"
    PREEMPTED = "Preempted"
    GROWN = "Grown"
    SHRUNK = "Shrunk"
    GANG_BOUND = "GangBound"
    GANG_RUNNING = "GangRunning"
    GANG_NOT_BOUND_IN_TIME = "GangNotBoundInTime"
    NODE_LOST = "NodeLost"
    POD_LOST = "PodLost"
    POD_FAILED = "PodFailed"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"

    # Policies, not gangs: whether a SchedulingPolicy decides, and how well.
    POLICY_LOADED = "PolicyLoaded"
    LOAD_FAILED = "LoadFailed"
    SUPERSEDED = "Superseded"
    TOO_MANY_SHADOWS = "TooManyShadows"
    POLICY_OVERRULED = "PolicyOverruled"
    ANSWERS_VALID = "AnswersValid"

    # Node pools: what becomes of the floor of a NodePoolScaler.
    FORECAST_ONLY = "ForecastOnly"
    AT_FLOOR = "AtFloor"
    RAISED = "Raised"
    LOWERED = "Lowered"
    AT_MAX = "AtMax"
    ABOVE_MAX = "AboveMax"
    TARGET_NOT_FOUND = "TargetNotFound"
    TARGET_FORBIDDEN = "TargetForbidden"
    TARGET_SHARED = "TargetShared"
    TARGET_UNAVAILABLE = "TargetUnavailable"
    REPLICAS_OWNED_BY_ANOTHER = "ReplicasOwnedByAnother"

    # And what its forecast is.
    FORECAST_MADE = "Forecast"
    SEASONAL_NAIVE_USED = "SeasonalNaiveUsed"
    TOO_LITTLE_HISTORY = "TooLittleHistory"
    HISTORY_HAS_GAPS = "HistoryHasGaps"
    HISTORY_UNAVAILABLE = "HistoryUnavailable"
    FORECAST_STALE = "Stale"
    FORECAST_FAILED = "Failed"

    @property
    def is_configuration_fault(self) -> bool:
        """True when only a change of the object (or of its queue or class) can help."""
        return self in _CONFIGURATION_FAULTS


_CONFIGURATION_FAULTS = frozenset(
    {
        Reason.QUEUE_NOT_FOUND,
        Reason.QUEUE_CLOSED,
        Reason.QUEUE_FORBIDDEN,
        Reason.QUEUE_INVALID,
        Reason.PRIORITY_CLASS_NOT_FOUND,
        Reason.SPEC_INVALID,
        Reason.TEMPLATE_INVALID,
        Reason.NEVER_FITS,
    }
)
