"""Nodes that fail and come back, on a schedule fixed by the seed and each node's name.

A node that is up fails after an exponential time (a Poisson process) and is repaired after a
fixed one. Its fate is its own: it is the same whatever other nodes there are, in whatever order,
and a longer horizon only adds to it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bireme.core.nodes import Node
from bireme.simulator.physics.seeds import stream

NODE_MTBF_SECONDS = 22_800_000.0
"""264 days between failures of one node. Llama Team, The Llama 3 Herd of Models, 2024, section
3.3.4: 419 unexpected interruptions in 54 days on 16,384 GPUs, eight to a node."""


class NodeChange(NamedTuple):
    """A node goes or comes, ``time`` seconds after the start of the trace."""

    time: float
    node: str
    is_up: bool


def node_changes(
    nodes: Iterable[Node], horizon: float, seed: int, mtbf_seconds: float, repair_seconds: float
) -> list[NodeChange]:
    """All failures before ``horizon``, each with its repair, even one after it; by time.

    Args:
        mtbf_seconds: Mean time up between two failures of one node; infinity for never.
        repair_seconds: From each failure to the return.
    """
    return sorted(
        change
        for node in nodes
        for change in _fate(node.name, horizon, seed, mtbf_seconds, repair_seconds)
    )


def _fate(
    node: str, horizon: float, seed: int, mtbf_seconds: float, repair_seconds: float
) -> Iterator[NodeChange]:
    chance = stream(seed, "failure", node)
    fails = chance.exponential(mtbf_seconds)
    while fails < horizon:
        yield NodeChange(fails, node, is_up=False)
        yield NodeChange(fails + repair_seconds, node, is_up=True)
        fails += repair_seconds + chance.exponential(mtbf_seconds)
