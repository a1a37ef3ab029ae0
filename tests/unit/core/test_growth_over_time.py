"""A pool over time: nodes come for those who wait, nobody is forgotten, and empty ones go again."""

from hypothesis import given, settings

from bireme.testing import GPU
from tests.support.model.growing_world import BOUNDS, GrowingWorld
from tests.support.model.workloads import (
    COMBINED,
    ELASTIC,
    KINDS,
    PATIENT,
    QUEUES,
    Arrival,
    arrivals,
)

MOST_MOMENTS = 500
"""Until a world that nobody disturbs has come to rest."""


@settings(max_examples=20, deadline=None)
@given(arrivals((*KINDS, *ELASTIC), tuple(q.name for q in QUEUES if not q.limit), (1.0, None)))
def test_all_who_fit_the_pool_at_its_most_start_and_in_the_end_no_node_is_left(
    todo: list[Arrival],
) -> None:
    world = GrowingWorld((), COMBINED, PATIENT, QUEUES, stop_seconds=3.0)
    for at, gang, seconds in todo:
        while world.next_end <= at:
            world.advance(world.next_end)
            world.settle()
        world.advance(float(at))
        world.submit(gang, seconds)
        world.settle()
    for _ in range(MOST_MOMENTS):
        if world.next_end == float("inf"):
            break
        world.advance(world.next_end)
        world.settle()
    assert world.problems == []
    fitting = (g for g in world.waiting.values() if dict(g.tasks[0].request)[GPU] <= 4)
    assert list(fitting) == []
    assert (world.running, world.replicas, world.coming) == ({}, BOUNDS.minimum, {})
