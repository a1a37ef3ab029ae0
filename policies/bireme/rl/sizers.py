"""Learned sizes: how many replicas elastic gangs should have, by the moves of a network."""

from collections.abc import Mapping, Sequence

from bireme.core.policy import Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.rl.checkpoints import Checkpoint
from bireme.rl.choosers import LIMIT_SECONDS, Chooser
from bireme.rl.errors import CheckpointError


class LearnedSizer:
    """Sizes as a checkpoint's network says; gangs that it leaves out go by the general rule.

    A cluster without nodes is no question to a network.
    """

    def __init__(self, checkpoint: Checkpoint, limit_seconds: float = LIMIT_SECONDS) -> None:
        """Raises CheckpointError: ``checkpoint`` sizes nothing."""
        if checkpoint.sizer is None:
            raise CheckpointError(
                f"checkpoint {checkpoint.card.name!r} has no sizer; name one that has, or a rule"
            )
        self.checkpoint = checkpoint
        self._part = checkpoint.sizer
        self._limit_seconds = limit_seconds
        self._chooser = Chooser(checkpoint, limit_seconds) if self._part.is_chooser else None

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """Raises AnswerError where the network gives no valid answer."""
        if not ranked or not len(snapshot.nodes):
            return {}
        if self._chooser is not None:
            return self._chooser.choices([e.gang for e in ranked], snapshot).sizes
        return self._part.sizes(ranked, snapshot, self._limit_seconds)
