"""Encoders by name and version; a module is imported when a checkpoint asks for it.

A checkpoint cannot name code of its own, only encoders of these tables.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final, cast

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.resources import FloatArray
from bireme.onnx.errors import CheckpointError
from bireme.rl.protocols import ChoiceEncoder, OrderEncoder, PlaceEncoder, SizeEncoder

ORDER_ENCODERS: Final[Mapping[str, str]] = {
    "a2c-image/1": "bireme.rl.encoders.a2c:A2cImages",
    "a2c-jobs/1": "bireme.rl.encoders.a2c:A2cJobs",
    "das-jobs/1": "bireme.rl.encoders.das:DasJobs",
    "index-gangs/1": "bireme.rl.encoders.index:IndexGangs",
}
PLACE_ENCODERS: Final[Mapping[str, str]] = {
    "das-machines/1": "bireme.rl.encoders.das:DasMachines",
    "das-machines-unaware/1": "bireme.rl.encoders.das:UnawareDasMachines",
}
SIZE_ENCODERS: Final[Mapping[str, str]] = {
    "rlpto-tasks/1": "bireme.rl.encoders.rlpto:RlptoTasks",
    "tapfinger-pools/1": "bireme.rl.encoders.tapfinger:TapfingerPools",
}


def order_encoder(name: str) -> OrderEncoder:
    """Make the encoder of gangs ``name``; raises CheckpointError if there is none."""
    return cast(OrderEncoder, _make("gangs", ORDER_ENCODERS, name))


def place_encoder(name: str) -> PlaceEncoder:
    """Make the encoder of nodes ``name``; raises CheckpointError if there is none."""
    return cast(PlaceEncoder, _make("nodes", PLACE_ENCODERS, name))


def size_encoder(name: str) -> SizeEncoder | ChoiceEncoder:
    """Make the encoder of moves ``name``; raises CheckpointError if there is none."""
    return cast(SizeEncoder | ChoiceEncoder, _make("moves", SIZE_ENCODERS, name))


def _make(of: str, known: Mapping[str, str], name: str) -> object:
    path = known.get(name)
    if path is None:
        raise CheckpointError(
            f"encoder {name!r} is no encoder of {of} that this Bireme has "
            f"({', '.join(sorted(known)) or 'none'}); export the checkpoint with one of these, or "
            "run the version that made it"
        )
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)()


UNKNOWN_SECONDS: Final = 3600.0
"""The run time of all gangs where none has an estimate."""


def run_seconds(gangs: Sequence[Gang]) -> FloatArray:
    """Return estimated run times, (gangs,); their median for a gang without one."""
    known = [gang.estimated_seconds for gang in gangs if gang.estimated_seconds is not None]
    middle = float(np.median(known)) if known else UNKNOWN_SECONDS
    return np.array([middle if g.estimated_seconds is None else g.estimated_seconds for g in gangs])
