"""The eight weights of the learned index, in the shipped network, without torch.

:mod:`bireme_lab.training.index.networks` has the formula. The exported network has one constant for
each weight, already in its range. So other weights need no training program.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from bireme.core.resources import FloatArray
from bireme.onnx import cards
from bireme.onnx.cards import Card, PartCard
from bireme.onnx.checkpoints import read_card, read_file
from bireme.onnx.constants import read_constants, with_constants
from bireme.rl.checkpoint import Checkpoint, load
from bireme.rl.lookup import find_folder

NAME: Final = "learned-index"


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight: its constant in the network, its bounds, and the first step of a search."""

    constant: str
    minimum: float
    maximum: float
    scale: float


WEIGHTS: Final[Mapping[str, Weight]] = {
    # log2 of the seconds of a gang without an estimate
    "unknown": Weight("getitem", 4.0, 20.0, 1.0),
    # the weight of an estimate, against `unknown`
    "trust": Weight("clamp", 0.0, 1.0, 0.15),
    # added to log2 of the seconds
    "margin": Weight("getitem_2", -8.0, 4.0, 0.7),
    # subtracted from log2 of the seconds in the first five minutes
    "fresh": Weight("clamp_1", 0.0, 10.0, 1.0),
    # added to log2 of the service so far
    "tail": Weight("getitem_4", -6.0, 4.0, 0.7),
    # log2 of the minimum seconds
    "least": Weight("getitem_5", 0.0, 14.0, 0.7),
    # the power of the devices
    "size": Weight("clamp_2", 0.0, 1.5, 0.18),
    # the distance of two gangs for a preemption, in powers of two
    "step": Weight("add_6", 0.25, 6.0, 0.5),
}
"""The weights by name, in the order of the network's own."""
_DECIMALS: Final = 4


def shipped_weights() -> FloatArray:
    """Return the weights of the index that comes with Bireme, shape (weights,)."""
    constants = read_constants(_load_shipped()[2], NAME)
    return np.array([constants[weight.constant] for weight in WEIGHTS.values()])


def clip_weights(values: FloatArray) -> FloatArray:
    """Return ``values``, shape (weights,), clipped to their bounds and rounded for output."""
    minima = [weight.minimum for weight in WEIGHTS.values()]
    maxima = [weight.maximum for weight in WEIGHTS.values()]
    return np.asarray(np.clip(values, minima, maxima).round(_DECIMALS))


def write_checkpoint(values: FloatArray, card: Card, folder: Path) -> Checkpoint:
    """Write the index with ``values`` into a new ``folder``, and load it.

    ``card`` describes the search; its parts are replaced.

    Raises:
        CheckpointError: the written checkpoint cannot be used.
    """
    part, model = _with_weights(values)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / part.file).write_bytes(model)
    whole = msgspec.structs.replace(card, parts=cards.Parts(orderer=part))
    (folder / cards.CARD_FILE).write_bytes(cards.encode(whole))
    return load(folder)


def shipped_card() -> Card:
    """Return the card of the index that comes with Bireme."""
    return _load_shipped()[0]


def _with_weights(values: FloatArray) -> tuple[PartCard, bytes]:
    card, _, model = _load_shipped()
    pairs = zip(WEIGHTS.values(), values.tolist(), strict=True)
    network = with_constants(model, {weight.constant: value for weight, value in pairs}, NAME)
    assert card.parts.orderer is not None  # noqa: S101  # _load_shipped has checked it
    digest = sha256(network).hexdigest()
    return msgspec.structs.replace(card.parts.orderer, sha256=digest, bytes=len(network)), network


@cache
def _load_shipped() -> tuple[Card, str, bytes]:
    """Return card, sha256 and network of the shipped index."""
    folder = find_folder(NAME)
    card, digest = read_card(folder)
    part = load(folder).card.parts.orderer
    assert part is not None  # noqa: S101  # the shipped checkpoint has one
    return card, digest, read_file(folder, part.file, part.bytes)
