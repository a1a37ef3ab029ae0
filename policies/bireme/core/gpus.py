"""GPU models: training speed and rent by the value of a node's GPU label.

Both are rough, general knowledge, not facts about a job or a contract. They are good enough to see
that a gang over two models waits for the slower one, and that idle expensive GPUs are expensive.

Speeds are training throughput relative to one V100:

* P100: the median over the 83 jobs that Gavel measured on both models (Narayanan et al., OSDI 2020,
  simulation_throughputs.json).
* H100, H200, B200: rough ratios of published MLPerf Training results per GPU: H100 about 2.2 times
  A100 (v2.1 to v3.0), H200 about 1.15 times H100 (v4.0), B200 about 2 times H100 (v4.1 and v5.0).
  They depend much on the model that is trained. GH200 counts as an H100, GB200 as a B200.
* All others are assumptions, interpolated from NVIDIA's data sheets (dense FP16 tensor throughput
  and memory bandwidth). So is A100, on which the shipped DAS networks were trained.

Prices are assumptions: roughly what public clouds listed on demand from 2023 to 2025, or, for
workstation models, what smaller providers did.

Administrators add models, or change these, by the setting ``gpuModels``: texts such as
``R100=9.5:20``, name, speed and dollars an hour. ``bireme doctor`` and the metric
``bireme_unknown_gpu_models`` report a value that names no model of either. It counts as follows:

* With ``NVIDIA`` in front, as drivers since 2021 write it, and no word of an old product line: a
  model newer than the table, as fast and expensive as the fastest here.
* Anything else, or no label: a V100, as in a cluster of one such model.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Final

from bireme.core.errors import SettingError, find_duplicate

GPU: Final = "nvidia.com/gpu"
"""The extended resource for GPUs of a node."""

GPU_MODEL_LABEL: Final = "nvidia.com/gpu.product"
"""Node label with the GPU's model, as NVIDIA's GPU feature discovery writes it."""


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One model of GPU.

    Attributes:
        name: Words of its product name, in capitals.
        speed: Training speed of one, relative to a V100.
        dollars_per_hour: Rent of one.
        source: The source of the speed.
    """

    name: str
    speed: float
    dollars_per_hour: float
    source: str = "assumed, from data sheets"


_UNIT: Final = "the unit"
_GAVEL: Final = "Gavel's measurements, OSDI 2020"
_MLPERF: Final = "MLPerf Training, over the A100"


GPU_MODELS: Final = (
    GpuModel("A2", 0.15, 0.25),
    GpuModel("K80", 0.2, 0.45),
    GpuModel("P4", 0.25, 0.6),
    GpuModel("T4", 0.4, 0.35),
    GpuModel("P40", 0.5, 0.6),
    GpuModel("L4", 0.55, 0.7),
    GpuModel("RTX A4000", 0.6, 0.4),
    GpuModel("RTX 2080 TI", 0.65, 0.4),
    GpuModel("RTX 6000", 0.7, 0.6),
    GpuModel("RTX 8000", 0.7, 0.7),
    GpuModel("TITAN RTX", 0.7, 0.6),
    GpuModel("P100", 0.75, 1.46, _GAVEL),
    GpuModel("A10", 0.8, 1.0),
    GpuModel("RTX 3090", 0.9, 0.5),
    GpuModel("RTX A5000", 0.9, 0.6),
    GpuModel("A30", 1.0, 1.6),
    GpuModel("A40", 1.0, 1.3),
    GpuModel("V100", 1.0, 2.48, _UNIT),
    GpuModel("RTX A6000", 1.1, 0.8),
    GpuModel("L40", 1.2, 1.3),
    GpuModel("RTX 4090", 1.4, 0.7),
    GpuModel("RTX 6000 ADA", 1.4, 1.2),
    GpuModel("L40S", 1.5, 1.9),
    GpuModel("H20", 1.6, 3.0),
    GpuModel("A100", 1.7, 3.67),
    GpuModel("A800", 1.7, 3.67),
    GpuModel("RTX 5090", 1.9, 1.0),
    GpuModel("RTX PRO 6000", 2.1, 2.2),
    GpuModel("H800", 3.5, 8.0),
    GpuModel("H100", 3.7, 8.0, _MLPERF),
    GpuModel("GH200", 3.7, 8.0, _MLPERF),
    GpuModel("H200", 4.2, 8.5, _MLPERF),
    GpuModel("B200", 7.5, 14.0, _MLPERF),
    GpuModel("GB200", 7.5, 14.0, _MLPERF),
)
"""Slowest first; see the module for sources."""

