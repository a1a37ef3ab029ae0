"""Learned orders: gangs by the score that a network gives them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import Standing, ranked
from bireme.rl.checkpoints import Checkpoint
from bireme.rl.errors import CheckpointError

LIMIT_SECONDS: Final = 1.0
"""How long an order may take; the rules order in the same cycle after that."""


class ScoredOrderer(ABC):
    """Highest score first; where ``stops_others`` says so, the score is also the claim.

    Without that, running gangs are never stopped. Ties: interrupted first, then arrival, uid.
    """

    stops_others: bool

    @abstractmethod
    def scores(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[float]:
        """One for each of ``gangs``, of which there is at least one."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """By descending score."""
        if not gangs:
            return []
        # A gang may run and wait at once: then there are two of one uid.
        known = sorted(gangs, key=lambda gang: (gang.uid, gang.arrived))
        answer = self.scores(known, snapshot)
        scores = {id(gang): score for gang, score in zip(known, answer, strict=True)}
        claims = scores if self.stops_others else {}
        return ranked(
            gangs, lambda g: Standing((-scores[id(g)],), scores[id(g)], claims.get(id(g)))
        )

    def lowest_claim(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> float:
        """The lowest score of ``gangs``; infinite where nobody has a claim."""
        if not gangs or not self.stops_others:
            return math.inf
        return min(self.scores(gangs, snapshot))


class LearnedOrderer(ScoredOrderer):
    """Orders by the scores of a checkpoint's network.

    A cluster without nodes is no question to a network: all scores are 0.
    """

    def __init__(self, checkpoint: Checkpoint, limit_seconds: float = LIMIT_SECONDS) -> None:
        """Raises CheckpointError: ``checkpoint`` orders nothing."""
        if checkpoint.orderer is None:
            raise CheckpointError(
                f"checkpoint {checkpoint.card.name!r} has no orderer; name one that has, or a rule"
            )
        self.checkpoint = checkpoint
        self._part = checkpoint.orderer
        self._limit_seconds = limit_seconds
        self.stops_others = self._part.card.stops_others
        self.keeps_kin_in_line = bool(getattr(self._part.encoder, "keeps_kin_in_line", False))

    def scores(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[float]:
        """Raises AnswerError where the network gives no valid answer."""
        if not len(snapshot.nodes):
            return [0.0] * len(gangs)  # nothing can start, and networks expect machines
        found: list[float] = self._part.scores(gangs, snapshot, self._limit_seconds).tolist()
        return found
