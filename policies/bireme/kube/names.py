"""Every name Bireme writes into or reads from Kubernetes objects, once.

Labels carry only what selectors and the extender need; nothing here is trusted on its own:
a label is a claim, the operator's plan in ``PodGroup.status`` is the truth it is checked against.
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
"""How often the gang was (re)started before this pod was made: ``"0"`` for the first start."""
PLAN_LABEL: Final = f"{GROUP}/plan"
"""The plan a pod was created from, ``<epoch>.<attempt>``; the extender refuses any other."""
QUEUE_LABEL: Final = f"{GROUP}/queue"
"""The queue a pod was admitted in: what it uses counts there for as long as it runs."""

FIELD_MANAGER: Final = "bireme-operator"
OPERATOR_LEASE: Final = "bireme-operator"

PLURALS: Final = {
    "TrainingJob": "trainingjobs",
    "PodGroup": "podgroups",
    "Queue": "queues",
    "SchedulingPolicy": "schedulingpolicies",
    "NodePoolScaler": "nodepoolscalers",
}
"""What objects of a kind are called in paths."""
SHORT_NAMES: Final = {
    "TrainingJob": "btj",
    "PodGroup": "bpg",
    "Queue": "bq",
    "SchedulingPolicy": "bsp",
    "NodePoolScaler": "bnps",
}
GANG_KINDS: Final = ("TrainingJob", "PodGroup")

DEFAULT_QUEUE: Final = "default"


def is_training_job(api_version: str, kind: str) -> bool:
    """Whether these name Bireme's TrainingJob; other API groups have kinds of that name."""
    return kind == "TrainingJob" and api_version.startswith(f"{GROUP}/")


def path(plural: str, namespace: str | None = None, name: str | None = None) -> str:
    """The API path of a Bireme kind: a collection, or one object when ``name`` is given."""
    parts = [f"/apis/{API_VERSION}"]
    if namespace is not None:
        parts.append(f"namespaces/{namespace}")
    parts.append(plural)
    if name is not None:
        parts.append(name)
    return "/".join(parts)
