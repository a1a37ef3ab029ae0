"""The distance of a policy that watches from the one that decides, and what it would have saved."""

import numpy as np
import pytest
from hypothesis import given

from bireme.core.cycle import run_cycle
from bireme.core.gangs import Gang
from bireme.core.policy import Policy
from bireme.core.regret import RegretSample
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo, ShortestJob
from bireme.heuristics.simple_placers import BestFit, FirstFit
from bireme.heuristics.simple_sizers import Maximum, Minimum
from bireme.rl.shadow import MIN_SAMPLES, Difference, RegretEstimate, compare, estimate_regret
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running
from testbed import random_snapshots
from testbed.random_snapshots import SnapshotCase

FIFO = Policy(Fifo(), Packing())
SHORTEST = Policy(ShortestJob(), Packing())


def difference(snapshot: ClusterSnapshot, active: Policy, shadow: Policy) -> Difference:
    return compare(run_cycle(snapshot, active), run_cycle(snapshot, shadow, explain=False))


def one_node_for_two() -> ClusterSnapshot:
    """Whole-node gangs of 1000 and of 100 seconds, the long one first."""
    long = a_gang("long", a_task(8), arrived=1.0, estimated_seconds=1000.0)
    short = a_gang("short", a_task(8), arrived=2.0, estimated_seconds=100.0)
    return a_snapshot([a_node("n")], long, short, now=2.0)


def test_two_policies_that_start_different_gangs_agree_in_nothing() -> None:
    found = difference(one_node_for_two(), FIFO, SHORTEST)
    assert found.agreement == 0.0


def test_equal_starts_on_other_nodes_are_equal_starts() -> None:
    nodes = [a_node("a"), a_node("b", gpus=1)]
    snapshot = a_snapshot(nodes, a_gang("g"))
    found = difference(snapshot, Policy(Fifo(), FirstFit()), Policy(Fifo(), BestFit()))
    assert found.agreement == 1.0


@given(random_snapshots.cases())
def test_a_policy_agrees_with_itself(case: SnapshotCase) -> None:
    found = difference(case.snapshot, FIFO, FIFO)
    assert found.same_sizes in (None, 1.0)
    assert found == Difference(1.0, found.same_sizes)


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
    assert difference(snapshot, SMALLEST, RULE) == Difference(1.0, 0.0)
    assert difference(snapshot, LARGEST, RULE).same_sizes is None


@given(random_snapshots.cases())
def test_all_shares_lie_between_their_bounds_whoever_decides(case: SnapshotCase) -> None:
    one = difference(case.snapshot, FIFO, SHORTEST)
    other = difference(case.snapshot, SHORTEST, FIFO)
    assert 0 <= one.agreement <= 1
    assert 0 <= (one.same_sizes or 0) <= 1
    assert (one.agreement, one.same_sizes) == (other.agreement, other.same_sizes)


# --- the outcome of many moments ----------------------------------------------------------------


def samples(*regrets: float) -> list[RegretSample]:
    """Moments at which gangs take 100 s by the shadow, and that much longer by the active one."""
    return [RegretSample(100.0 + each, 100.0) for each in regrets]


def test_an_outcome_is_the_mean_of_its_moments_and_a_share_of_the_active_time() -> None:
    assert estimate_regret([]) is None
    assert estimate_regret(samples(50.0, -20.0, 0.0)) == RegretEstimate(
        3, 10.0, None, None, 30 / 330
    )
    nothing = estimate_regret([RegretSample(0.0, 0.0)])
    assert nothing is not None
    assert nothing.share == 0.0


def test_an_interval_is_that_of_batch_means() -> None:
    # Five batches of eight, with the means 1, 2, 3, 4, 5: a standard error of 1 / sqrt(2).
    regrets = [float(batch) for batch in range(1, 6) for _ in range(MIN_SAMPLES // 5)]
    found = estimate_regret(samples(*regrets))
    assert found is not None
    assert found.low_seconds == pytest.approx(3 - 2.7764 / 2**0.5)
    assert found.high_seconds == pytest.approx(3 + 2.7764 / 2**0.5)
    fewer = estimate_regret(samples(*regrets[1:]))
    assert fewer is not None
    assert (fewer.low_seconds, fewer.high_seconds) == (None, None)


def test_an_interval_covers_the_mean_though_neighbours_depend_on_each_other() -> None:
    # 200 moments whose correlation falls by a tenth from one to the next, around 0.
    chance, hits, worlds = np.random.default_rng(7), 0, 400
    for _ in range(worlds):
        noise, value = chance.normal(size=400), 0.0
        regrets = [value := 0.9 * value + each for each in noise.tolist()]
        found = estimate_regret(samples(*regrets[200:]))
        assert found is not None
        assert found.low_seconds is not None
        assert found.high_seconds is not None
        hits += found.low_seconds <= 0.0 <= found.high_seconds
    assert hits / worlds == pytest.approx(0.92, abs=0.05)
