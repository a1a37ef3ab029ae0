"""The shadow that comes with Bireme: made once per version, compared at once, and then nobody's."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bireme.core.errors import SettingError
from bireme.kube import names
from bireme_operator import first_objects
from bireme_operator.first_objects import SHADOW_NAME as NAME
from bireme_operator.first_objects import shadow_checkpoint
from testbed.fakeapi import FakeApi
from testbed.fakeapi.faults import Fault
from testbed.operator_term.term import leading, until

POLICIES = names.path("schedulingpolicies")
LEASES = "/apis/coordination.k8s.io/v1/leases"
CREATE_LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CHECKPOINT = {"name": "learned-index"}


def made(api: FakeApi) -> Any:
    return api.store.collection(POLICIES).objects.get(("", NAME))


def is_marked(api: FakeApi) -> bool:
    return bool(api.store.collection(LEASES).objects)


def delete(api: FakeApi) -> None:
    api.store.delete(POLICIES, ("", NAME), {})


async def test_it_is_made_loaded_and_compared(api: FakeApi, tmp_path: Path) -> None:
    async with leading(api, tmp_path, shadow=CHECKPOINT) as term:
        await until(lambda: [each.name for each in term.policies.shadows] == [NAME])
        assert term.policies.deciding.name == ""
    assert made(api)["spec"] == {"checkpoint": CHECKPOINT, "stage": "Shadow"}


async def test_without_a_checkpoint_none_is_made(api: FakeApi, tmp_path: Path) -> None:
    async with leading(api, tmp_path, default_queue={}):
        await until(lambda: api.store.collection(names.path("queues")).objects)
    assert made(api) is None
    assert not is_marked(api)


async def test_one_that_was_deleted_stays_so_until_another_version_comes(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leading(api, tmp_path, shadow=CHECKPOINT):
        await until(lambda: made(api))
    delete(api)
    async with leading(api, tmp_path, shadow=CHECKPOINT, default_queue={}):
        await until(lambda: api.store.collection(names.path("queues")).objects)
        await asyncio.sleep(0.2)
        assert made(api) is None
    monkeypatch.setattr(first_objects, "version", lambda _: "99.0.0+local")
    async with leading(api, tmp_path, shadow=CHECKPOINT):
        await until(lambda: made(api))


async def test_one_that_was_made_active_stays_as_it_is(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leading(api, tmp_path, shadow=CHECKPOINT):
        await until(lambda: made(api))
    promoted = {**made(api), "spec": {"checkpoint": CHECKPOINT, "stage": "Active"}}
    api.put(f"{POLICIES}/{NAME}", promoted)
    monkeypatch.setattr(first_objects, "version", lambda _: "99.0.0")
    async with leading(api, tmp_path, shadow=CHECKPOINT) as term:
        await until(lambda: term.policies.deciding.name == NAME)
        await until(lambda: len(api.store.collection(LEASES).objects) == 2)
    assert made(api)["spec"]["stage"] == "Active"


def creates(path: str) -> Any:
    def matches(method: str, asked: str, watch: bool) -> bool:
        return (method, asked) == ("POST", path)

    return matches


async def test_it_is_made_when_the_api_server_can_again(api: FakeApi, tmp_path: Path) -> None:
    for path in (CREATE_LEASE, POLICIES):
        api.faults.add(Fault(status=503), creates(path))
        api.faults.add(Fault(drop_answer=True), creates(path))
    async with leading(api, tmp_path, shadow=CHECKPOINT) as term:
        await until(lambda: [each.name for each in term.policies.shadows] == [NAME])
        await until(lambda: api.faults.next("POST", POLICIES, False) is None)


def test_a_checkpoint_that_is_none_is_refused_by_its_place_at_the_start() -> None:
    assert shadow_checkpoint({}) is None
    assert shadow_checkpoint({"learnedShadow": CHECKPOINT}) == CHECKPOINT
    with pytest.raises(SettingError, match=r"^learnedShadow\.name in the settings file"):
        shadow_checkpoint({"learnedShadow": {"name": "../x"}})
