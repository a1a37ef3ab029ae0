"""Tiresias: two queues by attained service, promotion, and the Gittins index."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.errors import SettingError
from bireme.core.gangs import Gang
from bireme.heuristics.tiresias import (
    _YARN_COUNTS,
    TiresiasGittins,
    TiresiasLas,
    gittins_indices,
)
from bireme.testing import a_gang, a_task
from testbed.decisions import ranked, uids

SAMPLES = Path(__file__).parents[4] / "shared/data/tiresias/yarn-gput10000.csv"


def job(uid: str, *, gpus: int = 1, served: float = 0.0, arrived: float = 0.0) -> Gang:
    return replace(a_gang(uid, a_task(1, gpus), arrived=arrived), attained_seconds=served)


# --- least attained service -------------------------------------------------------------------


def test_service_is_devices_times_run_time() -> None:
    entries = ranked(
        TiresiasLas(100.0), job("wide", gpus=4, served=25.0), job("b", served=99.0), job("c")
    )
    assert [(entry.gang.uid, entry.score, entry.preemption_priority) for entry in entries] == [
        ("b", -99.0, 0.0),
        ("c", 0.0, 0.0),
        ("wide", -100.0, -1.0),
    ]


def test_in_one_queue_the_running_stay_ahead_by_start_and_the_others_follow_by_arrival() -> None:
    running = {job("late", arrived=0.0): 20.0, job("early", arrived=9.0): 10.0}
    waiting = job("y", arrived=8.0), job("x", arrived=7.0)
    entries = ranked(TiresiasLas(100.0), *waiting, running=running, now=30.0)
    assert uids(entries) == ["early", "late", "x", "y"]
    assert {entry.preemption_priority for entry in entries} == {0.0}


def test_a_running_gang_falls_behind_newcomers_when_it_reaches_the_threshold() -> None:
    new, old = job("new", arrived=20.0), job("old", gpus=2)
    before = ranked(TiresiasLas(100.0), new, running={old: 0.0}, now=49.0)
    assert uids(before) == ["old", "new"]
    after = ranked(TiresiasLas(100.0), new, running={old: 0.0}, now=50.0)
    assert [(entry.gang.uid, entry.preemption_priority) for entry in after] == [
        ("new", 0.0),
        ("old", -1.0),
    ]


def test_a_gang_that_waited_long_for_what_it_had_run_is_promoted() -> None:
    policy = TiresiasLas(100.0, promote_knob=2.0)
    old, new = job("old", served=100.0), job("new", arrived=250.0)
    assert uids(ranked(policy, old, new, now=299.0)) == ["new", "old"]
    promoted = ranked(policy, old, new, now=300.0)
    assert uids(promoted) == ["old", "new"]
    assert [entry.preemption_priority for entry in promoted] == [-1.0, 0.0], (
        "waiting gives no claim"
    )


def test_a_promoted_gang_keeps_its_queue_for_a_whole_threshold_of_new_service() -> None:
    policy = TiresiasLas(100.0, promote_knob=2.0)
    old, new = job("old", served=100.0), job("new", arrived=250.0)
    assert uids(ranked(policy, new, running={old: 300.0}, now=399.0)) == ["old", "new"]
    assert uids(ranked(policy, new, running={old: 300.0}, now=400.0)) == ["new", "old"]


def test_without_a_knob_nobody_is_promoted() -> None:
    old, new = job("old", served=4000.0), job("new", arrived=10**6)
    assert uids(ranked(TiresiasLas(), old, new, now=10**7)) == ["new", "old"]


def test_a_gang_that_never_ran_is_not_promoted_over_its_own_queue() -> None:
    policy = TiresiasLas(100.0, promote_knob=2.0)
    assert uids(ranked(policy, job("b", arrived=1.0), job("a"), now=10**6)) == ["a", "b"]


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_impossible_queues_are_refused_by_name(value: float) -> None:
    with pytest.raises(SettingError, match=r"threshold_device_seconds is .* above 0"):
        TiresiasLas(value)
    with pytest.raises(SettingError, match=r"promote_knob is .* above 0"):
        TiresiasLas(promote_knob=value)


@pytest.mark.parametrize("rule", [TiresiasLas, TiresiasGittins])
def test_within_the_delay_a_gang_keeps_its_place_and_stops_nobody(
    rule: type[TiresiasLas | TiresiasGittins],
) -> None:
    new, running = job("new", arrived=20.0), {job("old", gpus=8): 0.0}
    at_once = ranked(rule(), new, running=running, now=5000.0)
    assert [entry.stop_priority for entry in at_once] == [None, None]

    policy = rule(preemption_delay_seconds=4990)
    waits = ranked(policy, new, running=running, now=5000.0)
    assert uids(waits) == uids(at_once) == ["new", "old"]
    assert [(entry.stop_priority, entry.stop_priority_until) for entry in waits] == [
        (-math.inf, 5010.0),
        (None, None),
    ]
    assert ranked(policy, new, running=running, now=5010.0)[0].stop_priority is None


# --- Gittins index ----------------------------------------------------------------------------


def test_the_index_of_two_kinds_of_jobs_is_the_written_formula() -> None:
    # Half of the jobs take 1, half take 8. At 0 the best quantum is 1: P = 1/2, E = 1. Later
    # only the long ones are left, and the index is one over what remains of them.
    policy = TiresiasGittins([1.0, 8.0], quantum_device_seconds=1.0)
    gangs = [job(str(served), served=float(served)) for served in (0, 1, 2, 4, 7, 8)]
    scores = {entry.gang.uid: entry.score for entry in ranked(policy, *gangs)}
    expected = {"0": 1 / 2, "1": 1 / 7, "2": 1 / 6, "4": 1 / 4, "7": 1 / 4, "8": 0.0}
    assert scores == pytest.approx({uid: 1e6 * index for uid, index in expected.items()})


def test_the_highest_index_goes_first_and_is_the_claim() -> None:
    policy = TiresiasGittins([1.0, 8.0], quantum_device_seconds=1.0)
    entries = ranked(
        policy, job("new", arrived=9.0), job("past", served=9.0), running={job("half"): 0.0}, now=5
    )
    assert uids(entries) == ["new", "half", "past"]
    assert all(entry.preemption_priority == entry.score for entry in entries)


def test_within_one_level_no_running_gang_is_passed() -> None:
    policy = TiresiasGittins([1.0, 8.0], quantum_device_seconds=1.0)
    entries = ranked(policy, job("w", served=4.0), running={job("r", gpus=2): 0.0}, now=3.0)
    assert uids(entries) == ["r", "w"]
    assert entries[0].preemption_priority == entries[1].preemption_priority


def test_samples_are_rounded_up_to_doubles_of_the_quantum() -> None:
    rough = TiresiasGittins([0.3, 1.0, 5.0, 8.0], quantum_device_seconds=1.0)
    exact = TiresiasGittins([1.0, 1.0, 8.0, 8.0], quantum_device_seconds=1.0)
    gangs = [job(str(served), served=float(served)) for served in range(10)]
    assert ranked(rough, *gangs) == ranked(exact, *gangs)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any))
def test_the_index_is_the_best_ratio_over_all_further_services(counts: list[int]) -> None:
    bounds = np.exp2(np.arange(len(counts), dtype=np.float64))
    indices = gittins_indices(bounds, np.array(counts, dtype=np.float64))
    services = [b for b, count in zip(bounds.tolist(), counts, strict=True) for _ in range(count)]
    for attained, index in zip([0.0, *bounds[:-1].tolist()], indices, strict=True):
        left = [service - attained for service in services if service > attained]
        ratios = [
            sum(s <= quantum for s in left) / sum(min(s, quantum) for s in left)
            for quantum in (*left, 0.7, 3.0, 1e3)
            if left
        ]
        assert index == pytest.approx(max(ratios, default=0.0))


def test_by_default_young_jobs_go_first_as_most_jobs_are_short() -> None:
    grown = [job(f"{2**n:07}", served=float(2**n)) for n in range(9, 21)]
    assert uids(ranked(TiresiasGittins(), *grown[::-1])) == [gang.uid for gang in grown]


@pytest.mark.skipif(not SAMPLES.exists(), reason="needs the development data of Tiresias")
def test_the_default_distribution_is_the_published_one() -> None:
    with SAMPLES.open(newline="") as file:
        services = [float(row["duration"]) for row in csv.DictReader(file)]
    bounds = [128.0 * 2**level for level in range(len(_YARN_COUNTS))]
    counted = [
        sum(low < service <= high for service in services)
        for low, high in zip([0.0, *bounds], bounds, strict=False)
    ]
    assert tuple(counted) == _YARN_COUNTS
    gangs = [job(str(n), served=float(2**n)) for n in range(27)]
    assert ranked(TiresiasGittins(services), *gangs) == ranked(TiresiasGittins(), *gangs)


@pytest.mark.parametrize(
    ("samples", "quantum", "message"),
    [
        ([], 1.0, "samples has 0 values"),
        ([1.0, 0.0], 1.0, "samples has 2 values, not all"),
        ([math.inf], 1.0, "not all of them finite"),
        ([math.nan], 1.0, "not all of them finite"),
        ([1.0], 0.0, "quantum_device_seconds is 0.0"),
        ([1e30], 1.0, "use a quantum of at least 1.0"),
    ],
)
def test_an_impossible_distribution_is_refused(
    samples: list[float], quantum: float, message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        TiresiasGittins(samples, quantum)
