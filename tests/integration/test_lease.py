"""Leader election against the fake API server, with hand-driven clocks: never two leaders."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from bireme.kube.client import ApiClient, NotLeader
from testbed.fakeapi import FakeApi, Fault, writes
from tests.integration.lease_clocks import DURATION, Clocks, spec_of_lease

LEASE = "/apis/coordination.k8s.io/v1/namespaces/system/leases/bireme"


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


async def test_the_first_contender_acquires_at_once_and_the_second_waits(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    a, b = clocks.lease(client, "a"), clocks.lease(client, "b")
    assert await a.acquire()
    assert not await b.acquire()
    assert (a.is_leader(), b.is_leader(), a.epoch, b.epoch) == (True, False, 1, 0)
    assert spec_of_lease(api)["holderIdentity"] == "a"


async def test_of_two_that_claim_at_the_same_moment_one_wins(
    client: ApiClient, clocks: Clocks
) -> None:
    contenders = [clocks.lease(client, name) for name in "abcdef"]
    claims = (contender.acquire() for contender in contenders)
    results = await asyncio.gather(*claims, return_exceptions=True)
    assert results.count(True) == 1
    assert sum(contender.is_leader() for contender in contenders) == 1


async def test_a_renewing_leader_is_never_replaced(client: ApiClient, clocks: Clocks) -> None:
    a, b = clocks.lease(client, "a"), clocks.lease(client, "b")
    await a.acquire()
    for _ in range(20):
        clocks.now += DURATION / 3
        assert await a.renew()
        assert not await b.acquire()
    assert a.is_leader()
    assert a.epoch == 1


async def test_a_paused_leader_is_fenced_before_anyone_else_can_acquire(
    client: ApiClient, clocks: Clocks
) -> None:
    a, b = clocks.lease(client, "a"), clocks.lease(client, "b")
    await a.acquire()
    start = clocks.now
    fenced_at = acquired_at = None
    while acquired_at is None:
        clocks.now += 0.5
        fenced_at = fenced_at or (None if a.is_leader() else clocks.now)
        if await b.acquire():
            acquired_at = clocks.now
    assert fenced_at is not None
    assert fenced_at - start == pytest.approx(DURATION * 2 / 3)
    assert acquired_at - start > DURATION
    with pytest.raises(NotLeader, match="a does not hold the lease bireme"):
        a.fence()
    assert not await a.renew()
    assert (b.epoch, b.is_leader()) == (2, True)


async def test_leadership_is_counted_from_the_sending_of_the_renewal(
    client: ApiClient, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = clocks.lease(client, "a")
    request = client.request

    async def slow(*args: Any, **options: Any) -> bytes:
        answer = await request(*args, **options)
        clocks.now += 3
        return answer

    monkeypatch.setattr(client, "request", slow)
    # As slow as the claim are the reads before it, and the look for rivals after it.
    assert await a.acquire()
    clocks.now += DURATION * 2 / 3 - 6.1
    assert a.is_leader()
    clocks.now += 0.1
    assert not a.is_leader()


@pytest.mark.parametrize("jump", [timedelta(hours=1), timedelta(hours=-1), timedelta(0)])
async def test_wall_clock_jumps_have_no_effect(
    client: ApiClient, clocks: Clocks, jump: timedelta
) -> None:
    a, b = clocks.lease(client, "a"), clocks.lease(client, "b")
    await a.acquire()
    for _ in range(10):
        clocks.now += DURATION / 3
        clocks.wall += jump
        assert await a.renew()
        assert a.is_leader()
        assert not await b.acquire()


async def test_a_contender_respects_a_holder_that_asked_for_a_longer_lease(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    api.put(LEASE, {"spec": {"holderIdentity": "old", "leaseDurationSeconds": 60}})
    b = clocks.lease(client, "b")
    assert not await b.acquire()
    clocks.now += 59
    assert not await b.acquire()
    clocks.now += 1
    assert await b.acquire()


async def test_a_conflict_by_someone_who_only_touched_the_lease_is_survived(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    a = clocks.lease(client, "a")
    await a.acquire()
    await client.merge_patch(LEASE, {"metadata": {"annotations": {"note": "hello"}}})
    clocks.now += 5
    assert await a.renew()
    assert a.is_leader()
    assert json.loads(await client.get(LEASE))["metadata"]["annotations"] == {"note": "hello"}


async def test_a_conflict_by_another_holder_ends_leadership(
    client: ApiClient, clocks: Clocks
) -> None:
    a = clocks.lease(client, "a")
    await a.acquire()
    await client.merge_patch(LEASE, {"spec": {"holderIdentity": "usurper"}})
    assert not await a.renew()


async def test_a_claim_whose_answer_was_lost_is_taken_up_again(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    a = clocks.lease(client, "a", sleep=clocks.sleep)
    api.faults.add(Fault(drop_answer=True), writes)
    epochs: list[int] = []

    def started(epoch: int) -> None:
        epochs.append(epoch)
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await a.run(started, lambda: None)
    assert epochs == [2]
    assert clocks.now < 1000 + DURATION


async def test_a_restarted_process_is_another_holder_with_a_higher_epoch(
    client: ApiClient, clocks: Clocks
) -> None:
    first = clocks.lease(client, "pod-1/abc")
    await first.acquire()
    second = clocks.lease(client, "pod-1/def")
    assert not await second.acquire()
    clocks.now += DURATION
    assert await second.acquire()
    assert (first.epoch, second.epoch) == (1, 2)


async def test_a_lease_deleted_by_hand_keeps_its_leader_and_its_epoch(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    a, b = clocks.lease(client, "a"), clocks.lease(client, "b")
    await a.acquire()
    await b.acquire()
    await client.delete(LEASE)
    assert not await b.acquire()
    assert await a.renew()
    assert not await b.acquire()
    assert spec_of_lease(api)["leaseTransitions"] == a.epoch == 1
    await client.delete(LEASE)
    clocks.now += DURATION
    assert not await b.acquire()  # its absence is news as well
    clocks.now += DURATION
    assert await b.acquire()
    assert b.epoch == 2


async def test_a_cancelled_leader_stops_first_and_then_hands_the_lease_over(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    story: list[object] = []
    a, b = clocks.lease(client, "a"), clocks.lease(client, "b")

    def stopped() -> None:
        story.append(("stopped", a.is_leader(), spec_of_lease(api)["holderIdentity"]))

    task = asyncio.create_task(a.run(story.append, stopped))
    async with asyncio.timeout(5):
        while not story:
            await asyncio.sleep(0.005)
    assert not await b.acquire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert story == [1, ("stopped", False, "a")]
    assert spec_of_lease(api)["holderIdentity"] == ""
    assert await b.acquire()
    assert b.epoch == 2
