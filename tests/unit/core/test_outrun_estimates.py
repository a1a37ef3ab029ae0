"""Gangs that run on past their estimate: what is expected of them then, and what they cannot do."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.gangs import Gang
from bireme.core.policy import Policy, Ranked
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running
from testbed.examples import examples
from testbed.small_cluster import SmallCluster

NEVER = SchedulingSettings(wait_bound_seconds=10**9)
"""No wait bound helps: what is shown here holds without it."""
POLICY = Policy(Fifo(), Packing())


def running(estimate: float | None, started: float = 0.0) -> RunningGang:
    """A gang on a node of its own."""
    snapshot = a_snapshot([a_node("n0")])
    gang = a_gang("runs", a_task(8), estimated_seconds=estimate)
    return a_running(gang, snapshot.nodes, {"n0": 8}, started=started)


@pytest.mark.parametrize(
    ("now", "end"), [(50, 100), (99, 100), (100, 150), (149, 150), (151, 225), (300, 337.5)]
)
def test_an_outrun_estimate_is_raised_by_half_again_and_again(now: float, end: float) -> None:
    assert running(100.0).expected_end(now, blocked_since=1.0) == pytest.approx(end)


@given(st.floats(1.0, 1e7), st.floats(0.0, 1e9), st.floats(0.0, 1e9))
def test_a_raised_estimate_is_past_but_not_half_as_long_again_and_never_falls(
    estimate: float, now: float, later: float
) -> None:
    gang = running(estimate)
    end = gang.expected_end(now, blocked_since=math.inf)
    assert now * (1 - 1e-9) <= end <= max(estimate, 1.5 * now) * (1 + 1e-9)
    assert later < now or gang.expected_end(later, blocked_since=math.inf) >= end * (1 - 1e-9)


@given(st.sampled_from((None, 0.0, 1e-9, 5.0, math.nan)), st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_who_came_later_than_the_blocked_gang_counts_as_ending_now(
    estimate: float | None, started: float, more: float
) -> None:
    now = started + 5.0 + more
    assert running(estimate, started).expected_end(now, blocked_since=started) == now


@pytest.mark.parametrize("estimate", [0.0, 1e-9, math.nan])
def test_an_estimate_of_nothing_is_raised_from_a_second(estimate: float) -> None:
    end = running(estimate).expected_end(2.0, blocked_since=1.0)
    assert 2.0 <= end <= 3.0


def test_a_blocked_gang_waits_for_one_that_keeps_its_word_not_for_one_that_has_outrun_it() -> None:
    """The second of them should run for much longer: it has already, beyond what was expected."""
    empty = a_snapshot(
        [a_node("n0"), a_node("n1")], a_gang("wide", a_task(8), arrived=1.0), now=1000.0
    )
    honest = a_gang("honest", a_task(8), estimated_seconds=1010.0)
    outrun = a_gang("outrun", a_task(8), estimated_seconds=100.0)
    snapshot = with_running(
        empty,
        a_running(honest, empty.nodes, {"n0": 8}),
        a_running(outrun, empty.nodes, {"n1": 8}),
    )
    assert reservation(snapshot, "wide") == (1010.0, ["n0"])


def reservation(snapshot: ClusterSnapshot, uid: str) -> tuple[float, list[str]]:
    """From when on ``uid`` should have its places, and which nodes these are on."""
    hold = next(h for h in run_cycle(snapshot, POLICY).held if h.gang.uid == uid)
    assert hold.reservation is not None
    rows = hold.reservation.placement.node_rows()
    return hold.reservation.start, [snapshot.nodes.names[row] for row in rows]


class WideFirst:
    """The gang called ``wide``, then the others as they came."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        keyed = sorted(gangs, key=lambda g: (g.uid != "wide", g.arrived, g.uid))
        return [Ranked(gang, 0.0) for gang in keyed]


def misreporting(name: str, chance: random.Random) -> tuple[Gang, float]:
    """A gang that says it takes a second, and how much longer it takes."""
    gang = a_gang(name, a_task(1, chance.choice((1, 2, 4))), estimated_seconds=1.0)
    return gang, float(chance.randint(2, MAX_LIE))


MAX_LIE = 12


@examples(20)
@given(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from((1, 2)))
def test_an_endless_stream_of_gangs_that_run_on_never_pushes_a_reservation_back_for_ever(
    seed: int, per_second: int, nodes: int
) -> None:
    """Those that ran when it came are gone after twelve seconds; later ones close their places."""
    chance = random.Random(seed)  # noqa: S311  # reproducible, not a secret
    policy = Policy(WideFirst(), Packing())
    world = SmallCluster([a_node(f"n{index}") for index in range(nodes)], policy, NEVER)
    for now in range(80):
        world.advance(float(now))
        if now == 20:
            world.submit(a_gang("wide", a_task(1, 8)), 10.0)
        for index in range(per_second):
            world.submit(*misreporting(f"s{now:02}-{index}", chance))
        world.decide()
    assert world.problems == []
    assert world.started["wide"] <= 20 + 3 * MAX_LIE
