"""Chance as a yardstick, for orders and placements: what is not better than this is no policy.

A gang draws its ticket from its uid and a seed, so that every cycle and every process sees the
same draw.
"""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.policy import Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import place_by
from bireme.heuristics.ranking import Standing, ranked

_TICKET_BYTES = 8


class RandomOrder:
    """In an order drawn by lot, the same in every cycle; running gangs are never stopped.

    The score is one minus the ticket, from 0 to 1.
    Source: the usual lower baseline, as in the evaluation of A2cScheduler.
    """

    def __init__(self, seed: int = 0) -> None:
        """Another ``seed`` is another draw."""
        self._seed = seed

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """By ticket."""
        return ranked(gangs, self._standing)

    def _standing(self, gang: Gang) -> Standing:
        place = ticket(gang.uid, self._seed) / 2 ** (8 * _TICKET_BYTES)
        return Standing((place,), 1.0 - place)


class RandomPlacement:
    """Replicas on places drawn by lot, each free place with the same chance.

    A node has at most as many places for a gang as the gang has replicas.
    Source: the usual lower baseline, as the "random" scheme of the Tiresias simulator.
    """

    def __init__(self, seed: int = 0) -> None:
        """Another ``seed`` is another draw."""
        self._seed = seed

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Nodes for all replicas, or None; the same gang on the same capacity goes the same way."""
        lot = np.random.default_rng(ticket(gang.uid, self._seed))
        return place_by(
            gang,
            capacity,
            lambda task, room, _: lot.multivariate_hypergeometric(room, task.replicas),
        )


def ticket(uid: str, seed: int) -> int:
    """A number from 0 to 2**64 - 1, evenly spread over uids."""
    digest = blake2b(f"{seed}/{uid}".encode(), digest_size=_TICKET_BYTES)
    return int.from_bytes(digest.digest())
