"""RateLimiter: so many at once, so many a second, for each key alone."""

import pytest

from bireme.testing import ManualClock
from bireme_operator import rate_limiter
from bireme_operator.rate_limiter import RateLimiter


def test_burst_is_granted_and_then_the_steady_rate() -> None:
    clock = ManualClock()
    limiter = RateLimiter(2.0, 3, clock)
    assert [limiter.take("a") for _ in range(4)] == [0, 0, 0, pytest.approx(0.5)]
    clock.advance(0.5)
    assert [limiter.take("a") for _ in range(2)] == [0, pytest.approx(0.5)]


def test_keys_do_not_share() -> None:
    limiter = RateLimiter(1.0, 1, ManualClock())
    assert (limiter.take("a"), limiter.take("b")) == (0, 0)


def test_refusal_costs_nothing() -> None:
    clock = ManualClock()
    limiter = RateLimiter(1.0, 1, clock)
    waits = [limiter.take("a") for _ in range(50)]
    assert waits[1:] == [pytest.approx(1.0)] * 49
    clock.advance(1.0)
    assert limiter.take("a") == 0


def test_what_came_to_nothing_is_given_back() -> None:
    limiter = RateLimiter(0.001, 1, ManualClock())
    limiter.take("a")
    limiter.give_back("a")
    assert limiter.take("a") == 0


def test_memory_is_bounded_and_the_longest_unseen_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate_limiter, "_MAX_KEYS", 2)
    limiter = RateLimiter(0.001, 1, ManualClock())
    for key in ("old", "kept", "new"):
        limiter.take(key)
    assert limiter.take("kept") > 0
    assert limiter.take("old") == 0
