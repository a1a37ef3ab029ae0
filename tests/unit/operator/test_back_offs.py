"""Retries of failed work: ever later, unless the gang moves or the server says when."""

from collections.abc import Callable

from bireme.kube.client import ApiError
from bireme.testing import ManualClock
from bireme_operator.workqueue import BackOffs

KEY = ("default", "job")
ERROR = ApiError(500, "InternalError", "no")
CONFLICT = ApiError(409, "Conflict", "no")


def pauses(backs: BackOffs, error: Exception, times: int, state: object = "same") -> list[float]:
    return [backs.add(KEY, error, state) for _ in range(times)]


def test_work_may_start_when_nothing_failed_and_again_when_the_pause_is_over() -> None:
    clock = ManualClock()
    backs = BackOffs(clock)
    assert backs.are_over(KEY)
    pause = backs.add(KEY, ERROR, "a")
    assert not backs.are_over(KEY)
    assert backs.are_over(("default", "other"))
    clock.advance(pause)
    assert backs.are_over(KEY)


def test_a_gang_that_does_not_move_is_tried_ever_more_slowly() -> None:
    expected = [0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 30.0]
    assert pauses(BackOffs(ManualClock()), ERROR, 7) == expected
    assert pauses(BackOffs(ManualClock()), RuntimeError("a bug"), 7) == expected


def test_a_conflict_is_tried_again_soon_and_a_hopeless_one_more_slowly() -> None:
    found = pauses(BackOffs(ManualClock()), CONFLICT, 1100)
    assert found[:4] == [0.05, 0.1, 0.2, 0.4]
    assert found == sorted(found)
    assert found[-1] == 30.0


def test_a_gang_that_moved_starts_over() -> None:
    backs = BackOffs(ManualClock())
    pauses(backs, ERROR, 5, "before")
    assert pauses(backs, ERROR, 2, "after") == [0.5, 1.0]


def test_the_server_is_given_the_time_it_asks_for() -> None:
    busy = ApiError(429, "TooManyRequests", "later", retry_after_seconds=7)
    assert pauses(BackOffs(ManualClock()), busy, 5) == [7, 7, 7, 7, 10.0]


def test_success_and_disappearance_are_forgotten() -> None:
    backs = BackOffs(ManualClock())
    ends: tuple[Callable[[], None], ...] = (
        lambda: backs.end(KEY),
        lambda: backs.forget({("default", "other")}),
    )
    for end in ends:
        pauses(backs, ERROR, 3)
        end()
        assert backs.are_over(KEY)
        assert backs.add(KEY, ERROR, "same") == 0.5
    backs.forget({KEY})
    assert not backs.are_over(KEY)


def test_a_gang_is_waited_for_until_it_has_failed_too_often() -> None:
    clock = ManualClock()
    backs = BackOffs(clock)
    for _ in range(3):
        backs.add(KEY, ERROR, "same")
        assert backs.repeat_failures() == []
    pause = backs.add(KEY, ERROR, "same")
    assert backs.repeat_failures() == [KEY]
    clock.advance(pause)
    assert backs.repeat_failures() == []
