"""Decisions come to rest once nobody disturbs a cluster any more: a variant says why.

Let jobs no longer come or end. With b the evictions that jobs have left in their budgets, l the
jobs that are leaving and w those that wait, every move makes 3 b + 2 l + w smaller:

    a stop   (b - 1, l + 1)   by 1
    a leave  (l - 1, w + 1)   by 1
    a start  (w - 1)          by 1

As long as it stays the same nobody begins or ceases to wait. So sizes then change one way only:
they shrink while somebody waits, and grow while nobody does. What is left to shrink, or to grow,
gets smaller; both are whole numbers from 0 on, so the moves end.
"""

from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from testbed.examples import examples
from testbed.model.invariants import DecisionCase, size, size_bounds
from testbed.model.machine import SETTINGS, Machine, Submission, submissions

Variant: TypeAlias = tuple[int, int]
QUIET_TICKS = 30


def variant(world: Machine, somebody_waits: bool) -> Variant:
    """3 b + 2 l + w, and how far sizes can still go; the smaller, the nearer is the end."""
    jobs = list(world.cluster.things["job"].values())
    case, named = _case(world), world.cluster.things["job"].items()
    left = sum(max(0, case.most_evictions(name) - job["evictions"]) for name, job in named)
    leaving = sum(job["phase"] == "leaving" for job in jobs)
    waiting = sum(job["phase"] == "waiting" for job in jobs)
    way = 0
    for job in jobs:
        if job["phase"] == "running":
            least, most = size_bounds(job)
            way += size(job["places"]) - least if somebody_waits else most - size(job["places"])
    return 3 * left + 2 * leaving + waiting, way


def decided(world: Machine) -> bool:
    """Whether one decision on all that is so moves anybody; the variant falls exactly then."""
    world.program.catch_up()
    before = {waits: variant(world, waits) for waits in (False, True)}
    moves = world.cycle()
    waits = any(move["do"] == "hold" and move["position"] is not None for move in moves)
    moved = any(move["do"] != "hold" for move in moves)
    assert (variant(world, waits) < before[waits]) is moved
    return moved


def left(world: Machine) -> None:
    """One of those that are leaving has left."""
    for name in world.cluster.jobs("leaving")[:1]:
        before = variant(world, True)[0]
        world.cluster.leave(name)
        assert variant(world, True)[0] < before


def run_levels(world: Machine) -> dict[str, tuple[int, int]]:
    """Eightfolds of service and evictions allowed: one more of either may let others stop it."""
    case = _case(world)
    return {
        name: (case.service_level(name), case.most_evictions(name))
        for name in world.cluster.things["job"]
    }


def _case(world: Machine) -> DecisionCase:
    return DecisionCase(world.cluster.things, (), world.cluster.now, SETTINGS)


Churn: TypeAlias = list[tuple[Submission, int, float, bool]]
"""Who is submitted, and after how many seconds somebody leaves or even ends."""
churns = st.lists(
    st.tuples(submissions, st.integers(0, 11), st.sampled_from((1.0, 5.0, 20.0)), st.booleans()),
    min_size=5,
    max_size=25,
)


@examples(8)
@given(churns)
def test_after_the_last_disturbance_the_moves_come_to_an_end(churn: Churn) -> None:
    world = Machine()
    world.begin([])
    for submission, at, seconds, ends in churn:
        world.submit_one(submission)
        world.tick(seconds)
        world.decide(2)
        world.leave(at)
        if ends:
            world.end(at, "finish")
    levels, quiet = run_levels(world), 0
    for _ in range(2 * QUIET_TICKS):
        world.tick(7.0)
        # Time alone disturbs them too, when it lets somebody be stopped who was safe.
        before, levels = levels, run_levels(world)
        quiet = quiet + 1 if levels == before else 0
        moved = decided(world) or bool(world.cluster.jobs("leaving"))
        assert not moved or quiet < QUIET_TICKS
        left(world)
    case = _case(world)
    for name, job in world.cluster.things["job"].items():
        assert job["evictions"] <= case.most_evictions(name)
