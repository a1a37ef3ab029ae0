"""A contender that is stopped leaves no lease behind, whatever it was just doing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bireme.kube import names
from bireme.kube.client import ApiClient
from bireme_operator.lease import Lease
from testbed.fakeapi import FakeApi

LEASES = "/apis/coordination.k8s.io/v1/leases"
CLAIMS = names.path("clusterclaims")


def holder(api: FakeApi) -> Any:
    return api.store.get(LEASES, ("system", "bireme"))["spec"]["holderIdentity"]


def claimant(api: FakeApi) -> Any:
    return api.store.get(CLAIMS, ("", "bireme"))["spec"]["holder"]


@pytest.mark.parametrize(("resource", "held"), [("clusterclaims", claimant), ("leases", holder)])
async def test_a_claim_whose_answer_was_not_waited_for_is_handed_back(
    api: FakeApi,
    client: ApiClient,
    monkeypatch: pytest.MonkeyPatch,
    resource: str,
    held: Callable[[FakeApi], Any],
) -> None:
    written, request = asyncio.Event(), client.request

    async def answered_late(method: str, path: str, *args: Any, **options: Any) -> bytes:
        answer = await request(method, path, *args, **options)
        if method == "POST" and path.endswith(resource):
            written.set()
            await asyncio.sleep(60)
        return answer

    monkeypatch.setattr(client, "request", answered_late)
    first = Lease(client, "system", "bireme", "first")
    task = asyncio.create_task(first.run(lambda _: None, lambda: None))
    await asyncio.wait_for(written.wait(), 5)
    assert held(api) == "first"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert held(api) == claimant(api) == ""
    assert await Lease(client, "system", "bireme", "second").acquire()


async def test_a_contender_that_stops_leaves_the_lease_of_another_alone(
    api: FakeApi, client: ApiClient
) -> None:
    await Lease(client, "system", "bireme", "leader").acquire()
    task = asyncio.create_task(
        Lease(client, "system", "bireme", "standby").run(lambda _: None, lambda: None)
    )
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert holder(api) == "leader"
