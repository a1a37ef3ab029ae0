"""Names that Bireme writes into or reads from Kubernetes objects: groups, labels, paths.

Labels carry only data that selectors and the extender need. They are never trusted alone, because
tenants can set them too: the extender checks them against the plan in the status.
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
"""The queue that admitted a pod; its usage counts there while it runs."""
OF_ONE_START: Final = (INDEX_LABEL, PLAN_LABEL, ATTEMPT_LABEL)
"""Labels that differ between the replicas of a task, or between its starts."""
POD_LABELS: Final = (JOB_LABEL, POD_GROUP_LABEL, TASK_LABEL, ROLE_LABEL, QUEUE_LABEL, *OF_ONE_START)
"""Labels that Bireme sets on every pod of a TrainingJob; they override the template."""
SUSPENDED_LABEL: Final = f"{GROUP}/suspended-for"
"""Marks an external workload that Bireme suspends for a moment: the PodGroup's name."""

ENFORCE_LABEL: Final = f"{GROUP}/enforce"
"""``"true"`` on a namespace: the chart's admission policies then enforce its queues."""

KEPT_IN_PLACE: Final = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""Annotations of pods that keep Karpenter and cluster-autoscaler from removing their node."""

PLAN_MODE_PATH: Final = ".status.plan.mode"
"""Selectable field of a TrainingJob; absent without a plan, so it selects planned jobs."""

MAINTENANCE: Final = f"{GROUP}/maintenance"
"""Annotation of a Node: begin and end of its maintenance, in RFC 3339 with a slash between."""

RESUMABLE: Final = f"{GROUP}/resumable"
"""Annotation of a PodGroup: ``"true"`` if its gang resumes from a checkpoint after a stop."""

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
"""Label of a Namespace: the queue of its gangs that name no queue."""


def is_training_job(api_version: str, kind: str) -> bool:
    """Return whether this is Bireme's TrainingJob; other API groups have that kind too."""
    return kind == "TrainingJob" and api_version.startswith(f"{GROUP}/")


def pod_name(job: str, task: str, index: int) -> str:
    """Return the name of a replica's pod, which is also its host name; stable over restarts."""
    return f"{job}-{task}-{index}"


def address(job: tuple[str, str], task: str, index: int) -> str:
    """Return the DNS name of a replica of ``job``, under the job's headless Service."""
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
