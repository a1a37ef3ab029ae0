"""Releases in several namespaces of one cluster: one leads, and the others say so and wait.

What tenants write into objects of their own namespaces changes nothing, and what stands in the two
objects that count cannot keep an operator from leading for longer than a bound.
"""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from bireme.kube import names
from bireme.kube.client import ApiClient, ApiError
from testbed.fakeapi import FakeApi, Fault
from tests.integration.lease_clocks import DURATION, LEASES, Clocks, spec_of_lease

CLAIMS = names.path("clusterclaims")
CLAIM = names.path("clusterclaims", name="bireme")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/system/leases/bireme"
HUGE = 2**31 - 1


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def claim_of(api: FakeApi) -> Any:
    """The spec of the claim as it is stored."""
    return api.store.get(CLAIMS, ("", "bireme"))["spec"]


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
    assert not await ours.renew()


async def test_a_release_takes_over_at_once_from_one_that_handed_the_cluster_back(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    ours = clocks.lease(client, "a", sleep=clocks.sleep)
    leading = asyncio.create_task(ours.run(lambda _: None, lambda: None))
    async with asyncio.timeout(5):
        while not ours.is_leader():
            await asyncio.sleep(0.01)
    theirs = clocks.lease(client, "b", "elsewhere")
    assert not await theirs.acquire()
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    assert (claim_of(api)["holder"], spec_of_lease(api)["holderIdentity"]) == ("", "")
    assert await theirs.acquire()
    assert claim_of(api)["namespace"] == "elsewhere"


async def test_of_many_releases_that_claim_at_once_two_never_lead(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    releases = [clocks.lease(client, name, f"in-{name}") for name in "abcd"]
    for _ in range(40):
        claims = (release.acquire() for release in releases)
        results = await asyncio.gather(*claims, return_exceptions=True)
        assert results.count(True) <= 1
        assert sum(release.is_leader() for release in releases) <= 1
    (leader,) = (release for release in releases if release.is_leader())
    assert claim_of(api)["holder"] == leader.identity
    # The loser has written nothing into its own Lease.
    held = [lease["spec"] for lease in api.store.collection(LEASES).objects.values()]
    assert [spec["holderIdentity"] for spec in held] == [leader.identity]


async def test_what_a_tenant_writes_into_a_lease_delays_nobody_and_is_not_remembered(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    forged = {
        "holderIdentity": "x",
        "leaseDurationSeconds": HUGE,
        "leaseTransitions": HUGE,
        "renewTime": "2999-01-01T00:00:00.000000Z",
    }
    for namespace in ("tenant-a", "tenant-b"):
        api.put(LEASE.replace("/system/", f"/{namespace}/"), {"spec": forged})
    ours = clocks.lease(client, "a")
    assert await ours.acquire()
    assert (ours.epoch, ours.rival, spec_of_lease(api)["leaseTransitions"]) == (1, "", 1)
    # No list of Leases over namespaces is asked for: each read is of one object.
    assert {name for method, name in api.requests if method == "GET"} == {LEASES, CLAIMS}
    assert api.requests["GET", LEASES] == 1


@pytest.mark.parametrize("transitions", [HUGE, HUGE * 8, -1, 1_000_000_001])
@pytest.mark.parametrize("seconds", [HUGE, -1, 0, 61])
async def test_own_lease_and_claim_with_absurd_numbers_delay_a_leader_by_a_minute_at_most(
    api: FakeApi, client: ApiClient, clocks: Clocks, seconds: int, transitions: int
) -> None:
    far = "2999-01-01T00:00:00.000000Z"
    lease = {"leaseDurationSeconds": seconds, "leaseTransitions": transitions, "renewTime": far}
    claim = {"durationSeconds": seconds, "transitions": transitions, "renewTime": far}
    api.put(LEASE, {"spec": {"holderIdentity": "x", **lease}})
    api.put(CLAIM, {"spec": {"namespace": "gone", "holder": "y", **claim}})
    ours = clocks.lease(client, "a")
    # The holder of a longer one, of before the bound, may trust it for at least as long.
    wait = 60 if seconds > 0 else DURATION
    with capture_logs() as logs:
        assert not await ours.acquire()
        clocks.now += wait - 1
        assert not await ours.acquire()
    assert ours.rival == "y of the release in namespace gone"
    faults = [str(entry["fault"]) for entry in logs if "fault" in entry]
    assert len(faults) == 4  # each is said once
    assert f"leaseTransitions of Lease system/bireme is {transitions}" in " ".join(faults)
    assert f"durationSeconds of ClusterClaim bireme is {seconds}" in " ".join(faults)
    clocks.now += 1
    assert await ours.acquire()
    assert (ours.epoch, ours.rival) == (1, "")
    assert (claim_of(api)["transitions"], spec_of_lease(api)["leaseTransitions"]) == (1, 1)


async def test_epochs_past_their_bound_begin_anew_and_stay_what_the_api_server_takes(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    last = 1_000_000_000
    api.put(LEASE, {"spec": {"leaseTransitions": 7}})
    api.put(CLAIM, {"spec": {"namespace": "gone", "holder": "", "transitions": last - 1}})
    ours = clocks.lease(client, "a")
    epochs = []
    for _ in range(3):
        assert await ours.acquire()
        epochs.append(ours.epoch)
    assert epochs == [last, 1, 2]


async def test_a_process_goes_on_once_a_number_that_it_ignored_is_gone(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    api.put(CLAIM, {"spec": {"namespace": "system", "holder": "", "transitions": 5}})
    api.put(LEASE, {"spec": {"holderIdentity": "x", "leaseTransitions": HUGE}})
    ours = clocks.lease(client, "a")
    assert not await ours.acquire()
    await client.merge_patch(LEASE, {"spec": {"holderIdentity": "", "leaseTransitions": 8}})
    assert await ours.acquire()
    assert ours.epoch == 9


async def test_a_claim_that_somebody_deletes_is_written_again_by_its_leader(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    ours, theirs = clocks.lease(client, "a"), clocks.lease(client, "b", "elsewhere")
    assert await ours.acquire()
    assert not await theirs.acquire()
    await client.delete(CLAIM)
    assert not await theirs.acquire()  # its holder may still lead
    assert await ours.renew()
    assert claim_of(api)["holder"] == "a"
    assert not await theirs.acquire()


async def test_a_leader_whose_claim_another_release_holds_stops(
    client: ApiClient, clocks: Clocks
) -> None:
    ours = clocks.lease(client, "a")
    assert await ours.acquire()
    change = {"spec": {"namespace": "elsewhere", "holder": "b"}}
    await client.merge_patch(CLAIM, change)
    assert not await ours.renew()


async def test_without_the_claim_nobody_leads_and_the_remedy_is_named(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    ours = clocks.lease(client, "a")
    missing = Fault(status=404, reason="NotFound")
    api.faults.add(missing, lambda _m, path, _w: path.startswith(CLAIMS), times=None)
    for _ in range(2):
        with pytest.raises(ApiError, match="404"):
            await ours.acquire()
    assert "apply the CustomResourceDefinitions of this version" in ours.trouble
    assert ours.trouble.startswith("the API server does not serve clusterclaims.bireme.dev")
    assert not ours.is_leader()
    assert not api.store.collection(LEASES).objects  # it holds nothing that others wait for
    api.faults.clear()
    assert await ours.acquire()
    assert ours.trouble == ""


async def test_a_role_of_an_older_chart_is_named_where_it_keeps_the_operator_from_leading(
    api: FakeApi, client: ApiClient, clocks: Clocks
) -> None:
    ours = clocks.lease(client, "a")
    denied = Fault(status=403, reason="Forbidden")
    api.faults.add(denied, lambda _m, path, _w: path.startswith(CLAIMS), times=None)
    with pytest.raises(ApiError, match="403"):
        await ours.acquire()
    assert ours.trouble.startswith("upgrade the roles with the chart of this version: ")
    assert not api.store.collection(LEASES).objects
