"""The combined priority: every factor in its direction, weights, explanation, total order."""

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang
from bireme.core.nodes import GrowablePool
from bireme.core.policy import Ranked
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running

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
        ("service", "0 device-seconds"),
    ]


@given(
    st.tuples(WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS),
    st.integers(0, 100),
    st.integers(-100, 2 * 10**9),
    st.integers(1, 10**9),
    st.floats(0, 2e5),
    st.floats(0, 1e9),
)
def test_the_explanation_sums_to_the_score_and_both_stay_within_one(
    weights: tuple[float, float, float, float],
    user: int,
    priority: int,
    replicas: int,
    arrived: float,
    served: float,
) -> None:
    gang = job("g", user=user, priority=priority, replicas=replicas, arrived=arrived)
    gang = replace(gang, attained_seconds=served)
    (entry,) = ranked(gang, weights=weighted(*weights))
    assert entry.score == pytest.approx(
        sum(factor.contribution for factor in entry.factors), abs=1e-8
    )
    *four, service = entry.factors
    assert sum(factor.weight for factor in four) == pytest.approx(1.0)
    assert service.weight == -(four[2].contribution + four[3].contribution)
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
    facts=st.lists(
        st.tuples(st.integers(0, 2), st.integers(-1, 1), st.integers(0, 10**6)),
        min_size=1,
        max_size=8,
    ),
    user=WEIGHTS,
    by_class=WEIGHTS,
)
def test_the_lowest_claim_is_the_lowest_that_the_order_gives(
    facts: list[tuple[int, int, int]], user: float, by_class: float
) -> None:
    gangs = [
        replace(job(f"g{at}", user=u, priority=p), attained_seconds=float(served))
        for at, (u, p, served) in enumerate(facts)
    ]
    weights = weighted(user, by_class, 1.0, 1.0)
    snapshot = a_snapshot([], *gangs, queues=QUEUES, now=100_000.0, settings=weights)
    claims = [entry.preemption_priority for entry in CombinedPriority().order(gangs, snapshot)]
    assert CombinedPriority().lowest_preemption_priority(gangs, snapshot) == min(
        c for c in claims if c is not None
    )


# --- service ---

THRESHOLD = SchedulingSettings().service_threshold
OFF = replace(SchedulingSettings(), service_threshold=0)


def served(uid: str, device_seconds: float, **facts: float) -> Gang:
    """A gang of four devices that has run before."""
    return replace(job(uid, **facts), attained_seconds=device_seconds / 4)


def claims(*gangs: Gang) -> dict[str, float]:
    return claims_of(ranked(*gangs))


def claims_of(entries: Iterable[Ranked]) -> dict[str, float]:
    found = {entry.gang.uid: entry.preemption_priority for entry in entries}
    return {uid: claim for uid, claim in found.items() if claim is not None}


def test_wait_and_width_count_a_twentieth_at_the_threshold_and_at_every_eightfold() -> None:
    (fresh,) = ranked(job("g"))
    stated = sum(factor.contribution for factor in fresh.factors[:2])
    for share, left in (
        (0.99, 1.0),
        (1.0, 1 / 20),
        (7.99, 1 / 20),
        (8.0, 1 / 400),
        (64.0, 1 / 8000),
    ):
        (entry,) = ranked(served("g", share * THRESHOLD))
        assert entry.score == pytest.approx(stated + (fresh.score - stated) * left, abs=1e-9)


def test_a_running_gang_counts_what_it_has_had_since_its_start() -> None:
    gang = served("g", THRESHOLD / 2)
    for now, value in ((THRESHOLD / 8 - 1, 0.0), (THRESHOLD / 8, 0.95)):
        snapshot = a_snapshot([a_node("n0")], queues=QUEUES, now=now)
        held = a_running(gang, snapshot.nodes, {"n0": 4}, started=0.0)
        snapshot = with_running(snapshot, held)
        factor = CombinedPriority().order([gang], snapshot)[0].factors[-1]
        assert (factor.name, factor.value) == ("service", value)


def test_an_elastic_gang_has_had_no_less_when_it_has_shrunk() -> None:
    gang = a_gang("g", a_task(1, min_replicas=1, max_replicas=8), is_elastic=True, queue="q50")
    found = []
    for size in (8, 1):
        snapshot = a_snapshot([a_node("n0")], queues=QUEUES, now=10_800.0)
        held = a_running(gang, snapshot.nodes, {"n0": size}, started=0.0)
        found += CombinedPriority().order([gang], with_running(snapshot, held))
    found += ranked(replace(gang, attained_seconds=10_800.0), now=10_800.0)
    assert len({entry.preemption_priority for entry in found}) == 1


