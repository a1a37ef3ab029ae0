"""The reflector under streams that break, stall or carry objects nobody can read."""

import asyncio
import json
from functools import partial

import msgspec
import pytest

from bireme.kube import envelopes
from bireme.kube.client import ApiClient
from bireme.kube.watch import Timing
from bireme.kube.wire import CustomObject
from testbed.fakeapi import FakeApi, Fault, watches
from testbed.operator_term.term import until
from tests.integration.mirror import JOBS, PODS, Mirror, drop, put, watching


@pytest.mark.parametrize("code", [500, 504, 429])
async def test_an_error_inside_the_stream_resumes_without_a_list(
    api: FakeApi, client: ApiClient, code: int
) -> None:
    put(api, "a")
    async with Mirror(client).running() as mirror:
        await watching(api)
        failure = {"code": code, "reason": "Unknown", "message": "etcdserver: no leader"}
        api.watch_send(PODS, json.dumps({"type": "ERROR", "object": failure}).encode())
        put(api, "b")
        await until(lambda: mirror.names == {"a", "b"})
        assert mirror.story == ["put a", "put b"]
        assert api.requests["GET", PODS] == 1
        assert api.requests["WATCH", PODS] == 2


@pytest.mark.parametrize("last", [b"", b'{"type":"ADDED","object":{"metada'])
async def test_a_stream_cut_in_the_middle_of_a_line_loses_nothing(
    api: FakeApi, client: ApiClient, last: bytes
) -> None:
    async with Mirror(client).running() as mirror:
        await watching(api)
        api.watch_cut(PODS, last=last)
        put(api, "a")
        await until(lambda: mirror.names == {"a"})
        assert not mirror.bad


async def test_a_line_that_is_no_event_resumes_the_stream(api: FakeApi, client: ApiClient) -> None:
    def asked_again(watched: int) -> bool:
        return api.requests["WATCH", PODS] > watched and api.open_watches(PODS) == 1

    async with Mirror(client).running() as mirror:
        await watching(api)
        for garbage in (
            b"<html>",
            b'{"type":"SURPRISE","object":{"metadata":{"resourceVersion":"999"}}}',
        ):
            api.watch_send(PODS, garbage)
            watched = api.requests["WATCH", PODS]
            await until(partial(asked_again, watched))
        put(api, "a")
        await until(lambda: mirror.names == {"a"})
        assert mirror.reflector.resource_version < 999


async def test_a_silent_stream_is_replaced(api: FakeApi, client: ApiClient) -> None:
    api.faults.add(Fault(silent=True), watches)
    async with Mirror(client).running() as mirror:
        await watching(api)
        put(api, "a")
        assert not mirror.names
        await until(lambda: mirror.names == {"a"})
        assert api.requests["GET", PODS] == 1


async def test_lines_sent_twice_do_not_bring_the_dead_back(api: FakeApi, client: ApiClient) -> None:
    async with Mirror(client).running() as mirror:
        await watching(api)
        first = put(api, "a")
        added = json.dumps({"type": "ADDED", "object": first}).encode()
        api.watch_send(PODS, added)
        drop(api, "a")
        api.watch_send(PODS, added)
        put(api, "end")
        await until(lambda: "end" in mirror.names)
        assert mirror.story == ["put a", "delete a", "put end"]


async def test_a_two_megabyte_object_passes_list_and_watch(api: FakeApi, client: ApiClient) -> None:
    spec = {"template": "x" * 2_000_000}
    at = "/apis/bireme.dev/v1alpha1/namespaces/team/trainingjobs"
    api.put(f"{at}/listed", {"spec": spec})
    async with Mirror(client, JOBS, type_=CustomObject).running() as mirror:
        await watching(api, JOBS)
        api.put(f"{at}/watched", {"spec": spec})
        await until(lambda: mirror.names == {"listed", "watched"})
        assert mirror.objects["team", "watched"].fields == spec


@pytest.mark.parametrize("in_list", [True, False])
async def test_a_bad_object_is_reported_and_stops_nothing(
    api: FakeApi, client: ApiClient, in_list: bool
) -> None:
    if in_list:
        put(api, "bad", spec={"nodeName": 7})
    async with Mirror(client).running() as mirror:
        await watching(api)
        if not in_list:
            put(api, "bad", spec={"nodeName": 7})
        put(api, "good")
        await until(lambda: mirror.names == {"good"})
        [(key, error)] = mirror.bad
        assert key == ("team", "bad")
        assert "nodeName" in error


async def test_an_object_that_turns_bad_leaves_the_cache_until_it_is_good_again(
    api: FakeApi, client: ApiClient
) -> None:
    put(api, "a")
    async with Mirror(client).running() as mirror:
        await watching(api)
        put(api, "a", spec={"nodeName": 7})
        put(api, "a", spec={"nodeName": "n1"})
        await until(lambda: len(mirror.story) == 3)
        assert mirror.story == ["put a", "delete a", "put a"]
        assert len(mirror.bad) == 1


async def test_an_object_without_metadata_is_reported_without_a_key(
    api: FakeApi, client: ApiClient
) -> None:
    async with Mirror(client).running() as mirror:
        await watching(api)
        api.watch_send(PODS, b'{"type":"ADDED","object":{"metadata":{"name":7}}}')
        put(api, "a")
        await until(lambda: mirror.names == {"a"})
        assert [key for key, _ in mirror.bad] == [None]


