"""The floor of a pool: what raises it, what never lowers it, and what it says."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.node_floor import (
    STALE_AFTER_SECONDS,
    FloorDecision,
    HourForecast,
    PoolBounds,
    PoolState,
    floor,
    with_step,
)
from bireme.core.reasons import Reason
from bireme.core.times import HOUR

NOW = 100 * HOUR
BOUNDS = PoolBounds(0, 20)


def hours(*uppers: float, start: float = NOW) -> tuple[HourForecast, ...]:
    return tuple(
        HourForecast(start + at * HOUR, upper / 2, upper) for at, upper in enumerate(uppers)
    )


def forecast(*uppers: float, replicas: int = 4, needed: int = 4) -> PoolState:
    return PoolState(replicas, needed, forecast=hours(*uppers), forecast_made=NOW)


def outcome(decision: FloorDecision) -> tuple[int, int, Reason]:
    return decision.floor, decision.replicas, decision.reason


def test_without_a_forecast_the_floor_is_what_is_needed() -> None:
    decision = floor(BOUNDS, PoolState(6, 4), NOW)
    assert outcome(decision) == (4, 6, Reason.AT_FLOOR)
    assert decision.message == "6 nodes: 4 in use or kept, there is no forecast"


def test_a_forecast_raises_the_target_before_the_hour_begins() -> None:
    state = forecast(3.0, 9.2)
    assert outcome(floor(BOUNDS, state, NOW)) == (4, 4, Reason.AT_FLOOR)
    decision = floor(BOUNDS, state, NOW + HOUR - 599)
    assert outcome(decision) == (10, 10, Reason.RAISED)
    assert decision.message == (
        "from 4 to 10 nodes: 4 in use or kept, the forecast for the next 10 min is at most 10"
    )
    assert decision.step == 6


def test_a_forecast_raises_by_no_more_than_the_step_within_an_hour() -> None:
    bounds = replace(BOUNDS, max_step=3)
    state = forecast(12.0)
    first = floor(bounds, state, NOW)
    assert (outcome(first), first.step) == ((7, 7, Reason.RAISED), 3)
    assert first.message.endswith("at most 12, but maxStep allows 3 more nodes an hour")
    spent = replace(state, replicas=7, raised=((NOW, 3),))
    assert outcome(floor(bounds, spent, NOW + 60)) == (7, 7, Reason.AT_FLOOR)
    later = replace(spent, forecast=hours(12.0, 12.0))
    assert outcome(floor(bounds, later, NOW + HOUR)) == (10, 10, Reason.RAISED)


def test_waiting_gangs_raise_the_target_at_once_within_its_maximum() -> None:
    bounds = replace(BOUNDS, max_step=1)
    decision = floor(bounds, PoolState(4, 4, gang_nodes=12), NOW)
    assert (outcome(decision), decision.step) == ((12, 12, Reason.RAISED), 0)
    assert "12 needed by waiting gangs" in decision.message
    assert floor(bounds, PoolState(4, 4, gang_nodes=99), NOW).replicas == 20


def test_what_a_forecast_adds_to_waiting_gangs_counts_as_its_step() -> None:
    state = replace(forecast(9.0), gang_nodes=6)
    assert floor(BOUNDS, state, NOW).step == 3


def test_at_its_maximum_a_pool_says_that_more_is_asked_for() -> None:
    decision = floor(BOUNDS, forecast(25.0, replicas=20), NOW)
    assert outcome(decision) == (20, 20, Reason.AT_MAX)
    assert decision.message.startswith("20 nodes, the maximum: 4 in use or kept, ")


def test_a_target_above_the_maximum_is_left_alone() -> None:
    state = PoolState(30, 4, gang_nodes=40, empty_since=(0.0,) * 9)
    decision = floor(replace(BOUNDS, scale_in=True), state, NOW)
    assert outcome(decision) == (20, 30, Reason.ABOVE_MAX)
    assert decision.message.startswith(
        "the target asks for 30 nodes, above max 20, and is not changed; 4 in use or kept"
    )


def test_a_low_forecast_lowers_nothing() -> None:
    assert outcome(floor(BOUNDS, forecast(0.0, replicas=9), NOW)) == (4, 9, Reason.AT_FLOOR)


def test_only_nodes_empty_for_the_cool_down_go_and_only_where_that_is_allowed() -> None:
    state = PoolState(9, 4, empty_since=(NOW - 1800, NOW - 1799, NOW - 5000))
    assert floor(BOUNDS, state, NOW).replicas == 9
    allowed = replace(BOUNDS, scale_in=True)
    assert outcome(floor(allowed, state, NOW)) == (4, 7, Reason.LOWERED)


def test_no_node_goes_while_others_come() -> None:
    allowed = replace(BOUNDS, scale_in=True)
    state = PoolState(9, 4, coming=1, empty_since=(0.0,) * 5)
    assert outcome(floor(allowed, state, NOW)) == (4, 9, Reason.AT_FLOOR)
    assert floor(allowed, replace(state, coming=0), NOW).replicas == 4


def test_a_pool_is_late_after_twice_its_lead_and_no_sooner_than_a_minute() -> None:
    assert [replace(BOUNDS, lead_seconds=lead).patience_seconds for lead in (0, 29, 31, 600)] == [
        *(60, 60, 62, 1200)
    ]


def test_steps_older_than_an_hour_are_forgotten_with_the_next() -> None:
    raised = with_step(with_step((), 2, NOW), 1, NOW + HOUR - 1)
    assert raised == ((NOW, 2), (NOW + HOUR - 1, 1))
    assert with_step(raised, 0, NOW + HOUR) == raised
    assert with_step(raised, 3, NOW + HOUR) == (raised[1], (NOW + HOUR, 3))


def test_empty_nodes_stay_as_far_as_the_floor_asks_for_them() -> None:
    allowed = replace(BOUNDS, scale_in=True)
    state = replace(forecast(8.0, replicas=9), empty_since=(0.0,) * 5)
    assert outcome(floor(allowed, state, NOW)) == (8, 8, Reason.LOWERED)
    waited_for = replace(state, gang_nodes=9)
    assert floor(allowed, waited_for, NOW).replicas == 9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"forecast_made": NOW - STALE_AFTER_SECONDS - 1},
            "the forecast is 27 h old and is not used",
        ),
        ({"forecast_made": NOW + HOUR + 1}, "the forecast is from the future and is not used"),
        ({"forecast_made": None}, "there is no forecast"),
        ({"forecast_made": -math.inf}, "there is no forecast"),
        ({"forecast": ()}, "there is no forecast"),
        ({"forecast": hours(9.0, start=NOW - 2 * HOUR)}, "does not cover the next 10 min"),
        ({"forecast": hours(math.nan)}, "the forecast is not a number of nodes and is not used"),
        ({"forecast": hours(math.inf)}, "the forecast is not a number of nodes and is not used"),
        ({"forecast": hours(-1.0)}, "the forecast is not a number of nodes and is not used"),
    ],
)
def test_a_forecast_that_cannot_be_used_counts_for_nothing_and_is_reported(
    change: dict[str, object], words: str
) -> None:
    decision = floor(BOUNDS, replace(forecast(9.0), **change), NOW)  # type: ignore[arg-type]
    assert outcome(decision) == (4, 4, Reason.AT_FLOOR)
    assert words in decision.message


nodes = st.integers(0, 40)
anything = st.floats(allow_nan=True, allow_infinity=True)
states = st.builds(
    PoolState,
    nodes,
    nodes,
    gang_nodes=nodes,
    empty_since=st.lists(st.floats(0, NOW), max_size=5).map(tuple),
    forecast=st.lists(st.one_of(st.floats(0, 50), anything), max_size=3).map(lambda f: hours(*f)),
    forecast_made=st.one_of(st.none(), st.just(NOW), anything),
    raised=st.lists(st.tuples(st.floats(0, 2 * NOW), st.integers(0, 9)), max_size=3).map(tuple),
)
limits = st.builds(
    PoolBounds,
    st.integers(0, 10),
    st.integers(10, 30),
    max_step=st.integers(0, 9),
    lead_seconds=st.integers(0, 7200),
    scale_in=st.booleans(),
    cool_down_seconds=st.integers(0, 3600),
)


@given(limits, states)
def test_the_target_is_never_raised_past_its_maximum_nor_lowered_below_what_is_needed(
    bounds: PoolBounds, state: PoolState
) -> None:
    decision = floor(bounds, state, NOW)
    assert bounds.minimum <= decision.floor <= bounds.maximum
    assert decision.replicas <= max(bounds.maximum, state.replicas)
    assert decision.replicas >= min(state.needed, state.replicas)
    if decision.replicas < state.replicas:
        assert bounds.scale_in
        assert decision.replicas >= decision.floor
        assert state.replicas - decision.replicas <= len(state.empty_since)
    reactive = max(state.needed, state.gang_nodes, bounds.minimum, state.replicas)
    assert decision.replicas - reactive <= bounds.max_step
    assert 0 <= decision.step <= bounds.max_step


@given(limits, st.lists(st.tuples(states, st.integers(0, 5000)), min_size=1, max_size=8))
def test_no_hostile_sequence_passes_the_maximum_or_the_step(
    bounds: PoolBounds, rounds: list[tuple[PoolState, int]]
) -> None:
    now, replicas = NOW, 0
    raised: tuple[tuple[float, int], ...] = ()
    for state, seconds in rounds:
        now += seconds
        raised = tuple((at, by) for at, by in raised if now - at < HOUR)
        decision = floor(bounds, replace(state, replicas=replicas, raised=raised), now)
        assert decision.replicas <= bounds.maximum
        replicas = decision.replicas
        if decision.step:
            raised = (*raised, (now, decision.step))
        assert sum(by for _, by in raised) <= bounds.max_step


# --- headroom ---


def test_headroom_is_kept_free_beyond_the_demand() -> None:
    bounds = replace(BOUNDS, headroom=1.5)
    decision = floor(bounds, PoolState(4, 4, demand=3.25), NOW)
    assert outcome(decision) == (5, 5, Reason.RAISED)
    assert decision.step == 0
    assert "3.25 needed in all and 1.5 kept free" in decision.message
    assert floor(bounds, PoolState(5, 4, demand=3.5 + 1e-12), NOW).floor == 5
    assert floor(bounds, PoolState(4, 4, demand=19.0), NOW).replicas == 20


def test_headroom_keeps_empty_nodes_that_would_go() -> None:
    bounds = replace(BOUNDS, scale_in=True, cool_down_seconds=60)
    state = PoolState(6, 4, demand=3.5, empty_since=(NOW - 60, NOW - 60))
    assert floor(bounds, state, NOW).replicas == 4
    assert floor(replace(bounds, headroom=1.0), state, NOW).replicas == 5
