"""The reflector against the fake API server: the cache is the truth, without ghosts."""

import asyncio
import json
from dataclasses import replace

import pytest

from bireme.kube import envelopes, pages
from bireme.kube.client import ApiClient, ApiError
from bireme.kube.watch import HistoryLostError, Reflector
from bireme.kube.wire import CustomObject, V1Pod
from testbed.fakeapi import FakeApi, Fault, lists, watches
from testbed.operator_term.term import until
from tests.integration.mirror import FAST, JOBS, PODS, Mirror, drop, put, watching


async def test_it_lists_all_pages_and_then_follows_every_change(
    api: FakeApi, client: ApiClient
) -> None:
    for n in range(8):
        put(api, f"p{n}")
    async with Mirror(client).running() as mirror:
        assert mirror.names == {f"p{n}" for n in range(8)}
        assert api.requests["GET", PODS] == 3
        await watching(api)
        put(api, "p8")
        put(api, "p0", spec={"nodeName": "n1"})
        drop(api, "p1")
        await until(lambda: mirror.story[8:] == ["put p8", "put p0", "delete p1"])
        assert mirror.objects["team", "p0"].spec.node_name == "n1"


async def test_pages_come_from_one_version_and_the_watch_continues_from_it(
    api: FakeApi, client: ApiClient
) -> None:
    for n in range(5):
        put(api, f"p{n}")
    api.faults.add(
        Fault(delay_seconds=0.3), lambda *request: lists(*request) and api.requests["GET", PODS] > 1
    )

    async def change_between_the_pages() -> None:
        await until(lambda: api.requests["GET", PODS] == 2)
        drop(api, "p4")
        put(api, "p5")

    changing = asyncio.create_task(change_between_the_pages())
    async with Mirror(client).running() as mirror:
        await changing
        await until(lambda: mirror.story[5:] == ["delete p4", "put p5"])


async def test_deletions_during_an_expired_watch_leave_no_ghosts(
    api: FakeApi, client: ApiClient
) -> None:
    for name in ("stays", "goes", "changes"):
        put(api, name)
    async with Mirror(client).running() as mirror:
        await watching(api)
        mirror.story.clear()
        api.faults.add(Fault(status=503), times=3)
        api.watch_cut(PODS)
        drop(api, "goes")
        put(api, "changes", spec={"nodeName": "n1"})
        api.compact()
        await until(lambda: mirror.names == {"stays", "changes"})
        assert mirror.story == ["put changes", "delete goes"]


async def test_a_410_answer_without_a_stream_relists_as_well(
    api: FakeApi, client: ApiClient
) -> None:
    put(api, "goes")
    async with Mirror(client).running() as mirror:
        await watching(api)
        api.faults.add(Fault(status=410, reason="Expired"), watches)
        api.watch_cut(PODS)
        drop(api, "goes")
        await until(lambda: not mirror.names)
        assert api.requests["GET", PODS] == 2


async def test_an_expired_page_token_starts_the_list_again(api: FakeApi, client: ApiClient) -> None:
    for n in range(5):
        put(api, f"p{n}")
    api.faults.add(
        Fault(status=410), lambda *request: lists(*request) and api.requests["GET", PODS] == 2
    )
    async with Mirror(client).running() as mirror:
        assert mirror.names == {f"p{n}" for n in range(5)}
        assert len(mirror.story) == 5


async def test_bookmarks_move_the_version_on_and_keep_the_watch_from_expiring(
    api: FakeApi, client: ApiClient
) -> None:
    async with Mirror(client).running() as mirror:
        await watching(api)
        api.put("/api/v1/nodes/n1", {})
        api.watch_bookmark(PODS)
        await mirror.reflector.wait_past(api.store.version, 5)
        api.compact()
        api.watch_cut(PODS)
        put(api, "a")
        await until(lambda: mirror.names == {"a"})
        assert api.requests["GET", PODS] == 1


async def test_a_successor_under_the_same_name_is_a_delete_and_a_put(
    api: FakeApi, client: ApiClient
) -> None:
    put(api, "a")
    async with Mirror(client).running() as mirror:
        await watching(api)
        mirror.story.clear()
        api.faults.add(Fault(status=503), watches)
        api.watch_cut(PODS)
        drop(api, "a")
        put(api, "a")
        api.compact()
        await until(lambda: len(mirror.story) == 2)
        assert mirror.story == ["delete a", "put a"]


