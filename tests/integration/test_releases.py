"""What a release leaves in a cluster is understood by every later one, and the other way round.

During an upgrade operator and extender are of different releases, and after it an operator meets
gangs that an earlier one admitted. ``tests/golden/releases/VERSION.json`` has the objects that a
release leaves, and the schema by which it reads plans. That of a release that is not out yet is
written anew by BIREME_WRITE_RELEASE=1 and this test.
"""

import os
from collections.abc import Iterator
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import msgspec
import pytest

from bireme.kube import names, wire
from bireme.kube.api.plan import Plan
from bireme_extender.membership import Membership, membership
from testbed.extender_calls import a_state, put_gang
from testbed.fakeapi import FakeApi
from testbed.fakeapi.store import Object
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    GROUPS,
    JOBS,
    PODS,
    furnish,
    leading,
    make,
    pods,
    silence,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import pod_group, task, torch_job, training_job

FOLDER: Final = Path(__file__).parents[1] / "golden" / "releases"
LEFT: Final = ("/api/v1/nodes", names.path("queues"), JOBS, GROUPS, PODS)


class Release(msgspec.Struct, frozen=True):
    """Objects by resource path, and the JSON schema of plans."""

    objects: dict[str, list[Any]]
    plan_schema: dict[str, Any]

    def plans(self) -> Iterator[Object]:
        for resource in (JOBS, GROUPS):
            for each in self.objects[resource]:
                if plan := (each.get("status") or {}).get("plan"):
                    yield plan


VERSION: Final = version_of("bireme")
RELEASES: Final = sorted(path.stem for path in FOLDER.glob("*.json"))


def of(version: str) -> Release:
    return msgspec.json.decode((FOLDER / f"{version}.json").read_bytes(), type=Release)


@pytest.fixture
async def this_release(api: FakeApi, tmp_path: Path) -> Release:
    """A whole gang, an elastic one, one of other controllers' pods, and one that waits."""
    furnish(api, nodes=3)
    submit(api, torch_job("rigid", 3), pod_group("guests", 2))
    submit(api, training_job("elastic", task("worker", 2, minReplicas=1, maxReplicas=4)))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        make(api, "a", "b", group="guests")
        await until(lambda: status(api, "rigid").get("phase") == "Running")
        await until(lambda: status(api, "elastic").get("phase") == "Running")
        await until(lambda: status(api, "guests", GROUPS).get("phase") == "Running")
        submit(api, training_job("waits", task(replicas=8, gpus=8)))
        await until(lambda: "reason" in status(api, "waits"))
        await silence(api)
    left = {path: list(api.store.collection(path).objects.values()) for path in LEFT}
    return Release(left, schema(Plan.model_json_schema(by_alias=True)))


def schema(given: Any) -> Any:
    """The schema without what only writers keep: that there are no other fields."""
    if isinstance(given, dict):
        kept = {k: schema(v) for k, v in given.items() if k not in ("description", "title")}
        return {k: v for k, v in kept.items() if k != "additionalProperties" or v is not False}
    return [*map(schema, given)] if isinstance(given, list) else given


def test_release_at_hand_is_among_those_that_are_kept(this_release: Release) -> None:
    if os.environ.get("BIREME_WRITE_RELEASE"):
        written = msgspec.json.format(msgspec.json.encode(this_release, order="sorted"))
        (FOLDER / f"{VERSION}.json").write_bytes(written + b"\n")
    assert VERSION in RELEASES


@pytest.mark.parametrize("version", RELEASES)
async def test_operator_takes_over_gangs_of_every_release_and_touches_none(
    api: FakeApi, tmp_path: Path, version: str
) -> None:
    for resource, objects in of(version).objects.items():
        for each in objects:
            meta = each["metadata"]
            api.store.create(
                resource, (meta.get("namespace", ""), meta["name"]), each, uid=meta["uid"]
            )
    before = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods(api)}
    planned = [
        status(api, *at).get("plan") for at in (("rigid",), ("elastic",), ("guests", GROUPS))
    ]
    assert len(before) >= 7
    assert all(planned)
    async with FakeKubelets(api, runs), leading(api, tmp_path, epoch=100):
        submit(api, training_job("new", task(gpus=2)))
        await until(lambda: status(api, "new").get("phase") == "Running")
        await silence(api)
    after = {p["metadata"]["uid"]: p["spec"]["nodeName"] for p in pods(api)}
    assert before.items() <= after.items()
    gangs = (("rigid",), ("guests", GROUPS))
    assert [status(api, *at)["phase"] for at in gangs] == ["Running", "Running"]
    assert [status(api, *at)["plan"] for at in gangs] == [planned[0], planned[2]]
    assert "plan" not in status(api, "waits")


@pytest.mark.parametrize("version", RELEASES)
def test_extender_knows_every_pod_of_gangs_of_every_release(version: str) -> None:
    left, state = of(version).objects, a_state()
    for gang in (*left[JOBS], *left[GROUPS]):
        put_gang(state, gang)
    for pod in left[PODS]:
        found = membership(msgspec.convert(pod, wire.V1Pod), state)
        assert isinstance(found, Membership), found
        assert found.member.node == pod["spec"]["nodeName"]


@pytest.mark.parametrize("version", RELEASES)
def test_every_release_can_read_the_plans_of_this_one(this_release: Release, version: str) -> None:
    reads = jsonschema_rs.validator_for(of(version).plan_schema)
    written = [*this_release.plans()]
    assert len(written) == 3
    for plan in written:
        reads.validate(plan)
