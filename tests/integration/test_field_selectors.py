"""Field selectors of custom resources: the fake API server knows those that a real one would.

``tests/cluster`` asks the real one by the same selector.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from bireme.kube import names
from bireme.kube.client import ApiClient, ApiError
from bireme_extender.cache import PLANNED
from testbed.fakeapi import FakeApi
from testbed.fakeapi.store import Object
from testbed.operator_term.term import GROUPS, JOBS, submit
from testbed.scenario.manifests import pod_group, training_job
from tests.integration.mirror import watching

KEY = ("default", "job")


def report(api: FakeApi, **status: object) -> Object:
    return api.store.update(JOBS, KEY, {"status": status}, "status")


async def listed(client: ApiClient, params: dict[str, str]) -> list[str]:
    found = json.loads(await client.request("GET", JOBS, params=params))
    return [item["metadata"]["name"] for item in found["items"]]


async def next_event(lines: AsyncGenerator[bytes]) -> tuple[str, Object]:
    event = json.loads(await anext(lines))
    return event["type"], event["object"]


async def test_a_list_has_only_jobs_with_a_plan(api: FakeApi, client: ApiClient) -> None:
    submit(api, training_job("job"), training_job("waits"))
    report(api, plan={"mode": "Pinned"})
    assert await listed(client, PLANNED) == ["job"]


async def test_a_job_enters_a_watch_with_its_plan_and_leaves_it_without(
    api: FakeApi, client: ApiClient
) -> None:
    submit(api, training_job("job"))
    params = {"watch": "1", "resourceVersion": str(api.store.version), **PLANNED}
    async with aclosing(client.stream(JOBS, params)) as lines:
        first = anext(lines)
        report(api, phase="Pending")
        planned = report(api, phase="Starting", plan={"mode": "Pinned"})
        event = json.loads(await first)
        assert (event["type"], event["object"]) == ("ADDED", planned)
        await watching(api, JOBS)
        running = report(api, phase="Running", plan={"mode": "Score"})
        assert await next_event(lines) == ("MODIFIED", running)
        cleared = report(api, phase="Restarting")
        kind, last = await next_event(lines)
        # The object as it was, with the version of the change that took it out.
        assert (kind, last["status"]) == ("DELETED", running["status"])
        assert last["metadata"]["resourceVersion"] == cleared["metadata"]["resourceVersion"]
        report(api, phase="Pending")
        again = report(api, phase="Starting", plan={"mode": "Pinned"})
        assert await next_event(lines) == ("ADDED", again)


@pytest.mark.parametrize(
    ("path", "selector"),
    [
        (JOBS, "status.phase=Running"),
        (JOBS, "status.plan.mode!=,spec.queue=default"),
        (GROUPS, PLANNED["fieldSelector"]),
        (names.path("queues"), "spec.state=Open"),
        (JOBS, "status.plan.mode"),
    ],
)
@pytest.mark.parametrize("watch", [False, True])
async def test_fields_that_no_definition_declares_are_refused(
    api: FakeApi, client: ApiClient, path: str, selector: str, watch: bool
) -> None:
    submit(api, training_job("job"), pod_group("group", 1))
    params = {"fieldSelector": selector} | ({"watch": "1"} if watch else {})
    lines = client.stream(path, params)
    asked = anext(lines) if watch else client.request("GET", path, params=params)
    with pytest.raises(ApiError) as raised:
        await asked
    await lines.aclose()
    assert raised.value.status == 400


async def test_every_object_is_selectable_by_its_name(api: FakeApi, client: ApiClient) -> None:
    submit(api, training_job("job"), training_job("other"))
    params = {"fieldSelector": "metadata.name=job,metadata.namespace=default"}
    assert await listed(client, params) == ["job"]
