"""What recipes need to judge a checkpoint: a network to ask, and runs that came to their end."""

from bireme.core.errors import BiremeError
from bireme.core.policy import PartName
from bireme.rl.checkpoints import Checkpoint
from bireme.rl.errors import CheckpointError
from bireme.rl.sessions import Session


class EvaluationError(BiremeError):
    """A seed could not be judged; the text says what went wrong in it."""


def session_of(checkpoint: Checkpoint, part: PartName) -> Session:
    """The network of ``part`` of ``checkpoint``; CheckpointError where it has none."""
    found = {
        "orderer": checkpoint.orderer,
        "placer": checkpoint.placer,
        "sizer": checkpoint.sizer,
    }[part]
    if found is None:
        raise CheckpointError(
            f"checkpoint {checkpoint.card.name!r} has no {part} to be judged; name one that has"
        )
    return found.session


def check_ended(contender: str, unfinished: int, fallbacks: int = 0) -> None:
    """EvaluationError unless ``contender`` finished every job and gave only valid answers."""
    if unfinished or fallbacks:
        raise EvaluationError(
            f"{contender}: {unfinished} jobs did not finish, {fallbacks} cycles fell back on the "
            "rules, so that its times compare with no others; correct it, or leave it out"
        )
