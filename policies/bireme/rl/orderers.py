"""Learned orders: gangs by the score that a network gives them."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.resources import FloatArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import Standing, ranked
from bireme.rl.checkpoints import Checkpoint
from bireme.rl.errors import CheckpointError

LIMIT_SECONDS: Final = 1.0
"""How long an order may take; the rules order in the same cycle after that."""


class LearnedOrderer:
    """Highest score of a network first; where it says so, the score is also the claim.

    Without that, running gangs are never stopped. Ties: interrupted first, then arrival, uid.
    A cluster without nodes is no question to a network: all scores are 0.
    """

    def __init__(self, checkpoint: Checkpoint, limit_seconds: float = LIMIT_SECONDS) -> None:
        """Raises CheckpointError: ``checkpoint`` orders nothing."""
        if checkpoint.orderer is None:
            raise CheckpointError(
                f"checkpoint {checkpoint.card.name!r} has no orderer; it can only be a placer"
            )
        self.checkpoint = checkpoint
        self._part = checkpoint.orderer
        self._limit_seconds = limit_seconds
        self.keeps_kin_in_line = bool(getattr(self._part.encoder, "keeps_kin_in_line", False))

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """By descending score. Raises AnswerError where the network gives no valid answer."""
        if not gangs:
            return []
        # A gang may run and wait at once: then there are two of one uid.
        known = sorted(gangs, key=lambda gang: (gang.uid, gang.arrived))
        answer = self._scores(known, snapshot).tolist()
        scores = {id(gang): score for gang, score in zip(known, answer, strict=True)}
        claims = scores if self._part.card.stops_others else {}
        return ranked(
            gangs, lambda g: Standing((-scores[id(g)],), scores[id(g)], claims.get(id(g)))
        )

    def lowest_claim(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> float:
        """The lowest score of ``gangs``; infinite where nobody has a claim."""
        if not gangs or not self._part.card.stops_others:
            return np.inf
        return float(self._scores(gangs, snapshot).min())

    def _scores(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> FloatArray:
        if not len(snapshot.nodes):
            return np.zeros(len(gangs))  # nothing can start, and networks expect machines
        return self._part.scores(gangs, snapshot, self._limit_seconds)
