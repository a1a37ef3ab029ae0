"""Names that Bireme writes into or reads from Kubernetes objects: groups, labels, paths.

Labels carry only what selectors and the extender need. They are never trusted alone, because
tenants can set them too: the extender checks them against the plan in ``PodGroup.status``.
"""

from typing import Final

GROUP: Final = "bireme.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

SCHEDULER_NAME: Final = "bireme"
"""``spec.schedulerName`` of every pod that Bireme's kube-scheduler profile binds."""

PLAN_GATE: Final = f"{GROUP}/plan"
"""Scheduling gate that holds pods of other controllers until their gang is planned."""

JOB_LABEL: Final = f"{GROUP}/training-job"
POD_GROUP_LABEL: Final = f"{GROUP}/pod-group"
TASK_LABEL: Final = f"{GROUP}/task"
ROLE_LABEL: Final = f"{GROUP}/role"
INDEX_LABEL: Final = f"{GROUP}/index"
ATTEMPT_LABEL: Final = f"{GROUP}/attempt"
"""Number of restarts of the gang before this pod was created: ``"0"`` for the first start."""
PLAN_LABEL: Final = f"{GROUP}/plan"
"""The plan a pod was created from, ``<epoch>.<attempt>``; the extender refuses any other."""
QUEUE_LABEL: Final = f"{GROUP}/queue"
"""The queue a pod was admitted in; its usage counts there for as long as it runs."""
OF_ONE_START: Final = (INDEX_LABEL, PLAN_LABEL, ATTEMPT_LABEL)
"""Labels that differ between the replicas of a task, or between its starts."""
POD_LABELS: Final = (JOB_LABEL, POD_GROUP_LABEL, TASK_LABEL, ROLE_LABEL, QUEUE_LABEL, *OF_ONE_START)
"""Labels of every pod of a TrainingJob, whatever its template says."""
SUSPENDED_LABEL: Final = f"{GROUP}/suspended-for"
"""Marks a Job or JobSet of others that Bireme has suspended for a moment: the PodGroup's name."""

ENFORCE_LABEL: Final = f"{GROUP}/enforce"
"""``"true"`` on a namespace that keeps its queues: the chart's admission policies look for it."""

KEPT_IN_PLACE: Final = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""Annotations of pods by which Karpenter and cluster-autoscaler leave their node alone."""

PLAN_MODE_PATH: Final = ".status.plan.mode"
"""Selectable field of a TrainingJob: absent without a plan, which selects those that have one."""

MAINTENANCE: Final = f"{GROUP}/maintenance"
"""Annotation of a Node: begin and end of its maintenance, in RFC 3339 with a slash between."""

RESUMABLE: Final = f"{GROUP}/resumable"
"""Annotation of a PodGroup: ``"true"`` where its gang goes on from a checkpoint after a stop."""

FIELD_MANAGER: Final = "bireme-operator"
OPERATOR_LEASE: Final = "bireme-operator"

PLURALS: Final = {
    "TrainingJob": "trainingjobs",
    "PodGroup": "podgroups",
    "Queue": "queues",
    "SchedulingPolicy": "schedulingpolicies",
    "NodePoolScaler": "nodepoolscalers",
    "ClusterClaim": "clusterclaims",
    "Ticket": "tickets",
}
"""Plural of each kind, as in API paths."""
SHORT_NAMES: Final = {
    "TrainingJob": "btj",
    "PodGroup": "bpg",
    "Queue": "bq",
    "SchedulingPolicy": "bsp",
    "NodePoolScaler": "bnps",
    "ClusterClaim": "bcc",
    "Ticket": "btk",
}
GANG_KINDS: Final = ("TrainingJob", "PodGroup")

DEFAULT_QUEUE: Final = "default"
DEFAULT_QUEUE_LABEL: Final = f"{GROUP}/default-queue"
"""Label of a Namespace: the queue of its gangs that name none, instead of ``default``."""


def is_training_job(api_version: str, kind: str) -> bool:
    """Return whether this is Bireme's TrainingJob; other API groups have one too."""
    return kind == "TrainingJob" and api_version.startswith(f"{GROUP}/")


def pod_name(job: str, task: str, index: int) -> str:
    """Return the name of a replica's pod. It is also its host name, the same over restarts."""
    return f"{job}-{task}-{index}"


def address(job: tuple[str, str], task: str, index: int) -> str:
    """Return the name of a replica to DNS, under the headless Service of its job's key."""
    namespace, name = job
    return f"{pod_name(name, task, index)}.{name}.{namespace}.svc"


def path(plural: str, namespace: str | None = None, name: str | None = None) -> str:
    """Return the API path of a Bireme kind: a collection, or one object if ``name`` is given."""
    parts = [f"/apis/{API_VERSION}"]
    if namespace is not None:
        parts.append(f"namespaces/{namespace}")
    parts.append(plural)
    if name is not None:
        parts.append(name)
    return "/".join(parts)
