"""Status writes are rationed by what they say, and a server that fails is not hammered."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bireme.core.gangs import Key
from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from bireme.kube.client import ApiClient, NotLeader
from bireme.kube.cluster_state import ClusterState
from bireme.kube.node_pool_scalers import NodePoolScalers
from bireme.kube.training_jobs import JobFacts
from bireme.testing import ManualClock
from bireme_operator.custom_resources import CustomResources
from bireme_operator.events import Events
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.status_writer import REFRESH_SECONDS, StatusWriter
from bireme_operator.watches import Watches
from bireme_operator.writes import PrioritySemaphore, Writes
from testbed.fakeapi import FakeApi, Fault, writes
from testbed.internals import changed
from testbed.operator_term.term import GROUPS, JOBS, status, submit, until
from testbed.scenario.manifests import pod_group, training_job

EVENTS = "/api/v1/events"
PER_SECOND = 2.0


class Desk:
    """The reports of a leading operator whose clock stands still."""

    def __init__(self, api: FakeApi, client: ApiClient) -> None:
        self.api = api
        self.clock = ManualClock()
        self.state = ClusterState(SchedulingSettings())
        custom = CustomResources(client, OperatorMetrics().watches)
        self.watches = Watches(client, self.state, NodePoolScalers(lambda: None), custom)
        self.done: list[Key] = []
        sender = Writes(client, PrioritySemaphore(8))
        events = Events(sender, "me", self.clock, self.clock)
        self.reports = StatusWriter(sender, self.watches, events, self.clock, self.done.append)

    async def job(self, name: str = "job", namespace: str = "default") -> JobFacts:
        """The job, once the cache has its newest version."""
        key = (namespace, name)
        version = self.api.store.get(JOBS, key)["metadata"]["resourceVersion"]
        await until(
            lambda: (
                key in self.state.objects.jobs
                and self.state.objects.jobs[key].resource_version == version
            )
        )
        return self.state.objects.jobs[key]

    async def say(self, name: str = "job", namespace: str = "default", **change: Any) -> None:
        """Offer the job's status with ``change``, and let a write that it causes end."""
        job = await self.job(name, namespace)
        self.reports.submit_job(job, {**job.status, **change})
        await self.settled()

    async def settled(self) -> None:
        await until(lambda: not self.reports._tasks)

    @property
    def written(self) -> int:
        return self.api.requests["PUT", JOBS]


@pytest.fixture
async def desk(api: FakeApi, client: ApiClient) -> AsyncIterator[Desk]:
    submit(api, training_job("job"))
    with changed(refresh_writes_per_second=PER_SECOND):
        made = Desk(api, client)
    task = asyncio.create_task(made.watches.run())
    await made.watches.wait_until_synced()
    yield made
    await made.reports.close()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_happened_is_written_at_once_every_time(desk: Desk) -> None:
    for number, phase in enumerate(("Pending", "Starting", "Running"), 1):
        await desk.say(phase=phase)
        assert desk.written == number
        assert status(desk.api)["phase"] == phase


async def test_what_is_reported_already_is_not_written(desk: Desk) -> None:
    await desk.say(phase="Pending")
    desk.clock.advance(1000)
    await desk.say(phase="Pending")
    await desk.say()
    assert desk.written == 1


async def test_counts_are_written_every_second(desk: Desk) -> None:
    await desk.say(ready="0/3")
    await desk.say(ready="1/3")
    assert desk.written == 1
    desk.clock.advance(1)
    await desk.say(ready="2/3")
    assert (desk.written, status(desk.api)["ready"]) == (2, "2/3")


async def test_mere_numbers_are_written_now_and_then(desk: Desk) -> None:
    await desk.say(message="first")
    desk.clock.advance(REFRESH_SECONDS - 1)
    await desk.say(message="second")
    assert desk.written == 1
    desk.clock.advance(1)
    await desk.say(message="third")
    assert (desk.written, status(desk.api)["message"]) == (2, "third")


async def test_a_status_that_says_all_is_not_asked_about_again_at_once(desk: Desk) -> None:
    await desk.say(message="all there is")
    desk.clock.advance(1000)
    job = await desk.job()
    assert desk.reports.may_refresh(job.uid, "default")
    await desk.say(message="all there is")
    assert not desk.reports.may_refresh(job.uid, "default")
    desk.clock.advance(REFRESH_SECONDS)
    assert desk.reports.may_refresh(job.uid, "default")


async def test_mere_numbers_of_many_objects_share_one_ration(desk: Desk) -> None:
    jobs = [f"job-{i}" for i in range(10)]
    submit(desk.api, *map(training_job, jobs))
    for name in jobs:
        await desk.say(name, queuePosition=1)
    assert desk.written == PER_SECOND
    for expected in (2 * PER_SECOND, 3 * PER_SECOND):
        desk.clock.advance(1)
        for name in jobs:
            await desk.say(name, queuePosition=1)
        assert desk.written == expected
    desk.clock.advance(1000)
    for name in jobs:
        await desk.say(name, queuePosition=2)
    assert desk.written == 4 * PER_SECOND, "what was not used up does not pile up"


