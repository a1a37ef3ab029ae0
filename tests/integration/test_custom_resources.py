"""Bireme's own kinds as the operator knows them: watched by kopf, complete in spite of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bireme.core.gangs import Key
from bireme.kube import client as bireme_client
from bireme.kube import envelopes, names, pages, wire
from bireme.kube.client import ApiClient
from bireme_operator import kopf_watch
from bireme_operator.custom_resources import AuditTiming, CustomResources, NotWatched
from bireme_operator.metrics import OperatorMetrics
from testbed.fakeapi import FakeApi, Fault, lists, watches
from testbed.fakeapi.faults import Match
from testbed.operator_term.term import JOBS, until

SCALERS = names.path("nodepoolscalers")
FAST = AuditTiming(
    settle_seconds=0.2,
    missing_retry_seconds=0.05,
    discovery_seconds=1.0,  # kopf's start: on a busy machine 0.3 s were too few
    backoff_first_seconds=0.01,
    idle_seconds=0.1,
    page_size=3,
)
ERROR_500 = json.dumps(
    {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "no leader"}}
).encode()


class Known:
    """The TrainingJobs known to the operator, and the callbacks in their order."""

    def __init__(self, client: ApiClient, timing: AuditTiming, limit: float) -> None:
        self.story: list[str] = []
        self.objects: dict[Key, wire.CustomObject] = {}
        self.metrics = OperatorMetrics().watches
        self.resources = CustomResources(client, self.metrics, limit, timing=timing)
        self.bug: Exception | None = None
        self.jobs = self.resources.source("trainingjobs", self.put, self.delete)
        self.scalers = self.resources.source(
            "nodepoolscalers", lambda *_: None, lambda *_: None, is_needed=False
        )

    def put(self, key: Key, obj: wire.CustomObject) -> None:
        if self.bug is not None:
            raise self.bug
        self.objects[key] = obj
        self.story.append(f"put {key[1]}")

    def delete(self, key: Key) -> None:
        del self.objects[key]
        self.story.append(f"delete {key[1]}")

    @property
    def names(self) -> set[str]:
        return {name for _, name in self.objects}

    @property
    def restarts(self) -> float:
        return float(self.metrics.restarts._value.get())

    def repairs(self, outcome: str) -> float:
        return float(self.metrics.repairs.labels("trainingjobs", outcome)._value.get())


@asynccontextmanager
async def knowing(
    client: ApiClient, timing: AuditTiming = FAST, *, limit: float = 60
) -> AsyncIterator[Known]:
    """Watch until the end of the block; what ends watching by itself fails the test."""
    known = Known(client, timing, limit)
    task = asyncio.create_task(known.resources.run())
    try:
        waiting = asyncio.create_task(known.jobs.synced.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED, timeout=20)
        assert waiting.done() or task.done()
        yield known
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(ended, Exception):
        raise ended


async def ended(known: Known) -> ExceptionGroup[Exception]:
    """The error that ends a watch."""
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(known.resources.run(), 20)
    return raised.value


def put(api: FakeApi, name: str, **content: Any) -> dict[str, Any]:
    return api.put(names.path("trainingjobs", "team", name), content)


def drop(api: FakeApi, name: str) -> None:
    api.store.delete(JOBS, ("team", name), {})


async def watching(api: FakeApi) -> None:
    await until(lambda: api.open_watches(JOBS) == 1)


def at(resource: str, match: Match) -> Match:
    """Requests about one resource alone."""
    return lambda *request: request[1] == resource and match(*request)


async def test_what_exists_and_every_change_arrive(api: FakeApi, client: ApiClient) -> None:
    for n in range(8):
        put(api, f"j{n}")
    async with knowing(client) as known:
        assert known.names == {f"j{n}" for n in range(8)}
        await watching(api)
        put(api, "j8")
        put(api, "j0", spec={"x": 1})
        drop(api, "j1")
        await until(lambda: sorted(known.story[8:]) == ["delete j1", "put j0", "put j8"])
        assert known.objects["team", "j0"].fields == {"x": 1}
        assert known.repairs("ghost") == known.repairs("lost") == known.restarts == 0


async def test_nothing_is_written_on_objects(api: FakeApi, client: ApiClient) -> None:
    before = put(api, "a", spec={"x": 1})
    async with knowing(client):
        await watching(api)
        assert api.store.get(JOBS, ("team", "a")) == before
        assert not {method for method, _ in api.requests} - {"GET", "PEEK", "WATCH"}


@pytest.mark.parametrize("stays", [["stays"], []])
async def test_what_vanished_before_a_relist_is_no_ghost(
    api: FakeApi, client: ApiClient, stays: list[str]
) -> None:
    for name in ("goes", *stays):
        put(api, name)
    async with knowing(client) as known:
        await watching(api)
        api.faults.add(Fault(status=503), at(JOBS, watches), times=2)
        api.watch_cut(JOBS)
        drop(api, "goes")
        for name in stays:
            put(api, name, spec={"x": 1})
        api.compact()
        await until(lambda: known.names == set(stays))
        assert sorted(known.story[len(stays) + 1 :]) == sorted(
            ["delete goes", *(f"put {name}" for name in stays)]
        )
        assert known.repairs("ghost") == 1
        assert known.restarts == 0


async def test_an_edit_that_never_came_is_found_by_an_audit(
    api: FakeApi, client: ApiClient
) -> None:
    put(api, "a")
    api.faults.add(Fault(silent=True), at(JOBS, watches), times=None)
    async with knowing(client, replace(FAST, audit_seconds=0.3, count_seconds=0.1)) as known:
        await watching(api)
        put(api, "a", spec={"x": 1})
        await until(lambda: known.objects["team", "a"].fields == {"x": 1})
        assert known.repairs("lost") == 1


@pytest.mark.parametrize("counts", [True, False])
async def test_a_count_finds_what_never_came(api: FakeApi, client: ApiClient, counts: bool) -> None:
    api.answers.counts_remaining = counts
    put(api, "a")
    put(api, "goes")
    api.faults.add(Fault(silent=True), at(JOBS, watches), times=None)
    async with knowing(client, replace(FAST, count_seconds=0.1)) as known:
        await watching(api)
        put(api, "b")
        await until(lambda: known.names == {"a", "b", "goes"})
        drop(api, "goes")
        await until(lambda: known.names == {"a", "b"})


async def test_a_list_that_is_cut_at_its_second_page_is_begun_again(
    api: FakeApi, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bireme_operator.kopf_watch._PAGE_SIZE", 2)
    for n in range(5):
        put(api, f"j{n}")
    asked = 0

    def second_page(method: str, path: str, watch: bool) -> bool:
        nonlocal asked
        asked += method == "GET" and path == JOBS and not watch
        return asked in (3, 4)  # after the count: the first page, then this

    api.faults.add(Fault(status=410, reason="Expired"), at(JOBS, lambda *_: asked == 3), times=1)
    api.faults.add(Fault(drop=True), second_page, times=1)
    async with knowing(client) as known:
        assert known.names == {f"j{n}" for n in range(5)}
        assert sorted(known.story) == sorted(f"put j{n}" for n in range(5))


@pytest.mark.parametrize("last", [b"", b'{"type":"ADDED","object":{"metada'])
async def test_a_first_stream_that_is_cut_loses_nothing(
    api: FakeApi, client: ApiClient, last: bytes
) -> None:
    put(api, "a")
    async with knowing(client) as known:
        await watching(api)
        api.watch_cut(JOBS, last=last)
        put(api, "b")
        drop(api, "a")
        await until(lambda: known.names == {"b"})
        assert known.restarts == known.repairs("ghost") == 0


async def test_of_an_object_that_changes_faster_than_kopf_can_follow_the_newest_comes(
    api: FakeApi, client: ApiClient
) -> None:
    put(api, "a")
    async with knowing(client) as known:
        await watching(api)
        for n in range(2000):
            put(api, "a", spec={"n": n})
        put(api, "b")
        await until(lambda: "b" in known.names)
        await until(lambda: known.objects["team", "a"].fields == {"n": 1999})
        assert len(known.story) < 1000  # far fewer than there were changes
        drop(api, "a")
        await until(lambda: known.names == {"b"})
        assert known.repairs("lost") == known.repairs("ghost") == 0


@pytest.mark.parametrize("line", [ERROR_500, b"<html>"])
async def test_what_ends_kopf_ends_nothing_else(
    api: FakeApi, client: ApiClient, line: bytes
) -> None:
    """And what was deleted and made in between is known afterwards."""
    put(api, "goes")
    put(api, "stays")
    async with knowing(client) as known:
        await watching(api)
        api.watch_send(JOBS, line)
        await until(lambda: known.restarts == 1)
        drop(api, "goes")
        put(api, "comes")
        await until(lambda: known.names == {"stays", "comes"})
        await watching(api)
        put(api, "later")
        await until(lambda: "later" in known.names)
        assert known.story.count("put stays") == 1


async def test_a_bug_of_ours_ends_watching(api: FakeApi, client: ApiClient) -> None:
    known = Known(client, FAST, 60)
    known.bug = ArithmeticError("a bug")
    put(api, "a")
    assert (await ended(known)).subgroup(ArithmeticError)


async def test_a_bug_in_a_handler_ends_watching(
    api: FakeApi, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kopf itself would log it and go on."""
    monkeypatch.setattr("bireme_operator.kopf_watch._Backlog.take", lambda *_: ())
    put(api, "a")
    assert (await ended(Known(client, FAST, 60))).subgroup(TypeError)