@given(st.integers(0, 100), st.integers(0, 100), st.floats(0, 1e12), st.floats(0, 1e12))
def test_of_stated_priorities_the_higher_stops_whatever_the_service(
    one: int, other: int, had: float, has: float
) -> None:
    found = claims(served("a", had, user=one), served("b", has, user=other))
    if one != other:
        assert (found["a"] > found["b"]) == (one > other)
    elif found["a"] != found["b"]:
        assert (found["a"] > found["b"]) == (had < has)


@given(st.floats(0, 1e12), st.integers(1, 10**6), st.integers(13_600, 100_000))
def test_no_service_puts_a_class_behind_one_that_the_wait_and_width_of_others_cannot_reach(
    had: float, replicas: int, arrived: int
) -> None:
    high = served("z-high", had, priority=1000)
    low = job("a-low", priority=0, replicas=replicas, arrived=float(arrived))
    assert order(low, high) == ["z-high", "a-low"]


def test_of_equal_priorities_less_service_goes_first_and_may_stop_the_other() -> None:
    """Whatever their waits and widths are."""
    short = served("z-short", THRESHOLD / 2, replicas=4, arrived=100_000.0)
    long = served("a-long", 100 * THRESHOLD, replicas=4, arrived=1.0)
    assert order(long, short) == ["z-short", "a-long"]
    found = claims(short, long)
    assert found["z-short"] > found["a-long"]
    longest = served("a-longest", 2.0**39 * THRESHOLD, arrived=1.0)
    longer = served("z-longer", 2.0**36 * THRESHOLD, arrived=2.0)
    assert order(longest, longer) == ["z-longer", "a-longest"]


def test_a_namespace_that_had_more_than_its_share_goes_behind_and_is_stopped_for_others() -> None:
    """Whatever the service of the gangs themselves is, but never across stated priorities."""
    new = replace(served("a-new", 0.0), user="cutting")
    old = replace(served("b-old", 8 * THRESHOLD), user="cutting")
    long = replace(served("z-long", 2.0**30 * THRESHOLD), user="honest")
    high = replace(served("high", 0.0, priority=1000), user="cutting")
    gangs = (new, old, long, high)
    bare = a_snapshot([], *gangs, queues=QUEUES, now=100_000.0)
    charged = replace(bare, service={"cutting": 9e9, "honest": 1e9})
    entries = CombinedPriority().order(gangs, charged)
    assert [entry.gang.uid for entry in entries] == ["high", "z-long", "a-new", "b-old"]
    found = claims_of(entries)
    assert found["high"] > found["z-long"] > found["a-new"] > found["b-old"]
    for entry in entries:
        parts = sum(each.weight * each.value for each in entry.factors)
        assert parts == pytest.approx(entry.score, abs=1e-8)
    # Without the charge, or alone, each gang counts with its own service.
    assert [each.gang.uid for each in CombinedPriority().order(gangs, bare)][1] == "a-new"
    alone = replace(charged, waiting=(new, old, high))
    assert [each.gang.uid for each in CombinedPriority().order(alone.waiting, alone)] == [
        "high",
        "a-new",
        "b-old",
    ]


def test_a_negative_class_and_a_pod_group_stop_nobody_for_the_service_of_others() -> None:
    lowest = job("lowest", priority=-1000)
    group = replace(job("group", priority=0), kind="PodGroup")
    found = claims(lowest, group, served("long", 100 * THRESHOLD, priority=0))
    assert found["lowest"] < found["long"]
    assert found["group"] < found["long"]


@pytest.mark.parametrize(
    ("pool", "stops"),
    [
        (None, True),
        (GrowablePool("p", a_node("new"), 1, patience_seconds=600), False),
        (GrowablePool("p", a_node("new"), 0, 1, 99_900.0, patience_seconds=600), False),
        (GrowablePool("p", a_node("new"), 0, patience_seconds=600), True),
        (GrowablePool("p", a_node("new"), 1, 1, 90_000.0, patience_seconds=600), True),
        (GrowablePool("p", a_node("new", 2), 1, patience_seconds=600), True),
    ],
    ids=["none", "room", "coming", "at its most", "late", "too small"],
)
def test_service_stops_nobody_for_a_gang_that_a_pool_can_grow_for(
    pool: GrowablePool | None, stops: bool
) -> None:
    new, old, high = job("new"), job("old"), job("high", user=60)
    pools = [pool] if pool else []
    snapshot = a_snapshot([a_node("n0")], queues=QUEUES, now=100_000.0, growable=pools)
    held = a_running(old, snapshot.nodes, {"n0": 4}, started=0.0)
    snapshot = with_running(snapshot, held)
    orderer = CombinedPriority()
    found = claims_of(orderer.order([new, old, high], snapshot))
    assert (found["new"] > found["old"]) == stops
    assert found["high"] > found["old"]
    assert orderer.lowest_preemption_priority([old], snapshot) == found["old"]