async def test_a_tenant_with_many_jobs_keeps_no_numbers_of_others_old(desk: Desk) -> None:
    many = [f"job-{i}" for i in range(10)]
    submit(desk.api, *map(training_job, many))
    desk.api.put(names.path("trainingjobs", "small", "late"), training_job("late"))
    for position in (1, 2, 3):
        for name in many:  # in line before it, and always with news
            await desk.say(name, queuePosition=position)
        await desk.say("late", "small", queuePosition=position)
        desk.clock.advance(REFRESH_SECONDS)
    told = desk.api.store.get(JOBS, ("small", "late")).get("status", {})
    assert told.get("queuePosition", 0) >= 2, "every other turn is its own"


async def test_two_statuses_of_one_object_are_never_written_side_by_side(desk: Desk) -> None:
    desk.api.faults.add(Fault(delay_seconds=0.1), writes)
    job = await desk.job()
    desk.reports.submit_job(job, {"phase": "Pending"})
    assert desk.reports.is_writing(job.uid)
    desk.reports.submit_job(job, {"phase": "Running"})
    await desk.settled()
    assert (desk.written, status(desk.api)["phase"]) == (1, "Pending")


async def test_the_end_of_a_write_wakes_the_loop(desk: Desk) -> None:
    await desk.say(phase="Pending")
    await until(lambda: desk.done == [("default", "job")])
    assert not desk.reports.is_writing((await desk.job()).uid)


@pytest.mark.parametrize(
    ("fault", "pause_seconds"),
    [
        (Fault(status=500), 1.0),
        (Fault(drop=True), 1.0),
        (Fault(status=429, retry_after_seconds=7), 7.0),
        (Fault(status=409, reason="Conflict"), 0.1),
        (Fault(status=404, reason="NotFound"), 1.0),
    ],
)
async def test_a_write_that_failed_is_offered_in_vain_for_a_while(
    desk: Desk, fault: Fault, pause_seconds: float
) -> None:
    desk.api.faults.add(fault, writes)
    await desk.say(phase="Pending")
    for _ in range(5):
        await desk.say(phase="Pending")
    desk.clock.advance(pause_seconds - 0.01)
    await desk.say(phase="Pending")
    assert desk.written == 1
    desk.clock.advance(0.01)
    await desk.say(phase="Pending")
    assert (desk.written, status(desk.api)["phase"]) == (2, "Pending")


async def test_a_new_reason_is_an_event_and_an_old_one_is_not(desk: Desk) -> None:
    await desk.say(phase="Pending", reason="NeverFits", message="too large")
    await desk.say(phase="Running", reason="NeverFits", message="still")
    events = list(desk.api.store.collection(EVENTS).objects.values())
    assert [(e["reason"], e["message"]) for e in events] == [("NeverFits", "too large")]


async def test_a_group_is_reported_like_a_job(desk: Desk) -> None:
    submit(desk.api, pod_group("group", 2))
    key = ("default", "group")
    await until(lambda: key in desk.state.objects.groups)
    wanted = {"phase": "Pending", "reason": "WaitingForPods", "message": "0 of 2"}
    desk.reports.submit_group(desk.state.objects.groups[key], wanted)
    await desk.settled()
    assert status(desk.api, "group", GROUPS) == wanted
    events = list(desk.api.store.collection(EVENTS).objects.values())
    assert [e["involvedObject"]["kind"] for e in events] == ["PodGroup"]


async def test_an_operator_that_does_not_lead_reports_nothing(
    desk: Desk, client: ApiClient
) -> None:
    def closed() -> None:
        raise NotLeader("not leading")

    client.fence = closed
    await desk.say(phase="Pending")
    assert desk.written == 0


async def test_objects_that_are_gone_are_forgotten(desk: Desk) -> None:
    await desk.say(phase="Pending")
    job = await desk.job()
    desk.reports.forget({job.uid})
    await desk.say(message="numbers")
    assert desk.written == 1
    desk.reports.forget(set())
    await desk.say(message="numbers")
    assert desk.written == 2


async def test_closing_ends_writes_that_hang(desk: Desk) -> None:
    desk.api.faults.add(Fault(delay_seconds=30), writes)
    desk.reports.submit_job(await desk.job(), {"phase": "Pending"})
    await until(lambda: desk.written == 1)
    await asyncio.wait_for(desk.reports.close(), 2)
    assert names.path("trainingjobs") == JOBS


async def test_a_tenant_with_many_new_jobs_holds_up_what_is_said_to_no_other(
    api: FakeApi, desk: Desk
) -> None:
    names_of_many = [f"job-{number:03}" for number in range(300)]
    for name in names_of_many:
        api.put(names.path("trainingjobs", "greedy", name), training_job(name))
    submit(api, training_job("mine"))
    mine = await desk.job("mine")
    await until(
        lambda: set(desk.state.objects.jobs) >= {("greedy", name) for name in names_of_many}
    )
    order: list[str] = []
    api.store.collection(JOBS).subscribers.append(
        lambda change: order.append((change.after or {})["metadata"]["name"])
    )
    said = {"phase": "Pending", "reason": "WaitingForCapacity", "message": "no room"}
    for name in names_of_many:
        desk.reports.submit_job(desk.state.objects.jobs["greedy", name], said)
    newest = {**said, "message": "still none"}
    desk.reports.submit_job(desk.state.objects.jobs["greedy", "job-299"], newest)
    desk.reports.submit_job(mine, said)
    await desk.settled()
    assert sorted(order) == [*names_of_many, "mine"]
    assert order.index("mine") <= 64
    assert status(api, "mine")["reason"] == "WaitingForCapacity"
    last = api.store.get(JOBS, ("greedy", "job-299"))
    assert last["status"]["message"] == "still none"
