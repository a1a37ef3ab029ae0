"""Two encoders of few facts, for tests alone: no checkpoint that is shipped can ask for them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import numpy as np

from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang, Role, Task
from bireme.core.resources import IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import devices
from bireme.rl import encoders
from bireme.rl.protocols import Array, Shape

GANG_FACTS = "small-gangs/1"
NODE_FACTS = "small-nodes/1"


class GangFacts:
    """Of every gang: its devices, its estimate in hours (0 if unknown), its priority."""

    inputs: Mapping[str, Shape] = {"facts": ("gangs", 3)}
    keeps_kin_in_line = True

    def encode(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> dict[str, Array]:
        facts = [[devices(g), (g.estimated_seconds or 0.0) / 3600, g.priority] for g in gangs]
        return {"facts": np.array(facts, dtype=np.float32).reshape(-1, 3)}


class NodeFacts:
    """Of every node: how much is free (1 is all of the freest), its place by name, its peers."""

    inputs: Mapping[str, Shape] = {"facts": ("nodes", 3)}

    def encode(
        self, gang: Gang, task: Task, capacity: FreeCapacity, peers: Mapping[Role, IntArray]
    ) -> dict[str, Array]:
        nodes = len(capacity.nodes)
        free = capacity.tightness / max(capacity.tightness.max(initial=0.0), 1e-9)
        place = np.arange(nodes) / nodes
        there = np.concatenate([np.zeros(0, dtype=np.int64), *peers.values()])
        facts = np.stack([free, place, np.bincount(there, minlength=nodes)], axis=1)
        return {"facts": facts.astype(np.float32)}


@contextmanager
def known() -> Iterator[None]:
    """Inside, checkpoints may ask for these encoders."""
    tables = (
        (encoders.ORDER_ENCODERS, GANG_FACTS, GangFacts),
        (
            encoders.PLACE_ENCODERS,
            NODE_FACTS,
            NodeFacts,
        ),
    )
    for table, name, found in tables:
        cast(dict[str, str], table)[name] = f"{__name__}:{found.__name__}"
    try:
        yield
    finally:
        for table, name, _ in tables:
            del cast(dict[str, str], table)[name]
