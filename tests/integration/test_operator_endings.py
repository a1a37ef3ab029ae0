"""Gangs that stop in odd ways give back what they held when nothing of them is left, and only then.

Pods stay in the store after a deletion as long as ``lingers`` says so.
"""

import asyncio
import copy
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube import names, quantities
from bireme.kube.training_jobs import JobFacts
from bireme.testing import a_node
from bireme_operator import lifecycle
from bireme_operator.leader import LeaderTerm
from bireme_operator.writes import Writes
from testbed.fakeapi import FakeApi, Fault
from testbed.fakeapi.answers import BUDGETS
from testbed.fakeapi.store import Object
from testbed.kubelets import FakeKubelets, runs
from testbed.objects.facts import node_manifest
from testbed.operator_term.term import (
    JOBS,
    PODS,
    furnish,
    job,
    leading,
    pods,
    silence,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import (
    GPU,
    disruption_budget,
    priority_class,
    queue,
    task,
    training_job,
)

HELD = "example.com/held"
TEAM = task("worker", 4)


def is_held(stored: Object) -> bool:
    return HELD in (stored["metadata"].get("finalizers") or ())


def hold(api: FakeApi, resource: str, name: str, *finalizers: str) -> None:
    stored = api.store.get(resource, ("default", name))
    metadata = {**stored["metadata"], "finalizers": list(finalizers)}
    api.store.update(resource, ("default", name), {**stored, "metadata": metadata})


def phase(api: FakeApi, name: str) -> str:
    return str(status(api, name).get("phase", ""))


def alive(api: FakeApi, name: str) -> list[Object]:
    """Pods of a job that have not ended."""
    return [
        pod
        for pod in pods(api)
        if pod["metadata"]["labels"][names.POD_GROUP_LABEL] == name
        and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    ]


@asynccontextmanager
async def one_place(api: FakeApi, folder: Path) -> AsyncIterator[tuple[LeaderTerm, FakeKubelets]]:
    """A queue whose limit is one gang of four GPUs, and a job ``a`` that runs in it."""
    furnish(api, 2)
    api.put(f"{names.path('queues')}/default", queue("default", limit={GPU: "4"}))
    api.put("/apis/scheduling.k8s.io/v1/priorityclasses/high", priority_class("high", 1000))
    eager = SchedulingSettings(min_runtime_seconds=0)
    async with FakeKubelets(api, runs) as kubelets, leading(api, folder, scheduling=eager) as term:
        submit(api, training_job("a", TEAM))
        await until(lambda: phase(api, "a") == "Running")
        yield term, kubelets
    assert kubelets.violations == []


async def test_a_job_held_by_a_finalizer_gives_its_places_back(
    api: FakeApi, tmp_path: Path
) -> None:
    api.store.lingers = is_held
    async with one_place(api, tmp_path):
        hold(api, JOBS, "a", HELD)
        api.store.delete(JOBS, ("default", "a"), {})
        submit(api, training_job("b", TEAM))
        await until(lambda: phase(api, "b") == "Running")
    assert not alive(api, "a")


async def test_pods_of_a_job_that_is_deleted_without_them_are_left_alone(
    api: FakeApi, tmp_path: Path
) -> None:
    """kubectl delete --cascade=orphan, while the garbage collector is at it."""
    api.store.lingers = is_held
    async with one_place(api, tmp_path):
        hold(api, JOBS, "a", HELD, "orphan")
        api.store.delete(JOBS, ("default", "a"), {})
        await silence(api)
    assert len(alive(api, "a")) == 4


async def test_a_job_whose_spec_became_unreadable_can_be_stopped_for_another(
    api: FakeApi, tmp_path: Path
) -> None:
    async with one_place(api, tmp_path):
        deep: Any = {}
        for _ in range(300):
            deep = {"x": deep}
        edited = copy.deepcopy(job(api, "a"))
        edited["spec"]["tasks"][0]["template"]["spec"]["deep"] = deep
        api.store.update(JOBS, ("default", "a"), edited)
        submit(api, training_job("b", TEAM, priorityClassName="high"))
        await until(lambda: phase(api, "b") == "Running")
    assert not alive(api, "a")


async def test_a_job_whose_time_to_live_is_over_is_deleted(api: FakeApi, tmp_path: Path) -> None:
    async with one_place(api, tmp_path) as (_, kubelets):
        edited = copy.deepcopy(job(api, "a"))
        edited["spec"]["runPolicy"] = {"ttlSecondsAfterFinished": 1}
        api.store.update(JOBS, ("default", "a"), edited)
        for pod in pods(api):
            kubelets.end(pod["metadata"]["name"], "Succeeded")
        await until(lambda: not api.store.collection(JOBS).objects)


async def test_time_passes_for_every_gang_although_a_turn_looks_at_some_alone(
    api: FakeApi, tmp_path: Path
) -> None:
    """Nothing changes, and the jobs whose time to live ends come after a thousand others."""
    ended = quantities.format_timestamp(time.time())  # noqa: TID251  # compared with the API's times
    over = {"phase": "Succeeded", "completionTime": ended}
    for number in range(1200):
        policy = {"ttlSecondsAfterFinished": 2} if number >= 1100 else {}
        made = training_job(f"j{number:04d}", TEAM, runPolicy=policy)
        submit(api, made)
        submit(api, made | {"status": over})
    async with leading(api, tmp_path):
        await until(lambda: len(api.store.collection(JOBS).objects) == 1100, 30)


@pytest.mark.parametrize("policy", ["None", "Running"])
async def test_what_runs_on_after_the_end_counts_until_it_ends(
    api: FakeApi, tmp_path: Path, policy: str
) -> None:
    """``Running``: containers that ignore the signal, under a long grace period."""
    api.store.lingers = lambda stored: "containers" in stored.get("spec", {})
    async with one_place(api, tmp_path) as (term, kubelets):
        edited = copy.deepcopy(job(api, "a"))
        run_policy = {"activeDeadlineSeconds": 1, "cleanPodPolicy": policy}
        edited["spec"]["runPolicy"] = run_policy
        api.store.update(JOBS, ("default", "a"), edited)
        await until(lambda: phase(api, "a") == "Failed")
        submit(api, training_job("b", TEAM))
        await until(lambda: status(api, "b").get("reason"))
        await silence(api)
        assert phase(api, "b") == "Pending"
        assert "plan" in status(api, "a")
        (held,) = term.state.snapshot(0).running
        assert held.is_leaving == (policy == "Running"), "only those are waited for"
        assert not held.gang.is_preemptible
        for pod in alive(api, "a"):
            kubelets.end(pod["metadata"]["name"], "Failed")
        await until(lambda: phase(api, "b") == "Running")
        assert "plan" not in status(api, "a")


async def test_pods_that_have_ended_and_only_a_finalizer_keeps_hold_no_room(
    api: FakeApi, tmp_path: Path
) -> None:
    api.store.lingers = is_held
    async with one_place(api, tmp_path) as (_, kubelets):
        for pod in pods(api):
            hold(api, PODS, pod["metadata"]["name"], HELD)
        submit(api, training_job("b", TEAM, priorityClassName="high"))
        await until(lambda: all("deletionTimestamp" in p["metadata"] for p in alive(api, "a")))
        assert phase(api, "b") == "Pending"
        for pod in alive(api, "a"):
            kubelets.end(pod["metadata"]["name"], "Failed")
        await until(lambda: phase(api, "b") == "Running")
        assert status(api, "a")["reason"] == "Stopping", "its pods' names are still taken"


async def test_an_interrupted_gang_keeps_its_places_while_its_ended_pods_go(
    api: FakeApi, tmp_path: Path
) -> None:
    """The kubelet first says that a pod has ended, and takes it away a moment later."""
    api.store.lingers = lambda stored: "containers" in stored.get("spec", {})
    async with one_place(api, tmp_path) as (_, kubelets):
        submit(api, training_job("b", TEAM))
        await until(lambda: status(api, "b").get("reason") == "OverQueueLimit")
        first = [pod["metadata"]["name"] for pod in pods(api)]
        api.store.delete(PODS, ("default", first[0]), {})
        await until(lambda: all("deletionTimestamp" in p["metadata"] for p in pods(api)))
        for name in first:
            kubelets.end(name, "Failed")
        await silence(api)
        for name in first:
            api.store.delete(PODS, ("default", name), {}, 0)
        await until(lambda: phase(api, "a") == "Running" and status(api, "a")["attempt"] == 1)
        assert phase(api, "b") == "Pending"


async def test_an_interrupted_gang_keeps_its_places_while_an_answer_is_late(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch tells of the plan that was cleared before the answer to the write comes."""
    write = Writes.write_job_status

    async def late(self: Writes, job: JobFacts, status: Object, **how: bool) -> int:
        written = await write(self, job, status, **how)
        if job.plan is not None and "plan" not in status:
            cleared.append(job.key[1])
            await asyncio.sleep(1.0)
        return written

    cleared: list[str] = []
    monkeypatch.setattr(Writes, "write_job_status", late)
    async with one_place(api, tmp_path):
        submit(api, training_job("b", TEAM))
        await until(lambda: status(api, "b").get("reason") == "OverQueueLimit")
        api.store.delete(PODS, ("default", pods(api)[0]["metadata"]["name"]), {})
        await until(lambda: phase(api, "a") == "Running" and status(api, "a")["attempt"] == 1)
        assert (phase(api, "b"), cleared) == ("Pending", ["a"])


async def test_a_gang_keeps_its_turn_when_the_api_server_fails_once(
    api: FakeApi, tmp_path: Path
) -> None:
    def admits_b(method: str, path: str, watch: bool) -> bool:
        # Its status says OverQueueLimit already: the next write is the admission.
        return method == "PUT" and path.endswith("/trainingjobs/b/status")

    async with one_place(api, tmp_path) as (_, kubelets):
        submit(api, training_job("b", TEAM))
        await until(lambda: status(api, "b").get("reason") == "OverQueueLimit")
        api.faults.add(Fault(status=500), admits_b)
        for pod in alive(api, "a"):
            kubelets.end(pod["metadata"]["name"])
        await until(lambda: not api.faults.rules[0].times_left)
        submit(api, training_job("c", TEAM))
        await until(lambda: phase(api, "b") == "Running")
        assert phase(api, "c") == "Pending"


async def test_a_budget_that_shrinks_midway_is_not_waited_for_without_end(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "EVICTING_SECONDS", 2.0)
    budget = disruption_budget("keep", 1, **{names.POD_GROUP_LABEL: "a"})
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/keep"
    budget_status = {"disruptionsAllowed": 4, "observedGeneration": 1}
    api.put(path, {**budget, "status": budget_status})

    def shrink(change: Any) -> None:
        if change.after is None and not is_shrunk:
            is_shrunk.append(True)
            stored = api.store.get(BUDGETS, ("default", "keep"))
            none = {"status": {**budget_status, "disruptionsAllowed": 0}}
            api.store.update(BUDGETS, ("default", "keep"), {**stored, **none}, "status")

    is_shrunk: list[bool] = []
    async with one_place(api, tmp_path):
        api.store.collection(PODS).subscribers.append(shrink)
        submit(api, training_job("b", TEAM, priorityClassName="high"))
        await until(lambda: phase(api, "b") == "Running")
    assert is_shrunk
    assert status(api, "a")["preemptions"] == 1


async def test_a_pod_keeps_its_grace_until_its_node_is_lost(api: FakeApi, tmp_path: Path) -> None:
    """On a node that only blips, its containers would run on beside those of the next start."""
    furnish(api, 1)
    async with FakeKubelets(api, runs), leading(api, tmp_path, node_lost_seconds=3.0):
        submit(api, training_job("a", TEAM))
        await until(lambda: phase(api, "a") == "Running")
        dead = node_manifest(a_node("n0", 8, is_ready=False))
        api.put("/api/v1/nodes/n0", dead)
        api.store.lingers = lambda stored: bool(stored.get("spec", {}).get("nodeName"))
        edited = copy.deepcopy(job(api, "a"))
        edited["spec"]["runPolicy"] = {"suspend": True}
        api.store.update(JOBS, ("default", "a"), edited)
        await until(lambda: any("deletionTimestamp" in pod["metadata"] for pod in pods(api)))
        await silence(api)
        assert len(pods(api)) == 4
        assert status(api, "a").get("interruptions", 0) == 0
        await until(lambda: not pods(api))


async def test_a_gang_runs_on_while_its_node_is_deleted_and_nobody_new_comes(
    api: FakeApi, tmp_path: Path
) -> None:
    """A finalizer keeps the node, as Karpenter's does, and its kubelet works."""
    furnish(api, 1)
    leaving = node_manifest(a_node("n0", 8, is_leaving=True))
    async with FakeKubelets(api, runs), leading(api, tmp_path, node_lost_seconds=0.5):
        submit(api, training_job("a", TEAM))
        await until(lambda: phase(api, "a") == "Running")
        api.put("/api/v1/nodes/n0", leaving)
        submit(api, training_job("b", TEAM))
        await until(lambda: "being deleted" in status(api, "b").get("message", ""))
        await silence(api)
        assert phase(api, "a") == "Running"
        assert status(api, "a").get("interruptions", 0) == 0
        assert "plan" not in status(api, "b")
        api.store.lingers = lambda stored: bool(stored.get("spec", {}).get("nodeName"))
        edited = copy.deepcopy(job(api, "a"))
        edited["spec"]["runPolicy"] = {"suspend": True}
        api.store.update(JOBS, ("default", "a"), edited)
        await until(lambda: all("deletionTimestamp" in p["metadata"] for p in pods(api)))
        await silence(api)
        assert len(pods(api)) == 4, "their kubelet confirms their end, within their own grace"


async def test_a_pod_that_seems_to_be_on_no_node_keeps_its_grace(
    api: FakeApi, tmp_path: Path
) -> None:
    """It may have been bound a moment ago, and without grace its containers would run on unseen."""
    furnish(api, 1)
    api.store.lingers = lambda stored: "containers" in stored.get("spec", {})
    async with FakeKubelets(api, runs, binds=False), leading(api, tmp_path):
        submit(api, training_job("a", TEAM))
        await until(lambda: len(pods(api)) == 4)
        edited = copy.deepcopy(job(api, "a"))
        edited["spec"]["runPolicy"] = {"suspend": True}
        api.store.update(JOBS, ("default", "a"), edited)
        await until(lambda: not pods(api) or "deletionTimestamp" in pods(api)[-1]["metadata"])
        assert len(pods(api)) == 4
