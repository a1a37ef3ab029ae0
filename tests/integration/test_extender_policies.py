"""Score mode follows the Active SchedulingPolicy while the extender serves."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube.client import ApiClient
from bireme_extender.server import Program
from bireme_extender.settings import ExtenderSettings
from testbed.controlplane.process import free_ports
from testbed.extender_calls import JOB_UID, a_body, a_group, a_node, a_pod
from testbed.fakeapi import FakeApi
from testbed.networks.encoders import NodeFacts
from testbed.trained_policies import delete_policy, put_policy, trained_by

JOB = "/apis/bireme.dev/v1alpha1/namespaces/team/trainingjobs/job"
ALL = ["n0", "n1", "n2"]
RULES = [0, 0, 0]
"""Three empty nodes are all the same to the rules."""
LAST, FIRST = [8, 9, 10], [10, 9, 8]


class Caller:
    """A client of an extender that scores a pod of a gang."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def points(self) -> list[int]:
        """Of the three nodes by name; empty where nothing is preferred."""
        body = a_body(a_pod(), ALL)
        async with self._session.post(f"{self._url}/prioritize", data=body) as answer:
            given = {each["Host"]: each["Score"] for each in await answer.json()}
        return [given[name] for name in ALL if name in given]

    async def sample(self, name: str) -> float:
        async with self._session.get(f"{self._url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        found = [line for line in lines if line.startswith(f"bireme_extender_{name} ")]
        return float(found[0].split()[-1]) if found else 0.0

    async def eventually(self, points: list[int]) -> None:
        deadline = time.monotonic() + 20
        while (found := await self.points()) != points:
            assert time.monotonic() < deadline, f"the points stay {found}"
            await asyncio.sleep(0.02)

    async def until_sample(self, name: str, value: float) -> None:
        deadline = time.monotonic() + 20
        while await self.sample(name) < value:
            assert time.monotonic() < deadline, f"{name} does not reach {value}"
            await asyncio.sleep(0.02)


@asynccontextmanager
async def extender(api: FakeApi, folder: Path, trained: Path) -> AsyncIterator[Caller]:
    """An extender over three equal nodes and a gang in score mode."""
    for name in ALL:
        api.put(f"/api/v1/nodes/{name}", a_node(name))
    api.put(JOB, a_group(mode="Score"), JOB_UID)
    (port,) = free_ports(1)
    settings = ExtenderSettings(
        extender_address=f"127.0.0.1:{port}", checkpoint_directory=str(trained)
    )
    client = await ApiClient.connect(api.kubeconfig(folder))
    program = Program(client, settings, SchedulingSettings())
    running = asyncio.create_task(program.run())
    try:
        async with aiohttp.ClientSession() as session:
            await asyncio.wait_for(program.cache.wait_synced(), 20)
            yield Caller(session, f"http://127.0.0.1:{port}")
    finally:
        program.stop()
        await asyncio.wait_for(running, 10)
        await client.close()


async def test_nodes_are_scored_by_the_active_policy_and_else_by_the_rules(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    put_policy(api, "shadow", **trained_by("first", stage="Shadow"))
    async with extender(api, tmp_path, trained) as caller:
        await caller.eventually(RULES)
        put_policy(api, "policy", **trained_by("last"))
        await caller.eventually(LAST)
        assert await caller.sample("learned_scorer") == 1.0
        put_policy(api, "policy", **trained_by("first"))
        await caller.eventually(FIRST)
        put_policy(api, "policy", **trained_by("fewest"))
        await caller.eventually(RULES)
        put_policy(api, "policy", **trained_by("first"))
        await caller.eventually(FIRST)
        delete_policy(api, "policy")
        await caller.eventually(RULES)
        assert await caller.sample("learned_scorer") == 0.0


async def test_what_cannot_be_loaded_changes_no_score(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    async with extender(api, tmp_path, trained) as caller:
        put_policy(api, "policy", **trained_by("last"))
        await caller.eventually(LAST)
        put_policy(api, "policy", **trained_by("missing"))
        await caller.until_sample('policy_loads_total{outcome="failed"}', 1.0)
        assert await caller.points() == LAST
        put_policy(api, "policy", **trained_by("first", parameters={"placer": {"beta": 1}}))
        await caller.until_sample('policy_loads_total{outcome="failed"}', 2.0)
        assert await caller.points() == LAST


async def test_nonsense_of_a_network_is_answered_by_the_rules_in_the_same_call(
    api: FakeApi, tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nonsense(*_: object) -> dict[str, Any]:
        return {"facts": np.full((3, 3), np.nan, dtype=np.float32)}

    put_policy(api, "policy", **trained_by("last"))
    async with extender(api, tmp_path, trained) as caller:
        await caller.eventually(LAST)
        monkeypatch.setattr(NodeFacts, "encode", nonsense)
        assert await caller.points() == LAST  # nothing has changed, so nothing is asked anew
        spec = {"nodeName": "n0", "containers": [{"name": "main"}]}
        api.put("/api/v1/namespaces/team/pods/other", {"metadata": {"name": "other"}, "spec": spec})
        await caller.eventually(RULES)
        assert await caller.sample("score_fallbacks_total") == 1.0
        monkeypatch.undo()
        assert await caller.points() == LAST


async def test_without_the_kind_the_extender_is_ready_and_scores_by_the_rules(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    api.removed.add("/apis/bireme.dev/v1alpha1/schedulingpolicies")
    async with extender(api, tmp_path, trained) as caller:
        await caller.eventually(RULES)
