"""RateLimiter: so many at once, so many a second, for each key alone."""

import pytest

from bireme.testing import ManualClock
from bireme_operator.rate_limiter import RateLimiter


def test_burst_is_granted_and_then_the_steady_rate() -> None:
    clock = ManualClock()
    rations = RateLimiter(2.0, 3, clock)
    assert [rations.take("a") for _ in range(4)] == [0, 0, 0, pytest.approx(0.5)]
    clock.advance(0.5)
    assert [rations.take("a") for _ in range(2)] == [0, pytest.approx(0.5)]


def test_keys_do_not_share() -> None:
    rations = RateLimiter(1.0, 1, ManualClock())
    assert (rations.take("a"), rations.take("b")) == (0, 0)


def test_refusal_costs_nothing() -> None:
    clock = ManualClock()
    rations = RateLimiter(1.0, 1, clock)
    waits = [rations.take("a") for _ in range(50)]
    assert waits[1:] == [pytest.approx(1.0)] * 49
    clock.advance(1.0)
    assert rations.take("a") == 0


def test_what_came_to_nothing_is_given_back() -> None:
    rations = RateLimiter(0.001, 1, ManualClock())
    rations.take("a")
    rations.give_back("a")
    assert rations.take("a") == 0


def test_memory_is_bounded_and_the_longest_unseen_goes_first() -> None:
    rations = RateLimiter(0.001, 1, ManualClock(), most=2)
    for key in ("old", "kept", "new"):
        rations.take(key)
    assert rations.take("kept") > 0
    assert rations.take("old") == 0
