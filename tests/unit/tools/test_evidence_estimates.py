"""How promises of starts and places are counted as kept."""

from types import SimpleNamespace
from typing import cast

from bireme.simulator.outcome import Outcome
from evidence.estimates import Told, kept


def outcome(**starts: float | None) -> Outcome:
    """Jobs by name, and when each first started."""
    jobs = [SimpleNamespace(job=SimpleNamespace(name=n), started=at) for n, at in starts.items()]
    return cast(Outcome, SimpleNamespace(jobs=jobs))


def test_a_start_is_inside_before_or_after_its_range() -> None:
    told: tuple[float, float, float | None] = (0.0, 10.0, 20.0)
    ranges = dict.fromkeys(("inside", "early", "late", "edge"), told)
    found = kept([(outcome(inside=15.0, early=5.0, late=30.0, edge=21.0), Told(ranges))])
    assert list(found.inside) == [True, False, False, True]
    assert list(found.before) == [False, True, False, False]
    assert list(found.after) == [False, False, True, False]


def test_a_range_without_an_end_is_kept_by_not_starting_before_it() -> None:
    told = Told({"a": (0.0, 10.0, None), "b": (0.0, 10.0, None)})
    found = kept([(outcome(a=12.0, b=3.0), told)])
    assert list(found.open_ended) == [True, False]
    assert list(found.inside) == []


def test_what_is_told_after_the_first_start_does_not_count() -> None:
    told = Told({"stopped": (50.0, 60.0, 70.0)}, {"stopped": (50.0, 1)})
    found = kept([(outcome(stopped=10.0, never=None), told)])
    assert list(found.inside) == list(found.in_place) == []
    assert found.jobs == 2


def test_a_place_is_kept_while_no_more_start_before_than_stood_there() -> None:
    told = Told(places={"second": (0.0, 2), "first": (0.0, 1)})
    found = kept([(outcome(second=10.0, first=20.0, passing=5.0), told)])
    assert list(found.in_place) == [True, False]
