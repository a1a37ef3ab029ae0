"""The loop of the simulation: time jumps, paused processes stand still, nothing waits for ever."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from testbed.simcluster.network import WORLD
from testbed.simcluster.virtual import PROCESS, DeadlockError, VirtualLoop

T = TypeVar("T")


def simulated(loop: VirtualLoop, work: Coroutine[Any, Any, T]) -> T:
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def test_a_year_of_sleep_takes_no_time() -> None:
    loop, began = VirtualLoop(), time.monotonic()
    simulated(loop, asyncio.sleep(365 * 86_400))
    assert loop.time() == pytest.approx(365 * 86_400)
    assert time.monotonic() - began < 5


def test_sleepers_wake_in_the_order_of_their_time() -> None:
    woken: list[int] = []

    async def sleeper(seconds: int) -> None:
        await asyncio.sleep(seconds)
        woken.append(seconds)

    async def all_of_them() -> None:
        await asyncio.gather(*(sleeper(seconds) for seconds in (3, 1, 2)))

    simulated(VirtualLoop(), all_of_them())
    assert woken == [1, 2, 3]


def test_a_paused_process_stands_still_until_it_goes_on_and_others_do_not() -> None:
    loop, ticks = VirtualLoop(), []

    async def tick(name: str) -> None:
        while True:
            await asyncio.sleep(1.0)
            ticks.append((name, round(loop.time())))

    async def story() -> None:
        tasks = []
        for name in "ab":
            context = WORLD.copy()
            context.run(PROCESS.set, name)
            tasks.append(loop.create_task(tick(name), context=context))
        await asyncio.sleep(1.5)
        loop.pause("a")
        await asyncio.sleep(3)
        loop.resume("a")
        await asyncio.sleep(1)
        for task in tasks:
            task.cancel()

    simulated(loop, story())
    assert [at for name, at in ticks if name == "a"] == [1, 4]
    assert [at for name, at in ticks if name == "b"] == [1, 2, 3, 4, 5]


def test_what_would_run_in_a_thread_runs_at_once_and_fails_like_there() -> None:
    loop = VirtualLoop()

    async def divide() -> float:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        return await asyncio.to_thread(lambda: 1 / 4)

    assert simulated(loop, divide()) == 0.25
    assert loop.time() == 0.0


def test_a_wait_that_nothing_can_end_is_an_error_not_a_hang() -> None:
    loop = VirtualLoop()
    waiting = loop.create_task(asyncio.Event().wait())
    with pytest.raises(DeadlockError):
        loop.run_until_complete(waiting)
    waiting.cancel()
    loop.run_until_complete(asyncio.gather(waiting, return_exceptions=True))
    loop.close()
