"""The distance of a policy that watches from the one that decides: by hand, and at the extremes."""

import pytest
from hypothesis import given

from bireme.core.cycle import run_cycle
from bireme.core.gangs import Gang
from bireme.core.policy import Policy
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo, ShortestJob
from bireme.heuristics.simple_placers import BestFit, FirstFit
from bireme.heuristics.simple_sizers import Maximum, Minimum
from bireme.rl.shadow import Difference, compare
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running
from tests.support import random_snapshots
from tests.support.random_snapshots import SnapshotCase

FIFO = Policy(Fifo(), Packing())
SHORTEST = Policy(ShortestJob(), Packing())


def difference(snapshot: ClusterSnapshot, active: Policy, shadow: Policy) -> Difference:
    return compare(
        run_cycle(snapshot, active), run_cycle(snapshot, shadow, explain=False), snapshot
    )


def one_node_for_two() -> ClusterSnapshot:
    """Whole-node gangs of 1000 and of 100 seconds, the long one first."""
    long = a_gang("long", a_task(8), arrived=1.0, estimated_seconds=1000.0)
    short = a_gang("short", a_task(8), arrived=2.0, estimated_seconds=100.0)
    return a_snapshot([a_node("n")], long, short, now=2.0)


def test_two_policies_that_start_different_gangs_agree_in_nothing() -> None:
    found = difference(one_node_for_two(), FIFO, SHORTEST)
    assert found.agreement == 0.0


def test_regret_is_the_forecast_difference_of_mean_completion_times() -> None:
    # Long first: they end after 1000 and 1100 s; short first: after 1100 and 100 s.
    assert difference(one_node_for_two(), FIFO, SHORTEST).regret_seconds == pytest.approx(450.0)
    assert difference(one_node_for_two(), SHORTEST, FIFO).regret_seconds == pytest.approx(-450.0)


def test_equal_starts_on_other_nodes_are_equal_starts() -> None:
    nodes = [a_node("a"), a_node("b", gpus=1)]
    snapshot = a_snapshot(nodes, a_gang("g"))
    found = difference(snapshot, Policy(Fifo(), FirstFit()), Policy(Fifo(), BestFit()))
    assert found.agreement == 1.0


@given(random_snapshots.cases())
def test_a_policy_agrees_with_itself_and_regrets_nothing(case: SnapshotCase) -> None:
    found = difference(case.snapshot, FIFO, FIFO)
    assert found.same_sizes in (None, 1.0)
    assert found == Difference(1.0, found.same_sizes, 0.0)


RULE, LARGEST, SMALLEST = (Policy(Fifo(), Packing(), s) for s in (None, Maximum(), Minimum()))


def elastic(name: str) -> Gang:
    return a_gang(name, a_task(2, min_replicas=1, max_replicas=4), is_elastic=True)


def test_sizes_are_compared_of_elastic_gangs_that_both_start() -> None:
    snapshot = a_snapshot([a_node("n")], elastic("starts"), a_gang("rigid"))
    assert difference(snapshot, RULE, RULE).same_sizes == 1.0
    assert difference(snapshot, RULE, LARGEST).same_sizes == 0.0
    assert difference(a_snapshot([a_node("n")], a_gang("rigid")), RULE, LARGEST).same_sizes is None


def test_sizes_are_compared_of_running_gangs_that_any_of_both_resizes() -> None:
    empty = a_snapshot([a_node("n", gpus=4)], now=99.0)
    snapshot = with_running(empty, a_running(elastic("runs"), empty.nodes, {"n": 4}))
    assert difference(snapshot, SMALLEST, SMALLEST).same_sizes == 1.0
    assert difference(snapshot, SMALLEST, RULE) == Difference(1.0, 0.0, 0.0)
    assert difference(snapshot, LARGEST, RULE).same_sizes is None


@given(random_snapshots.cases())
def test_all_shares_lie_between_their_bounds_and_regret_changes_sides(case: SnapshotCase) -> None:
    one = difference(case.snapshot, FIFO, SHORTEST)
    other = difference(case.snapshot, SHORTEST, FIFO)
    assert 0 <= one.agreement <= 1
    assert 0 <= (one.same_sizes or 0) <= 1
    assert (one.agreement, one.same_sizes) == (other.agreement, other.same_sizes)
    assert one.regret_seconds == -other.regret_seconds
