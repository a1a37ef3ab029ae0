"""The service of submitters: integrated over time, halved by half-lives, compared with others."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.running import RunningGang
from bireme.core.service import ServiceLedger
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import a_gang, a_running_gang, a_snapshot, a_task, racks, with_running

HALF_LIFE = 1000.0
EMPTY = a_snapshot(racks(1, 2))


def held(user: str, gpus: int = 1, row: int = 0) -> RunningGang:
    gang = replace(a_gang(user, a_task(1, gpus)), user=user)
    return a_running_gang(gang, EMPTY.nodes, row=row)


def test_service_is_devices_times_time_and_half_of_it_after_the_half_life() -> None:
    ledger = ServiceLedger(HALF_LIFE)
    ledger.observe([held("a", 4)], 0.0)
    ledger.observe([], 10.0)
    (seconds,) = ledger.at(10.0).values()
    assert seconds == pytest.approx(40.0, rel=0.01)
    assert ledger.at(10.0 + HALF_LIFE)["a"] == pytest.approx(seconds / 2)


@given(st.lists(st.floats(0.1, 500.0), min_size=1, max_size=8))
def test_how_often_somebody_looks_changes_nothing(pauses: list[float]) -> None:
    often, once = ServiceLedger(HALF_LIFE), ServiceLedger(HALF_LIFE)
    running, now = [held("a", 2), held("b", 3, row=1)], 0.0
    often.observe(running, now)
    once.observe(running, now)
    for pause in pauses:
        now += pause
        often.observe(running, now)
    found, expected = often.at(now), once.at(now)
    assert found == pytest.approx(expected, rel=1e-6, abs=2.0 * len(pauses))


def test_gangs_that_begin_and_end_one_by_one_are_charged_as_when_all_are_observed() -> None:
    stepwise, whole = ServiceLedger(HALF_LIFE), ServiceLedger(HALF_LIFE)
    first, second = held("a", 2), held("a", 8, row=1)
    stepwise.begin(first, 0.0)
    stepwise.begin(second, 50.0)
    stepwise.end(first, 80.0)
    for now, running in ((0.0, [first]), (50.0, [first, second]), (80.0, [second])):
        whole.observe(running, now)
    assert stepwise.at(200.0) == pytest.approx(whole.at(200.0))


def test_a_clock_that_is_set_back_charges_nobody() -> None:
    ledger = ServiceLedger(HALF_LIFE)
    ledger.observe([held("a")], 100.0)
    before = ledger.at(150.0)
    assert ledger.at(120.0) == before


def test_what_was_earlier_is_charged_by_its_age() -> None:
    ledger = ServiceLedger(HALF_LIFE)
    assert ledger.is_new
    ledger.add("a", 80.0, ended=0.0, now=HALF_LIFE)
    assert ledger.at(HALF_LIFE) == {"a": 40.0}
    assert not ledger.is_new


def test_without_a_half_life_there_is_no_account() -> None:
    ledger = ServiceLedger(0)
    ledger.observe([held("a")], 0.0)
    ledger.begin(held("b"), 1.0)
    assert ledger.at(math.inf) == {}
    assert not ledger.is_new


def snapshot(served: dict[str, float], *, waits: str, runs: str) -> ClusterSnapshot:
    """A snapshot in which a gang of each of ``waits`` waits, and of each of ``runs`` runs."""
    waiting = [replace(a_gang(f"w{user}"), user=user) for user in waits]
    bare = a_snapshot(racks(1, 2), *waiting, settings=SchedulingSettings(service_threshold=100))
    running = (held(user, row=at) for at, user in enumerate(runs))
    return replace(with_running(bare, *running), service=served)


@pytest.mark.parametrize(
    ("served", "waits", "runs", "over"),
    [
        pytest.param({"a": 9e4, "b": 1e4}, "a", "b", "a", id="more-than-the-other"),
        pytest.param({"a": 5.4e4, "b": 4.6e4}, "a", "b", "", id="hardly-more"),
        pytest.param({"a": 90.0}, "a", "b", "", id="less-than-a-step-of-the-service"),
        pytest.param({"a": 9e4, "b": 1e4}, "a", "", "", id="alone"),
        pytest.param({"a": 9e4, "b": 9e4, "c": 0.0}, "ab", "c", "ab", id="of-three"),
        pytest.param({"a": 9e4, "b": 9e4, "gone": 0.0}, "ab", "", "", id="gone"),
    ],
)
def test_over_served_is_who_had_more_than_those_that_compete(
    served: dict[str, float], waits: str, runs: str, over: str
) -> None:
    assert snapshot(served, waits=waits, runs=runs).over_served == frozenset(over)
