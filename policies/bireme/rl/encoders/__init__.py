"""Encoders by name and version; a module is imported when a checkpoint names it.

A checkpoint cannot name code of its own, only encoders of :mod:`bireme.policy_names`.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from bireme import policy_names
from bireme.core.gangs import Gang
from bireme.core.policy import PartName
from bireme.core.resources import FloatArray
from bireme.onnx.errors import CheckpointError
from bireme.rl.protocols import AXES


def make(part: PartName, name: str) -> Any:
    """Make the encoder ``name`` of a checkpoint's ``part``; CheckpointError for an unknown one."""
    path = policy_names.encoder_path(part, name)
    if not path:
        raise CheckpointError(
            f"encoder {name!r} is no encoder of {AXES[part]} that this Bireme has "
            f"({', '.join(policy_names.encoder_paths(part)) or 'none'}); export the checkpoint "
            f"with one of these, or run the version that made it{policy_names.lab_remedy()}"
        )
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)()


UNKNOWN_SECONDS: Final = 3600.0
"""The run time of all gangs if none has an estimate."""


def run_seconds(gangs: Sequence[Gang]) -> FloatArray:
    """Return estimated run times, (gangs,); the median for a gang without an estimate."""
    estimates = [gang.estimated_seconds for gang in gangs if gang.estimated_seconds is not None]
    middle = float(np.median(estimates)) if estimates else UNKNOWN_SECONDS
    return np.array([middle if g.estimated_seconds is None else g.estimated_seconds for g in gangs])