@pytest.mark.parametrize("in_list", [True, False])
async def test_an_object_nested_thousands_deep_poisons_only_itself(
    client: ApiClient, api: FakeApi, monkeypatch: pytest.MonkeyPatch, in_list: bool
) -> None:
    deep = b'{"a":' * 5000 + b'"]}\\""' + b"}" * 5000
    meta = b'{"name":"deep","namespace":"team","resourceVersion":"150"}'
    poison = b'{"metadata":' + meta + b',"spec":' + deep + b"}"
    fine = b'{"metadata":{"name":"fine","namespace":"team","resourceVersion":"151"},"spec":{}}'
    mirror = Mirror(client, JOBS, type_=CustomObject)
    if in_list:
        page = b'{"metadata":{"resourceVersion":"151"},"items":[' + poison + b"," + fine + b"]}"

        async def answer(path: str, **_: object) -> bytes:
            return page

        monkeypatch.setattr(client, "get", answer)
    async with mirror.running():
        await watching(api, JOBS)
        if not in_list:
            for raw in (poison, fine):
                api.watch_send(JOBS, b'{"type":"ADDED","object":' + raw + b"}")
        await until(lambda: mirror.names == {"deep", "fine"})
    deep_one, fine_one = (mirror.objects["team", name] for name in ("deep", "fine"))
    assert envelopes.is_too_deep(deep_one.spec)
    assert not envelopes.is_too_deep(fine_one.spec)
    assert mirror.bad == []


@pytest.mark.parametrize("levels", [1, 256, 257, 900])
def test_depth_counts_where_nothing_had_to_be_cut(levels: int) -> None:
    value: object = {}
    for _ in range(levels - 1):
        value = {"a": value}
    raw = msgspec.Raw(msgspec.json.encode(value))
    assert envelopes.is_too_deep(raw) == (levels > envelopes.DEPTH_LIMIT)


def test_cutting_keeps_everything_above_the_limit() -> None:
    text = b'{"a":[1,{"b":"]}\\"["}],"c":[[[]]],"d":{}}'
    assert json.loads(envelopes.cut(text, limit=9)) == json.loads(text)
    mark = json.loads(envelopes.cut(b"[[]]", limit=1))[0]
    assert json.loads(envelopes.cut(text, limit=2)) == {"a": [1, mark], "c": [mark], "d": {}}


async def test_backoff_grows_to_its_limit_and_asks_less_than_twice_a_second(
    api: FakeApi, client: ApiClient
) -> None:
    now = 0.0
    waits: list[float] = []
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        waits.append(seconds)
        if now > 60:
            enough.set()
            await asyncio.Event().wait()

    api.faults.add(Fault(status=500), times=None)
    mirror = Mirror(client, timing=Timing(), sleep=sleep, clock=lambda: now, random=lambda: 0.0)
    task = asyncio.create_task(mirror.reflector.run())
    await asyncio.wait_for(enough.wait(), 10)
    task.cancel()
    assert waits[:6] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
    assert max(waits) <= 10
    assert len(waits) < 2 * 60


async def test_a_stream_that_fails_right_after_opening_is_backed_off_too(
    api: FakeApi, client: ApiClient
) -> None:
    waits: list[float] = []
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 6:
            enough.set()
            await asyncio.Event().wait()
        while not api.open_watches(PODS):
            await asyncio.sleep(0.005)

    failure = b'{"type":"ERROR","object":{"code":500,"message":"no leader"}}'
    mirror = Mirror(client, timing=Timing(), sleep=sleep, random=lambda: 1.0)
    task = asyncio.create_task(mirror.reflector.run())
    while not enough.is_set():
        api.watch_send(PODS, failure)
        await asyncio.sleep(0.005)
    task.cancel()
    assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4])


async def test_the_server_may_ask_for_a_longer_pause(api: FakeApi, client: ApiClient) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    api.faults.add(Fault(status=429, retry_after_seconds=17))
    async with Mirror(client, timing=Timing(), sleep=sleep).running():
        assert waits == [17]


async def test_a_stream_that_ended_after_news_is_resumed_without_a_pause(
    api: FakeApi, client: ApiClient
) -> None:
    def asked(times: int) -> bool:
        return api.requests["WATCH", PODS] == times and api.open_watches(PODS) == 1

    def mirrors(pods: int) -> bool:
        return len(mirror.names) == pods

    timing = Timing(backoff_first_seconds=30, backoff_limit_seconds=60)
    async with Mirror(client, timing=timing).running() as mirror:
        for count in (1, 2, 3):
            await until(partial(asked, count))
            put(api, f"pod-{count}")
            await until(partial(mirrors, count))
            api.watch_end(PODS)
        assert api.requests["GET", PODS] == 1


async def test_a_stream_that_ended_without_news_is_resumed_after_a_pause(
    api: FakeApi, client: ApiClient
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    mirror = Mirror(client, timing=Timing(), sleep=sleep, random=lambda: 1.0)
    async with mirror.running():
        await watching(api)
        api.watch_end(PODS)
        await until(lambda: api.requests["WATCH", PODS] == 2)
        assert waits == [0.2]
