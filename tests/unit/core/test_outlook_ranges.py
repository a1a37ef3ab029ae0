"""Ranges of outlooks: what is learned, from whom, and what is not said."""

from collections.abc import Mapping

import pytest

from bireme.core.decision import Admit, Decision
from bireme.core.eta import COVERAGE, StartRange
from bireme.core.outlook import Outlook, Prospect
from bireme.core.outlook_ranges import OutlookRanges
from bireme.core.placement import Placement
from bireme.core.play import Cut
from bireme.core.policy import Ranked
from bireme.core.reasons import Reason
from bireme.testing import a_gang

NOW = 1_000_000.0
FEWEST = 19


def outlook(now: float, starts: Mapping[str, float | None], position: int | None = 1) -> Outlook:
    waits = Reason.WAITING_FOR_CAPACITY
    prospects = (Prospect(a_gang(n), position, waits, start) for n, start in starts.items())
    return Outlook(now, now, tuple(prospects), 1, Cut.ALL_STARTED)


def started(*names: str) -> Decision:
    gangs = map(a_gang, names)
    return Decision(tuple(Admit(g, Placement((), "", ""), Ranked(g, 0.0), "") for g in gangs))


def taught(errors: list[float], seconds: float | None = 1000.0) -> tuple[OutlookRanges, float]:
    """Ranges after gangs foreseen in ``seconds`` started after ``errors`` times that each."""
    ranges, now = OutlookRanges(), NOW
    for number, error in enumerate(errors):
        name = f"g{number}"
        ranges.update(outlook(now, {name: None if seconds is None else now + seconds}), now)
        now += error * (seconds or 1000.0)
        ranges.see(now, started(name))
    return ranges, now


def test_a_moment_stays_one_until_enough_have_started_and_then_becomes_a_range() -> None:
    few, now = taught([1.0] * (FEWEST - 1))
    soon = {"next": now + 1000.0}
    assert few.update(outlook(now, soon), now) == {"next": StartRange(now + 1000.0, None)}
    enough, now = taught([0.5] + [1.0] * (FEWEST - 2) + [2.0])
    found = enough.update(outlook(now, {"next": now + 1000.0}), now)["next"]
    assert found == StartRange(now + 500.0, now + 2000.0, COVERAGE)


def test_a_forecast_of_another_length_teaches_nothing() -> None:
    ranges, now = taught([1.0] * 40)
    for seconds, coverage in ((3000.0, COVERAGE), (100_000.0, None)):
        (found,) = ranges.update(outlook(now, {"next": now + seconds}), now).values()
        assert found.coverage == coverage


def test_gangs_that_still_wait_count_as_later_than_they_have_waited() -> None:
    def latest(waiting: int, past: float) -> float | None:
        ranges, now = OutlookRanges(), NOW
        slow: dict[str, float | None] = {f"slow{n}": now + 1000.0 for n in range(waiting)}
        ranges.update(outlook(now, slow), now)
        for number in range(40):
            name = f"g{number}"
            ranges.update(outlook(now, {**slow, name: now + 1000.0}), now)
            ranges.see(now + 1000.0 * (0.5 + number / 40), started(name))
        now += past
        return ranges.update(outlook(now, {**slow, "next": now + 1000.0}), now)["next"].latest

    assert latest(0, 900.0) == pytest.approx(NOW + 900.0 + 1450.0)
    early = latest(5, 900.0)
    assert early is not None
    assert early > NOW + 900.0 + 1450.0
    assert latest(5, 5000.0) is None, "one in twenty may come at any time"


def test_a_start_that_nobody_foresees_goes_by_earlier_waits_at_its_place_in_line() -> None:
    ranges, now = taught([1.0] * 20 + [2.0], seconds=None)
    found = ranges.update(outlook(now, {"next": None}), now)
    assert found == {"next": StartRange(now + 1000.0, now + 2000.0, COVERAGE)}
    assert ranges.update(outlook(now, {"far": None}, position=100), now) == {}
    assert ranges.update(outlook(now, {"parked": None}, position=None), now) == {}


def test_a_gang_that_started_while_its_outlook_was_made_teaches_and_gets_no_range() -> None:
    ranges = OutlookRanges()
    for number in range(FEWEST + 1):
        now = NOW + 100.0 * number
        ranges.see(now + 10.0, started(f"g{number}"))
        assert ranges.update(outlook(now, {f"g{number}": now + 20.0}), now + 30.0) == {}
    now = NOW + 5000.0
    found = ranges.update(outlook(now, {"next": now + 20.0}), now)
    assert found == {"next": StartRange(now + 10.0, now + 10.0, COVERAGE)}
