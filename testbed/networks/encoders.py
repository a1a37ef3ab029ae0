"""Encoders of few facts, for tests alone: no checkpoint that is shipped can ask for them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import numpy as np

from bireme.core.finished_runs import FinishedRuns
from bireme.core.gangs import Gang, Role, Task
from bireme.core.placement import FreeCapacity
from bireme.core.policy import Ranked
from bireme.core.resources import IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import devices
from bireme.heuristics.sizing import bounds
from bireme.onnx.sessions import Array, Ask, Shape
from bireme.policy_names import BIREME
from bireme.rl.protocols import Choices

GANG_FACTS = "small-gangs/1"
NODE_FACTS = "small-nodes/1"
SIZE_FACTS = "small-sizes/1"
CHOICE_FACTS = "small-choices/1"


class GangFacts:
    """Of every gang: its devices, its estimate in hours (0 if unknown), its priority."""

    inputs: Mapping[str, Shape] = {"facts": ("gangs", 3)}
    keeps_equal_gangs_in_order = True

    def encode(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> dict[str, Array]:
        facts = [
            [devices(g, snapshot), (g.estimated_seconds or 0.0) / 3600, g.priority] for g in gangs
        ]
        return {"facts": np.array(facts, dtype=np.float32).reshape(-1, 3)}


class NodeFacts:
    """Of every node: how much is free (1 is all of the freest), its place by name, its peers."""

    inputs: Mapping[str, Shape] = {"facts": ("nodes", 3)}

    def encode(
        self,
        gang: Gang,
        task: Task,
        capacity: FreeCapacity,
        peers: Mapping[Role, IntArray],
        finished: FinishedRuns,
    ) -> dict[str, Array]:
        nodes = len(capacity.nodes)
        # Where nothing is free the shares are 0.
        free = capacity.tightness / max(capacity.tightness.max(initial=0.0), 1e-9)
        place = np.arange(nodes) / nodes
        # A gang may have no peers, and concatenate takes no empty list.
        there = np.concatenate([np.zeros(0, dtype=np.int64), *peers.values()])
        facts = np.stack([free, place, np.bincount(there, minlength=nodes)], axis=1)
        return {"facts": facts.astype(np.float32)}


class SizeFacts:
    """Of every size that a gang may have: its replicas, its estimate in hours, its priority.

    A move sets one size of one gang; each gang is asked about by itself, and the highest logit
    wins, ties to the smallest size.
    """

    inputs: Mapping[str, Shape] = {"facts": ("moves", 3)}

    def sizes(
        self, ask: Ask, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> dict[str, dict[str, int]]:
        return {entry.gang.uid: best_size(ask, entry.gang) for entry in ranked}


class ChoiceFacts:
    """Of every gang: its devices, its estimate in hours, its priority; the highest starts first.

    Each gets the size that ``SizeFacts`` would give it, and the pools by turns.
    """

    inputs = SizeFacts.inputs

    def chooses(self, ask: Ask, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> Choices:
        logits = ask(GangFacts().encode(gangs, snapshot), len(gangs))
        order = [gangs[place].uid for place in np.argsort(-logits, kind="stable")]
        pools = snapshot.node_pools
        count = int(pools.max()) + 1
        return Choices(
            order=tuple(order),
            sizes={gang.uid: best_size(ask, gang) for gang in gangs},
            pools={uid: pools == turn % count for turn, uid in enumerate(order)},
        )


def best_size(ask: Ask, gang: Gang) -> dict[str, int]:
    """Return the size of ``gang``'s first task with the highest logit; other tasks as asked."""
    low, high = bounds(gang)
    name = gang.tasks[0].name
    tried = np.arange(low[name], high[name] + 1)
    known = (gang.estimated_seconds or 0.0) / 3600, gang.priority
    facts = np.column_stack([tried, *(np.full(len(tried), fact) for fact in known)])
    logits = ask({"facts": facts.astype(np.float32)}, len(tried))
    return {task.name: task.replicas for task in gang.tasks} | {name: int(tried[logits.argmax()])}


@contextmanager
def known() -> Iterator[None]:
    """Let checkpoints ask for these encoders inside the block."""
    tables = (
        (BIREME.encoders["orderer"], GANG_FACTS, GangFacts),
        (BIREME.encoders["placer"], NODE_FACTS, NodeFacts),
        (BIREME.encoders["sizer"], SIZE_FACTS, SizeFacts),
        (BIREME.encoders["sizer"], CHOICE_FACTS, ChoiceFacts),
    )
    for table, name, found in tables:
        cast(dict[str, str], table)[name] = f"{__name__}:{found.__name__}"
    try:
        yield
    finally:
        for table, name, _ in tables:
            del cast(dict[str, str], table)[name]
