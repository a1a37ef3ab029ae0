"""Guardrails in random worlds: no delay by backfill, no needless victim, no loop."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision, Hold
from bireme.core.gangs import Gang
from bireme.core.nodes import Node
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import GPU, a_gang, a_node, a_running, a_snapshot, a_task, with_running
from testbed.examples import examples
from testbed.model.rules import most_evictions
from testbed.small_cluster import SmallCluster
from testbed.workloads import (
    COMBINED,
    ELASTIC,
    KINDS,
    NODES,
    PATIENT,
    QUEUES,
    SMALL,
    Arrival,
    arrivals,
)

IMPATIENT = replace(PATIENT, wait_bound_seconds=100, service_threshold=0)
BY_SERVICE = replace(
    IMPATIENT,
    service_threshold=20,
    service_preemption_delay_seconds=10,
    preemption_cost_seconds=6,
    eviction_backoff_seconds=40,
)
MAX_MOMENTS = 100


def replay(world: SmallCluster, todo: Sequence[Arrival], most_moments: int = 500) -> list[Decision]:
    """Until nothing happens any more; every moment is decided until it comes to rest."""
    decisions: list[Decision] = []
    left = list(todo)
    for _ in range(most_moments):
        moment = min(world.next_end, float(left[0][0]) if left else float("inf"))
        if moment == float("inf"):
            return decisions
        world.advance(moment)
        while left and left[0][0] <= moment:
            _, gang, seconds = left.pop(0)
            world.submit(gang, seconds)
        decisions += world.settle()
    world.problems.append(f"{most_moments} moments were not enough")
    return decisions


# --- EASY -----------------------------------------------------------------------------------------


@given(arrivals(SMALL, ("default", "small"), (1.0, 1.0, 1.5)))
def test_with_true_or_generous_estimates_the_first_in_line_starts_when_promised(
    todo: list[Arrival],
) -> None:
    world = SmallCluster(NODES, Policy(Fifo(), Packing()), PATIENT, QUEUES)
    replay(world, todo)
    promised: dict[str, float] = {}
    for moment in world.seen:
        in_line = min(moment.waiting, key=lambda gang: (gang.arrived, gang.uid), default=None)
        for hold in run_cycle(moment, world.policy).held:
            if hold.reservation is not None and in_line is not None and hold.gang is in_line:
                promised.setdefault(hold.gang.uid, hold.reservation.start)
    assert world.problems == []
    assert {uid: world.started[uid] <= start for uid, start in promised.items()} == dict.fromkeys(
        promised, True
    )


# --- preemption -----------------------------------------------------------------------------------


@st.composite
def full_clusters(draw: st.DrawFn) -> tuple[ClusterSnapshot, tuple[Node, ...]]:
    """One gang that waits, and gangs of one-GPU workers, each on one node, that run."""
    nodes = tuple(a_node(f"n{i}", draw(st.sampled_from((2, 4, 8)))) for i in range(3))
    gang = a_gang(
        "asks",
        a_task(draw(st.integers(1, 3)), draw(st.sampled_from((1, 2, 4, 8)))),
        priority=draw(st.sampled_from((0, 10, 1000))),
    )
    snapshot = a_snapshot(nodes, gang, settings=PATIENT, queues=QUEUES)
    for node in nodes:
        left = node.allocatable[GPU]
        while left and draw(st.integers(0, 5)):
            size = draw(st.integers(1, left))
            left -= size
            runs = replace(
                a_gang(
                    f"r{len(snapshot.running):02}",
                    a_task(size),
                    priority=draw(st.sampled_from((0, 10, 1000))),
                ),
                evictions=draw(st.sampled_from((0, 0, 0, 2))),
            )
            started = -float(draw(st.integers(0, 3)))
            running = a_running(runs, snapshot.nodes, {node.name: size}, started=started)
            snapshot = with_running(snapshot, running)
    return snapshot, nodes


def fits(gang: Gang, free: dict[str, int]) -> bool:
    (task,) = gang.tasks
    request = dict(task.request)[GPU]
    return sum(amount // request for amount in free.values()) >= task.replicas


@given(full_clusters())
def test_victims_are_lower_and_needed_and_found_whenever_they_are_enough(
    case: tuple[ClusterSnapshot, tuple[Node, ...]],
) -> None:
    snapshot, nodes = case
    (asks,) = snapshot.waiting
    decision = run_cycle(snapshot, COMBINED)
    held = {r.gang.uid: (r.gang, int(r.placement.node_rows()[0])) for r in snapshot.running}
    victims = {p.running.gang.uid for p in decision.preempted}

    def free_without(gone: set[str]) -> dict[str, int]:
        free = {node.name: node.allocatable[GPU] for node in nodes}
        for uid, (gang, row) in held.items():
            if uid not in gone:
                free[snapshot.nodes.names[row]] -= gang.demand[GPU]
        return free

    able = {
        uid
        for uid, (gang, _) in held.items()
        if gang.priority < asks.priority
        and gang.evictions < 2
        and CombinedPriority().order([asks, gang], snapshot)[0].gang is asks
    }
    assert victims <= able
    if decision.admitted:
        assert fits(asks, free_without(set()))
    elif victims:
        assert fits(asks, free_without(victims))
        assert not any(fits(asks, free_without(victims - {uid})) for uid in victims)
    elif decision.held[0].position is not None:
        assert not fits(asks, free_without(able))


# --- loops ----------------------------------------------------------------------------------------


@given(
    arrivals((*KINDS, *ELASTIC), tuple(q.name for q in QUEUES), (1.0, None, 0.1)),
    st.sampled_from((0.0, 2.0)),
)
def test_everything_that_fits_finishes_and_nobody_is_stopped_too_often(
    todo: list[Arrival], stop_seconds: float
) -> None:
    world = SmallCluster(NODES, COMBINED, PATIENT, QUEUES, stop_seconds)
    holds: dict[str, Hold] = {}
    for decision in replay(world, todo):
        holds |= {hold.gang.uid: hold for hold in decision.held}
    assert world.problems == []
    stuck = {uid: holds[uid].reason.value for uid in world.waiting}
    assert set(stuck.values()) <= {"NeverFits", "NodesNotReady"}
    assert not world.running


def never_ending(todo: Sequence[Arrival], settings: SchedulingSettings = IMPATIENT) -> SmallCluster:
    """The cluster of gangs that never end, when the last of them has come."""
    world = SmallCluster(NODES, COMBINED, settings, QUEUES)
    for at, gang, _ in todo:
        world.advance(float(at))
        world.submit(gang, float("inf"))
        world.settle()
    return world


def evictions(world: SmallCluster) -> list[int]:
    """How often each gang has been stopped for others."""
    waiting, running = world.waiting.values(), world.running.values()
    return [gang.evictions for gang in (*waiting, *(held.gang for held in running))]


def test_a_gang_that_was_stopped_does_not_count_the_time_it_ran_as_waited() -> None:
    """Else its score would be the higher one again, and the other would stop it in vain."""
    wide, higher = a_gang("wide", a_task(12)), a_gang("higher", a_task(3), priority=10)
    world = never_ending([(0, wide, 0.0), (0, higher, 0.0)])
    assert set(world.running) == {"wide"}
    world.advance(IMPATIENT.wait_bound_seconds / 2)
    world.settle()
    assert set(world.running) == {"higher"}
    assert len(world.moves) == 1


@given(arrivals((*KINDS, *ELASTIC), tuple(q.name for q in QUEUES), (None, 1e6)))
def test_when_nothing_happens_any_more_nobody_is_moved_any_more(todo: list[Arrival]) -> None:
    """Waiting may have one gang after another stopped: a chain that eviction budgets bound.

    A score grows until the wait bound. From then on a gang that waits only becomes more overdue,
    which it is more than any other was at its start when as much time again has passed.
    """
    world = never_ending(todo)
    last = world.now
    while world.now <= 2 * (last + IMPATIENT.wait_bound_seconds):
        world.advance(world.now + IMPATIENT.wait_bound_seconds / 5)
        if len(world.settle()) > 1:
            last = world.now
        assert sum(evictions(world)) <= IMPATIENT.eviction_budget * len(todo)
    assert world.problems == []
    before = len(world.moves)
    for later in (2, 4, 8, 16):
        world.advance(later * world.now)
        world.settle()
    assert world.moves[before:] == []


@given(arrivals((*KINDS, *ELASTIC), tuple(q.name for q in QUEUES), (None, 1e6)))
def test_gangs_of_equal_priority_take_turns_when_service_has_taken_a_step(
    todo: list[Arrival],
) -> None:
    world = never_ending(todo, BY_SERVICE)
    for _ in range(12):
        before = sum(evictions(world))
        world.advance(2 * world.now)
        world.settle()
        assert sum(evictions(world)) <= before + len(todo)
    assert world.problems == []
    # None has run for longer than the world has lasted.
    assert max(evictions(world), default=0) <= most_evictions(BY_SERVICE, world.now)


@examples(8)
@given(arrivals((*KINDS, *ELASTIC), tuple(q.name for q in QUEUES), (None, 0.1)))
def test_where_estimates_are_outrun_again_and_again_nobody_is_stopped_beyond_the_budget(
    todo: list[Arrival],
) -> None:
    """Places may change hands as an estimate is raised; it is something that happens."""
    world = never_ending(todo)
    for _ in range(MAX_MOMENTS):
        world.advance(world.now + IMPATIENT.wait_bound_seconds / 5)
        world.settle()
    assert world.problems == []
    assert max(evictions(world), default=0) <= IMPATIENT.eviction_budget


# --- purity ---------------------------------------------------------------------------------------
