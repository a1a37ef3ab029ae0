"""Waiting for a plan: who may, how long, and that nothing polls."""

import asyncio
import time

from bireme.testing import ManualClock
from bireme_extender.cache import PlanWaits

KEY = ("team", "job")


def test_pod_may_wait_once_in_its_life() -> None:
    waits = PlanWaits(0.2)
    assert waits.may_wait("a")
    assert not waits.may_wait("a")
    assert waits.may_wait("b")


def test_pod_without_uid_never_waits() -> None:
    assert not PlanWaits(0.2).may_wait("")


def test_nobody_waits_when_waiting_is_switched_off() -> None:
    assert not PlanWaits(0.0).may_wait("a")


def test_only_the_last_thousands_of_pods_are_remembered() -> None:
    waits = PlanWaits(0.2)
    assert waits.may_wait("first")
    for number in range(8192):
        waits.may_wait(str(number))
    assert waits.may_wait("first")


async def test_wait_ends_with_the_change_that_makes_it_true() -> None:
    waits, there, asked = PlanWaits(5.0), False, 0

    def is_there() -> bool:
        nonlocal asked
        asked += 1
        return there

    waiting = asyncio.create_task(waits.until(is_there, KEY))
    await asyncio.sleep(0.05)
    waits.notify(("team", "another"))
    await asyncio.sleep(0)
    assert asked == 1
    waits.notify(KEY)
    await asyncio.sleep(0)
    there = True
    waits.notify(KEY)
    assert await waiting
    assert asked == 3


async def test_wait_gives_up_at_its_limit() -> None:
    waits = PlanWaits(0.05)
    began = time.monotonic()
    assert not await waits.until(lambda: False, KEY)
    assert time.monotonic() - began >= 0.04
    waits.notify(KEY)  # nobody is listening any more


async def test_pods_made_to_stall_the_scheduler_run_out_of_credit() -> None:
    clock = ManualClock()
    waits = PlanWaits(0.2, clock)

    async def wait_in_vain(uid: str) -> bool:
        if not waits.may_wait(uid):
            return False

        def takes_all_the_time() -> bool:
            clock.advance(0.2)
            return True

        await waits.until(takes_all_the_time, KEY)
        return True

    waited = [await wait_in_vain(f"forged-{number}") for number in range(1000)]
    assert sum(waited) < 15
    clock.advance(60)
    assert await wait_in_vain("honest")
