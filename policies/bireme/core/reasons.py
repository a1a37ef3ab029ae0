"""Reasons: one vocabulary for conditions, events, metrics and reports.

Reasons are API: people alert on them. Three kinds are kept apart because they ask for different
people: a configuration fault needs its author, waiting needs patience or more machines, and
progress needs no one.
"""

from enum import StrEnum


class Reason(StrEnum):
    """Reason of a decision or a state, of gangs, policies and node pools."""

    # Configuration faults: waiting longer does not help.
    QUEUE_NOT_FOUND = "QueueNotFound"
    """There is no Queue of the name in spec.queue, or in the namespace's label for gangs that name
    none."""
    QUEUE_CLOSED = "QueueClosed"
    """The queue's spec.state is Closed, or its spec cannot be read: it admits nothing new, and what
    runs goes on."""
    QUEUE_FORBIDDEN = "QueueForbidden"
    """The queue's namespaceSelector does not select the gang's namespace."""
    QUEUE_INVALID = "QueueInvalid"
    """The queue's parents lead to a missing queue, in a circle, or through too many levels."""
    PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"
    """There is no PriorityClass of the name in spec.priorityClassName."""
    SPEC_INVALID = "SpecInvalid"
    """The spec cannot be carried out; the message names the field. Of gangs and of
    NodePoolScalers."""
    TEMPLATE_INVALID = "TemplateInvalid"
    """A pod template cannot be read, or the API server finds pods made from it invalid. It asks
    again after 10 minutes, then ever later, as an admission policy may have been corrected."""
    TOO_LARGE = "TooLarge"
    """A TrainingJob whose spec, TF_CONFIG or pods have more bytes than one job may; the message has
    the numbers."""
    NEVER_FITS = "NeverFits"
    """Not even on empty nodes is there room for the gang."""

    # Waiting: time or capacity helps.
    WAITING_FOR_CAPACITY = "WaitingForCapacity"
    """Too little of what it asks for is free on nodes that it may use."""
    WAITING_BEHIND = "WaitingBehind"
    """It would delay a gang before it, for which places are kept or which is past its wait
    bound."""
    OVER_QUEUE_LIMIT = "OverQueueLimit"
    """With it the queue, or one above it, would hold more than its limit."""
    OVER_QUOTA = "OverQuota"
    """With it the pods of its namespace would ask more than a ResourceQuota allows."""
    OVER_NAMESPACE_LIMIT = "OverNamespaceLimit"
    """So many gangs of its namespace wait, or of so many shapes, that a cycle does not look at all
    of them. It follows, in its order, once those before it have started or are gone."""
    MAINTENANCE_AHEAD = "MaintenanceAhead"
    """It fits only on nodes that are under maintenance, or will be before it should have ended."""
    WAITING_FOR_PREEMPTION = "WaitingForPreemption"
    """Gangs are being stopped or shrunk for it, and the places are kept."""
    SCALING_UP = "ScalingUp"
    """Its node pool was asked for the nodes that it lacks."""
    CLAIM_NOT_READY = "ClaimNotReady"
    """A claim that its pods name does not exist, has no volume yet, is about to go, or is another
    pod's alone. It is planned as soon as the claim can be used."""
    WAITING_FOR_PODS = "WaitingForPods"
    """Of a PodGroup: fewer of its pods exist than spec.minMember."""
    STOPPING = "Stopping"
    """Something of its last run, or of an earlier job of its name, is still ending. Of a PodGroup
    also: its pods are to be stopped, and a PodDisruptionBudget keeps them."""
    PODS_REFUSED = "PodsRefused"
    """The API server refuses its pods, their Service or its PodGroup as things stand, or admission
    makes other pods of them than were sent, or something of a stranger has one of their names. The
    message has its words, or the field before and after. It is tried again within a minute, and
    holds no places meanwhile; for an hour nobody is stopped for it."""
    OPERATOR_FAILED = "OperatorFailed"
    """The operator's own code failed on this object; its log has the error. It is tried again,
    ever later, and nothing else stops. Of what holds places, an event alone."""

    # Progress.
    ADMITTED = "Admitted"
    """It has its places; pods are created, released and bound."""
    PREEMPTED = "Preempted"
    """It was stopped to make room for another gang, and waits again."""
    BUDGET_OVERRIDDEN = "BudgetOverridden"
    """It was stopped though a PodDisruptionBudget keeps its pods: a queue takes back its guarantee,
    a gang of budgetOverridePriority needs the room, or a stop for any cause was decided, and the
    budget, which has shrunk since it was read, has kept pods of it for 300 s."""
    GROWN = "Grown"
    """An elastic gang got replicas, in room that nobody waits for."""
    SHRUNK = "Shrunk"
    """An elastic gang gave replicas up: for another gang, with what they ran on, or because the
    sizer wants it smaller."""
    GANG_RUNNING = "GangRunning"
    """All replicas are ready; of a PodGroup, all containers of minMember pods have started."""
    NO_PROGRESS = "NoProgress"
    """It runs and holds devices, and for stalledAfterSeconds its reports, of which there were some
    before, were the same or none. Nothing is done about it."""
    REPLICAS_NOT_READY = "ReplicasNotReady"
    """It runs, and one of its replicas, which hold devices, has not been ready for
    stalledAfterSeconds, with its words in the message. Nothing is done about it."""
    GANG_NOT_BOUND_IN_TIME = "GangNotBoundInTime"
    """Pods were not on their nodes bindTimeoutSeconds after the plan and kube-scheduler said
    nothing of them, or another pod took their room; or those that replace lost ones of a PodGroup
    found no places for as long. The whole gang is planned again: at once where kube-scheduler binds
    nobody, and as after Unschedulable where it serves gangs that were planned since."""
    UNSCHEDULABLE = "Unschedulable"
    """kube-scheduler finds a replica's planned node unfit, with its own words in the message. The
    places go back at once; it is tried again after status.retryTime, and others are stopped for it
    only once its spec, that node or the pods on it have changed."""
    START_TIMED_OUT = "StartTimedOut"
    """It had its places for startTimeoutSeconds and did not run, with the words of its pods in the
    message. It is tried again as after Unschedulable."""
    NODE_LOST = "NodeLost"
    """A node of its plan is gone or has not been ready for nodeLostSeconds, or was cordoned,
    tainted or about to be deleted before the replica was bound. The whole gang starts again."""
    NODE_MAINTENANCE = "NodeMaintenance"
    """The maintenance of a node of its plan has begun. The whole gang starts again elsewhere."""
    FASTER_GPUS = "FasterGpus"
    """No gang waits, and GPUs are free on which it trains so much faster that it pays to start the
    whole gang again there, even if it has saved no checkpoint."""
    POD_REJECTED = "PodRejected"
    """A kubelet refused a replica before it ran, with its words in the message. The whole gang
    starts again, on other nodes for ten minutes; it counts as no failure of the job. Where the same
    node refuses it again, or a fifth one does, it is tried again as after Unschedulable."""
    NODE_SUSPECTED = "NodeSuspected"
    """Of a Node: gangs of two namespaces had trouble with it within an hour, as its kubelet refused
    pods or replicas failed there first. All gangs avoid it for ten minutes, unless more than a
    tenth of its pool would be. An event alone."""
    POD_LOST = "PodLost"
    """A replica was deleted, evicted or disrupted from outside. The whole gang starts again."""
    POD_FAILED = "PodFailed"
    """A replica failed by itself; the message says why. The whole gang starts again, which counts
    against backoffLimit. Of a PodGroup: a member failed, and its controller decides what follows.
    """
    PODS_CHANGED = "PodsChanged"
    """The API server made pods of its templates that ask for more than was planned, or have labels
    by which rules over pods see them otherwise. The whole gang is planned again with that."""
    DRY_RUN_UNSUPPORTED = "DryRunUnsupported"
    """An admission webhook refuses dry runs, so that its changes are known only once pods exist.
    The gang is planned as it is written. An event alone."""
    TASKS_EDITED = "TasksEdited"
    """spec.tasks was edited before all replicas ran. The whole gang starts again as edited."""
    SUSPENDED = "Suspended"
    """spec.runPolicy.suspend is true: it holds no places and stands in no line."""
    SUCCEEDED = "Succeeded"
    """The replicas have ended well that decide for the job: its leader, where it has one, or all
    that train (spec.runPolicy.successPolicy). Of a PodGroup, all members have ended well."""
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    """A replica failed after backoffLimit restarts. The job has failed."""
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    """The job held its places for activeDeadlineSeconds. It has failed."""

    # Queues: whether anything starts in them, beside the reasons above.
    ADMITTING = "Admitting"
    """The queue is open and not over a limit: gangs start in it."""

    # Policies, not gangs: whether a SchedulingPolicy decides, and how well.
    POLICY_LOADED = "PolicyLoaded"
    """It decides, or is compared as a shadow."""
    LOAD_FAILED = "LoadFailed"
    """It cannot be loaded; the message says why, and what decides meanwhile."""
    SUPERSEDED = "Superseded"
    """An older SchedulingPolicy is Active too, or another one was promoted, and decides; or older
    canaries name all of its queues."""
    TOO_MANY_SHADOWS = "TooManyShadows"
    """Older shadows, or older canaries, are as many as are loaded."""
    ROLLED_BACK = "RolledBack"
    """It was rolled back, as its condition RolledBack says, and decides nothing."""
    POLICY_OVERRULED = "PolicyOverruled"
    """Its answers were lately invalid or late, and the rules decided in its place."""
    ANSWERS_VALID = "AnswersValid"
    """It has lately not been overruled."""
    OUTCOME_BETTER = "OutcomeBetter"
    """It was promoted: the interval of what it saves lies wholly above the margin."""
    OUTCOME_WORSE = "OutcomeWorse"
    """It was rolled back: the interval of what the policy without it saves lies wholly above the
    margin."""
    RULES_ANSWERED = "RulesAnswered"
    """It was rolled back: the rules answered in its place in more than half of its latest 20
    cycles."""
    COMPARISON_OPEN = "ComparisonOpen"
    """It stays as it is: the message has the numbers so far."""

    # Node pools: what becomes of the floor of a NodePoolScaler.
    FORECAST_ONLY = "ForecastOnly"
    """In this mode the floor is reported and nothing is asked for."""
    AT_FLOOR = "AtFloor"
    """The target asks for as many nodes as the floor, or for more that may not go yet."""
    RAISED = "Raised"
    """The target was asked for more nodes, or they are still coming."""
    LOWERED = "Lowered"
    """The target was asked for fewer nodes, or empty ones are still going."""
    AT_MAX = "AtMax"
    """More nodes are wanted than spec.max allows."""
    ABOVE_MAX = "AboveMax"
    """The target asks for more than spec.max already; it is left alone."""
    TARGET_NOT_FOUND = "TargetNotFound"
    """The scaleTargetRef leads to no object that has a scale."""
    TARGET_FORBIDDEN = "TargetForbidden"
    """The operator may not read or write the target's scale."""
    TARGET_SHARED = "TargetShared"
    """An older NodePoolScaler scales the same target."""
    TARGET_UNAVAILABLE = "TargetUnavailable"
    """The API server gave no answer about the target, or an error. It is asked again, ever
    later."""
    REPLICAS_OWNED_BY_ANOTHER = "ReplicasOwnedByAnother"
    """Somebody else looks after the target's replicas, and is left to."""

    # And what its forecast is.
    FORECAST_MADE = "Forecast"
    """The model that did best lately made it."""
    SEASONAL_NAIVE_USED = "SeasonalNaiveUsed"
    """No model did better lately than repeating earlier days, which is the forecast."""
    TOO_LITTLE_HISTORY = "TooLittleHistory"
    """Too few hours are recorded: earlier days are repeated, or with fewer still nothing is
    forecast."""
    HISTORY_HAS_GAPS = "HistoryHasGaps"
    """The same, because what lies before a gap is not used."""
    HISTORY_UNAVAILABLE = "HistoryUnavailable"
    """Prometheus gave no history tonight. The last forecast stays."""
    FORECAST_STALE = "Stale"
    """The last forecast is older than 26 hours and not used."""
    FORECAST_FAILED = "Failed"
    """The forecast failed, as the message says. The last one stays."""

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
        Reason.TOO_LARGE,
        Reason.NEVER_FITS,
    }
)
