"""Releases in several namespaces of one cluster: one leads, and the others say so and wait."""

import asyncio

import pytest

from bireme.kube.client import ApiClient
from tests.integration.lease_clocks import DURATION, LEASES, Clocks
from tests.support.fakeapi import FakeApi


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


async def test_another_release_waits_until_the_leader_is_gone_and_goes_on_after_its_epoch(
    client: ApiClient, clocks: Clocks
) -> None:
    ours, theirs = clocks.lease(client, "a"), clocks.lease(client, "b", "elsewhere")
    assert await ours.acquire()
    for _ in range(10):
        assert not await theirs.acquire()
        assert theirs.rival == "a of the release in namespace system"
        clocks.now += DURATION / 3
        assert await ours.renew()
    clocks.now += DURATION / 3
    assert not await theirs.acquire()  # it has just renewed
    clocks.now += DURATION
    assert not ours.is_leader()
    assert await theirs.acquire()
    assert (theirs.epoch, theirs.rival) == (2, "")
    assert not await ours.acquire()


async def test_a_release_takes_over_at_once_from_one_that_handed_its_lease_back(
    client: ApiClient, clocks: Clocks
) -> None:
    ours = clocks.lease(client, "a", sleep=clocks.sleep)
    leading = asyncio.create_task(ours.run(lambda _: None, lambda: None))
    while not ours.is_leader():
        await asyncio.sleep(0.01)
    theirs = clocks.lease(client, "b", "elsewhere")
    assert not await theirs.acquire()
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    assert await theirs.acquire()


async def test_of_many_releases_that_claim_at_once_two_never_lead(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    releases = [clocks.lease(client, name, f"in-{name}") for name in "abcd"]
    for _ in range(40):
        claims = (release.acquire() for release in releases)
        assert sum(await asyncio.gather(*claims)) <= 1
        assert sum(release.is_leader() for release in releases) <= 1
    held = [
        lease["spec"]["holderIdentity"] for lease in api.store.collection(LEASES).objects.values()
    ]
    assert sum(map(bool, held)) == sum(release.is_leader() for release in releases)
