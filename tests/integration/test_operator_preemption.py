"""Preemption against the fake API server: budgets first, one record, evictions, and no way back."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from bireme.kube.client import NotLeader
from bireme_operator import lifecycle, preemptions
from bireme_operator.leader import LeaderTerm
from testbed.fakeapi import FakeApi, Fault
from testbed.fakeapi.answers import BUDGETS
from testbed.fakeapi.faults import WRITES
from testbed.fakeapi.store import Change, Object
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    GROUPS,
    PODS,
    events_about,
    furnish,
    leading,
    make,
    pods,
    protect,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import (
    GPU,
    Manifest,
    pod_group,
    priority_class,
    queue,
    task,
    training_job,
)

EAGER = SchedulingSettings(min_runtime_seconds=0)
EVENTS = "/api/v1/events"


def job(name: str, workers: int = 4, **spec: Any) -> Manifest:
    """A gang of 2 GPUs a worker: four of them fill a node."""
    return training_job(name, task("worker", workers, gpus=2), **spec)


def urgent(workers: int = 4) -> Manifest:
    return job("urgent", workers, priorityClassName="high")


def is_eviction(method: str, path: str, _: bool) -> bool:
    return method == "POST" and path.endswith("/eviction")


def touched(api: FakeApi) -> list[str]:
    """Writes to jobs' statuses and removals of pods from now on, as verb and last part of path."""
    story: list[str] = []

    def note(method: str, path: str, watch: bool) -> bool:
        if is_eviction(method, path, watch):
            story.append("evict")
        elif method == "DELETE" and "/pods/" in path:
            story.append("delete")
        elif method in WRITES and path.endswith("/trainingjobs/low/status"):
            story.append("status")
        return False

    api.faults.add(Fault(), note, times=None)
    return story


def marks(api: FakeApi) -> list[tuple[str, str, str]]:
    """Conditions of pods that are about to be deleted, from now on: type, reason and words."""
    found: list[tuple[str, str, str]] = []

    def conditions(pod: Object | None) -> list[Object]:
        return ((pod or {}).get("status") or {}).get("conditions") or []

    def note(change: Change) -> None:
        known = {each["type"] for each in conditions(change.before)}
        found.extend(
            (each["type"], each["reason"], each["message"])
            for each in conditions(change.after)
            if each["type"] not in known and change.before is not None and "reason" in each
        )

    api.store.collection(PODS).subscribers.append(note)
    return found


def is_running(api: FakeApi, *jobs: str) -> bool:
    return all(status(api, name).get("phase") == "Running" for name in jobs)


def refusals(term: LeaderTerm) -> float:
    found = term.metrics.registry.get_sample_value("bireme_preemptions_refused_total")
    assert found is not None
    return found


@asynccontextmanager
async def occupied(
    api: FakeApi, folder: Path, *running: str, scheduling: SchedulingSettings = EAGER
) -> AsyncIterator[tuple[LeaderTerm, FakeKubelets]]:
    """A node for every job of ``running``, all of which run on it, started in this order."""
    furnish(api, len(running))
    api.put("/apis/scheduling.k8s.io/v1/priorityclasses/high", priority_class("high", 1000))
    async with FakeKubelets(api, runs) as kubelets:
        async with leading(api, folder, scheduling=scheduling) as term:
            for name in running:
                submit(api, job(name))
                await until(lambda name=name: is_running(api, name))  # type: ignore[misc]
            yield term, kubelets
        assert kubelets.violations == []


async def test_a_lower_gang_is_recorded_evicted_whole_and_replaced(
    api: FakeApi, tmp_path: Path
) -> None:
    async with occupied(api, tmp_path, "low") as (term, _):
        story = touched(api)
        submit(api, urgent())
        await until(lambda: is_running(api, "urgent"))
        assert refusals(term) == 0
        reported = status(api, "low")
    assert story[:5] == ["status"] + ["evict"] * 4, "recorded before anything is touched"
    assert "delete" not in story
    assert (reported["phase"], reported["attempt"], reported["preemptions"]) == ("Restarting", 1, 1)
    assert reported.get("restarts", 0) == reported.get("interruptions", 0) == 0
    found = [e for e in api.store.collection(EVENTS).objects.values() if e["reason"] == "Preempted"]
    assert [(e["involvedObject"]["name"], e["message"], e["count"]) for e in found] == [
        (
            "low",
            "stopped to make room for default/urgent, which has a higher priority class",
            1,
        )
    ]


