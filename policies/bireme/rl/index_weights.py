"""The eight weights of the learned index, in the network that is shipped, without torch.

:mod:`bireme.training.index.networks` has the formula. The exported network holds each weight as one
constant, already in its range; so other weights need no training program.
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
from bireme.rl.lookup import named_folder

NAME: Final = "learned-index"


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight: its constant in the network, its bounds, and how far a search first looks."""

    constant: str
    least: float
    most: float
    scale: float


WEIGHTS: Final[Mapping[str, Weight]] = {
    # log2 of the seconds of a gang without an estimate
    "unknown": Weight("getitem", 4.0, 20.0, 1.0),
    # how far an estimate counts, against `unknown`
    "trust": Weight("clamp", 0.0, 1.0, 0.15),
    # added to log2 of the seconds
    "margin": Weight("getitem_2", -8.0, 4.0, 0.7),
    # taken from them in the first five minutes
    "fresh": Weight("clamp_1", 0.0, 10.0, 1.0),
    # added to log2 of the service so far
    "tail": Weight("getitem_4", -6.0, 4.0, 0.7),
    # log2 of the seconds below which all count alike
    "least": Weight("getitem_5", 0.0, 14.0, 0.7),
    # the power of the devices
    "size": Weight("clamp_2", 0.0, 1.5, 0.18),
    # how far apart two gangs must be for one to stop the other, in powers of two
    "step": Weight("add_6", 0.25, 6.0, 0.5),
}
"""By name, in the order of the network's own."""
_DECIMALS: Final = 4


def shipped_weights() -> FloatArray:
    """Return the weights of the index that comes with Bireme, shape (weights,)."""
    found = read_constants(_shipped()[2], NAME)
    return np.array([found[weight.constant] for weight in WEIGHTS.values()])


def bounded(values: FloatArray) -> FloatArray:
    """Return ``values``, shape (weights,), within their bounds and rounded to be written down."""
    least = [weight.least for weight in WEIGHTS.values()]
    most = [weight.most for weight in WEIGHTS.values()]
    return np.asarray(np.clip(values, least, most).round(_DECIMALS))


def write_checkpoint(values: FloatArray, card: Card, folder: Path) -> Checkpoint:
    """Write the index with ``values`` into ``folder``, which is made, and load it.

    ``card`` says how it was found; its parts are replaced.

    Raises:
        CheckpointError: what was written cannot be used.
    """
    part, model = _with_weights(values)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / part.file).write_bytes(model)
    whole = msgspec.structs.replace(card, parts=cards.Parts(orderer=part))
    (folder / cards.CARD_FILE).write_bytes(cards.encode(whole))
    return load(folder)


def shipped_card() -> Card:
    """Return the card of the index that comes with Bireme."""
    return _shipped()[0]


def _with_weights(values: FloatArray) -> tuple[PartCard, bytes]:
    card, _, model = _shipped()
    named = zip(WEIGHTS.values(), values.tolist(), strict=True)
    made = with_constants(model, {weight.constant: value for weight, value in named}, NAME)
    assert card.parts.orderer is not None  # noqa: S101  # it was read below
    digest = sha256(made).hexdigest()
    return msgspec.structs.replace(card.parts.orderer, sha256=digest, bytes=len(made)), made


@cache
def _shipped() -> tuple[Card, str, bytes]:
    """Return card, its sha256 and network of the shipped index."""
    folder = named_folder(NAME)
    card, digest = read_card(folder)
    part = load(folder).card.parts.orderer
    assert part is not None  # noqa: S101  # what is shipped has one
    return card, digest, read_file(folder, part.file, part.bytes)
