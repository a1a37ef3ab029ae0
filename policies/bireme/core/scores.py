"""What a scorer is: something that says how much better one node is for one more replica.

Score mode places pods one at a time, after the hard rules have been applied: the question holds
only nodes that may take the replica. Rules and learned scorers answer the same question, and
whoever asks checks the answer, because a learned one may say anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Role, Task
from bireme.core.resources import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class ScoreQuestion:
    """One replica, the nodes it may use, and where the rest of its gang is.

    Attributes:
        task: The replica as a task of one.
        capacity: What is free on all nodes, without this replica.
        rows: Node rows to score, int64, shape (candidates,); each takes the replica.
        peers: Node rows of the bound members of the same gang by role, int64, shape (members,).
    """

    task: Task
    capacity: FreeCapacity
    rows: IntArray
    peers: Mapping[Role, IntArray]


class Scorer(Protocol):
    """How good each candidate is."""

    def score(self, question: ScoreQuestion) -> FloatArray:
        """float64, shape (candidates,), each from 0 (worst) to 1 (best), comparable by size."""
        ...


def fault_of(scores: object, candidates: int) -> str | None:
    """What makes ``scores`` no answer to a question with so many candidates; None if it is one."""
    if not isinstance(scores, np.ndarray) or scores.dtype != np.float64:
        return f"scores are no float64 array but {type(scores).__name__}"
    if scores.shape != (candidates,):
        return f"scores have shape {scores.shape}, the question ({candidates},)"
    if not np.isfinite(scores).all():
        return "scores are not all finite"
    if candidates and (scores.min() < 0 or scores.max() > 1):
        return f"scores reach from {scores.min():g} to {scores.max():g}, allowed is 0 to 1"
    return None
