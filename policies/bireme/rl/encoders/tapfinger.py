"""TapFinger on a cluster: node pools as agents, waiting gangs as tasks (``tapfinger-pools/1``).

All pools choose a gang and a size at once, conflicts are resolved as in training
(:mod:`~bireme.rl.encoders.tapfinger_choice`), what was chosen takes its room, and all choose again
until nobody starts anything. What a pool has free is the sum over its ready nodes; whether a size
finds places is for the placer to say. Gangs that run keep what they have: TapFinger never changes
an allocation.

A gang waits at the pools that could hold its smallest size if they were empty. One that no pool
could hold is left to the rules.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.resources import BoolArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.rl.encoders.tapfinger_moves import INPUTS, VOID, decided, question
from bireme.rl.encoders.tapfinger_table import Table
from bireme.rl.protocols import Ask, Choices, Shape

MOST_GANGS: Final = 32
"""Gangs that are chosen from in a cycle, the first that came; others wait for a later one."""
MOST_ROUNDS: Final = 16
"""How often the pools choose in a cycle."""
_TURNS: Final = 64
"""How often pools that lost a gang choose again before the network is asked anew."""


class TapfingerPools:
    """Who starts, at which size, and in which node pool."""

    inputs: Mapping[str, Shape] = INPUTS

    def chooses(self, ask: Ask, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> Choices:
        """What the pools choose among the first of ``gangs``."""
        table = Table.of(tuple(gangs[:MOST_GANGS]), snapshot)
        order: list[str] = []
        sizes: dict[str, Mapping[str, int]] = {}
        pools: dict[str, BoolArray] = {}
        for _ in range(MOST_ROUNDS):
            started = _round(ask, table) if table.can_start else []
            for gang, pool, size in started:
                offer = table.offers[gang]
                order.append(offer.gang.uid)
                sizes[offer.gang.uid] = offer.sizes[size]
                pools[offer.gang.uid] = snapshot.node_pools == pool
                table.start(gang, pool, size)
            if not started:
                break
        return Choices(tuple(order), sizes, pools)


def _round(ask: Ask, table: Table) -> list[tuple[int, int, int]]:
    """Rows of gangs, pools and sizes that start now; every pool starts one at most."""
    seen = table.seen()
    arrays, count = question(seen)
    slot, size = decided(seen, arrays["sizes"], ask(arrays, count), turns=_TURNS)
    starts = np.flatnonzero(size > VOID)
    gangs = seen["job"][starts, slot[starts]]
    return list(zip(gangs.tolist(), starts.tolist(), (size[starts] - 1).tolist(), strict=True))
