"""The extender's watches: which objects it asks for, and what it reads of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from bireme.core.gangs import Key
from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from bireme.kube.client import ApiClient
from bireme.kube.cluster_state import ClusterState
from bireme_extender.cache import ClusterCache
from testbed.extender_calls import Manifest, a_group
from testbed.objects.policies import settled

JOBS, GROUPS = names.path("trainingjobs"), names.path("podgroups")
KEY: Key = ("team", "job")


class WatchedApi:
    """Takes the place of a client: lists are empty, and watches bring what a test sends."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.closed = ""
        """The path whose watch does not open."""
        self._lines: dict[str, asyncio.Queue[bytes]] = {}
        self._version = 1

    async def get(self, path: str, *, params: Mapping[str, Any], **_: Any) -> bytes:
        self.asked.append((path, params))
        return b'{"metadata": {"resourceVersion": "1"}, "items": []}'

    async def stream(
        self, path: str, params: Mapping[str, Any], *, on_open: Callable[[], None], **_: Any
    ) -> AsyncIterator[bytes]:
        self.asked.append((path, params))
        if path != self.closed:
            on_open()
        lines = self._lines[path] = asyncio.Queue()
        while True:
            yield await lines.get()

    def is_watched(self, path: str) -> bool:
        return path in self._lines

    def selectors(self, path: str) -> list[str | None]:
        """The field selector of every question about ``path``."""
        return [params.get("fieldSelector") for asked, params in self.asked if asked == path]

    async def send(self, change: str, manifest: Manifest, path: str = JOBS) -> None:
        """Send one event on the watch of ``path``, as soon as that is open."""
        await settled(lambda: self.is_watched(path))
        self._version += 1
        about = {**manifest["metadata"], "resourceVersion": str(self._version)}
        event = {"type": change, "object": {**manifest, "metadata": about}}
        self._lines[path].put_nowait(json.dumps(event).encode())


class Watching:
    """A cache that watches, and the gangs that it told of."""

    def __init__(self) -> None:
        self.api = WatchedApi()
        self.state = ClusterState(SchedulingSettings())
        self.told: list[Key] = []
        client = cast(ApiClient, self.api)
        self.cache = ClusterCache(client, self.state, on_plan=self.told.append)

    @property
    def uid(self) -> str:
        """The uid of the job whose plan is known; "" without one."""
        planned = self.state.objects.plan_of(KEY)
        return planned.uid if planned is not None else ""


@asynccontextmanager
async def watching(closed: str = "") -> AsyncIterator[Watching]:
    """Have a cache watch; the watch of ``closed`` does not open."""
    made = Watching()
    made.api.closed = closed
    task = asyncio.create_task(made.cache.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
async def here() -> AsyncIterator[Watching]:
    async with watching() as made:
        yield made


async def test_only_jobs_that_have_a_plan_are_asked_for(here: Watching) -> None:
    await settled(lambda: here.cache.is_live)
    assert here.api.selectors(JOBS) == ["status.plan.mode!="] * 2, "for the list and the watch"
    assert here.api.selectors(GROUPS) == [None, None]
    assert here.api.selectors("/api/v1/nodes") == [], "pins need no nodes"


async def test_plan_of_a_job_is_read_again_only_when_it_changes(here: Watching) -> None:
    job = a_group()
    await here.api.send("ADDED", job)
    await settled(lambda: here.uid)
    planned = here.state.objects.plan_of(KEY)
    assert planned is not None
    assert (planned.uid, planned.is_job) == ("job-uid", True)
    assert [(m.task, m.index, m.node) for m in planned.plan.members] == [("worker", 0, "n0")]
    assert here.told == [KEY]
    job["status"]["progress"] = {"percentage": 4}
    await here.api.send("MODIFIED", job)
    await here.api.send("MODIFIED", a_group(attempt=1))
    await settled(lambda: len(here.told) > 1)
    assert here.told == [KEY, KEY], "a report of progress tells nobody anything"
    again = here.state.objects.plan_of(KEY)
    assert again is not None
    assert again.plan.label == "1.1"


async def test_new_job_of_the_same_name_has_the_plan_and_its_end_takes_it_away(
    here: Watching,
) -> None:
    await here.api.send("ADDED", a_group())
    await settled(lambda: here.uid == "job-uid")
    await here.api.send("MODIFIED", a_group(job_uid="next-uid"))
    await settled(lambda: here.uid == "next-uid")
    await here.api.send("DELETED", a_group(job_uid="next-uid"))
    await settled(lambda: not here.uid)
    assert here.told[-1] == KEY


async def test_plan_that_nobody_can_read_is_none(here: Watching) -> None:
    broken = a_group()
    broken["status"]["plan"]["placements"] = [{"node": "n0", "task": "worker", "indices": "x"}]
    await here.api.send("ADDED", a_group())
    await settled(lambda: here.uid)
    await here.api.send("MODIFIED", broken)
    await settled(lambda: not here.uid)


async def test_first_plan_in_score_mode_has_nodes_and_pods_watched(here: Watching) -> None:
    await here.api.send("ADDED", a_group(mode="Score"))
    await settled(lambda: here.api.selectors("/api/v1/nodes"))
    assert await here.cache.has_nodes(10.0)


@pytest.mark.parametrize("closed", [JOBS, GROUPS])
async def test_plans_are_current_only_while_both_watches_are_open(closed: str) -> None:
    async with watching(closed) as here:
        await settled(lambda: here.api.is_watched(JOBS) and here.api.is_watched(GROUPS))
        assert not here.cache.is_live