@pytest.mark.parametrize("in_list", [True, False])
async def test_an_object_that_cannot_be_decoded_is_left_out_and_stops_nothing(
    api: FakeApi, client: ApiClient, in_list: bool
) -> None:
    if in_list:
        put(api, "bad", status=[7])
    async with knowing(client, replace(FAST, count_seconds=0.1)) as known:
        await watching(api)
        if not in_list:
            put(api, "bad")
            await until(lambda: "bad" in known.names)
            put(api, "bad", status=[7])
        put(api, "good")
        await until(lambda: known.names == {"good"})
        put(api, "bad", status={})
        await until(lambda: known.names == {"good", "bad"})
        assert known.repairs("lost") == known.restarts == 0


@pytest.mark.parametrize("in_list", [True, False])
async def test_an_object_nested_ten_thousand_levels_deep_does_not_end_kopf(
    api: FakeApi, client: ApiClient, in_list: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = b"[" * 10_000 + b"]" * 10_000
    stored = put(api, "deep")
    real = FakeApi._answer

    async def nested(self: FakeApi, request: Any, at: Any) -> Any:
        answer = await real(self, request, at)
        if at.resource == JOBS and in_list:
            assert isinstance(answer.body, bytes)
            answer.body = answer.body.replace(b'"deep"', b'"deep","x":' + deep, 1)
        return answer

    monkeypatch.setattr(FakeApi, "_answer", nested)
    async with knowing(client) as known:
        await watching(api)
        if not in_list:
            line = json.dumps({"type": "MODIFIED", "object": {**stored, "spec": {"x": 0}}})
            line = line.replace('"resourceVersion": "', '"resourceVersion": "9')
            api.watch_send(JOBS, line.encode().replace(b'{"x": 0}', b'{"x":' + deep + b"}"))
        put(api, "good")
        await until(lambda: "good" in known.names)
        assert known.restarts == 0


async def test_a_removed_crd_empties_the_kind_until_it_is_back(
    api: FakeApi, client: ApiClient
) -> None:
    put(api, "a")
    async with knowing(client) as known:
        await watching(api)
        api.remove(JOBS)
        await until(lambda: not known.names)
        await until(lambda: known.restarts >= 1)
        api.removed.clear()
        put(api, "b")
        await until(lambda: known.names == {"b"})
        await watching(api)
        put(api, "c")
        await until(lambda: known.names == {"b", "c"})


async def test_a_crd_that_comes_later_is_watched_then(api: FakeApi, client: ApiClient) -> None:
    api.remove(JOBS)
    async with knowing(client, limit=3) as known:
        assert not known.names
        await asyncio.sleep(3.2)  # longer than the limit: what does not exist need not be watched
        api.removed.clear()
        put(api, "a")
        await until(lambda: known.names == {"a"})
        await watching(api)


async def test_an_own_write_is_waited_for_by_its_key(api: FakeApi, client: ApiClient) -> None:
    put(api, "a")
    async with knowing(client) as known:
        await watching(api)
        wait, key = known.jobs.wait_past, ("team", "b")
        written = int(put(api, "b")["metadata"]["resourceVersion"])
        later = int(put(api, "a", spec={"x": 1})["metadata"]["resourceVersion"])
        await wait(("team", "a"), later, 5)
        await wait(key, written, 5)
        assert "b" in known.names
        with pytest.raises(TimeoutError):
            await wait(key, later, 0.05)
        drop(api, "b")
        await wait(key, later, 5)
        assert "b" not in known.names


async def test_a_token_that_was_rotated_is_read_again(
    api: FakeApi, client: ApiClient, tmp_path: Path
) -> None:
    async with knowing(client) as known:
        await watching(api)
        api.token = "new"  # noqa: S105
        api.kubeconfig(tmp_path)
        api.watch_cut(JOBS)
        put(api, "a")
        await until(lambda: known.names == {"a"})
        await watching(api)


async def test_a_needed_kind_that_cannot_be_watched_ends_watching(
    api: FakeApi, client: ApiClient
) -> None:
    api.faults.add(Fault(status=403), at(JOBS, watches), times=None)
    assert (await ended(Known(client, FAST, 1))).subgroup(NotWatched)


async def test_a_list_that_takes_longer_than_a_kind_may_be_unwatched_ends_nothing(
    api: FakeApi, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kopf_watch, "_PAGE_SIZE", 5)
    for n in range(40):
        put(api, f"j{n}")
    api.faults.add(Fault(delay_seconds=0.5), at(JOBS, lists), times=None)
    async with knowing(client, limit=1.5) as known:
        assert len(known.names) == 40
        await watching(api)
        assert known.restarts == 0


async def test_a_kind_that_is_not_needed_may_be_forbidden(api: FakeApi, client: ApiClient) -> None:
    api.faults.add(Fault(status=403), at(SCALERS, lists), times=None)
    async with knowing(client, limit=1) as known:
        await asyncio.sleep(2)
        put(api, "a")
        await until(lambda: known.names == {"a"})
        assert known.restarts == 0


async def test_large_jobs_come_in_small_pages_and_without_what_is_too_large(
    api: FakeApi, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 1_000_000)
    sizes: list[int] = []
    within = bireme_client.body_within

    async def body_within(response: Any, max_bytes: int) -> bytes | None:
        body = await within(response, max_bytes)
        sizes.append(0 if body is None else len(body))
        return body

    monkeypatch.setattr(bireme_client, "body_within", body_within)
    for n in range(20):
        put(api, f"huge-{n}", spec={"x": "x" * 300_000}, metadata={"annotations": {"a": "b"}})
    put(api, "small", spec={"x": 1})
    async with knowing(client) as known:
        assert len(known.names) == 21
        assert max(sizes) <= 1_000_000
        assert known.objects["team", "small"].fields == {"x": 1}
        assert envelopes.spec_bytes(known.objects["team", "huge-7"].spec) == 300_008
        assert len(known.objects["team", "huge-7"].spec) == 6
        assert known.restarts == known.repairs("lost") == 0