DELAY = SchedulingSettings().service_preemption_delay_seconds
COST = SchedulingSettings().preemption_cost_seconds


@given(st.floats(0, DELAY - 1), st.floats(THRESHOLD, 1e12))
def test_service_stops_nobody_before_the_delay_and_what_is_stated_does(
    waited: float, had: float
) -> None:
    now = 100_000.0
    # Class 0 and a negative one count alike but for this.
    long, lower = served("long", had, priority=0), served("lower", 0.0, priority=0, user=49)
    group = replace(job("group", priority=0), kind="PodGroup")
    negative = job("negative", priority=-1)
    snapshot = a_snapshot([a_node("n0", 16)], queues=QUEUES, now=now)
    running = [
        a_running(gang, snapshot.nodes, {"n0": 4}, started=now - 1)
        for gang in (long, lower, group, negative)
    ]
    snapshot = with_running(snapshot, *running)
    for arrived, stops in ((now - waited, False), (now - DELAY, True)):
        new = job("new", priority=0, arrived=arrived)
        gangs = [new, *(held.gang for held in running)]
        entry, *others = sorted(
            CombinedPriority().order(gangs, snapshot), key=lambda each: each.gang is not new
        )
        shrinks = entry.preemption_priority
        assert shrinks is not None
        claim = shrinks if entry.stop_priority is None else entry.stop_priority
        found = claims_of(others)
        assert (found["long"] < claim, found["group"] < claim) == (stops, stops)
        assert found["lower"] < claim, "the owner of the queue has said so"
        assert found["negative"] < claim
        assert found["long"] < shrinks, "an elastic one shrinks at once"


@given(st.floats(1, 1e5), st.floats(THRESHOLD, 1e6), st.floats(-COST, 2 * COST), st.booleans())
def test_service_stops_none_that_should_end_soon(
    ran: float, earlier: float, left: float, is_group: bool
) -> None:
    gang = replace(
        job("long", priority=0),
        kind="PodGroup" if is_group else "TrainingJob",
        attained_seconds=earlier,
        estimated_seconds=max(1.0, ran + earlier + left),
    )
    lower = replace(gang, uid="lower", name="lower", priority=-1)
    new = job("new", priority=0, arrived=0.0)
    snapshot = a_snapshot([a_node("n0", 16)], queues=QUEUES, now=1e6)
    held = [a_running(each, snapshot.nodes, {"n0": 4}, started=1e6 - ran) for each in (gang, lower)]
    running = with_running(snapshot, *held)
    orderer = CombinedPriority()
    found = claims_of(orderer.order([new, gang, lower], running))
    assert gang.estimated_seconds is not None
    ends_soon = 0 < gang.estimated_seconds - running.attained_seconds(gang) <= COST
    assert (found["long"] < found["new"]) != ends_soon
    assert found["lower"] < found["new"], "what is stated still does"
    assert orderer.lowest_preemption_priority([gang], running) == found["long"]
    waiting = claims_of(orderer.order([new, gang], snapshot))
    assert waiting["long"] < waiting["new"], "one that waits has no end to protect"


def test_the_loss_of_a_node_and_the_end_of_the_wait_bound_know_no_delay() -> None:
    lost, late = replace(job("lost"), displaced=True), job("late", arrived=13_000.0)
    bound = replace(SchedulingSettings(), wait_bound_seconds=200)
    assert [entry.stop_priority for entry in ranked(lost, now=13_200.0)] == [None]
    (early,) = ranked(late, now=13_199.0, weights=bound)
    assert early.stop_priority is not None
    assert [each.stop_priority for each in ranked(late, now=13_200.0, weights=bound)] == [None]


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=6))
def test_without_a_threshold_service_changes_nothing(had: list[float]) -> None:
    fresh = ranked(*(job(f"g{at}") for at in range(len(had))), weights=OFF)
    later = ranked(*(served(f"g{at}", s) for at, s in enumerate(had)), weights=OFF)
    assert [(e.gang.uid, e.score, e.preemption_priority) for e in fresh] == [
        (e.gang.uid, e.score, e.preemption_priority) for e in later
    ]
