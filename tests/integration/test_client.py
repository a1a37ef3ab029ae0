"""The HTTP client against the fake API server: verbs, errors, the fence and streams."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from bireme.kube.client import ApiClient, ApiError, NotLeader
from testbed.fakeapi import FakeApi, Fault
from testbed.operator_term.term import until

PODS = "/api/v1/namespaces/team/pods"
POD = f"{PODS}/p"


def pod(name: str = "p", **spec: object) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": spec}


async def failure_of(awaitable: object) -> ApiError:
    with pytest.raises(ApiError) as raised:
        await awaitable  # type: ignore[misc]  # any of the client's coroutines
    return raised.value


@pytest.mark.parametrize("name", ["?x=/", "../../pods", "%2e", "a b", ".", "a#b", ""])
async def test_no_name_that_a_tenant_chooses_leads_to_another_path(
    api: FakeApi, client: ApiClient, name: str
) -> None:
    answered: Any = lambda *_: True  # noqa: E731
    api.faults.add(Fault(status=500), answered, times=None)
    error = await failure_of(client.get(f"/apis/batch/v1/namespaces/a/jobs/{name}/status"))
    assert error.is_not_found, "nothing was sent"


async def test_what_is_created_can_be_read_back(client: ApiClient) -> None:
    created = json.loads(await client.create(PODS, pod(nodeName="n1")))
    assert created == json.loads(await client.get(POD))
    assert created["metadata"]["namespace"] == "team"


async def test_a_body_of_three_megabytes_arrives_whole(client: ApiClient) -> None:
    body = pod(x="y" * 3_000_000)
    await client.create(PODS, body)
    assert json.loads(await client.get(POD))["spec"] == body["spec"]


async def test_creating_twice_says_already_exists(client: ApiClient) -> None:
    await client.create(PODS, pod())
    error = await failure_of(client.create(PODS, pod()))
    assert error.is_already_exists
    assert not error.is_conflict


async def test_replacing_an_old_version_is_a_conflict(client: ApiClient) -> None:
    old = json.loads(await client.create(PODS, pod(x=1)))
    await client.replace(POD, {**old, "spec": {"x": 2}})
    error = await failure_of(client.replace(POD, {**old, "spec": {"x": 3}}))
    assert error.is_conflict
    assert not error.is_retryable


async def test_status_is_written_only_through_its_subresource(client: ApiClient) -> None:
    await client.create(PODS, pod())
    await client.merge_patch(POD, {"status": {"phase": "Running"}})
    assert "status" not in json.loads(await client.get(POD))
    await client.merge_patch(f"{POD}/status", {"status": {"phase": "Running"}})
    assert json.loads(await client.get(POD))["status"] == {"phase": "Running"}


async def test_a_json_patch_whose_test_fails_changes_nothing(client: ApiClient) -> None:
    await client.create(PODS, pod(gates=["plan"]))
    error = await failure_of(
        client.json_patch(
            POD,
            [
                {"op": "remove", "path": "/spec/gates/0"},
                {"op": "test", "path": "/metadata/uid", "value": "another"},
            ],
        )
    )
    assert error.is_invalid
    assert json.loads(await client.get(POD))["spec"]["gates"] == ["plan"]


async def test_deleting_what_is_gone_returns_false(client: ApiClient) -> None:
    await client.create(PODS, pod())
    assert await client.delete(POD, grace_seconds=0, propagation="Background")
    assert not await client.delete(POD)


async def test_delete_with_a_uid_spares_the_successor_of_the_same_name(client: ApiClient) -> None:
    first = json.loads(await client.create(PODS, pod()))["metadata"]["uid"]
    await client.delete(POD, uid=first)
    await client.create(PODS, pod())
    assert (await failure_of(client.delete(POD, uid=first))).is_conflict
    assert json.loads(await client.get(POD))["metadata"]["uid"] != first


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_overload_is_retryable_and_says_when(
    client: ApiClient, api: FakeApi, status: int
) -> None:
    api.faults.add(Fault(status=status, reason="Overloaded", retry_after_seconds=7))
    error = await failure_of(client.get(PODS))
    assert (error.status, error.reason, error.is_retryable) == (status, "Overloaded", True)
    assert error.retry_after_seconds == 7


@pytest.mark.parametrize(
    ("status", "predicate"), [(403, "is_forbidden"), (410, "is_gone"), (422, "is_invalid")]
)
async def test_refusals_are_distinguished(
    client: ApiClient, api: FakeApi, status: int, predicate: str
) -> None:
    api.faults.add(Fault(status=status))
    error = await failure_of(client.get(PODS))
    assert getattr(error, predicate)
    assert not error.is_retryable


async def test_a_dropped_write_is_one_retryable_error_and_is_not_repeated(
    client: ApiClient, api: FakeApi
) -> None:
    await client.create(PODS, pod(x=1))
    api.faults.add(Fault(drop_answer=True))
    error = await failure_of(client.replace(POD, pod(x=2)))
    assert (error.status, error.is_retryable) == (0, True)
    assert api.requests["PUT", "/api/v1/pods"] == 1
    assert json.loads(await client.get(POD))["spec"] == {"x": 2}


async def test_a_slow_answer_is_a_timeout(client: ApiClient, api: FakeApi) -> None:
    api.faults.add(Fault(delay_seconds=5))
    error = await failure_of(client.request("GET", PODS, timeout_seconds=0.1))
    assert (error.status, error.reason) == (0, "Timeout")


async def test_a_server_that_is_away_is_a_retryable_error(tmp_path: Path) -> None:
    async with FakeApi() as api:
        client = await ApiClient.connect(api.kubeconfig(tmp_path))
    error = await failure_of(client.get(PODS))
    await client.close()
    assert (error.status, error.reason) == (0, "ConnectionFailed")


async def test_an_answer_that_is_no_status_object_is_quoted(
    client: ApiClient, api: FakeApi
) -> None:
    error = await failure_of(client.get("/nowhere"))
    assert error.is_not_found
    assert "could not find" in error.message


async def test_a_closed_fence_stops_writes_and_lets_reads_pass(
    client: ApiClient, api: FakeApi
) -> None:
    def closed() -> None:
        raise NotLeader("the lease is lost")

    client.fence = closed
    for write in (
        client.create(PODS, pod()),
        client.replace(POD, pod()),
        client.merge_patch(POD, {}),
        client.delete(POD),
    ):
        with pytest.raises(NotLeader):
            await write
    await client.get(PODS)
    assert {method for method, _ in api.requests} == {"GET"}
    assert not client.write_counts


async def test_the_fence_holds_for_writes_that_were_queued_for_a_connection(
    client: ApiClient, api: FakeApi
) -> None:
    leads = True

    def fence() -> None:
        if not leads:
            raise NotLeader("the lease is lost")

    client.fence = fence
    api.faults.add(Fault(delay_seconds=1.0), times=None)
    writes = [asyncio.create_task(client.create(PODS, pod(f"p{n}"))) for n in range(100)]
    await until(lambda: api.requests["POST", "/api/v1/pods"] == 64)
    leads = False
    results = await asyncio.gather(*writes, return_exceptions=True)
    stopped = [result for result in results if isinstance(result, NotLeader)]
    assert len(stopped) == 100 - 64
    assert len(api.store.collection("/api/v1/pods").objects) == 64


async def test_writes_are_counted_by_verb_and_resource(client: ApiClient) -> None:
    await client.create(PODS, pod())
    await client.merge_patch(f"{POD}/status", {"status": {"phase": "Running"}})
    await client.create("/apis/bireme.dev/v1alpha1/queues", pod("q"))
    await client.create("/api/v1/namespaces", pod("team"))
    await client.delete("/api/v1/namespaces/team")
    await client.get(POD)
    assert client.write_counts == {
        ("create", "pods"): 1,
        ("patch", "pods/status"): 1,
        ("create", "queues"): 1,
        ("create", "namespaces"): 1,
        ("delete", "namespaces"): 1,
    }


async def test_stream_lines_may_be_of_any_length(client: ApiClient, api: FakeApi) -> None:
    await client.create(PODS, pod())
    lines = [b"a" * size for size in (0, 1, 65_536, 3_000_000, 7)]
    received: list[bytes] = []
    async with aclosing(client.stream(PODS, {"watch": "1", "resourceVersion": 999})) as stream:
        task = asyncio.ensure_future(anext(stream))
        while not api.open_watches("/api/v1/pods"):
            await asyncio.sleep(0.01)
        for line in lines:
            api.watch_send("/api/v1/pods", line)
        received.append(await task)
        while len(received) < len(lines):
            received.append(await anext(stream))
    assert received == lines


async def test_a_silent_stream_is_a_timeout(client: ApiClient, api: FakeApi) -> None:
    api.faults.add(Fault(silent=True))
    stream = client.stream(PODS, {"watch": "1"}, read_timeout_seconds=0.2)
    error = await failure_of(anext(stream))
    assert error.reason == "Timeout"


async def test_failures_are_counted_by_verb_and_class(client: ApiClient, api: FakeApi) -> None:
    api.faults.add(Fault(status=503, reason="Unavailable"))
    await failure_of(client.get(POD))
    await failure_of(client.get(POD))
    await client.create(PODS, pod())
    await failure_of(client.create(PODS, pod()))
    api.faults.add(Fault(status=503, reason="Unavailable"))
    with pytest.raises(ApiError):
        async for _ in client.stream("/api/v1/pods", {"watch": "1"}):
            pass
    expected = {("get", "5xx"): 1, ("get", "404"): 1, ("create", "409"): 1, ("watch", "5xx"): 1}
    assert client.error_counts == expected
