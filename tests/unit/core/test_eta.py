"""Ranges of starts: what is foreseen, what is learned from how it came, how often that holds."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.decision import Admit, Decision, Hold, Reservation
from bireme.core.eta import COVERAGE, REMEMBERED, StartRange, StartRanges
from bireme.core.placement import Placement, TaskPlacement
from bireme.core.policy import Ranked
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import a_gang, a_running_gang, a_snapshot, a_task, racks, with_running

NOW = 1_000_000.0
FEWEST = 19
"""Errors without which nothing is learned: of twenty values one may be below all others."""


def cluster(*estimates: float | None) -> ClusterSnapshot:
    """A node of 8 GPUs per estimate, each filled since ``NOW`` by a gang that will run so long."""
    empty = a_snapshot(racks(1, len(estimates) + 1), now=NOW)
    gangs = [
        a_running_gang(
            replace(a_gang(f"g{row}", a_task(8)), estimated_seconds=seconds), empty.nodes, row=row
        )
        for row, seconds in enumerate(estimates)
    ]
    return with_running(empty, *(replace(gang, started=NOW) for gang in gangs))


FULL = cluster(600.0)


def places(*rows: int) -> Placement:
    kept = TaskPlacement("worker", np.array(rows), np.ones(len(rows), dtype=np.int64))
    return Placement((kept,), "", "")


def held(
    start: float | None,
    *rows: int,
    name: str = "next",
    reason: Reason = Reason.WAITING_FOR_CAPACITY,
    sooner: float | None = None,
) -> Hold:
    """A gang that waits; with ``start``, one replica on each of ``rows`` is kept for it."""
    reservation = (
        None if start is None else Reservation(start, places(*rows or (0,)), False, sooner)
    )
    return Hold(a_gang(name), reason, "", 1, reservation=reservation)


def admitted(name: str = "next") -> Admit:
    gang = a_gang(name)
    return Admit(gang, places(0), Ranked(gang, 0.0), "")


def eta(
    ranges: StartRanges,
    *actions: Hold | Admit,
    now: float = NOW,
    snapshot: ClusterSnapshot | None = None,
) -> StartRange | None:
    """The range reported for the gang ``next``."""
    snapshot = snapshot or replace(FULL, now=now)
    return ranges.update(snapshot, Decision(actions)).get("next")


def teach(ranges: StartRanges, foreseen: float, waits: Iterable[float]) -> None:
    """One gang after another, of whose start so many seconds are foreseen, waits so long."""
    for number, wait in enumerate(waits):
        eta(ranges, held(NOW + foreseen, name=f"past{number}"))
        eta(ranges, admitted(f"past{number}"), now=NOW + wait)


def taught(ratios: Sequence[float]) -> StartRanges:
    ranges = StartRanges()
    teach(ranges, 1000.0, [1000.0 * ratio for ratio in ratios])
    return ranges


# --- before anything was learned --------------------------------------------------------------


def test_at_first_the_earliest_is_foreseen_and_the_latest_the_last_end_on_the_places() -> None:
    snapshot = cluster(600.0, 900.0, 5000.0)
    found = eta(StartRanges(), held(NOW + 600, 0, 1), snapshot=snapshot)
    assert found == StartRange(NOW + 600, NOW + 900)


@pytest.mark.parametrize("unknown", [None, -5.0])
def test_the_latest_is_unknown_while_one_there_has_no_estimate_or_has_outrun_it(
    unknown: float | None,
) -> None:
    snapshot = cluster(600.0, unknown)
    hold = held(NOW + 600, 0, 1)
    assert eta(StartRanges(), hold, snapshot=snapshot) == StartRange(NOW + 600, None)
    hold = held(NOW + 600, 0)
    assert eta(StartRanges(), hold, snapshot=snapshot) == StartRange(NOW + 600, NOW + 600)


def test_nobody_can_say_without_a_reservation_or_while_it_may_start_any_moment() -> None:
    assert eta(StartRanges(), held(None)) is None
    assert eta(StartRanges(), held(NOW)) is None


def test_of_a_gang_that_others_are_stopped_for_nothing_is_estimated_or_learned() -> None:
    ranges = StartRanges()
    for number in range(FEWEST):
        eta(ranges, held(NOW, name=f"g{number}", reason=Reason.WAITING_FOR_PREEMPTION))
        eta(ranges, admitted(f"g{number}"), now=NOW + 5)
    assert eta(ranges, held(NOW)) is None


def test_what_counts_is_when_a_gang_should_fit_and_not_when_its_own_places_are_free() -> None:
    hold = held(NOW + 900, 0, sooner=NOW + 60)
    assert eta(StartRanges(), hold, snapshot=cluster(900.0)) == StartRange(NOW + 60, NOW + 900)


# --- learned from what was foreseen -----------------------------------------------------------


def test_nothing_is_learned_from_fewer_starts_than_have_a_twentieth() -> None:
    hold = held(NOW + 600)
    assert eta(taught([0.5] * (FEWEST - 1)), hold) == StartRange(NOW + 600, NOW + 600)
    ranges = taught([0.5, 0.25] * FEWEST)
    assert eta(ranges, hold) == StartRange(NOW + 150, NOW + 300, COVERAGE)


def test_the_ends_are_what_one_in_twenty_was_below_and_one_above() -> None:
    ratios = [number / 40 for number in range(1, 40)]
    found = eta(taught(ratios[::-1]), held(NOW + 400))
    assert found is not None
    assert (found.earliest, found.latest) == pytest.approx((NOW + 20, NOW + 380))


def test_starts_that_come_late_widen_the_range_beyond_what_is_foreseen() -> None:
    found = eta(taught([1.0] * 18 + [3.0]), held(NOW + 100))
    assert found == StartRange(NOW + 100, NOW + 300, COVERAGE)


def test_only_the_latest_starts_count() -> None:
    ranges = taught([5.0, 6.0] * REMEMBERED)
    assert eta(ranges, held(NOW + 100)) == StartRange(NOW + 500, NOW + 600, COVERAGE)
    teach(ranges, 1000.0, [500.0, 400.0] * (REMEMBERED // 2))
    assert eta(ranges, held(NOW + 100)) == StartRange(NOW + 40, NOW + 50, COVERAGE)


def test_the_first_moment_foreseen_counts_and_the_next_once_it_has_passed() -> None:
    ranges = StartRanges()
    for number in range(FEWEST):
        name, wait = f"g{number}", 600 + 400 * (number % 2)
        eta(ranges, held(NOW + 100, name=name))
        eta(ranges, held(NOW + 60, name=name), now=NOW + 50)
        eta(ranges, held(NOW + 1000, name=name), now=NOW + 200)
        eta(ranges, admitted(name), now=NOW + wait)
    # They teach 6, 10, 0.5 and 1; nothing of the moment that was replaced before it came.
    assert eta(ranges, held(NOW + 30)) == StartRange(NOW + 15, NOW + 300, COVERAGE)


def test_what_is_learned_from_is_when_the_gang_should_fit() -> None:
    ranges = StartRanges()
    for number in range(FEWEST):
        eta(ranges, held(NOW + 900, sooner=NOW + 100, name=f"g{number}"))
        eta(ranges, admitted(f"g{number}"), now=NOW + 100 + number)
    assert eta(ranges, held(NOW + 50)) == StartRange(NOW + 50, NOW + 59, COVERAGE)


def test_a_gang_that_goes_without_a_start_teaches_nothing() -> None:
    ranges = taught([0.5] * (FEWEST - 1))
    eta(ranges, held(NOW + 100, name="deleted"))
    eta(ranges, held(None, name="other"), now=NOW + 50)
    eta(ranges, admitted("deleted"), now=NOW + 100)
    assert eta(ranges, held(NOW + 100)) == StartRange(NOW + 100, NOW + 600)


def test_one_that_waits_on_without_a_reservation_still_teaches_when_it_starts() -> None:
    ranges = taught([0.5] * (FEWEST - 1))
    eta(ranges, held(NOW + 100, name="overtaken"))
    eta(ranges, held(None, name="overtaken"), now=NOW + 50)
    eta(ranges, admitted("overtaken"), now=NOW + 200)
    assert eta(ranges, held(NOW + 100)) == StartRange(NOW + 50, NOW + 200, COVERAGE)


def test_a_wait_of_seconds_counts_as_ten() -> None:
    """It has outlasted all others, so only what is foreseen counts."""
    ranges = StartRanges()
    teach(ranges, 1.0, [20.0 + number for number in range(FEWEST)])
    eta(ranges, held(NOW - 998), now=NOW - 1000)
    assert eta(ranges, held(NOW + 2)) == StartRange(NOW + 20, NOW + 38, COVERAGE)
    assert eta(ranges, held(NOW + 100)) == StartRange(NOW + 200, NOW + 380, COVERAGE)


def test_a_clock_that_was_set_back_makes_no_start_come_before_it_was_reported() -> None:
    assert eta(taught([-1.0] * FEWEST), held(NOW + 50)) == StartRange(NOW, NOW, COVERAGE)


# --- learned from waits -----------------------------------------------------------------------


def test_where_nothing_is_foreseen_earlier_waits_tell() -> None:
    ranges = StartRanges()
    teach(ranges, 0.0, [10.0 * number for number in range(1, FEWEST + 1)])
    assert eta(ranges, held(NOW)) == StartRange(NOW + 10, NOW + 190, COVERAGE)


def test_only_waits_as_long_as_its_own_tell_how_much_longer() -> None:
    ranges = StartRanges()
    teach(ranges, 0.0, [10.0] * 40 + [float(seconds) for seconds in range(100, 100 + FEWEST)])
    assert eta(ranges, held(NOW)) == StartRange(NOW + 10, NOW + 116, COVERAGE)
    later = eta(ranges, held(NOW + 50), now=NOW + 50)
    assert later == StartRange(NOW + 100, NOW + 118, COVERAGE)
    assert eta(ranges, held(NOW + 100), now=NOW + 100) is None, "too few lasted longer"


def test_the_narrower_range_is_reported() -> None:
    """Waits were 100 to 1000 s however long was foreseen; ratios 0.1 to 1."""
    ranges = taught([0.1] * FEWEST + [1.0] * FEWEST)
    assert eta(ranges, held(NOW + 200)) == StartRange(NOW + 20, NOW + 200, COVERAGE)
    assert eta(ranges, held(NOW + 9000)) == StartRange(NOW + 100, NOW + 1000, COVERAGE)


def test_a_wait_that_outlasts_earlier_ones_goes_by_what_is_foreseen() -> None:
    ranges = taught([0.5, 0.25] * FEWEST)
    assert eta(ranges, held(NOW + 9000)) == StartRange(NOW + 250, NOW + 500, COVERAGE)
    found = eta(ranges, held(NOW + 9000), now=NOW + 1000)
    assert found == StartRange(NOW + 1000 + 2000, NOW + 1000 + 4000, COVERAGE)


# --- properties -------------------------------------------------------------------------------

RATIOS = st.floats(0.0, 1e6)


@given(st.lists(RATIOS, min_size=FEWEST + 1, max_size=60), st.floats(1.0, 1e6))
def test_whichever_of_some_starts_comes_last_nine_in_ten_are_held_by_the_others(
    ratios: list[float], seconds: float
) -> None:
    """The guarantee of conformal prediction, counted out: each value in turn is the next one."""
    scale, outside = max(NOW + seconds - NOW, 10.0), [0, 0]
    for at, ratio in enumerate(ratios):
        by_ratio, by_wait = StartRanges(), StartRanges()
        by_ratio._ratios.extend(ratios[:at] + ratios[at + 1 :])
        by_wait._seconds.extend(1.0 + other for other in ratios[:at] + ratios[at + 1 :])
        kinds = ((by_ratio, scale * ratio, seconds), (by_wait, 1.0 + ratio, 0.0))
        for kind, (ranges, waited, foreseen) in enumerate(kinds):
            found = eta(ranges, held(NOW + foreseen))
            assert found is not None
            assert found.latest is not None
            outside[kind] += not found.earliest <= NOW + waited <= found.latest
    assert max(outside) <= len(ratios) * (1 - COVERAGE) + 1e-9


@given(
    st.lists(st.tuples(st.floats(-10.0, 1e7), st.floats(0.0, 1e7)), max_size=80),
    st.floats(-10.0, 1e7),
)
def test_a_range_begins_no_sooner_than_now_and_ends_no_sooner_than_it_begins(
    past: list[tuple[float, float]], seconds: float
) -> None:
    ranges = StartRanges()
    for foreseen, waited in past:
        teach(ranges, foreseen, [waited])
    found = eta(ranges, held(NOW + seconds))
    if found is not None:
        assert found.earliest >= NOW
        assert found.latest is None or found.latest >= found.earliest


@given(st.lists(RATIOS, min_size=FEWEST, max_size=40))
def test_in_which_order_they_came_makes_no_difference(ratios: list[float]) -> None:
    hold = held(NOW + 100)
    assert eta(taught(ratios), hold) == eta(taught(sorted(ratios)), hold)


def test_what_is_remembered_is_bounded() -> None:
    ranges = StartRanges()
    for number in range(REMEMBERED + 10):
        name, again = f"g{number}", NOW
        for _ in range(10):
            eta(ranges, held(again + 10, name=name), now=again)
            again += 20
        assert all(len(wait.foreseen) <= 8 for wait in ranges._waits.values())
        eta(ranges, held(again, name=name), now=again)
        eta(ranges, admitted(name), now=again + 5)
    assert len(ranges._ratios) == len(ranges._seconds) == REMEMBERED
    assert not ranges._waits
