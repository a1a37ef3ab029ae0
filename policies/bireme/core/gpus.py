"""What a node's GPU label tells: how fast the model trains, and what it costs to rent.

Both are general knowledge, not facts about one job or one contract: rough, but enough to see that
a gang over two models waits for the slower one, and that idle expensive GPUs are expensive.
"""

import re
from dataclasses import dataclass
from typing import Final

GPU: Final = "nvidia.com/gpu"
"""The extended resource that a GPU is on a node."""

GPU_MODEL_LABEL: Final = "nvidia.com/gpu.product"
"""Node label with the GPU's model, as NVIDIA's GPU feature discovery writes it."""


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One model of GPU.

    Attributes:
        name: A word of its product name.
        speed: How fast it trains, V100 being 1.
        dollars_per_hour: Rent of one.
    """

    name: str
    speed: float
    dollars_per_hour: float


GPU_MODELS: Final = (
    GpuModel("T4", 0.4, 0.35),
    GpuModel("P100", 0.75, 1.46),
    GpuModel("V100", 1.0, 2.48),
    GpuModel("A100", 1.7, 3.67),
)
"""Slowest first. P100: the median over the 83 jobs that Gavel measured on both (Narayanan et al.,
OSDI 2020, simulation_throughputs.json). T4, A100 and all prices (on demand, as public clouds listed
them around 2023) are assumptions."""

UNKNOWN_MODEL: Final = GpuModel("", 1.0, 2.48)
"""Stands for a label that is missing or names none of the above: a cluster of one such model."""


def gpu_model(product: str) -> GpuModel:
    """The model that the label's value ``product`` names: ``Tesla-V100-SXM2-16GB`` is a V100."""
    words = re.split(r"[-_ ]", product.upper())
    found = (model for model in GPU_MODELS for word in words if word.startswith(model.name))
    return next(found, UNKNOWN_MODEL)
