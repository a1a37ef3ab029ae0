"""Learned scores of nodes for one more replica: what the extender's ``prioritize`` asks for.

A placer's affinities only mean an order, so what is told is the rank among the nodes asked about.
Ranks are one tenth apart, because kube-scheduler takes whole points from 0 to 10: the best node is
alone at the top, unless the network judges several alike.
"""

from typing import Final

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.resources import FloatArray
from bireme.core.scores import ScoreQuestion
from bireme.rl.checkpoints import Checkpoint
from bireme.rl.errors import CheckpointError

LIMIT_SECONDS: Final = 0.5
"""How long a score may take; kube-scheduler waits two seconds for the extender."""
_RANKS: Final = 10


class LearnedScorer:
    """1 for the node of highest affinity, one tenth less for each that is worse, down to 0."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Raises CheckpointError: ``checkpoint`` places nothing."""
        if checkpoint.placer is None:
            raise CheckpointError(
                f"checkpoint {checkpoint.card.name!r} has no placer; nothing in it scores nodes"
            )
        self.checkpoint = checkpoint
        self._part = checkpoint.placer

    def score(self, question: ScoreQuestion) -> FloatArray:
        """float64, shape (candidates,), in [0, 1].

        Raises:
            AnswerError: the network gives no valid answer.
        """
        if not len(question.rows):
            return np.zeros(0)
        gang = Gang("", question.task.name, "", "", (question.task,), arrived=0.0)
        affinities = self._part.affinities(
            gang, question.task, question.capacity, question.peers, LIMIT_SECONDS
        )
        asked = affinities[question.rows]
        best = np.unique(asked)[-_RANKS:]
        rank = len(best) - np.searchsorted(best, asked, side="right")
        return np.where(asked < best[0], 0.0, 1.0 - rank / _RANKS)