async def test_a_removed_crd_empties_the_collection_until_it_is_back(
    api: FakeApi, client: ApiClient, capsys: pytest.CaptureFixture[str]
) -> None:
    at = "/apis/bireme.dev/v1alpha1/namespaces/team/trainingjobs"
    api.put(f"{at}/a", {})
    async with Mirror(client, JOBS, type_=CustomObject).running() as mirror:
        await watching(api, JOBS)
        api.faults.add(Fault(silent=True), watches)
        api.watch_cut(JOBS)
        await watching(api, JOBS)
        api.remove(JOBS)
        await until(lambda: not mirror.names)
        asked = api.requests["GET", JOBS]
        await until(lambda: api.requests["GET", JOBS] >= asked + 2)
        api.removed.clear()
        api.put(f"{at}/b", {})
        await until(lambda: mirror.names == {"b"})
        assert mirror.story == ["put a", "delete a", "put b"]
    assert capsys.readouterr().out.count("no such resource") == 1


async def test_a_collection_that_never_existed_counts_as_synced_and_empty(
    api: FakeApi, client: ApiClient
) -> None:
    api.remove(JOBS)
    async with Mirror(client, JOBS, type_=CustomObject).running() as mirror:
        assert not mirror.names


async def test_selectors_are_sent_and_leaving_the_selection_is_a_deletion(
    api: FakeApi, client: ApiClient
) -> None:
    put(api, "mine", spec={"schedulerName": "bireme"})
    put(api, "other", spec={"schedulerName": "default-scheduler"})
    params = {"fieldSelector": "spec.schedulerName=bireme"}
    async with Mirror(client, params=params).running() as mirror:
        assert mirror.names == {"mine"}
        await watching(api)
        put(api, "mine", spec={"schedulerName": "default-scheduler"})
        put(api, "new", spec={"schedulerName": "bireme"})
        await until(lambda: mirror.story == ["put mine", "delete mine", "put new"])


async def test_wait_past_returns_once_an_own_write_is_seen(api: FakeApi, client: ApiClient) -> None:
    async with Mirror(client).running() as mirror:
        await watching(api)
        created = await client.create("/api/v1/namespaces/team/pods", {"metadata": {"name": "a"}})
        version = int(json.loads(created)["metadata"]["resourceVersion"])
        await mirror.reflector.wait_past(version, 5)
        assert mirror.names == {"a"}
        await mirror.reflector.wait_past(version - 1, 0)
        with pytest.raises(TimeoutError):
            await mirror.reflector.wait_past(version + 1, 0.05)


async def test_failing_callbacks_end_the_reflector(api: FakeApi, client: ApiClient) -> None:
    def fail(*_: object) -> None:
        raise ArithmeticError("a bug in the shell")

    put(api, "a")
    reflector = Reflector(client, PODS, V1Pod, on_put=fail, on_delete=fail)
    with pytest.raises(ArithmeticError):
        await asyncio.wait_for(reflector.run(), 5)


async def test_last_contact_follows_the_bytes(api: FakeApi, client: ApiClient) -> None:
    now = 100.0
    async with Mirror(client, clock=lambda: now).running() as mirror:
        await watching(api)
        assert mirror.reflector.last_contact_seconds == 100
        now = 105.0
        put(api, "a")
        await until(lambda: mirror.names)
        assert mirror.reflector.last_contact_seconds == 105


@pytest.mark.parametrize("seen", ["watched", "listed again"])
async def test_a_server_that_lost_history_ends_the_reflector(
    api: FakeApi, client: ApiClient, seen: str
) -> None:
    put(api, "old")
    restore = api.store.backup()
    put(api, "lost")
    mirror = Mirror(client)
    running = asyncio.create_task(mirror.reflector.run())
    await until(lambda: mirror.names == {"old", "lost"})
    await watching(api)
    restore()
    if seen == "listed again":
        api.faults.add(Fault(status=410, reason="Expired"), watches)
    api.watch_cut(PODS)
    with pytest.raises(HistoryLostError, match=r"at version 101 .* after 102 was seen"):
        await asyncio.wait_for(running, 5)


async def test_pages_of_large_objects_have_fewer_of_them(
    api: FakeApi, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 20_000)
    read: list[int] = []
    decode = envelopes.page

    def page(body: bytes) -> envelopes.ListPage:
        read.append(len(body))
        return decode(body)

    monkeypatch.setattr(envelopes, "page", page)
    for n in range(40):
        put(api, f"small-{n:02}")
    for n in range(6):
        put(api, f"large-{n}", spec={"x": "x" * 15_000})
    mirror = Mirror(client, timing=replace(FAST, page_size=20))
    async with mirror.running():
        assert len(mirror.names) == 46
        assert max(read) <= 20_000
        assert len(read) < 16  # and more of them again after the large ones


async def test_an_object_too_large_for_any_page_is_an_error_that_says_so(
    api: FakeApi, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 1_000)
    put(api, "large", spec={"x": "x" * 2_000})
    with pytest.raises(ApiError, match="AnswerTooLarge: more than 1000 bytes"):
        await pages.read(client, PODS, pages.PageSize(20))
