"""The combined priority: every factor in its direction, weights, explanation, total order."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.testing import a_gang, a_snapshot, a_task

WEIGHTS = st.floats(0.01, 100.0)
QUEUES = [Queue(f"q{priority}", user_priority=priority) for priority in range(101)]


def order(
    *gangs: Gang, weights: SchedulingSettings | None = None, now: float = 100_000.0
) -> list[str]:
    return [entry.gang.uid for entry in ranked(*gangs, weights=weights, now=now)]


def ranked(
    *gangs: Gang, weights: SchedulingSettings | None = None, now: float = 100_000.0
) -> list[Ranked]:
    snapshot = a_snapshot([], *gangs, queues=QUEUES, now=now, settings=weights)
    return CombinedPriority().order(gangs, snapshot)


def weighted(user: float, job: float, wait: float, parallelism: float) -> SchedulingSettings:
    return SchedulingSettings(
        user_weight=user, job_weight=job, wait_weight=wait, parallelism_weight=parallelism
    )


def job(uid: str, **facts: float) -> Gang:
    """A gang in the middle of every factor, but for ``facts``."""
    return a_gang(
        uid,
        a_task(int(facts.get("replicas", 4))),
        queue=f"q{int(facts.get('user', 50))}",
        priority=int(facts.get("priority", 100)),
        arrived=facts.get("arrived", 60_000.0),
    )


PAIRS = st.one_of(
    st.tuples(st.just("user"), st.integers(0, 100), st.integers(0, 100)),
    st.tuples(st.just("priority"), st.integers(0, 2 * 10**9), st.integers(0, 2 * 10**9)),
    st.tuples(st.just("priority"), st.integers(10**9 - 2, 10**9), st.integers(10**9 - 2, 10**9)),
    st.tuples(st.just("replicas"), st.integers(1, 10**6), st.integers(1, 10**6)),
    st.tuples(st.just("arrived"), st.integers(13_600, 10**5), st.integers(13_600, 10**5)),
)


@given(PAIRS, st.tuples(WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS))
def test_of_two_jobs_that_differ_in_one_factor_the_better_goes_first(
    pair: tuple[str, int, int], weights: tuple[float, float, float, float]
) -> None:
    factor, left, right = pair
    if left == right:
        return
    less_is_better = factor == "arrived"
    better, worse = sorted((left, right), reverse=not less_is_better)
    # The names are against the better one, so that a tie would show.
    gangs = job("z-better", **{factor: better}), job("a-worse", **{factor: worse})
    assert order(*gangs, weights=weighted(*weights)) == ["z-better", "a-worse"]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param({"user": 51}, {"user": 50}, id="user-priority"),
        pytest.param({"priority": 1}, {"priority": 0}, id="job-priority"),
        pytest.param({"priority": 10**9}, {"priority": 10**9 - 1}, id="huge-job-priority"),
        pytest.param({"arrived": 59_999.0}, {}, id="wait"),
        pytest.param({"replicas": 5}, {}, id="parallelism"),
        pytest.param({"replicas": 10**6}, {"replicas": 10**6 - 1}, id="huge-parallelism"),
    ],
)
def test_the_smallest_advantage_decides(better: dict[str, float], worse: dict[str, float]) -> None:
    assert order(job("a-worse", **worse), job("z-better", **better)) == ["z-better", "a-worse"]


@pytest.mark.parametrize(
    ("without", "better", "worse"),
    [
        pytest.param(weighted(0, 1, 1, 1), job("b", user=100), job("w", user=0), id="user"),
        pytest.param(weighted(1, 0, 1, 1), job("b", priority=900), job("w", priority=0), id="job"),
        pytest.param(weighted(1, 1, 0, 1), job("b", arrived=20_000.0), job("w"), id="wait"),
        pytest.param(weighted(1, 1, 1, 0), job("b", replicas=99), job("w"), id="parallelism"),
    ],
)
def test_a_weight_of_zero_takes_its_factor_out_of_the_score(
    without: SchedulingSettings, better: Gang, worse: Gang
) -> None:
    first, second = ranked(better, worse, weights=without)
    assert first.score == second.score
    first, second = ranked(better, worse)
    assert first.score > second.score + 0.01


def test_a_large_weight_lets_its_factor_win_over_the_others() -> None:
    user, width = job("user", user=100, replicas=1), job("width", user=0, replicas=64)
    assert order(user, width, weights=weighted(9, 1, 1, 1)) == ["user", "width"]
    assert order(user, width, weights=weighted(1, 1, 1, 9)) == ["width", "user"]


def test_the_score_of_a_known_job_is_the_written_formula() -> None:
    snapshot = a_snapshot(
        [], queues=[Queue("q", user_priority=80, wait_bound_seconds=1000)], now=500.0
    )
    gang = a_gang("g", a_task(24), queue="q", priority=300, arrived=250.0)
    (entry,) = CombinedPriority().order([gang], snapshot)
    assert entry.score == pytest.approx(0.35 * 0.8 + 0.35 * 0.75 + 0.15 * 0.25 + 0.15 * 0.75)
    assert [(factor.name, factor.measured) for factor in entry.factors] == [
        ("userPriority", "80 of 100 in queue q"),
        ("jobPriority", "class value 300"),
        ("wait", "250 s of 1000 s"),
        ("parallelism", "24 replicas"),
    ]


@given(
    st.tuples(WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS),
    st.integers(0, 100),
    st.integers(-100, 2 * 10**9),
    st.integers(1, 10**9),
    st.floats(0, 2e5),
)
def test_the_explanation_sums_to_the_score_and_both_stay_within_one(
    weights: tuple[float, float, float, float],
    user: int,
    priority: int,
    replicas: int,
    arrived: float,
) -> None:
    gang = job("g", user=user, priority=priority, replicas=replicas, arrived=arrived)
    (entry,) = ranked(gang, weights=weighted(*weights))
    assert entry.score == pytest.approx(
        sum(factor.contribution for factor in entry.factors), abs=1e-8
    )
    assert sum(factor.weight for factor in entry.factors) == pytest.approx(1.0)
    assert all(0.0 <= factor.value <= 1.0 for factor in entry.factors)


def test_a_wait_past_the_bound_counts_no_more_than_the_bound() -> None:
    (entry,) = ranked(job("g", arrived=0.0), now=10**9)
    assert entry.factors[2].value == 1.0


def test_ties_go_to_the_interrupted_then_the_first_then_the_uid() -> None:
    gangs = [
        job("b"),
        job("a"),
        replace(job("c"), interrupted=True),
    ]
    assert order(*gangs) == ["c", "a", "b"]
    early = [job("late", arrived=-1.0), job("early", arrived=-2.0)]  # both past their bound
    assert order(*early) == ["early", "late"]


def test_being_interrupted_decides_ties_only() -> None:
    assert order(replace(job("old"), interrupted=True), job("better", user=51)) == ["better", "old"]


@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_the_order_is_stable_under_permutation_and_removal(
    shuffle: random.Random, removed: int
) -> None:
    gangs = [
        job(
            f"g{number}",
            user=shuffle.choice((50, 51)),
            priority=shuffle.choice((0, 100)),
            arrived=shuffle.choice((1.0, 1.0 + 1e-7, 50_000.0)),
        )
        for number in range(6)
    ]
    expected = order(*gangs)
    shuffle.shuffle(gangs)
    assert order(*gangs) == expected
    kept = [gang for gang in gangs if gang.uid != f"g{removed}"]
    assert order(*kept) == [uid for uid in expected if uid != f"g{removed}"]


def test_ranking_one_gang_equals_its_place_in_the_order() -> None:
    low, high = job("a"), job("b", user=90)
    snapshot = a_snapshot([], low, high, queues=QUEUES, now=100_000.0)
    policy = CombinedPriority()
    expected = policy.order([high], snapshot) + policy.order([low], snapshot)
    assert policy.order([low, high], snapshot) == expected


def test_a_running_gang_whose_queue_was_deleted_counts_with_the_default_user_priority() -> None:
    default = Queue("any").user_priority
    left, known = a_gang("left", queue="deleted"), a_gang("known", queue=f"q{default}")
    one, other = ranked(left, known)
    assert {one.gang.uid, other.gang.uid} == {"left", "known"}
    assert (one.score, one.preemption_priority) == (other.score, other.preemption_priority)


@given(
    facts=st.lists(st.tuples(st.integers(0, 100), st.integers(-5, 1000)), min_size=1, max_size=8),
    user=WEIGHTS,
    by_class=WEIGHTS,
)
def test_the_lowest_claim_is_the_lowest_that_the_order_gives(
    facts: list[tuple[int, int]], user: float, by_class: float
) -> None:
    gangs = [job(f"g{at}", user=u, priority=p) for at, (u, p) in enumerate(facts)]
    weights = weighted(user, by_class, 1.0, 1.0)
    snapshot = a_snapshot([], *gangs, queues=QUEUES, now=100_000.0, settings=weights)
    claims = [entry.preemption_priority for entry in CombinedPriority().order(gangs, snapshot)]
    assert CombinedPriority().lowest_preemption_priority(gangs, snapshot) == min(
        c for c in claims if c is not None
    )
