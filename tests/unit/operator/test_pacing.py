"""The loop's pace: while nothing changes, what a turn costs does not grow with the cluster."""

import asyncio

from bireme_operator.loop import Heartbeat, Pacing
from bireme_operator.metrics import OperatorMetrics
from testbed.internals import changed


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def pacing(clock: Clock) -> Pacing:
    return Pacing(asyncio.Event(), OperatorMetrics(), clock, Heartbeat(clock))


def sweep(paced: Pacing, clock: Clock, seconds: float) -> None:
    with paced.sweeping():
        clock.now += seconds


def test_sweeps_take_a_twentieth_of_the_time_however_long_one_takes() -> None:
    clock = Clock()
    paced = pacing(clock)
    assert paced.is_sweep_due()
    for seconds, pause in ((0.01, 2.0), (1.5, 30.0), (0.2, 4.0)):
        began = clock.now
        sweep(paced, clock, seconds)
        clock.now = began + pause - 0.01
        assert not paced.is_sweep_due()
        clock.now = began + pause
        assert paced.is_sweep_due()


def test_a_burst_of_turns_looks_at_unchanged_gangs_once_an_interval() -> None:
    clock = Clock()
    paced = pacing(clock)
    looked = []
    for _ in range(33):
        looked.append(paced.looks())
        clock.now += 0.125
    assert [number for number, looks in enumerate(looked) if looks] == [0, 16, 32]
    assert max(looked) < 1000


async def test_a_turn_says_whether_something_has_changed() -> None:
    paced = pacing(Clock())
    with changed(sweep_interval_seconds=0.02):
        assert not await paced.next_turn()
        paced.dirty.set()
        assert await paced.next_turn()
        assert not await paced.next_turn()


async def seconds_of_rest(paced: Pacing, clock: Clock, *newcomers: str) -> float:
    """How long the loop rests after a turn of 0.1 s in which gangs of these namespaces came."""
    began, clock.now = clock.now, clock.now + 0.1
    with paced.measure_turn():
        pass
    for namespace in newcomers:
        paced.notice(namespace)
    loop = asyncio.get_running_loop()
    at = loop.time()
    await paced.rest(began)
    rested = loop.time() - at
    paced.dirty.set()
    await paced.next_turn()
    return rested


async def test_a_new_gang_cuts_a_rest_short_once_in_a_while_for_each_namespace() -> None:
    clock = Clock()
    paced = pacing(clock)
    assert await seconds_of_rest(paced, clock) > 0.29
    assert 0.009 < await seconds_of_rest(paced, clock, "greedy", "greedy") < 0.2
    assert await seconds_of_rest(paced, clock, "greedy") > 0.29
    assert await seconds_of_rest(paced, clock, "greedy", "another") < 0.2
    clock.now += 10
    assert await seconds_of_rest(paced, clock, "greedy") < 0.2
