"""Reasons: one vocabulary for conditions, events, metrics and reports.

Reasons are API: people alert on them. Three kinds are kept apart because they ask for different
people: a configuration fault needs its author, waiting needs patience or more machines, and
progress needs no one.

The members are the one table of what is known of a reason. Events, ``bireme why``, colours and the
page of reasons are made from it.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, Literal, NamedTuple, Self

EventType = Literal["Normal", "Warning"]


class Attention(Enum):
    """The person or event that must come before a state of this reason improves."""

    NOBODY = "nobody"
    """All is well."""
    TIME = "time"
    """Time, mostly, or something that starts by itself."""
    PERSON = "person"
    """A person: waiting does not help."""


class _Kind(NamedTuple):
    """Common properties of the reasons of a kind; ``event`` is None if none is posted."""

    attention: Attention
    event: EventType | None
    is_configuration_fault: bool = False


_WELL: Final = _Kind(Attention.NOBODY, "Normal")
# An event would cost every gang another write, or the nightly job writes the reason.
_WELL_SILENT: Final = _Kind(Attention.NOBODY, None)
_WAITS: Final = _Kind(Attention.TIME, "Normal")
_WAITS_SILENT: Final = _Kind(Attention.TIME, None)
_TROUBLE: Final = _Kind(Attention.TIME, "Warning")
_BROKEN: Final = _Kind(Attention.PERSON, "Warning")
_BROKEN_SILENT: Final = _Kind(Attention.PERSON, None)
_FAULT: Final = _Kind(Attention.PERSON, "Warning", is_configuration_fault=True)


@dataclass(frozen=True, slots=True)
class _Row:
    """A reason: its kind, the word that is written, its meaning, and what helps against it."""

    kind: _Kind
    word: str
    meaning: str
    remedy: str


class Reason(StrEnum):
    """Reason of a decision or a state, of gangs, policies and node pools.

    Attributes:
        meaning: Sentences for a page.
        remedy: The remedy; begins with "nothing" if none is needed.
        attention: The person or event that must come before it improves.
        event: Type of the event that is posted; None where none is.
        is_configuration_fault: True when only a change of the object (or of its queue or class)
            can help.
    """

    meaning: str
    remedy: str
    attention: Attention
    event: EventType | None
    is_configuration_fault: bool

    def __new__(cls, row: _Row | str) -> Self:
        # A word alone is what callers look a member up by; that does not come here.
        if isinstance(row, str):
            raise TypeError(f"{row}: declare the reason by a _Row with meaning and remedy")
        member = str.__new__(cls, row.word)
        member._value_ = row.word
        member.meaning, member.remedy = row.meaning, row.remedy
        member.attention, member.event, member.is_configuration_fault = row.kind
        return member

    # Configuration faults: waiting longer does not help.
    QUEUE_NOT_FOUND = _Row(
        _FAULT,
        "QueueNotFound",
        "There is no Queue of the name in spec.queue, or in the namespace's label for gangs that "
        "name none.",
        "change spec.queue, or ask an administrator for the queue",
    )
    QUEUE_CLOSED = _Row(
        _FAULT,
        "QueueClosed",
        "The queue's spec.state is Closed, or its spec cannot be read: it admits nothing new, and "
        "what runs goes on.",
        "change spec.queue, or ask an administrator to open the queue",
    )
    QUEUE_FORBIDDEN = _Row(
        _FAULT,
        "QueueForbidden",
        "The queue's namespaceSelector does not select the gang's namespace.",
        "change spec.queue, or ask for the namespace to be selected",
    )
    QUEUE_INVALID = _Row(
        _FAULT,
        "QueueInvalid",
        "The queue's parents lead to a missing queue, in a circle, or through too many levels.",
        "an administrator must correct the queue or one above it",
    )
    PRIORITY_CLASS_NOT_FOUND = _Row(
        _FAULT,
        "PriorityClassNotFound",
        "There is no PriorityClass of the name in spec.priorityClassName.",
        "change spec.priorityClassName, or ask for the class",
    )
    SPEC_INVALID = _Row(
        _FAULT,
        "SpecInvalid",
        "The spec cannot be carried out; the message names the field. Of gangs and of "
        "NodePoolScalers.",
        "change the spec as the message says; waiting does not help",
    )
    TEMPLATE_INVALID = _Row(
        _FAULT,
        "TemplateInvalid",
        "A pod template cannot be read, or the API server finds pods made from it invalid. A dry "
        "run asks again after a minute, then ever later up to 10 minutes, as admission may have "
        "written what is invalid. What a policy or a webhook denies is PodsRefused.",
        "change the pod template as the message says; waiting does not help",
    )
    TOO_LARGE = _Row(
        _FAULT,
        "TooLarge",
        "A TrainingJob whose spec, TF_CONFIG or pods have more bytes than one job may; the "
        "message has the numbers.",
        "make the job smaller as the message says; waiting does not help",
    )
    NEVER_FITS = _Row(
        _FAULT,
        "NeverFits",
        "Not even on empty nodes is there room for the gang.",
        "ask for fewer or smaller replicas, or have larger nodes added; waiting does not help",
    )

    # Waiting: time or capacity helps.
    NODES_NOT_READY = _Row(
        _WAITS,
        "NodesNotReady",
        "It fits only with nodes that have not started yet: they are not ready, or have a taint "
        "that says so. Meanwhile it stops nobody and keeps no places.",
        "time, until the nodes that the message counts are ready. If they stay as they are, see "
        "kubectl describe node",
    )
    WAITING_FOR_CAPACITY = _Row(
        _WAITS,
        "WaitingForCapacity",
        "Too little of what it asks for is free on nodes that it may use.",
        "time, as others end. Sooner: a lower minReplicas, smaller replicas, a higher priority "
        "class, or more nodes",
    )
    WAITING_BEHIND = _Row(
        _WAITS,
        "WaitingBehind",
        "It would delay a gang before it, for which places are kept or which is past its wait "
        "bound.",
        "time: an earlier gang keeps places. spec.estimatedDuration lets this one go first where "
        "it ends soon enough to delay nobody",
    )
    OVER_QUEUE_LIMIT = _Row(
        _WAITS,
        "OverQueueLimit",
        "With it the queue, or one above it, would hold more than its limit.",
        "time, as jobs of the queue end; or another queue, or a higher limit",
    )
    OVER_QUOTA = _Row(
        _WAITS,
        "OverQuota",
        "With it the pods of its namespace would ask more than a ResourceQuota allows.",
        "time, as pods of the namespace end; or a larger ResourceQuota from the namespace's "
        "administrator",
    )
    OVER_NAMESPACE_LIMIT = _Row(
        _WAITS,
        "OverNamespaceLimit",
        "So many gangs of its namespace wait, or of so many shapes, that a cycle does not look at "
        "all of them. It follows, in its order, once those before it have started or are gone.",
        "time, as the gangs before it start; or fewer waiting gangs, or fewer shapes of them, in "
        "the namespace",
    )
    MAINTENANCE_AHEAD = _Row(
        _WAITS,
        "MaintenanceAhead",
        "It fits only on nodes that are under maintenance, or will be before it should have ended.",
        "time, until the maintenance is over; or a spec.estimatedDuration that ends before it "
        "begins",
    )
    WAITING_FOR_PREEMPTION = _Row(
        _WAITS,
        "WaitingForPreemption",
        "Gangs are being stopped or shrunk for it, and the places are kept.",
        "nothing: gangs that come after it are making room",
    )
    SCALING_UP = _Row(
        _WAITS,
        "ScalingUp",
        "Its node pool was asked for the nodes that it lacks.",
        "time: nodes were asked for. If none come, see kubectl describe bnps",
    )
    CLAIM_NOT_READY = _Row(
        _WAITS,
        "ClaimNotReady",
        "A claim that its pods name does not exist, has no volume yet, is about to go, or is "
        "another pod's alone. It is planned as soon as the claim can be used.",
        "create or free the claim that the message names; or time, until its volume is there",
    )
    WAITING_FOR_PODS = _Row(
        _WAITS,
        "WaitingForPods",
        "Of a PodGroup: fewer of its pods exist than spec.minMember.",
        "its controller must create the missing pods, each with the label, the scheduler and the "
        "gate; or minMember is larger than what it creates",
    )
    STOPPING = _Row(
        _WAITS,
        "Stopping",
        "Something of its last run, or of an earlier job of its name, is still ending. Of a "
        "PodGroup also: its pods are to be stopped, and a PodDisruptionBudget keeps them.",
        "nothing: pods of its last run are still ending",
    )
    PODS_REFUSED = _Row(
        _TROUBLE,
        "PodsRefused",
        "The API server refuses its pods, their Service or its PodGroup as things stand, or "
        "answers with an error again and again, or admission makes other pods of them than were "
        "sent, or something of a stranger has one of their names. The message has its words, or "
        "the field before and after. It is tried again within a minute, and holds no places "
        "meanwhile; for an hour, or until a dry run is taken, nobody is stopped for it.",
        "correct what the message names: a quota, an admission policy, a webhook that changes "
        "pods or is down, or the object of a stranger",
    )
    OPERATOR_FAILED = _Row(
        _BROKEN,
        "OperatorFailed",
        "The operator's own code failed on this object; its log has the error. It is tried again, "
        "ever later, and nothing else stops. Of what holds places, an event alone.",
        "time cannot be counted on: show an administrator the message and the operator's log; a "
        "change of what it names may help",
    )

    # Progress.
    ADMITTED = _Row(
        _WELL_SILENT,
        "Admitted",
        "It has its places; pods are created, released and bound.",
        "nothing: its pods start",
    )
    PREEMPTED = _Row(
        _WAITS,
        "Preempted",
        "It was stopped to make room for another gang, and waits again.",
        "time, as others end; what has a higher priority class is stopped by fewer, and of equal "
        "ones what has had less service",
    )
    BUDGET_OVERRIDDEN = _Row(
        _WAITS,
        "BudgetOverridden",
        "It was stopped though a PodDisruptionBudget keeps its pods: a queue takes back its "
        "guarantee, a gang of budgetOverridePriority needs the room, or a stop for any cause was "
        "decided, and the budget, which has shrunk since it was read, has kept pods of it for 300 "
        "s.",
        "time, as others end; a budget holds within its queue's guarantee",
    )
    GROWN = _Row(
        _WELL,
        "Grown",
        "An elastic gang got replicas, in room that nobody waits for.",
        "nothing: it has more replicas",
    )
    SHRUNK = _Row(
        _WAITS,
        "Shrunk",
        "An elastic gang gave replicas up: for another gang, with what they ran on, or because "
        "the sizer wants it smaller.",
        "nothing: it gets replicas again where room is free that nobody waits for",
    )
    GANG_RUNNING = _Row(
        _WELL_SILENT,
        "GangRunning",
        "All replicas are ready; of a PodGroup, all containers of minMember pods have started.",
        "nothing: it runs",
    )
    NO_PROGRESS = _Row(
        _TROUBLE,
        "NoProgress",
        "It runs and holds devices, and for stalledAfterSeconds its reports, of which there were "
        "some before, were the same or none. Nothing is done about it.",
        "the logs of its replicas. A replica that is deleted makes the whole gang start again",
    )
    REPLICAS_NOT_READY = _Row(
        _TROUBLE,
        "ReplicasNotReady",
        "It runs, and one of its replicas, which hold devices, has not been ready for "
        "stalledAfterSeconds, with its words in the message. Nothing is done about it.",
        "kubectl describe of the replica's pod, and its logs. A replica that is deleted makes the "
        "whole gang start again",
    )
    GANG_NOT_BOUND_IN_TIME = _Row(
        _TROUBLE,
        "GangNotBoundInTime",
        "Pods were not on their nodes bindTimeoutSeconds after the plan and kube-scheduler said "
        "nothing of them, or another pod took their room; or those that replace lost ones of a "
        "PodGroup found no places for as long. The whole gang is planned again: at once where "
        "kube-scheduler binds nobody, and as after Unschedulable where it serves gangs that were "
        "planned since.",
        "nothing: it is planned again. Where all gangs say so, the second kube-scheduler is dead; "
        "where one does, see who holds its pods back",
    )
    UNSCHEDULABLE = _Row(
        _TROUBLE,
        "Unschedulable",
        "kube-scheduler finds a replica's planned node unfit, with its own words in the message. "
        "The places go back at once; it is tried again after status.retryTime, and others are "
        "stopped for it only once its spec, that node or the pods on it have changed.",
        "change what the message names: a port, a volume, an affinity. An edit of the spec has it "
        "tried at once",
    )
    START_TIMED_OUT = _Row(
        _TROUBLE,
        "StartTimedOut",
        "It had its places for startTimeoutSeconds and did not run, with the words of its pods in "
        "the message. It is tried again as after Unschedulable.",
        "change what the message names, mostly the image; an edit of the spec has it tried at "
        "once. What is only slow needs a longer startTimeoutSeconds, of the job or of its queue",
    )
    NODE_LOST = _Row(
        _TROUBLE,
        "NodeLost",
        "A node of its plan is gone or has not been ready for nodeLostSeconds, or was cordoned, "
        "tainted or about to be deleted before the replica was bound. The whole gang starts "
        "again.",
        "nothing: it goes elsewhere. See kubectl describe node",
    )
    NODE_MAINTENANCE = _Row(
        _WAITS,
        "NodeMaintenance",
        "The maintenance of a node of its plan has begun. The whole gang starts again elsewhere.",
        "nothing: it goes elsewhere, and is not moved again",
    )
    FASTER_GPUS = _Row(
        _WAITS,
        "FasterGpus",
        "No gang waits, and GPUs are free on which it trains so much faster that it pays to start "
        "the whole gang again there, even if it has saved no checkpoint.",
        "nothing: it starts again on the faster GPUs. Where no gang is to be moved, the placer "
        "packing?moves=0 leaves them where they are",
    )
    POD_REJECTED = _Row(
        _TROUBLE,
        "PodRejected",
        "A kubelet refused a replica before it ran, with its words in the message. The whole gang "
        "starts again, on other nodes for ten minutes; it counts as no failure of the job. Where "
        "the same node refuses it again, or a fifth one does, it is tried again as after "
        "Unschedulable.",
        "nothing: it goes elsewhere. Where all nodes refuse it, change what the message names",
    )
    NODE_SUSPECTED = _Row(
        _TROUBLE,
        "NodeSuspected",
        "Of a Node: gangs of two namespaces had trouble with it within an hour, as its kubelet "
        "refused pods or replicas failed there first. All gangs avoid it for ten minutes, unless "
        "more than a tenth of its pool would be. An event alone.",
        "kubectl describe of the node, and the log of its kubelet. Gangs use it again after ten "
        "minutes",
    )
    POD_LOST = _Row(
        _TROUBLE,
        "PodLost",
        "A replica was deleted, evicted or disrupted from outside. The whole gang starts again.",
        "nothing: it starts again. The pod's events say who did it",
    )
    POD_FAILED = _Row(
        _TROUBLE,
        "PodFailed",
        "A replica failed by itself; the message says why. The whole gang starts again, which "
        "counts against backoffLimit. Of a PodGroup: a member failed, and its controller decides "
        "what follows.",
        "the logs of the replica that the message names",
    )
    PODS_CHANGED = _Row(
        _TROUBLE,
        "PodsChanged",
        "The API server made pods of its templates that ask for more than was planned, or have "
        "labels by which rules over pods see them otherwise. The whole gang is planned again with "
        "that.",
        "nothing: it is planned again. A webhook or policy that should leave these pods alone "
        "must be corrected",
    )
    DRY_RUN_UNSUPPORTED = _Row(
        _TROUBLE,
        "DryRunUnsupported",
        "An admission webhook refuses dry runs, so that its changes are known only once pods "
        "exist. The gang is planned as it is written. An event alone.",
        "have the webhook declare sideEffects None or NoneOnDryRun",
    )
    TASKS_EDITED = _Row(
        _WAITS,
        "TasksEdited",
        "spec.tasks was edited before all replicas ran. The whole gang starts again as edited.",
        "nothing: it starts again as edited",
    )
    SUSPENDED = _Row(
        _WAITS,
        "Suspended",
        "spec.runPolicy.suspend is true: it holds no places and stands in no line.",
        "resume it: spec.runPolicy.suspend: false",
    )
    SUCCEEDED = _Row(
        _WELL,
        "Succeeded",
        "The replicas have ended well that decide for the job: its leader, where it has one, or "
        "all that train (spec.runPolicy.successPolicy). Of a PodGroup, all members have ended "
        "well.",
        "nothing: it has ended",
    )
    BACKOFF_LIMIT_EXCEEDED = _Row(
        _BROKEN,
        "BackoffLimitExceeded",
        "A replica failed after backoffLimit restarts. The job has failed.",
        "correct what its logs show and create it anew, or allow more restarts by "
        "spec.runPolicy.backoffLimit",
    )
    DEADLINE_EXCEEDED = _Row(
        _BROKEN,
        "DeadlineExceeded",
        "The job held its places for activeDeadlineSeconds. It has failed.",
        "a longer spec.runPolicy.activeDeadlineSeconds, in a new job",
    )

    # Queues: whether anything starts in them, beside the reasons above.
    ADMITTING = _Row(
        _WELL,
        "Admitting",
        "The queue is open and not over a limit: gangs start in it.",
        "nothing: gangs start in it",
    )

    # Policies, not gangs: whether a SchedulingPolicy decides, and how well.
    POLICY_LOADED = _Row(
        _WELL,
        "PolicyLoaded",
        "It decides, or is compared as a shadow.",
        "nothing: it is in use",
    )
    LOAD_FAILED = _Row(
        _BROKEN,
        "LoadFailed",
        "It cannot be loaded; the message says why, and what decides meanwhile.",
        "correct what the message names; it is tried again every 30 s",
    )
    SUPERSEDED = _Row(
        _WAITS,
        "Superseded",
        "An older SchedulingPolicy is Active too, or another one was promoted, and decides; or "
        "older canaries name all of its queues.",
        "delete one of the two, or make one a Shadow",
    )
    TOO_MANY_SHADOWS = _Row(
        _WAITS,
        "TooManyShadows",
        "Older shadows, or older canaries, are as many as are loaded.",
        "delete a shadow that has been seen enough",
    )
    ROLLED_BACK = _Row(
        _WAITS,
        "RolledBack",
        "It was rolled back, as its condition RolledBack says, and decides nothing.",
        "correct it and change its spec, which begins anew; or delete it",
    )
    POLICY_OVERRULED = _Row(
        _BROKEN,
        "PolicyOverruled",
        "Its answers were lately invalid or late, and the rules decided in its place.",
        "the message has the last fault; a network that is late needs a smaller one, and an "
        "invalid answer another checkpoint",
    )
    ANSWERS_VALID = _Row(
        _WELL_SILENT,
        "AnswersValid",
        "It has lately not been overruled.",
        "nothing: its answers are used",
    )
    OUTCOME_BETTER = _Row(
        _WELL,
        "OutcomeBetter",
        "It was promoted: the interval of what it saves lies wholly above the margin.",
        "nothing: it decides",
    )
    OUTCOME_WORSE = _Row(
        _TROUBLE,
        "OutcomeWorse",
        "It was rolled back: the interval of what the policy without it saves lies wholly above "
        "the margin.",
        "another policy, or other parameters: a change of the spec begins anew",
    )
    RULES_ANSWERED = _Row(
        _TROUBLE,
        "RulesAnswered",
        "It was rolled back: the rules answered in its place in more than half of its latest 20 "
        "cycles.",
        "correct what its condition RolledBack names; a change of the spec begins anew",
    )
    COMPARISON_OPEN = _Row(
        _WAITS,
        "ComparisonOpen",
        "It stays as it is: the message has the numbers so far.",
        "time, until enough moments are compared",
    )

    # Node pools: what becomes of the floor of a NodePoolScaler.
    FORECAST_ONLY = _Row(
        _WELL_SILENT,
        "ForecastOnly",
        "In this mode the floor is reported and nothing is asked for.",
        "nothing; mode Apply carries the floor out",
    )
    AT_FLOOR = _Row(
        _WELL_SILENT,
        "AtFloor",
        "The target asks for as many nodes as the floor, or for more that may not go yet.",
        "nothing: the pool has what it needs",
    )
    RAISED = _Row(
        _WELL,
        "Raised",
        "The target was asked for more nodes, or they are still coming.",
        "time, until the nodes are there",
    )
    LOWERED = _Row(
        _WELL,
        "Lowered",
        "The target was asked for fewer nodes, or empty ones are still going.",
        "time, until the nodes are gone",
    )
    AT_MAX = _Row(
        _WAITS,
        "AtMax",
        "More nodes are wanted than spec.max allows.",
        "a higher spec.max, or time",
    )
    ABOVE_MAX = _Row(
        _TROUBLE,
        "AboveMax",
        "The target asks for more than spec.max already; it is left alone.",
        "a higher spec.max, or fewer replicas in the target",
    )
    TARGET_NOT_FOUND = _Row(
        _BROKEN,
        "TargetNotFound",
        "The scaleTargetRef leads to no object that has a scale.",
        "create the target, or correct spec.scaleTargetRef",
    )
    TARGET_FORBIDDEN = _Row(
        _BROKEN,
        "TargetForbidden",
        "The operator may not read or write the target's scale.",
        "name the target in the chart's operator.scaleTargets",
    )
    TARGET_SHARED = _Row(
        _BROKEN,
        "TargetShared",
        "An older NodePoolScaler scales the same target.",
        "delete one of the two",
    )
    TARGET_UNAVAILABLE = _Row(
        _TROUBLE,
        "TargetUnavailable",
        "The API server gave no answer about the target, or an error. It is asked again, ever "
        "later.",
        "time; else whatever serves the target's kind",
    )
    REPLICAS_OWNED_BY_ANOTHER = _Row(
        _BROKEN,
        "ReplicasOwnedByAnother",
        "Somebody else looks after the target's replicas, and is left to.",
        "have the other leave the field out, as the message shows",
    )

    # And what its forecast is.
    FORECAST_MADE = _Row(
        _WELL_SILENT,
        "Forecast",
        "The model that did best lately made it.",
        "nothing: it is used",
    )
    SEASONAL_NAIVE_USED = _Row(
        _WELL_SILENT,
        "SeasonalNaiveUsed",
        "No model did better lately than repeating earlier days, which is the forecast.",
        "nothing: it is used; a model may do better once more days are recorded",
    )
    TOO_LITTLE_HISTORY = _Row(
        _WAITS_SILENT,
        "TooLittleHistory",
        "Too few hours are recorded: earlier days are repeated, or with fewer still nothing is "
        "forecast.",
        "time: models take 14 days",
    )
    HISTORY_HAS_GAPS = _Row(
        _WAITS_SILENT,
        "HistoryHasGaps",
        "The same, because what lies before a gap is not used.",
        "time: models take 14 days without a gap",
    )
    HISTORY_UNAVAILABLE = _Row(
        _WAITS_SILENT,
        "HistoryUnavailable",
        "Prometheus gave no history tonight. The last forecast stays.",
        "correct spec.history.prometheus, or open the way to it (networkPolicies.egress)",
    )
    FORECAST_STALE = _Row(
        _TROUBLE,
        "Stale",
        "The last forecast is older than 26 hours and not used.",
        "the jobs of the forecast CronJob, and their logs",
    )
    FORECAST_FAILED = _Row(
        _BROKEN_SILENT,
        "Failed",
        "The forecast failed, as the message says. The last one stays.",
        "correct what the message names",
    )