UNKNOWN_MODEL: Final = GpuModel("", 1.0, 2.48)
"""A model without a label, or with an unknown one: counts as a V100."""

NEWER_MODEL: Final = GpuModel("", GPU_MODELS[-1].speed, GPU_MODELS[-1].dollars_per_hour)
"""A model that seems newer than the table: counts as the fastest in it."""

_OLD_LINES: Final = frozenset({"GEFORCE", "GTX", "QUADRO", "TESLA", "TITAN", "NVS"})
"""Product lines whose unknown members are old or made for screens."""

_ADDED: Final = re.compile(r"(?P<name>[^=:]*[^=:\s])\s*=\s*(?P<speed>[^=:]+):(?P<dollars>[^=:]+)")
_EXAMPLE: Final = "NAME=SPEED:DOLLARS, such as R100=9.5:20"


@cache
def read_gpu_models(texts: tuple[str, ...]) -> tuple[GpuModel, ...]:
    """Return the models of the setting ``gpu_models``, each ``NAME=SPEED:DOLLARS``.

    Raises:
        SettingError: a text has another form, a number is not above 0, or a name comes twice.
    """
    models = tuple(map(_read_gpu_model, texts))
    twice = find_duplicate(model.name for model in models)
    if twice is not None:
        raise SettingError(f"gpu_models has {twice!r} twice; leave one out")
    return models


def _read_gpu_model(text: str) -> GpuModel:
    parts = _ADDED.fullmatch(text.strip())
    try:
        if parts is None:
            raise ValueError
        speed, dollars = float(parts["speed"]), float(parts["dollars"])
    except ValueError:
        raise SettingError(f"gpu_models has {text!r}; write {_EXAMPLE}") from None
    if not (0 < speed < inf and 0 < dollars < inf):
        raise SettingError(
            f"gpu_models has {text!r}; speed (of a V100) and dollars an hour must be above 0"
        )
    # Words as in a label, which has a dash between them.
    return GpuModel(" ".join(_words(parts["name"])), speed, dollars, "the setting gpu_models")


def gpu_model(product: str, added: Sequence[GpuModel] = ()) -> GpuModel:
    """Return the model that the label's value names: ``Tesla-V100-SXM2-16GB`` is a V100.

    Models in ``added`` precede models of the table with names of equal length.
    """
    named = _find_model(product, tuple(added))
    if named is not None:
        return named
    tokens = _words(product)
    is_newer = tokens[0] == "NVIDIA" and len(tokens) > 1 and _OLD_LINES.isdisjoint(tokens)
    return NEWER_MODEL if is_newer else UNKNOWN_MODEL


def is_known_gpu_model(product: str, added: Sequence[GpuModel] = ()) -> bool:
    """Return whether the label's value names a model of the table, or one of ``added``."""
    return _find_model(product, tuple(added)) is not None


def _find_model(product: str, added: tuple[GpuModel, ...]) -> GpuModel | None:
    tokens = _words(product)
    return next((m for m in _by_length(added) if _names(tokens, m.name.split())), None)


@cache
def _by_length(added: tuple[GpuModel, ...]) -> list[GpuModel]:
    # The longest name first: "L40S" is no "L40", and "RTX 6000 ADA" no "RTX 6000".
    return sorted((*added, *GPU_MODELS), key=lambda model: -len(model.name))


def _words(product: str) -> list[str]:
    return re.split(r"[-_ ]", product.upper())


def _names(tokens: list[str], name: list[str]) -> bool:
    """Return whether ``tokens`` contain ``name``; letters may follow, as in ``V100S``, ``A10G``.

    Digits may not follow: an ``A100`` is no ``A10``. Letters may not precede: ``MIT4`` is no
    ``T4``.
    """
    size = len(name)
    return any(
        tokens[start : start + size - 1] == name[:-1]
        and re.match(rf"{re.escape(name[-1])}(?!\d)", tokens[start + size - 1])
        for start in range(len(tokens) - size + 1)
    )
