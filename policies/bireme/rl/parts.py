"""Which parts of a policy a checkpoint can be, and those parts.

An orderer, a placer or a sizer needs a network of its own; a sizer's network that chooses serves as
all three.
"""

from bireme.core.policy import PARTS, Orderer, PartName, Placer, Sizer
from bireme.rl import encoders
from bireme.rl.cards import Card
from bireme.rl.checkpoints import Checkpoint
from bireme.rl.choosers import ChosenOrderer, ChosenPlacer
from bireme.rl.orderers import LearnedOrderer
from bireme.rl.placers import LearnedPlacer
from bireme.rl.protocols import ChoiceEncoder
from bireme.rl.sizers import LearnedSizer


def served(card: Card) -> tuple[PartName, ...]:
    """The parts that the checkpoint of ``card`` can be.

    Raises:
        CheckpointError: it asks for an encoder that this Bireme does not have.
    """
    parts = card.parts
    if parts.sizer is not None:
        encoder = encoders.size_encoder(parts.sizer.encoder)
        if isinstance(encoder, ChoiceEncoder):
            return PARTS
    return tuple(parts.by_name())


def orderer_of(checkpoint: Checkpoint) -> Orderer:
    """Raises CheckpointError: ``checkpoint`` orders nothing."""
    if checkpoint.orderer is None and _chooses(checkpoint):
        return ChosenOrderer(checkpoint)
    return LearnedOrderer(checkpoint)


def placer_of(checkpoint: Checkpoint) -> Placer:
    """Raises CheckpointError: ``checkpoint`` places nothing."""
    if checkpoint.placer is None and _chooses(checkpoint):
        return ChosenPlacer(checkpoint)
    return LearnedPlacer(checkpoint)


def sizer_of(checkpoint: Checkpoint) -> Sizer:
    """Raises CheckpointError: ``checkpoint`` sizes nothing."""
    return LearnedSizer(checkpoint)


def _chooses(checkpoint: Checkpoint) -> bool:
    return checkpoint.sizer is not None and checkpoint.sizer.is_chooser
