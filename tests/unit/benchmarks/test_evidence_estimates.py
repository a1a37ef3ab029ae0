"""Counts of promises of starts and places that were kept."""

from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.simulations.estimates import (
    ALONE,
    LEARNED,
    Coverage,
    Estimates,
    Found,
    in_place,
)
from bireme.core.eta import StartRange, StartRanges
from bireme.core.settings import SchedulingSettings
from bireme.registry import make_policy
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running
from bireme_lab.simulator.outcome import Outcome


def kept(
    starts: dict[str, float], foreseen: dict[str, list[tuple[float, StartRange]]], *, learned: bool
) -> Coverage:
    found = Coverage()
    found.add(starts, foreseen, needs_coverage=learned)
    return found


def test_a_start_is_inside_before_or_after_its_range() -> None:
    starts = {"inside": 15.0, "early": 5.0, "late": 30.0, "edge": 21.0}
    foreseen = {name: [(0.0, StartRange(10.0, 20.0, 0.9))] for name in starts}
    found = kept(starts, foreseen, learned=True)
    assert found.inside == [True, False, False, True]
    assert found.early == [False, True, False, False]
    assert found.late == [False, False, True, False]
    assert (found.given, found.widths) == (4, [10.0] * 4)


def test_a_range_without_an_end_or_without_a_coverage_is_reported_and_not_counted() -> None:
    foreseen = {
        "open": [(0.0, StartRange(10.0, None))],
        "foreseen": [(0.0, StartRange(10.0, 20.0))],
    }
    starts = {"open": 12.0, "foreseen": 12.0}
    assert len(kept(starts, foreseen, learned=True).inside) == 0
    found = kept(starts, foreseen, learned=False)
    assert (found.given, found.inside) == (2, [True])


def test_a_range_after_the_first_start_or_of_a_job_that_never_starts_does_not_count() -> None:
    foreseen = {
        "stopped": [(5.0, StartRange(8.0, 12.0, 0.9)), (50.0, StartRange(60.0, 70.0, 0.9))],
        "never": [(0.0, StartRange(60.0, 70.0, 0.9))],
    }
    found = kept({"stopped": 10.0}, foreseen, learned=True)
    assert (found.given, found.inside, found.renewed) == (1, [True], [1.0])


def test_the_first_range_counts_and_every_one_of_those_reported_later_as_a_share() -> None:
    foreseen = {
        "a": [(float(at), StartRange(at + 10.0, at + 20.0, 0.9)) for at in range(0, 40, 10)],
        "b": [(0.0, StartRange(10.0, None)), (5.0, StartRange(40.0, 60.0, 0.9))],
    }
    found = kept({"a": 45.0, "b": 45.0}, foreseen, learned=True)
    assert (found.inside, found.renewed) == ([False], [0.25, 1.0])


def test_a_place_is_kept_while_no_more_start_before_than_stood_there() -> None:
    starts = {"second": 10.0, "first": 20.0, "passing": 5.0}
    places = {"second": (0.0, 2), "first": (0.0, 1), "never": (0.0, 1), "passing": (5.0, 1)}
    assert list(in_place(starts, places)) == [True, False]


def test_an_outcome_counts_with_the_first_start_of_each_job() -> None:
    jobs = [
        SimpleNamespace(job=SimpleNamespace(name=n), started=at)
        for n, at in (("a", 9.0), ("b", None))
    ]
    found, given = Found(), Estimates()
    for source in (ALONE, LEARNED):
        given.ranges[source]["a"] = [(0.0, StartRange(8.0, 10.0))]
    given.places["a"] = (0.0, 1)
    found.add(cast(Outcome, SimpleNamespace(jobs=jobs)), given)
    inside = [found.coverage[source].inside for source in (ALONE, LEARNED)]
    assert (found.jobs, *inside) == (2, [True], [])
    assert found.places == [True]


@pytest.mark.parametrize(("arrived", "alone"), [(1.0, 65.0), (-1e6, 900.0)])
def test_a_cycle_is_heard_as_its_reservation_tells_it_and_as_the_core_does(
    arrived: float, alone: float
) -> None:
    """Beyond its wait bound a gang keeps the places of the oldest, wherever it fits first."""
    snapshot = a_snapshot(
        [a_node("n0"), a_node("n1")], a_gang("wide", a_task(8), arrived=arrived), now=10.0
    )
    for name, node, seconds, started in (("old", "n0", 900.0, 0.0), ("new", "n1", 60.0, 5.0)):
        gang = a_gang(name, a_task(8), estimated_seconds=seconds)
        held = a_running(gang, snapshot.nodes, {node: 8}, started=started)
        snapshot = with_running(snapshot, held)
    given, policy = Estimates(), make_policy(SchedulingSettings())
    decision = given.decide(snapshot, policy)
    learned = given.ranges[LEARNED]["wide"]
    assert [hold.gang.name for hold in decision.held] == ["wide"]
    ((_, found),) = given.ranges[ALONE]["wide"]
    assert found.earliest == alone
    assert learned == [(10.0, StartRanges().update(snapshot, decision)["wide"])]
    assert learned[0][1].earliest == 65.0
    assert given.places == {"wide": (10.0, 1)}
