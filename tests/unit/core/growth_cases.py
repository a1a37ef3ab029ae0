"""Decisions about pools that may grow, and the nodes they ask for."""

from collections.abc import Sequence
from dataclasses import replace

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.nodes import GrowablePool, Node
from bireme.core.policy import Policy
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_snapshot

FIFO = Policy(Fifo(), Packing())


def after(nodes: Sequence[Node], *waiting: Gang, growable: Sequence[GrowablePool]) -> Decision:
    """The decision on ``waiting``, who came in this order."""
    in_order = [replace(gang, arrived=float(at)) for at, gang in enumerate(waiting)]
    return run_cycle(a_snapshot(nodes, *in_order, now=10.0, growable=growable), FIFO)


def asked(decision: Decision) -> list[tuple[str, str, int]]:
    """The nodes to be asked for: gang, pool, number."""
    return [(growth.gang.uid, growth.pool, growth.nodes) for growth in decision.node_requests]