async def test_a_preempted_gang_runs_again_by_itself(api: FakeApi, tmp_path: Path) -> None:
    async with occupied(api, tmp_path, "low") as (_, kubelets):
        submit(api, urgent())
        await until(lambda: is_running(api, "urgent"))
        kubelets.outcome = _only("urgent")
        for pod in pods(api):
            kubelets._seen(Change(0, pod, pod))
        await until(lambda: is_running(api, "low"))
        await until(lambda: status(api, "urgent").get("phase") == "Succeeded")
    reported = status(api, "low")
    assert (reported["attempt"], reported["preemptions"], reported["ready"]) == (1, 1, "4/4")


def _only(name: str) -> Callable[[Object], str]:
    """Pods of one job end well, all others run on."""

    def outcome(pod: Object) -> str:
        mine = pod["metadata"]["labels"][names.POD_GROUP_LABEL] == name
        return "Succeeded" if mine else "Running"

    return outcome


async def test_nobody_is_stopped_before_the_minimum_run_time(api: FakeApi, tmp_path: Path) -> None:
    async with occupied(api, tmp_path, "low", scheduling=SchedulingSettings()):
        submit(api, urgent())
        await until(lambda: status(api, "urgent").get("reason") == "WaitingForCapacity")
    assert is_running(api, "low")
    assert "preemptions" not in status(api, "low")


# --- budgets ----------------------------------------------------------------------------------


async def test_a_budget_that_lets_the_whole_gang_go_is_respected_pod_by_pod(
    api: FakeApi, tmp_path: Path
) -> None:
    async with occupied(api, tmp_path, "low"):
        protect(api, "low", 4)
        submit(api, urgent())
        await until(lambda: is_running(api, "urgent"))
    left = api.store.get(BUDGETS, ("default", "keep-low"))["status"]["disruptionsAllowed"]
    assert left == 0


async def test_a_gang_that_its_budget_protects_is_left_alone_and_another_one_stops(
    api: FakeApi, tmp_path: Path
) -> None:
    async with occupied(api, tmp_path, "first", "second") as (term, _):
        protect(api, "second", 3)
        submit(api, urgent())
        await until(lambda: is_running(api, "urgent"))
        assert refusals(term) == 1, "the more recent start was chosen first"
    assert is_running(api, "second")
    assert status(api, "first")["preemptions"] == 1
    assert "preemptions" not in status(api, "second")


