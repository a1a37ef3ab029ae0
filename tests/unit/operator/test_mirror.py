"""A mirror of one kind: in whatever order events of its objects come, keys only go forward."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Key
from bireme.kube import wire
from bireme_operator.custom_resources import Mirror

KEY = ("team", "a")


class Recorder:
    """A mirror, and the calls of its callbacks."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.objects: dict[Key, wire.CustomObject] = {}
        self.mirror = Mirror("trainingjobs", self._put, self._delete)

    def _put(self, key: Key, obj: wire.CustomObject) -> None:
        self.objects[key] = obj
        self.story.append(f"put {key[1]} {obj.metadata.uid}")

    def _delete(self, key: Key) -> None:
        self.story.append(f"delete {key[1]} {self.objects.pop(key).metadata.uid}")


def raw(version: int, uid: str = "u", name: str = "a", **content: Any) -> msgspec.Raw:
    metadata = {"namespace": "team", "name": name, "uid": uid, "resourceVersion": str(version)}
    return msgspec.Raw(json.dumps({"metadata": metadata, **content}).encode())


@pytest.fixture
def kept() -> Recorder:
    return Recorder()


def test_what_is_older_or_the_same_is_not_taken_in(kept: Recorder) -> None:
    kept.mirror.put(raw(5, spec={"x": 5}))
    kept.mirror.put(raw(5))
    kept.mirror.put(raw(4))
    assert kept.story == ["put a u"]
    assert kept.objects[KEY].fields == {"x": 5}


def test_a_new_uid_is_a_delete_and_a_put_and_the_old_one_stays_dead(kept: Recorder) -> None:
    kept.mirror.put(raw(5, "old"))
    kept.mirror.put(raw(8, "new"))
    kept.mirror.put(raw(6, "old"))
    kept.mirror.remove(raw(7, "old"))
    assert kept.story == ["put a old", "delete a old", "put a new"]
    assert kept.mirror.newest(KEY) == 8


def test_nothing_comes_back_after_its_deletion(kept: Recorder) -> None:
    kept.mirror.put(raw(5))
    kept.mirror.remove(raw(7))
    kept.mirror.put(raw(6))
    assert not kept.objects
    kept.mirror.put(raw(8, "new"))
    assert kept.story == ["put a u", "delete a u", "put a new"]


def test_a_deletion_that_comes_first_is_remembered(kept: Recorder) -> None:
    kept.mirror.remove(raw(7))
    kept.mirror.put(raw(5))
    assert kept.story == []
    kept.mirror.forget(7)
    kept.mirror.put(raw(5))
    assert kept.story == ["put a u"]


def test_the_deletion_of_a_later_namesake_means_that_the_earlier_is_gone_too(
    kept: Recorder,
) -> None:
    kept.mirror.put(raw(5, "earlier"))
    kept.mirror.remove(raw(9, "later"))
    assert kept.story == ["put a earlier", "delete a earlier"]


def test_what_cannot_be_decoded_is_known_but_left_out(kept: Recorder) -> None:
    kept.mirror.put(raw(5))
    kept.mirror.put(raw(6, status=[1]))
    assert not kept.objects
    assert kept.mirror.newest(KEY) == 6
    assert kept.story == ["put a u", "delete a u"]
    kept.mirror.remove(raw(7))
    kept.mirror.put(msgspec.Raw(b'{"metadata": {}}'))
    assert kept.story == ["put a u", "delete a u"]
    assert not kept.mirror.objects


def test_of_a_resource_that_is_gone_nothing_is_left(kept: Recorder) -> None:
    kept.mirror.put(raw(5))
    kept.mirror.put(raw(6, "v", "b"))
    kept.mirror.clear()
    assert kept.story[2:] == ["delete a u", "delete b v"]
    assert not kept.mirror.objects


async def test_waiting_ends_with_the_version_or_the_end_of_the_object(kept: Recorder) -> None:
    async def waits(key: Key, version: int) -> bool:
        try:
            await kept.mirror.wait_past(key, version, 0.01)
        except TimeoutError:
            return True
        return False

    assert await waits(KEY, 5)
    waiting = asyncio.create_task(kept.mirror.wait_past(KEY, 6, 5))
    await asyncio.sleep(0)
    kept.mirror.put(raw(5))
    kept.mirror.put(raw(9, "v", "b"))
    assert await waits(KEY, 6)
    assert not waiting.done()
    kept.mirror.remove(raw(7))
    await waiting
    assert not await waits(KEY, 7)
    assert not kept.mirror._waiting


Lives = list[tuple[str, int, str]]
"""(what, version, uid): the true history of one name."""


@st.composite
def histories(draw: st.DrawFn) -> tuple[Lives, Lives]:
    """The history of one name, and the same as it arrives: in order within each uid alone."""
    true: Lives = []
    version = 0
    for number in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(1, 3))):
            version += draw(st.integers(1, 3))
            true.append(("put", version, f"u{number}"))
        version += 1
        true.append(("remove", version, f"u{number}"))
    if draw(st.booleans()):
        true.pop()
    queues = [[event for event in true if event[2] == uid] for uid in {e[2] for e in true}]
    arrived: Lives = []
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        arrived.append(queue.pop(0))
    return true, arrived


@given(histories())
def test_any_order_among_uids_ends_in_the_truth(history: tuple[Lives, Lives]) -> None:
    true, arrived = history
    kept = Recorder()
    for what, version, uid in arrived:
        getattr(kept.mirror, what)(raw(version, uid))
    what, version, uid = true[-1]
    known = {key: obj.metadata.uid for key, obj in kept.objects.items()}
    assert known == ({KEY: uid} if what == "put" else {})
    assert kept.mirror.newest(KEY) == version
    puts = [line.split()[2] for line in kept.story if line.startswith("put")]
    assert puts == sorted(puts), "an earlier uid never follows a later one"
