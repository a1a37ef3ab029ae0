"""What jobs cost: the rent of the GPUs they hold, for as long as they hold them.

The fee of a job is the sum over its runs and machines of price, GPUs and hours (Xing et al., DAS).
"""

from collections.abc import Sequence

import numpy as np

from bireme.core.nodes import Node
from bireme.core.resources import FloatArray
from bireme.core.times import HOUR
from bireme.kube.gpu_models import GPU_MODEL_LABEL, gpu_model
from bireme.simulator.outcome import JobRecord, Outcome
from bireme.simulator.quantities import gpus_by_task


def fee_dollars(outcome: Outcome, nodes: Sequence[Node]) -> FloatArray:
    """The fee of every job, shape (jobs,), at what the GPU models of ``nodes`` cost to rent."""
    prices = {
        node.name: gpu_model(node.labels.get(GPU_MODEL_LABEL, "")).dollars_per_hour
        for node in nodes
    }
    return np.array([_fee(record, prices) for record in outcome.jobs], dtype=float)


def _fee(record: JobRecord, prices: dict[str, float]) -> float:
    gpus = gpus_by_task(record.job)
    return sum(
        (span.ended - span.began) / HOUR * prices[node] * gpus[task] * replicas
        for span in record.spans
        for task, node, replicas in span.places
    )
