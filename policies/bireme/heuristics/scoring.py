"""Rule-based node scores: best fit, near the gang, workers beside parameter servers.

Three measures from 0 to 1. *Tightness*: how little is free on a node, compared with the emptiest
node. *Closeness*: the share of the gang's bound members in the same topology domain, averaged over
the levels. *Affinity*: the share of levels at which a worker has a parameter server in its domain,
and a server a worker.
"""

import numpy as np

from bireme.core.gangs import Role
from bireme.core.nodes import Codes, NodeTable
from bireme.core.policy import ScoreQuestion
from bireme.core.resources import FloatArray, IntArray

# Network traffic slows training: with four levels, one level closer outweighs tightness.
_TIGHTNESS_WEIGHT = 0.2
"""Weight of tightness once members of the gang are bound; closeness has the rest."""

_COUNTERPARTS = {Role.WORKER: Role.PS, Role.PS: Role.WORKER}


class BestFitScorer:
    """The default scorer, and the fallback of every other scorer."""

    def score(self, question: ScoreQuestion) -> FloatArray:
        """Return float64, shape (candidates,), in [0, 1]."""
        tight = _tightness(question)
        rows = [peers for peers in question.peers.values() if len(peers)]
        if not rows:
            return tight
        closeness = _closeness(question.capacity.nodes, question.rows, np.concatenate(rows))
        affinity = _affinity(question)
        if affinity is not None:
            closeness = (closeness + affinity) / 2
        return _TIGHTNESS_WEIGHT * tight + (1 - _TIGHTNESS_WEIGHT) * closeness


def _tightness(question: ScoreQuestion) -> FloatArray:
    free = question.capacity.tightness
    maximum = free.max(initial=0.0)
    if maximum == 0:
        return np.ones(len(question.rows))
    return np.asarray(1 - free[question.rows] / maximum, dtype=np.float64)


def _closeness(nodes: NodeTable, rows: IntArray, peers: IntArray) -> FloatArray:
    levels = _levels(nodes)
    shares = [_companions(codes, rows, peers) / len(peers) for codes in levels]
    return np.asarray(np.sum(shares, axis=0) / len(levels), dtype=np.float64)


def _affinity(question: ScoreQuestion) -> FloatArray | None:
    """Return None if the role has no counterpart, or none of it is bound yet."""
    role, nodes, rows = question.task.role, question.capacity.nodes, question.rows
    counterparts = question.peers.get(_COUNTERPARTS.get(role, role))
    if role not in _COUNTERPARTS or counterparts is None or not len(counterparts):
        return None
    levels = _levels(nodes)
    shared = np.sum([_companions(codes, rows, counterparts) > 0 for codes in levels], axis=0)
    if role is Role.PS:
        # Servers are spread: a node that holds a server counts nothing for another.
        shared = np.where(np.isin(rows, question.peers.get(Role.PS, ())), 0, shared)
    return np.asarray(shared / len(levels), dtype=np.float64)


def _levels(nodes: NodeTable) -> list[Codes]:
    """Domain codes of the levels of this cluster; a level without labels would only dilute."""
    return [codes for codes in nodes.domains if (codes >= 0).any()] or [nodes.domains[0]]


def _companions(codes: Codes, rows: IntArray, peers: IntArray) -> IntArray:
    """Return how many of ``peers`` share each row's domain, int64, shape (rows,)."""
    peer_codes = codes[peers]
    counts = np.bincount(peer_codes[peer_codes >= 0], minlength=int(codes.max(initial=-1)) + 2)
    # The last count is always zero and answers for code -1: nodes that belong to no domain.
    return counts[codes[rows]]
