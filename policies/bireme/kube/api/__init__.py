"""The kinds of ``bireme.dev/v1alpha1`` as pydantic models, from which the CRDs are generated.

Field docstrings become ``kubectl explain``, limits become schema limits, and rules across fields
become CEL (:class:`~bireme.kube.api.base.Rule`). The API server enforces them all. To read an
object back, pass ``extra="ignore"`` to ``model_validate``: then a newer CRD with more fields does
not stop an older operator.
"""

from bireme.kube.api.base import Condition
from bireme.kube.api.node_pool_scaler import (
    NodePoolScaler,
    NodePoolScalerSpec,
    NodePoolScalerStatus,
)
from bireme.kube.api.pod_group import PodGroup, PodGroupSpec, PodGroupStatus
from bireme.kube.api.queues import QueueResource, QueueSpec, QueueStatus
from bireme.kube.api.scheduling_policy import (
    SchedulingPolicy,
    SchedulingPolicySpec,
    SchedulingPolicyStatus,
)
from bireme.kube.api.training_job import TrainingJob, TrainingJobSpec, TrainingJobStatus

__all__ = [
    "Condition",
    "NodePoolScaler",
    "NodePoolScalerSpec",
    "NodePoolScalerStatus",
    "PodGroup",
    "PodGroupSpec",
    "PodGroupStatus",
    "QueueResource",
    "QueueSpec",
    "QueueStatus",
    "SchedulingPolicy",
    "SchedulingPolicySpec",
    "SchedulingPolicyStatus",
    "TrainingJob",
    "TrainingJobSpec",
    "TrainingJobStatus",
]
