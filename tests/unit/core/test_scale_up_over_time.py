"""A pool over time: nodes come for those who wait, nobody is forgotten, and empty ones go again."""

import math
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from hypothesis import given

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.node_floor import PoolBounds, PoolState, floor, nodes_for_gangs, nodes_to_keep
from bireme.core.nodes import GrowablePool
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import GPU, a_node
from testbed.examples import examples
from testbed.small_cluster import SmallCluster
from testbed.workloads import COMBINED, ELASTIC, KINDS, PATIENT, QUEUES, Arrival, arrivals

DELAY_SECONDS: Final = 5.0
BOUNDS: Final = PoolBounds(0, 6, scale_in=True, cool_down_seconds=20)
POOL: Final = tuple(f"p{at}" for at in range(BOUNDS.maximum))


@dataclass
class GrowingCluster(SmallCluster):
    """A world whose pool has up to six nodes of four GPUs, and none at first.

    Attributes:
        replicas: Nodes asked for.
        coming: When each node that was asked for will be there.
        empty_since: Of nodes of the pool that nobody uses or counts on.
    """

    replicas: int = 0
    coming: dict[str, float] = field(default_factory=dict)
    empty_since: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = [*self.nodes, *(a_node(name, 4, is_ready=False) for name in POOL)]

    def snapshot(self) -> ClusterSnapshot:
        """The snapshot that the cycle may know."""
        room, asked_at = BOUNDS.maximum - self.replicas, min(self.coming.values(), default=None)
        patience = BOUNDS.patience_seconds
        coming, template = len(self.coming), a_node("new", 4)
        pool = GrowablePool("pool", template, room, coming, asked_at, patience_seconds=patience)
        return replace(super().snapshot(), growable=(pool,))

    @property
    def next_end(self) -> float:
        """The time at which something changes by itself; infinite when nothing will."""
        cool = (at + BOUNDS.cool_down_seconds for at in self.empty_since.values())
        return min(super().next_end, *self.coming.values(), *cool, math.inf)

    def advance(self, until: float) -> None:
        """Let time pass; nodes that are due by ``until`` are there then."""
        super().advance(until)
        here = [name for name, due in self.coming.items() if due <= until]
        for name in here:
            del self.coming[name]
        self._turn(here, is_ready=True)

    def decide(self) -> Decision:
        """One cycle, carried out, and the pool given the size it should have."""
        plain = run_cycle(replace(self.snapshot(), growable=()), self.policy, explain=False)
        decision = super().decide()
        # Where a node comes, nobody runs meanwhile in the places that it completes.
        waits = any(admit.is_opportunistic for admit in plain.admitted)
        if not waits and _moves(decision) != _moves(plain):
            self.problems.append(f"growth moves somebody: {_moves(plain)}, {_moves(decision)}")
        seen = self.snapshot()
        needed = nodes_to_keep(seen, decision.kept_nodes)
        mine = np.array([name in POOL for name in seen.nodes.names])
        empty = mine & seen.nodes.is_ready & ~needed
        names = [seen.nodes.names[row] for row in np.flatnonzero(empty)]
        self.empty_since = {name: self.empty_since.get(name, self.now) for name in names}
        decided = floor(
            BOUNDS,
            PoolState(
                self.replicas,
                int((needed & mine).sum()),
                nodes_for_gangs("pool", self.replicas, decision),
                len(self.coming),
                tuple(self.empty_since.values()),
            ),
            self.now,
        )
        self._scale(decided.replicas)
        return decision

    def _scale(self, replicas: int) -> None:
        ready = {node.name for node in self.nodes if node.is_ready}
        away = [name for name in POOL if name not in ready and name not in self.coming]
        more, self.replicas = replicas - self.replicas, replicas
        self.coming |= dict.fromkeys(away[: max(0, more)], self.now + DELAY_SECONDS)
        gone = sorted(self.empty_since, key=lambda name: self.empty_since[name])[: max(0, -more)]
        for name in gone:
            del self.empty_since[name]
        self._turn(gone, is_ready=False)

    def _turn(self, names: list[str], is_ready: bool) -> None:
        self.nodes = [
            replace(node, is_ready=is_ready) if node.name in names else node for node in self.nodes
        ]
        there = sum(node.is_ready for node in self.nodes if node.name in POOL)
        if there + len(self.coming) != self.replicas or self.replicas > BOUNDS.maximum:
            self.problems.append(f"{there} are there, {len(self.coming)} come of {self.replicas}")


def _moves(decision: Decision) -> list[list[str]]:
    """Starts and stops. Elastic gangs may keep their size for one that waits for nodes."""
    starts = [action.gang.uid for action in decision.admitted]
    return [starts, [action.gang.uid for action in decision.preempted]]


MAX_MOMENTS = 500
"""Until a world that nobody disturbs has come to rest."""


@examples(7)
@given(arrivals((*KINDS, *ELASTIC), tuple(q.name for q in QUEUES if not q.limit), (1.0, None)))
def test_all_who_fit_the_pool_at_its_most_start_and_in_the_end_no_node_is_left(
    todo: list[Arrival],
) -> None:
    world = GrowingCluster((), COMBINED, PATIENT, QUEUES, stop_seconds=3.0)
    for at, gang, seconds in todo:
        while world.next_end <= at:
            world.advance(world.next_end)
            world.settle()
        world.advance(float(at))
        world.submit(gang, seconds)
        world.settle()
    for _ in range(MAX_MOMENTS):
        if world.next_end == float("inf"):
            break
        world.advance(world.next_end)
        world.settle()
    assert world.problems == []
    fitting = (g for g in world.waiting.values() if dict(g.tasks[0].request)[GPU] <= 4)
    assert list(fitting) == []
    assert (world.running, world.replicas, world.coming) == ({}, BOUNDS.minimum, {})
