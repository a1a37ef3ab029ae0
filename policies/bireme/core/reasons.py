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
        "No Queue has the name in spec.queue, or the name in the label of the gang's namespace "
        "if spec.queue is empty.",
        "change spec.queue, or ask an administrator for the queue",
    )
    QUEUE_CLOSED = _Row(
        _FAULT,
        "QueueClosed",
        "The queue's spec.state is Closed, or its spec cannot be read. It admits no new gangs, "
        "and running gangs continue.",
        "change spec.queue, or ask an administrator to open the queue",
    )
    QUEUE_FORBIDDEN = _Row(
        _FAULT,
        "QueueForbidden",
        "The queue's namespaceSelector does not select the gang's namespace.",
        "change spec.queue, or ask an administrator to let the queue select the namespace",
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
        "No PriorityClass has the name in spec.priorityClassName.",
        "change spec.priorityClassName, or ask an administrator for the class",
    )
    SPEC_INVALID = _Row(
        _FAULT,
        "SpecInvalid",
        "Bireme cannot carry out the spec of the gang or NodePoolScaler. The message names the "
        "field.",
        "change the spec as the message says; waiting does not help",
    )
    TEMPLATE_INVALID = _Row(
        _FAULT,
        "TemplateInvalid",
        "A pod template cannot be read, or the API server finds its pods invalid. A dry run "
        "checks again after a minute, later every 10 minutes, because admission may have caused "
        "the fault. Pods that a policy or webhook denies have the reason PodsRefused.",
        "change the pod template as the message says; waiting does not help",
    )
    TOO_LARGE = _Row(
        _FAULT,
        "TooLarge",
        "The spec, TF_CONFIG or pods of a TrainingJob have more bytes than a job may have. The "
        "message has the numbers.",
        "make the job smaller as the message says; waiting does not help",
    )
    NEVER_FITS = _Row(
        _FAULT,
        "NeverFits",
        "The gang does not fit even if all nodes are empty.",
        "request fewer or smaller replicas, or ask an administrator for larger nodes; waiting "
        "does not help",
    )

    # Waiting: time or capacity helps.
    NODES_NOT_READY = _Row(
        _WAITS,
        "NodesNotReady",
        "The gang fits only with nodes that have not started yet: they are not ready or have a "
        "start-up taint. Until then it stops no other gang and reserves no places.",
        "time, until the nodes that the message counts are ready. If they do not become ready, "
        "see kubectl describe node",
    )
    WAITING_FOR_CAPACITY = _Row(
        _WAITS,
        "WaitingForCapacity",
        "The nodes that the gang may use have too little free capacity.",
        "time, as others end. Sooner: a lower minReplicas, smaller replicas, a higher priority "
        "class, or more nodes",
    )
    WAITING_BEHIND = _Row(
        _WAITS,
        "WaitingBehind",
        "The gang would delay an earlier gang that has reserved places or is past its wait bound.",
        "time, until the earlier gang starts. A gang with a spec.estimatedDuration may start "
        "first if it ends early enough to delay no one",
    )
    OVER_QUEUE_LIMIT = _Row(
        _WAITS,
        "OverQueueLimit",
        "With this gang the queue, or a queue above it, would exceed its limit.",
        "time, as jobs of the queue end; or another queue, or a higher limit",
    )
    OVER_QUOTA = _Row(
        _WAITS,
        "OverQuota",
        "With this gang the pods of its namespace would exceed a ResourceQuota.",
        "time, as pods of the namespace end; or a larger ResourceQuota from the namespace's "
        "administrator",
    )
    OVER_NAMESPACE_LIMIT = _Row(
        _WAITS,
        "OverNamespaceLimit",
        "A cycle considers only a limited number of waiting gangs of a namespace, and this gang "
        "is beyond that limit. Bireme considers it after earlier gangs of the namespace have "
        "started or are deleted.",
        "time, as the gangs before it start; or fewer waiting gangs, or fewer different shapes "
        "of them, in the namespace",
    )
    MAINTENANCE_AHEAD = _Row(
        _WAITS,
        "MaintenanceAhead",
        "The gang fits only on nodes whose maintenance has begun, or will begin before the gang "
        "should end.",
        "time, until the maintenance is over; or a spec.estimatedDuration that ends before it "
        "begins",
    )
    WAITING_FOR_PREEMPTION = _Row(
        _WAITS,
        "WaitingForPreemption",
        "Bireme stops or shrinks other gangs for this gang, and reserves their places for it.",
        "nothing: later gangs are making room for it",
    )
    SCALING_UP = _Row(
        _WAITS,
        "ScalingUp",
        "Bireme has requested the missing nodes from the gang's node pool.",
        "time, until the requested nodes are there. If none come, see kubectl describe bnps",
    )
    CLAIM_NOT_READY = _Row(
        _WAITS,
        "ClaimNotReady",
        "A claim of its pods does not exist, has no volume yet, is being deleted, or belongs to "
        "one other pod. Bireme plans the gang as soon as it can use the claim.",
        "create or free the claim that the message names; or time, until its volume is there",
    )
    WAITING_FOR_PODS = _Row(
        _WAITS,
        "WaitingForPods",
        "A PodGroup has fewer pods than spec.minMember.",
        "its controller must create the missing pods, each with the label, the scheduler and the "
        "gate; or lower minMember",
    )
    STOPPING = _Row(
        _WAITS,
        "Stopping",
        "Pods of the gang's last run, or of an earlier job with its name, are still ending. A "
        "PodGroup also has this reason while a PodDisruptionBudget protects pods that Bireme "
        "should stop.",
        "nothing: pods of its last run are still ending",
    )
    PODS_REFUSED = _Row(
        _TROUBLE,
        "PodsRefused",
        "The API server refuses the gang's pods, Service or PodGroup, or fails repeatedly. "
        "Admission may have changed the pods, or another owner's object may have one of their "
        "names. The message quotes the API server, or names the field that changed. Bireme tries "
        "again within a minute, and reserves no places meanwhile. It stops no other gangs for "
        "this gang for an hour, or until a dry run succeeds.",
        "correct what the message names: a quota, an admission policy, a webhook that changes "
        "pods or is down, or an object of another owner",
    )
    OPERATOR_FAILED = _Row(
        _BROKEN,
        "OperatorFailed",
        "The operator's own code failed on this object. Its log has the error. It tries again "
        "with growing pauses, and all other objects continue. If the object holds places, only "
        "an event reports this.",
        "time may not help: show an administrator the message and the operator's log; a change "
        "of the object may help",
    )

    # Progress.
    ADMITTED = _Row(
        _WELL_SILENT,
        "Admitted",
        "The gang has its places. Bireme creates its pods or removes their gates, and "
        "kube-scheduler binds them.",
        "nothing: its pods start",
    )
    PREEMPTED = _Row(
        _WAITS,
        "Preempted",
        "Bireme stopped the gang to make room for another gang. The gang waits again.",
        "time, as others end; fewer gangs may stop a gang with a higher priority class, or, "
        "among equals, one that has had less service",
    )
    BUDGET_OVERRIDDEN = _Row(
        _WAITS,
        "BudgetOverridden",
        "Bireme stopped the gang although a PodDisruptionBudget protects its pods. A queue "
        "reclaimed its guarantee, or a gang of budgetOverridePriority needed the room. Or the "
        "budget shrank during a stop and kept some of the pods for 300 s.",
        "time, as others end; a budget protects gangs within their queue's guarantee",
    )
    GROWN = _Row(
        _WELL,
        "Grown",
        "An elastic gang got more replicas, in capacity that no waiting gang needs.",
        "nothing: it has more replicas",
    )
    SHRUNK = _Row(
        _WAITS,
        "Shrunk",
        "An elastic gang gave up replicas: for another gang, because their nodes were lost, or "
        "because the sizer wants fewer.",
        "nothing: it gets replicas again when capacity is free that no waiting gang needs",
    )
    GANG_RUNNING = _Row(
        _WELL_SILENT,
        "GangRunning",
        "All replicas are ready. In a PodGroup, all containers of minMember pods have started.",
        "nothing: it runs",
    )
    NO_PROGRESS = _Row(
        _TROUBLE,
        "NoProgress",
        "The gang runs and holds devices, and its reports have shown no new progress for "
        "stalledAfterSeconds. Bireme only reports this, and does not act.",
        "the logs of its replicas. If you delete a replica, the whole gang restarts",
    )
    REPLICAS_NOT_READY = _Row(
        _TROUBLE,
        "ReplicasNotReady",
        "The gang runs, and a replica with devices has not been ready for stalledAfterSeconds. "
        "The message quotes its status. Bireme only reports this, and does not stop it.",
        "kubectl describe of the replica's pod, and its logs. If you delete a replica, the whole "
        "gang restarts",
    )
    GANG_NOT_BOUND_IN_TIME = _Row(
        _TROUBLE,
        "GangNotBoundInTime",
        "kube-scheduler reported nothing about the gang's pods for bindTimeoutSeconds, or "
        "another pod took their room. Or new pods of a PodGroup found no places for that time. "
        "Bireme plans the whole gang again: at once if kube-scheduler binds no pods at all, and "
        "after a pause if it serves other gangs.",
        "nothing: it is planned again. If all gangs have this reason, the second kube-scheduler "
        "is down. If one has it, find out what keeps its pods from being bound",
    )
    UNSCHEDULABLE = _Row(
        _TROUBLE,
        "Unschedulable",
        "kube-scheduler rejects the planned node of a replica. The message quotes it. The gang "
        "returns its places at once and tries again after status.retryTime. It stops other gangs "
        "only after its spec, that node or the pods on that node have changed.",
        "change what the message names: a port, a volume, an affinity. After an edit of the spec "
        "Bireme tries again at once",
    )
    START_TIMED_OUT = _Row(
        _TROUBLE,
        "StartTimedOut",
        "The gang had its places for startTimeoutSeconds and did not run. The message quotes the "
        "status of its pods. Bireme tries again as after Unschedulable.",
        "change what the message names, mostly the image; after an edit of the spec Bireme tries "
        "again at once. A slow start needs a longer startTimeoutSeconds of the job or its queue",
    )
    NODE_LOST = _Row(
        _TROUBLE,
        "NodeLost",
        "A node of the plan was deleted or was not ready for nodeLostSeconds. Or it was "
        "cordoned, tainted or about to be deleted before the replica was bound. The whole gang "
        "restarts.",
        "nothing: it restarts on other nodes. See kubectl describe node",
    )
    NODE_MAINTENANCE = _Row(
        _WAITS,
        "NodeMaintenance",
        "The maintenance of a node of its plan has begun. The whole gang restarts on other nodes.",
        "nothing: it restarts on other nodes, and does not move again",
    )
    FASTER_GPUS = _Row(
        _WAITS,
        "FasterGpus",
        "No gang waits, and faster GPUs are free. They save more time than the restart costs, "
        "even if the gang has saved no checkpoint.",
        "nothing: it restarts on the faster GPUs. To turn such moves off, use the placer "
        "packing?moves=0",
    )
    POD_REJECTED = _Row(
        _TROUBLE,
        "PodRejected",
        "A kubelet refused a replica before it ran. The message quotes it. The whole gang "
        "restarts, and avoids that node for ten minutes. This does not count as a failure of the "
        "job. If the same node refuses it again, or a fifth node does, it pauses as after "
        "Unschedulable.",
        "nothing: it restarts on other nodes. If all nodes refuse it, change what the message "
        "names",
    )
    NODE_SUSPECTED = _Row(
        _TROUBLE,
        "NodeSuspected",
        "Gangs of two namespaces had trouble with this Node within an hour: its kubelet refused "
        "pods, or replicas failed there first. All gangs avoid it for ten minutes, unless they "
        "already avoid a tenth of its pool. Only an event reports this.",
        "kubectl describe of the node, and the log of its kubelet. Gangs use it again after ten "
        "minutes",
    )
    POD_LOST = _Row(
        _TROUBLE,
        "PodLost",
        "A replica was deleted, evicted or disrupted from outside. The whole gang restarts.",
        "nothing: it restarts. The pod's events name the cause",
    )
    POD_FAILED = _Row(
        _TROUBLE,
        "PodFailed",
        "A replica failed by itself. The message has the cause. The whole gang restarts, which "
        "counts against backoffLimit. If a member of a PodGroup fails, its controller decides "
        "what follows.",
        "the logs of the replica that the message names",
    )
    PODS_CHANGED = _Row(
        _TROUBLE,
        "PodsChanged",
        "Admission changed pods of the gang: they request more than was planned, or have labels "
        "that pod rules select. Bireme plans the whole gang again with these pods.",
        "nothing: it is planned again. Correct the webhook or policy if it should not change "
        "these pods",
    )
    DRY_RUN_UNSUPPORTED = _Row(
        _TROUBLE,
        "DryRunUnsupported",
        "An admission webhook refuses dry runs, so Bireme sees its changes only when pods exist. "
        "Bireme plans the gang by its spec. Only an event reports this.",
        "have the webhook declare sideEffects None or NoneOnDryRun",
    )
    TASKS_EDITED = _Row(
        _WAITS,
        "TasksEdited",
        "spec.tasks was edited before all replicas ran. The whole gang restarts with the new spec.",
        "nothing: it restarts with the new spec",
    )
    SUSPENDED = _Row(
        _WAITS,
        "Suspended",
        "spec.runPolicy.suspend is true. The gang holds no places and does not wait in a queue.",
        "resume it: spec.runPolicy.suspend: false",
    )
    SUCCEEDED = _Row(
        _WELL,
        "Succeeded",
        "The replicas that decide for the job ended well: its leader, or all training replicas "
        "(spec.runPolicy.successPolicy). In a PodGroup, all members ended well.",
        "nothing: it has ended",
    )
    BACKOFF_LIMIT_EXCEEDED = _Row(
        _BROKEN,
        "BackoffLimitExceeded",
        "A replica failed after backoffLimit restarts. The job has failed.",
        "correct the fault that its logs show and create it anew, or allow more restarts by "
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
        "The queue is open and below its limits, and gangs start in it.",
        "nothing: gangs start in it",
    )

    # Policies, not gangs: whether a SchedulingPolicy decides, and how well.
    POLICY_LOADED = _Row(
        _WELL,
        "PolicyLoaded",
        "The policy is loaded, and decides or is compared as a shadow.",
        "nothing: it is in use",
    )
    LOAD_FAILED = _Row(
        _BROKEN,
        "LoadFailed",
        "The policy cannot be loaded. The message has the cause, and names the policy that "
        "decides meanwhile.",
        "correct what the message names; Bireme tries again every 30 s",
    )
    SUPERSEDED = _Row(
        _WAITS,
        "Superseded",
        "Another policy decides instead: an older Active SchedulingPolicy, a promoted one, or "
        "older canaries that name all of its queues.",
        "delete one of the two, or make one a Shadow",
    )
    TOO_MANY_SHADOWS = _Row(
        _WAITS,
        "TooManyShadows",
        "Older shadows or canaries already reach the limit of loaded policies.",
        "delete a shadow that you no longer need",
    )
    ROLLED_BACK = _Row(
        _WAITS,
        "RolledBack",
        "Bireme rolled the policy back, as its condition RolledBack says. It decides nothing.",
        "correct it and change its spec, which begins the rollout anew; or delete it",
    )
    POLICY_OVERRULED = _Row(
        _BROKEN,
        "PolicyOverruled",
        "Recent answers of the policy were invalid or late, and the rules decided in its place.",
        "the message has the latest fault; use a smaller network if it is late, or another "
        "checkpoint if its answers are invalid",
    )
    ANSWERS_VALID = _Row(
        _WELL_SILENT,
        "AnswersValid",
        "The rules have not recently decided in its place.",
        "nothing: its answers are used",
    )
    OUTCOME_BETTER = _Row(
        _WELL,
        "OutcomeBetter",
        "Bireme promoted the policy: the whole interval of its saving lies above the margin.",
        "nothing: it decides",
    )
    OUTCOME_WORSE = _Row(
        _TROUBLE,
        "OutcomeWorse",
        "Bireme rolled the policy back: the whole interval of the saving without it lies above "
        "the margin.",
        "another policy, or other parameters: a change of the spec begins the rollout anew",
    )
    RULES_ANSWERED = _Row(
        _TROUBLE,
        "RulesAnswered",
        "Bireme rolled the policy back: the rules answered in its place in more than half of its "
        "latest 20 cycles.",
        "correct what its condition RolledBack names; a change of the spec begins the rollout anew",
    )
    COMPARISON_OPEN = _Row(
        _WAITS,
        "ComparisonOpen",
        "The comparison has no result yet. The message has the numbers so far.",
        "time, until enough samples are compared",
    )

    # Node pools: what becomes of the floor of a NodePoolScaler.
    FORECAST_ONLY = _Row(
        _WELL_SILENT,
        "ForecastOnly",
        "In mode ForecastOnly Bireme reports the floor and does not change the target.",
        "nothing; mode Apply changes the target",
    )
    AT_FLOOR = _Row(
        _WELL_SILENT,
        "AtFloor",
        "The target has as many nodes as the floor, or more that may not be removed yet.",
        "nothing: the pool has the nodes that it needs",
    )
    RAISED = _Row(
        _WELL,
        "Raised",
        "Bireme has requested more nodes from the target, or requested nodes are still coming.",
        "time, until the nodes are there",
    )
    LOWERED = _Row(
        _WELL,
        "Lowered",
        "Bireme has requested fewer nodes from the target, or empty nodes are still being removed.",
        "time, until the nodes are gone",
    )
    AT_MAX = _Row(
        _WAITS,
        "AtMax",
        "The pool needs more nodes than spec.max allows.",
        "a higher spec.max, or time",
    )
    ABOVE_MAX = _Row(
        _TROUBLE,
        "AboveMax",
        "The target already has more nodes than spec.max. Bireme does not change it.",
        "a higher spec.max, or fewer replicas in the target",
    )
    TARGET_NOT_FOUND = _Row(
        _BROKEN,
        "TargetNotFound",
        "The scaleTargetRef names no object that has a scale.",
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
        "The API server gave no answer about the target, or an error. Bireme tries again with "
        "growing pauses.",
        "time; or correct the server of the target's kind",
    )
    REPLICAS_OWNED_BY_ANOTHER = _Row(
        _BROKEN,
        "ReplicasOwnedByAnother",
        "Another manager owns the target's replicas. Bireme does not write them.",
        "remove the field from the other manager's object, as the message shows",
    )

    # And what its forecast is.
    FORECAST_MADE = _Row(
        _WELL_SILENT,
        "Forecast",
        "The model that was most accurate lately made the forecast.",
        "nothing: it is used",
    )
    SEASONAL_NAIVE_USED = _Row(
        _WELL_SILENT,
        "SeasonalNaiveUsed",
        "The forecast repeats earlier days, because no model was more accurate lately.",
        "nothing: it is used; a model may be more accurate when more days are recorded",
    )
    TOO_LITTLE_HISTORY = _Row(
        _WAITS_SILENT,
        "TooLittleHistory",
        "Too few hours are recorded for a model. The forecast repeats earlier days, or is empty "
        "if there are none.",
        "time: models need 14 days",
    )
    HISTORY_HAS_GAPS = _Row(
        _WAITS_SILENT,
        "HistoryHasGaps",
        "Too few hours are recorded since the latest gap. The forecast repeats earlier days, or "
        "is empty if there are none.",
        "time: models need 14 days without a gap",
    )
    HISTORY_UNAVAILABLE = _Row(
        _WAITS_SILENT,
        "HistoryUnavailable",
        "Prometheus returned no history tonight. The last forecast stays.",
        "correct spec.history.prometheus, or let the job reach it (networkPolicies.egress)",
    )
    FORECAST_STALE = _Row(
        _TROUBLE,
        "Stale",
        "The last forecast is older than 26 hours and is not used.",
        "the jobs of the forecast CronJob, and their logs",
    )
    FORECAST_FAILED = _Row(
        _BROKEN_SILENT,
        "Failed",
        "The forecast failed. The message has the cause. The last forecast stays.",
        "correct what the message names",
    )
