"""Slots for writes: in the order in which work began, never more than the limit at once."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from bireme_operator.writes import PrioritySemaphore


class Office:
    """Writes that take a moment each, and the order in which they were served."""

    def __init__(self, limit: int) -> None:
        self.slots = PrioritySemaphore(limit)
        self.served: list[str] = []
        self.most_at_once = 0
        self._now = 0

    async def write(self, name: str) -> None:
        async with self.slots:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            self.served.append(name)
            await asyncio.sleep(0.001)
            self._now -= 1

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        async def task() -> None:
            self.slots.take_number()
            await work()

        return asyncio.create_task(task())


async def test_a_gang_is_written_wholly_before_the_next_one() -> None:
    office = Office(1)

    async def gang(name: str) -> None:
        await office.write(f"{name} plan")
        await asyncio.gather(*(office.write(f"{name} pod") for _ in range(3)))

    await asyncio.gather(*(office.start(partial(gang, name)) for name in "abc"))
    # While a gang waits for the answer to its plan, its neighbour may use the slot.
    assert [what[0] for what in office.served if "pod" in what] == list("aaabbbccc")
    assert [what[0] for what in office.served if "plan" in what] == list("abc")


async def test_work_that_took_no_turn_goes_first() -> None:
    office = Office(1)
    first = office.start(lambda: office.write("holds the slot"))
    queued = office.start(lambda: office.write("has a turn"))
    await asyncio.sleep(0)
    await asyncio.gather(office.write("has none"), first, queued)
    assert office.served == ["holds the slot", "has none", "has a turn"]


async def test_the_limit_holds_and_is_used() -> None:
    office = Office(4)
    await asyncio.gather(*(office.start(lambda: office.write("x")) for _ in range(40)))
    assert (len(office.served), office.most_at_once) == (40, 4)


async def test_a_cancelled_wait_keeps_no_slot() -> None:
    office = Office(1)
    first = office.start(lambda: office.write("first"))
    gone = [office.start(lambda: office.write("gone")) for _ in range(5)]
    last = office.start(lambda: office.write("last"))
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    await asyncio.gather(first, last)
    await asyncio.gather(*gone, return_exceptions=True)
    assert office.served == ["first", "last"]
    await office.write("still served")


async def test_a_slot_given_to_a_task_that_is_cancelled_at_that_moment_is_passed_on() -> None:
    turns, served = PrioritySemaphore(1), []

    async def queue(name: str) -> None:
        async with turns:
            served.append(name)

    async with turns:
        unlucky, lucky = asyncio.create_task(queue("unlucky")), asyncio.create_task(queue("lucky"))
        await asyncio.sleep(0)
    unlucky.cancel()  # it was given the slot a moment ago and has not run since
    await asyncio.wait_for(lucky, 1)
    assert unlucky.cancelled()
    assert served == ["lucky"]
