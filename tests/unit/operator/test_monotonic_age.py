"""Ages that stay right, whatever is done to the wall clock meanwhile."""

from bireme.testing import ManualClock
from bireme_operator.reconcile import MonotonicAge

KEY = ("default", "job")


def test_a_time_before_this_leader_is_measured_by_the_wall_clock() -> None:
    assert MonotonicAge(ManualClock()).seconds(KEY, 1000.0, 1060.0) == 60


def test_a_wall_clock_that_is_set_back_delays_nothing() -> None:
    clock = ManualClock()
    watch = MonotonicAge(clock)
    watch.seconds(KEY, 4600.0, 4600.0)
    clock.advance(60)
    assert watch.seconds(KEY, 4600.0, 1060.0) == 60
    assert watch.seconds(KEY, 1055.0, 1060.0) == 5, "the next plan is another"


def test_what_nobody_asks_for_is_forgotten() -> None:
    clock = ManualClock()
    watch = MonotonicAge(clock)
    watch.seconds(KEY, 1000.0, 1000.0)
    clock.advance(60)
    watch.forget()
    assert watch.seconds(KEY, 1000.0, 1000.0) == 60
    watch.forget()
    assert watch.seconds(KEY, 1000.0, 1000.0) == 60
    watch.forget()
    watch.forget()
    assert watch.seconds(KEY, 1000.0, 1000.0) == 0
