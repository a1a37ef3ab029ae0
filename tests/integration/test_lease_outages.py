"""Leaders and contenders against an API server that is away, or gives no answer, for a while."""

import asyncio
from typing import Any

import pytest

from bireme.kube.client import ApiClient, ApiError
from testbed.fakeapi import FakeApi, Fault
from tests.integration.lease_clocks import DURATION, Clocks, spec_of_lease


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.mark.parametrize("fault", [Fault(status=503), Fault(drop=True), Fault(status=429)])
async def test_a_leader_outlives_a_short_outage(
    api: FakeApi, client: ApiClient, clocks: Clocks, fault: Fault
) -> None:
    enough = asyncio.Event()
    story: list[object] = []

    async def sleep(seconds: float) -> None:
        await clocks.sleep(seconds)
        if clocks.now > 1060:
            enough.set()
            await asyncio.Event().wait()

    a = clocks.lease(client, "a", sleep=sleep)

    def started(epoch: int) -> None:
        story.append(epoch)
        api.faults.add(fault, times=4)

    task = asyncio.create_task(a.run(started, lambda: story.append("stopped")))
    await asyncio.wait_for(enough.wait(), 5)
    assert story == [1]
    assert a.is_leader()
    assert not api.faults.rules[0].times_left
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("began", [0.0, 0.5, 1.0, 1.9, 3.0, 4.5])
async def test_a_leader_outlives_half_a_duration_without_an_answer(
    client: ApiClient, clocks: Clocks, monkeypatch: pytest.MonkeyPatch, began: float
) -> None:
    request, stall = client.request, clocks.now + 20 + began

    async def stalls(*args: Any, timeout_seconds: float, **options: Any) -> bytes:
        asked_at = clocks.now
        silence = stall + DURATION / 2 - asked_at
        if silence <= DURATION / 2:
            await asyncio.sleep(0)  # requests that are sent together wait together
            clocks.now = max(clocks.now, asked_at + min(max(silence, 0), timeout_seconds))
            if silence > timeout_seconds:
                raise ApiError(0, "Timeout", "no answer in time")
        return await request(*args, timeout_seconds=timeout_seconds, **options)

    async def sleep(seconds: float) -> None:
        await clocks.sleep(seconds)
        if clocks.now > stall + DURATION:
            raise asyncio.CancelledError

    monkeypatch.setattr(client, "request", stalls)
    stopped: list[float] = []
    lease = clocks.lease(client, "a", sleep=sleep)
    with pytest.raises(asyncio.CancelledError):
        await lease.run(lambda _: None, lambda: stopped.append(clocks.now))
    assert stopped[0] > stall + DURATION


async def test_a_leader_that_cannot_renew_stops_in_time_and_says_so(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    story: list[tuple[str, float]] = []
    a = clocks.lease(client, "a", sleep=clocks.sleep)

    def started(epoch: int) -> None:
        story.append(("started", clocks.now))
        api.faults.add(Fault(status=500), times=None)

    await asyncio.wait_for(a.run(started, lambda: story.append(("stopped", clocks.now))), 5)
    (_, began), (_, ended) = story
    assert DURATION * 2 / 3 <= ended - began < DURATION
    assert not a.is_leader()
    assert spec_of_lease(api)["holderIdentity"] == "a"


async def test_a_contender_outlives_a_server_that_is_away(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    api.faults.add(Fault(status=503), times=5)
    api.faults.add(Fault(drop=True), times=3)
    a = clocks.lease(client, "a", sleep=clocks.sleep)

    def started(epoch: int) -> None:
        assert epoch == 1
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(a.run(started, lambda: None), 5)
