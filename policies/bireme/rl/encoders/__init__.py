"""Encoders by name and version; a module is imported when a checkpoint names it.

A checkpoint cannot name code of its own, only encoders of these tables.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.policy import PartName
from bireme.core.resources import FloatArray
from bireme.onnx.errors import CheckpointError
from bireme.rl.protocols import AXES

ENCODERS: Final[Mapping[PartName, Mapping[str, str]]] = {
    "orderer": {
        "a2c-image/1": "bireme.rl.encoders.a2c:A2cImages",
        "a2c-jobs/1": "bireme.rl.encoders.a2c:A2cJobs",
        "das-jobs/1": "bireme.rl.encoders.das:DasJobs",
        "index-gangs/1": "bireme.rl.encoders.index:IndexGangs",
    },
    "placer": {
        "das-machines/1": "bireme.rl.encoders.das:DasMachines",
        "das-machines-unaware/1": "bireme.rl.encoders.das:UnawareDasMachines",
    },
    "sizer": {
        "rlpto-tasks/1": "bireme.rl.encoders.rlpto:RlptoTasks",
        "tapfinger-pools/1": "bireme.rl.encoders.tapfinger:TapfingerPools",
        "tapfinger-types/1": "bireme.rl.encoders.tapfinger_types:TapfingerTypes",
    },
}


def make(part: PartName, name: str) -> Any:
    """Make the encoder ``name`` of a checkpoint's ``part``; CheckpointError for an unknown one."""
    paths = ENCODERS[part]
    path = paths.get(name)
    if path is None:
        raise CheckpointError(
            f"encoder {name!r} is no encoder of {AXES[part]} that this Bireme has "
            f"({', '.join(sorted(paths)) or 'none'}); export the checkpoint with one of these, or "
            "run the version that made it"
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
