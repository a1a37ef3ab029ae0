"""Events: one per object and reason in five minutes, then a count, and never a failure."""

import re
from typing import Any

import pytest

from bireme.core.reasons import Reason
from bireme.kube import quantities
from bireme.kube.client import ApiClient, NotLeader
from bireme.testing import ManualClock
from bireme_operator import events
from bireme_operator.events import Events
from bireme_operator.writes import PrioritySemaphore, Writes
from testbed.fakeapi import FakeApi, Fault, writes
from testbed.fakeapi.store import Object

EVENTS = "/api/v1/events"
KEY = ("default", "job")


class Desk:
    """Events of one operator process."""

    def __init__(self, api: FakeApi, client: ApiClient, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.events = Events(
            Writes(client, PrioritySemaphore(8)), "operator-1", self.clock, self.clock, self.count
        )
        self.left_out = 0
        self._api = api

    def count(self) -> None:
        self.left_out += 1

    async def post(
        self, reason: Reason = Reason.NODE_LOST, message: str = "m", key: tuple[str, str] = KEY
    ) -> None:
        await self.events.post("TrainingJob", key, f"{key[1]}-uid", reason, message)

    @property
    def stored(self) -> list[Object]:
        return list(self._api.store.collection(EVENTS).objects.values())

    @property
    def sent(self) -> dict[str, int]:
        return {m: self._api.requests[m, EVENTS] for m in ("POST", "PATCH")}


async def test_an_event_says_what_happened_to_whom_and_who_says_so(
    api: FakeApi, client: ApiClient
) -> None:
    desk = Desk(api, client)
    await desk.post(message="the node was deleted")
    (event,) = desk.stored
    stamp = quantities.format_timestamp(desk.clock.now)
    expected: dict[str, Any] = {
        "reason": "NodeLost",
        "message": "the node was deleted",
        "type": "Warning",
        "count": 1,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "reportingInstance": "operator-1",
    }
    assert expected.items() <= event.items()
    involved = {"kind": "TrainingJob", "namespace": "default", "name": "job", "uid": "job-uid"}
    assert involved.items() <= event["involvedObject"].items()


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.SUCCEEDED, "Normal"),
        (Reason.WAITING_FOR_CAPACITY, "Normal"),
        (Reason.POD_FAILED, "Warning"),
        (Reason.NEVER_FITS, "Warning"),
        (Reason.QUEUE_NOT_FOUND, "Warning"),
    ],
)
async def test_what_needs_somebody_is_a_warning(
    api: FakeApi, client: ApiClient, reason: Reason, kind: str
) -> None:
    desk = Desk(api, client)
    await desk.post(reason)
    assert [event["type"] for event in desk.stored] == [kind]


async def test_what_conditions_tell_already_is_no_event(api: FakeApi, client: ApiClient) -> None:
    desk = Desk(api, client)
    for reason in (Reason.ADMITTED, Reason.GANG_RUNNING):
        await desk.post(reason)
    assert desk.sent == {"POST": 0, "PATCH": 0}


async def test_a_repeated_event_is_counted_and_written_every_five_minutes(
    api: FakeApi, client: ApiClient
) -> None:
    desk = Desk(api, client)
    for _ in range(50):
        await desk.post(message="first")
        desk.clock.advance(6)
    assert desk.sent == {"POST": 1, "PATCH": 0}
    await desk.post(message="last")
    (event,) = desk.stored
    assert (event["count"], event["message"]) == (51, "last")
    assert event["firstTimestamp"] == quantities.format_timestamp(desk.clock.now - 300)
    assert event["lastTimestamp"] == quantities.format_timestamp(desk.clock.now)


async def test_other_reasons_and_other_objects_are_other_events(
    api: FakeApi, client: ApiClient
) -> None:
    desk = Desk(api, client)
    await desk.post(Reason.NODE_LOST)
    await desk.post(Reason.POD_LOST)
    await desk.post(Reason.NODE_LOST, key=("default", "other"))
    assert len(desk.stored) == 3


async def test_a_fresh_operator_goes_on_with_the_event_that_is_there(
    api: FakeApi, client: ApiClient
) -> None:
    first = Desk(api, client)
    await first.post(message="before")
    second = Desk(api, client, first.clock)
    await second.post(message="after")
    (event,) = second.stored
    assert event["message"] == "after"
    assert second.sent == {"POST": 2, "PATCH": 1}


async def test_losing_an_event_harms_nobody_and_is_not_retried(
    api: FakeApi, client: ApiClient
) -> None:
    desk = Desk(api, client)
    api.faults.add(Fault(status=500), writes)
    await desk.post()
    await desk.post()
    assert desk.stored == []
    assert desk.sent == {"POST": 1, "PATCH": 0}


async def test_an_operator_that_does_not_lead_posts_nothing(
    api: FakeApi, client: ApiClient
) -> None:
    def closed() -> None:
        raise NotLeader("not leading")

    client.fence = closed
    desk = Desk(api, client)
    with pytest.raises(NotLeader):
        await desk.post()
    assert desk.sent == {"POST": 0, "PATCH": 0}


@pytest.mark.parametrize("name", ["a" * 253, f"{'a' * 199}.{'b' * 50}", f"{'a' * 199}-{'b' * 50}"])
async def test_the_name_of_an_event_is_one_however_long_the_objects_is(
    api: FakeApi, client: ApiClient, name: str
) -> None:
    desk = Desk(api, client)
    await desk.post(key=("default", name))
    given = desk.stored[0]["metadata"]["name"]
    assert len(given) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", given)


async def test_what_is_remembered_of_events_is_bounded(
    api: FakeApi, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_REMEMBERED", 5)
    desk = Desk(api, client)
    for number in range(12):
        await desk.post(key=("default", f"job-{number}"))
    assert len(desk.events._series) == 5
    await desk.post(key=("default", "job-0"))
    assert desk.sent == {"POST": 13, "PATCH": 1}, "forgotten, posted anew, found there"


async def test_a_namespace_with_too_many_events_goes_without_and_no_other_does(
    api: FakeApi, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_BURST", 3.0)
    desk = Desk(api, client)
    for number in range(9):
        await desk.post(key=("greedy", f"job-{number}"))
    await desk.post(key=("other", "job"))
    assert [e["involvedObject"]["namespace"] for e in desk.stored] == ["greedy"] * 3 + ["other"]
    assert desk.left_out == 6
    desk.clock.advance(1)
    await desk.post(key=("greedy", "job-8"))
    assert len(desk.stored) == 5
