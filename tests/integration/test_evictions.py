"""One pod evicted through the API server, which asks its budget and takes no other pod for it."""

import pytest

from bireme.kube import names
from bireme.kube.client import ApiClient, ApiError
from bireme_operator.writes import PrioritySemaphore, Writes
from testbed.fakeapi import FakeApi
from testbed.operator_term.term import pods
from testbed.scenario.manifests import disruption_budget


@pytest.mark.parametrize(
    ("uid", "allowed", "status_code"),
    [("right", 1, None), ("wrong", 1, 409), ("right", 0, 429)],
)
async def test_exactly_the_pod_that_was_meant_is_evicted(
    api: FakeApi, client: ApiClient, uid: str, allowed: int, status_code: int | None
) -> None:
    labels = {names.POD_GROUP_LABEL: "low"}
    pod = {"metadata": {"name": "a", "labels": labels}, "status": {"phase": "Running"}}
    stored = api.put("/api/v1/namespaces/default/pods/a", pod)
    budget = disruption_budget("keep", 1, **labels)
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/keep"
    api.put(path, {**budget, "status": {"disruptionsAllowed": allowed}})
    asked = stored["metadata"]["uid"] if uid == "right" else uid
    refused = None
    try:
        await Writes(client, PrioritySemaphore(1)).evict_pod(("default", "a"), asked)
    except ApiError as error:
        refused = error.status
    assert refused == status_code
    assert bool(pods(api)) == (status_code is not None)


async def test_a_pod_that_is_gone_already_needs_no_eviction(client: ApiClient) -> None:
    await Writes(client, PrioritySemaphore(1)).evict_pod(
        ("default", "gone"), "uid", grace_seconds=0
    )
    assert client.write_counts == {("create", "pods/eviction"): 1}