async def test_of_two_gangs_that_must_both_go_none_does_if_one_is_protected(
    api: FakeApi, tmp_path: Path
) -> None:
    async with occupied(api, tmp_path, "first", "second") as (term, _):
        protect(api, "first", 0)
        submit(api, urgent(8))
        await until(lambda: refusals(term) == 1)
        await until(lambda: status(api, "urgent").get("reason") == "WaitingForCapacity")
        assert is_running(api, "first", "second")
    assert len(pods(api)) == 8


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_budget_that_shrinks_midway_is_waited_for(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    """For so long as budgets are asked; then they are not, and the job says so."""
    async with occupied(api, tmp_path, "low"):
        protect(api, "low", 4)

        def shrink(method: str, path: str, _: bool) -> bool:
            if method == "PUT" and path.endswith("/trainingjobs/low/status"):
                protect(api, "low", 2)
            return False

        api.faults.add(Fault(), shrink, times=None)
        submit(api, urgent())
        await until(lambda: len(pods(api)) == 2)
        submit(api, job("small", 1))
        await until(lambda: status(api, "small").get("reason") == "WaitingForCapacity")
        assert status(api, "urgent")["reason"] == "WaitingForPreemption"
        assert status(api, "low")["reason"] == "Preempted"
        if is_over:
            monkeypatch.setattr(lifecycle, "EVICTING_SECONDS", 0.0)
            words = await overridden(api, "low")
            assert words.startswith("stopped to make room for default/urgent, which has a higher")
            assert "; a budget kept 2 of its pods" in words
        else:
            protect(api, "low", 2)
        await until(lambda: is_running(api, "urgent"))
    assert status(api, "low")["preemptions"] == 1


async def overridden(api: FakeApi, name: str) -> str:
    """The words of the event about the job whose budget was overridden, once it has stopped."""
    await until(lambda: status(api, name).get("preemptions") == 1)

    def words() -> list[str]:
        found = events_about(api, "TrainingJob")
        mine = [event for event in found if event["involvedObject"]["name"] == name]
        return [event["message"] for event in mine if event["reason"] == "BudgetOverridden"]

    await until(words)
    return words()[0]


async def test_a_budget_does_not_keep_a_queue_from_what_it_is_guaranteed(
    api: FakeApi, tmp_path: Path
) -> None:
    """Its pods are marked as kube-scheduler marks them, and deleted: no eviction would do it."""
    async with occupied(api, tmp_path, "low") as (term, _):
        api.put(f"{names.path('queues')}/ours", queue("ours", guaranteed={GPU: "8"}))
        protect(api, "low", 0)
        story = touched(api)
        marked = marks(api)
        submit(api, job("claims", queue="ours"))
        words = await overridden(api, "low")
        await until(lambda: is_running(api, "claims"))
        assert refusals(term) == 1, "that of the first decision, which did not know the budget"
    assert words == (
        "stopped to make room for default/claims, whose queue reclaims its guarantee; budget "
        "keep-low allows 0 evictions, 4 are needed, which does not protect it against a queue "
        "that reclaims its guarantee"
    )
    assert story[:5] == ["status"] + ["delete"] * 4
    assert marked == [("DisruptionTarget", "PreemptionByScheduler", words)] * 4


async def test_a_budget_holds_in_the_queue_that_is_guaranteed(api: FakeApi, tmp_path: Path) -> None:
    async with occupied(api, tmp_path, "low"):
        api.put(f"{names.path('queues')}/default", queue("default", guaranteed={GPU: "8"}))
        protect(api, "low", 0)
        submit(api, urgent())
        await until(lambda: status(api, "urgent").get("reason") == "WaitingForCapacity")
        assert is_running(api, "low")


async def test_from_some_priority_on_budgets_do_not_hold_but_others_go_first(
    api: FakeApi, tmp_path: Path
) -> None:
    scheduling = replace(EAGER, budget_override_priority=1000)
    async with occupied(api, tmp_path, "first", "second", scheduling=scheduling):
        protect(api, "second", 0)
        submit(api, urgent())
        await until(lambda: is_running(api, "urgent"))
        assert is_running(api, "second")
        submit(api, job("more", priorityClassName="high"))
        words = await overridden(api, "second")
        await until(lambda: is_running(api, "more"))
    assert words.endswith(", which does not protect it against priorities of 1000 or more")
    assert status(api, "first")["preemptions"] == 1


async def test_budgets_of_many_gangs_are_learned_by_one_answer(
    api: FakeApi, tmp_path: Path
) -> None:
    """Four gangs have budgets, and the oldest, which is asked last, has none."""
    running = ("free", *(f"kept{number}" for number in range(4)))
    async with occupied(api, tmp_path, *running):
        for name in running[1:]:
            protect(api, name, 0)
        before = api.requests["GET", BUDGETS]
        submit(api, urgent())
        await until(lambda: is_running(api, "urgent"))
        assert api.requests["GET", BUDGETS] - before == 2
    assert status(api, "free")["preemptions"] == 1


async def test_a_small_gang_does_not_take_the_places_that_come_free(
    api: FakeApi, tmp_path: Path
) -> None:
    async with occupied(api, tmp_path, "low") as (_, kubelets):
        slow = Fault(delay_seconds=0.3)
        api.faults.add(slow, lambda m, p, w: is_eviction(m, p, w) and p.count("worker-3") > 0)
        submit(api, urgent())
        await until(lambda: len(pods(api)) < 4)
        submit(api, job("small", 1))
        await until(lambda: is_running(api, "urgent"))
        await until(lambda: status(api, "small").get("phase") == "Pending")
    assert "small-worker-0" not in kubelets.created


async def test_nothing_is_stopped_while_the_budgets_cannot_be_read(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemptions, "_UNKNOWN_SECONDS", 0.2)
    async with occupied(api, tmp_path, "low"):
        forbidden = Fault(status=403, reason="Forbidden")
        api.faults.add(forbidden, lambda _, path, __: "poddisruption" in path, times=3)
        submit(api, urgent())
        await until(lambda: api.requests["GET", BUDGETS] == 3)
        assert is_running(api, "low")
        await until(lambda: is_running(api, "urgent"))
    assert api.requests["GET", BUDGETS] == 4


# --- crashes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("after", range(16))
async def test_a_preemption_survives_a_crash_after_any_write(
    api: FakeApi, tmp_path: Path, after: int
) -> None:
    left = after

    def fence() -> None:
        nonlocal left
        if left == 0:
            raise NotLeader("crashed")
        left -= 1

    async with occupied(api, tmp_path, "low"):
        pass  # this leader goes, the pods run on
    submit(api, urgent())
    async with FakeKubelets(api, runs) as kubelets:
        async with leading(api, tmp_path, epoch=2, fence=fence, scheduling=EAGER):
            await until(lambda: left == 0 or is_running(api, "urgent"))
        async with leading(api, tmp_path, epoch=3, scheduling=EAGER):
            await until(lambda: is_running(api, "urgent"))
            await until(lambda: status(api, "low").get("queuePosition") == 1)
    assert left == 0, "it crashed"
    reported = status(api, "low")
    assert (reported["phase"], reported["attempt"], reported["preemptions"]) == ("Restarting", 1, 1)
    assert kubelets.created == {f"urgent-worker-{n}": 1 for n in range(4)}
    assert kubelets.violations == []
    assert len(api.store.collection(PODS).objects) == 4


# --- opportunistic starts ---------------------------------------------------------------------


@pytest.mark.parametrize("is_protected", [False, True])
async def test_reserved_places_are_lent_and_a_new_leader_gives_them_back(
    api: FakeApi, tmp_path: Path, is_protected: bool
) -> None:
    """The small gang runs while the wide one waits for its other node, and not a moment longer.

    Not even if its owner writes a budget for it.
    """
    settled = SchedulingSettings(min_runtime_seconds=3600, service_threshold=0)
    furnish(api, 2)
    async with FakeKubelets(api, runs) as kubelets:
        async with leading(api, tmp_path, scheduling=settled):
            submit(api, job("long"))
            await until(lambda: is_running(api, "long"))
            submit(api, job("wide", workers=8))
            await until(lambda: status(api, "wide").get("queuePosition") == 1)
            submit(api, job("small", runPolicy={"resumable": True}))
            await until(lambda: is_running(api, "small"))
            small = status(api, "small")
        assert small["plan"]["opportunistic"] is True
        assert "opportunistic" not in status(api, "long")["plan"]
        admitted = next(c for c in small["conditions"] if c["type"] == "Admitted")
        assert admitted["message"].endswith(
            "in places reserved for default/wide; stops when that gang fits"
        )
        async with leading(api, tmp_path, epoch=2, scheduling=settled):
            await until(lambda: status(api, "wide").get("queuePosition") == 1)
            assert is_running(api, "long", "small")
            if is_protected:
                protect(api, "small", 0)
            for worker in range(4):
                kubelets.end(f"long-worker-{worker}")
            await until(lambda: is_running(api, "wide"))
            await until(lambda: status(api, "small").get("queuePosition") == 1)
        assert kubelets.violations == []
    small = status(api, "small")
    assert (small["phase"], small["attempt"], small["preemptions"]) == ("Restarting", 1, 1)
    reason = "BudgetOverridden" if is_protected else "Preempted"
    words = "stopped to make room for default/wide, for which its places were reserved"
    if is_protected:
        words += (
            "; budget keep-small allows 0 evictions, 4 are needed, which does not protect it in "
            "places reserved for others"
        )
    stops = [(e["reason"], e["message"]) for e in events_about(api, "TrainingJob")]
    assert [each for each in stops if each[1].startswith("stopped")] == [(reason, words)]


async def test_a_pod_group_that_would_not_give_reserved_places_back_waits(
    api: FakeApi, tmp_path: Path
) -> None:
    settled = SchedulingSettings(min_runtime_seconds=3600, service_threshold=0)
    furnish(api, 2)
    async with (
        FakeKubelets(api, runs) as kubelets,
        leading(api, tmp_path, scheduling=settled),
    ):
        submit(api, job("long"))
        await until(lambda: is_running(api, "long"))
        submit(api, job("wide", workers=8))
        await until(lambda: status(api, "wide").get("queuePosition") == 1)
        submit(api, pod_group("group", 4))
        make(api, *"abcd")
        await until(lambda: status(api, "group", GROUPS).get("queuePosition") == 2)
        assert status(api, "group", GROUPS)["reason"] == "WaitingBehind"
        for worker in range(4):
            kubelets.end(f"long-worker-{worker}")
        await until(lambda: is_running(api, "wide"))


# --- what a waiting job says ------------------------------------------------------------------


async def test_a_job_says_when_it_should_start_until_it_does(api: FakeApi, tmp_path: Path) -> None:
    furnish(api, 1)
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path):
        submit(api, job("low", estimatedDuration="1h"))
        await until(lambda: is_running(api, "low"))
        submit(api, job("next"))
        await until(lambda: "estimatedStart" in status(api, "next"))
        estimate = status(api, "next")["estimatedStart"]
        assert estimate["earliest"] == estimate["latest"]
        kubelets.outcome = _only("low")
        for pod in pods(api):
            kubelets._seen(Change(0, pod, pod))
        await until(lambda: is_running(api, "next"))
    assert "estimatedStart" not in status(api, "next")
