"""Jobs and JobSets of others are stopped by a suspension of a moment, which costs them nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube import names, wire
from bireme.kube.client import ApiClient
from bireme.kube.cluster_state import ClusterState
from bireme_operator import suspensions
from bireme_operator.suspensions import Suspensions
from bireme_operator.writes import PrioritySemaphore, Writes
from testbed.fakeapi import FakeApi, Fault
from testbed.fakeapi.store import Change, Object
from testbed.job_controller import JOB_SETS, JOBS, FakeJobController
from testbed.kubelets import FakeKubelets, runs
from testbed.objects.facts import through_the_wire
from testbed.operator_term.term import (
    GROUPS,
    crashed,
    events_about,
    furnish,
    leading,
    pods,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import batch_job, member_template, pod_group

JOB_PATH = "/apis/batch/v1/namespaces/default/jobs/train"
SET_PATH = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/set"


def a_job(size: int = 4, **spec: Any) -> Object:
    """A Job that no failure is forgiven, of pods of 2 GPUs in the PodGroup ``group``."""
    job = batch_job("train", size, member_template("group", 2))
    return {**job, "spec": {**job["spec"], "backoffLimit": 0, "suspend": False, **spec}}


class HalfBound(FakeKubelets):
    """Kubelets beside a scheduler that binds one pod and falls silent, until ``heal``."""

    def __init__(self, api: FakeApi) -> None:
        super().__init__(api, runs)

    def _step(self, key: tuple[str, str], pod: Object) -> None:
        super()._step(key, pod)
        if any(p["spec"].get("nodeName") for p in pods(self._api)):
            self.binds = False

    def heal(self) -> None:
        self._step = super()._step  # type: ignore[method-assign]
        self.binds = True
        for pod in pods(self._api):
            self._seen(Change(0, pod, pod))


@asynccontextmanager
async def half_bound(api: FakeApi) -> AsyncIterator[tuple[HalfBound, FakeJobController]]:
    """A world in which a gang of a Job gets one of its pods bound, and no more."""
    furnish(api)
    async with HalfBound(api) as kubelets, FakeJobController(api) as controller:
        submit(api, pod_group("group", 4))
        yield kubelets, controller


def job(api: FakeApi, resource: str = JOBS, name: str = "train") -> Object:
    return api.store.get(resource, ("default", name))


def is_free(found: Object) -> bool:
    """Whether nobody has it suspended, by its label."""
    labels = found["metadata"].get("labels") or {}
    return not found["spec"].get("suspend") and names.SUSPENDED_LABEL not in labels


def is_running(api: FakeApi) -> bool:
    there = [p for p in pods(api) if p["spec"].get("nodeName")]
    return status(api, "group", GROUPS).get("phase") == "Running" and len(there) == 4


def was_taken_back(api: FakeApi) -> bool:
    return status(api, "group", GROUPS).get("phase") == "Interrupted"


async def told(api: FakeApi) -> str:
    """The event with which the gang was stopped, once it is there."""

    def found() -> list[str]:
        events = events_about(api, "PodGroup")
        return [e["message"] for e in events if e["reason"] == "GangNotBoundInTime"]

    await until(found)
    return found()[0]


SILENT: dict[str, Any] = {"bind_timeout_seconds": 0.5}


async def test_a_job_that_no_failure_is_forgiven_starts_again(api: FakeApi, tmp_path: Path) -> None:
    async with half_bound(api) as (kubelets, controller), leading(api, tmp_path, **SILENT):
        api.put(JOB_PATH, a_job())
        await until(lambda: was_taken_back(api))
        assert "suspend" not in await told(api)
        assert is_free(job(api))
        kubelets.heal()
        await until(lambda: is_running(api))
        assert (controller.failed["train"], controller.suspended["train"]) == (0, 1)


async def test_the_jobs_of_a_job_set_are_suspended_through_it(api: FakeApi, tmp_path: Path) -> None:
    async with half_bound(api) as (kubelets, controller), leading(api, tmp_path, **SILENT):
        template = {"spec": a_job()["spec"]}
        spec = {"replicatedJobs": [{"name": "w", "replicas": 2, "template": template}]}
        made = api.put(SET_PATH, {"kind": "JobSet", "metadata": {"name": "set"}, "spec": spec})
        owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "controller": True}
        owner |= {"name": "set", "uid": made["metadata"]["uid"]}
        for index in range(2):
            child = a_job(2)
            child["metadata"] = {"name": f"w-{index}", "ownerReferences": [owner]}
            api.put(f"/apis/batch/v1/namespaces/default/jobs/w-{index}", child)
        await until(lambda: was_taken_back(api))
        kubelets.heal()
        await until(lambda: is_running(api))
        assert is_free(job(api, JOB_SETS, "set"))
        assert controller.failed.total() == 0
        # A slow machine may suspend it twice; its controller passes each one on to both Jobs.
        times = controller.suspended
        assert times["set"]
        assert times["w-0"] == times["w-1"] <= times["set"]


@pytest.mark.parametrize("after", range(8))
async def test_nothing_stays_suspended_after_a_crash_at_any_write(
    api: FakeApi, tmp_path: Path, after: int
) -> None:
    async with half_bound(api) as (kubelets, controller):
        api.put(JOB_PATH, a_job())
        leads = leading(api, tmp_path, bind_timeout_seconds=600)
        async with leads:
            await until(lambda: status(api, "group", GROUPS).get("plan"))
            await until(lambda: any(p["spec"].get("nodeName") for p in pods(api)))
        await crashed(api, tmp_path, after, lambda: was_taken_back(api), **SILENT)
        kubelets.heal()
        async with leading(api, tmp_path, epoch=2, **SILENT):
            await until(lambda: is_free(job(api)))
            await until(lambda: is_running(api))
        assert controller.failed["train"] == 0


async def test_a_new_leader_lifts_what_bireme_suspended_and_nothing_else(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    left = a_job(suspend=True)
    left["metadata"]["labels"] = {names.SUSPENDED_LABEL: "group"}
    api.put(JOB_PATH, left)
    api.put("/apis/batch/v1/namespaces/default/jobs/own", a_job(suspend=True))
    first: Any = lambda method, path, _: method == "GET" and path == "/apis/batch/v1/jobs"  # noqa: E731
    api.faults.add(Fault(status=500, reason="InternalError"), first, times=2)
    async with leading(api, tmp_path):
        await until(lambda: is_free(job(api)))
    assert job(api, name="own")["spec"]["suspend"] is True


async def test_a_suspension_whose_answer_was_lost_is_lifted(api: FakeApi, tmp_path: Path) -> None:
    patch: Any = lambda method, path, _: method == "PATCH" and path == JOB_PATH  # noqa: E731
    api.faults.add(Fault(drop_answer=True), patch, times=2)
    async with half_bound(api) as (kubelets, controller), leading(api, tmp_path, **SILENT):
        api.put(JOB_PATH, a_job())
        await until(lambda: was_taken_back(api))
        kubelets.heal()
        await until(lambda: is_running(api))
        assert is_free(job(api))
        assert controller.failed["train"] == 0


async def test_a_suspension_that_arrives_late_is_lifted_too(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspensions, "_LATE_SECONDS", 0.5)
    furnish(api)
    left = a_job()
    api.put(JOB_PATH, left)
    async with leading(api, tmp_path):
        await until(lambda: api.requests["GET", JOBS])
        late = {**left, "spec": {**left["spec"], "suspend": True}}
        late["metadata"] = {"name": "train", "labels": {names.SUSPENDED_LABEL: "group"}}
        api.put(JOB_PATH, late)
        await until(lambda: is_free(job(api)))


# --- where a suspension is not possible -------------------------------------------------------


def evicted(api: FakeApi) -> list[str]:
    """Names of the pods that are evicted from now on."""
    found: list[str] = []

    def note(method: str, path: str, _: bool) -> bool:
        if method == "POST" and path.endswith("/eviction"):
            found.append(path.split("/")[-2])
        return False

    api.faults.add(Fault(), note, times=None)
    return found


@pytest.mark.parametrize("refused", ["GET", "PATCH"])
async def test_without_the_right_to_suspend_pods_are_evicted_and_the_group_says_so(
    api: FakeApi, tmp_path: Path, refused: str
) -> None:
    of_job: Any = lambda method, path, _: method == refused and path == JOB_PATH  # noqa: E731
    api.faults.add(Fault(status=403, reason="Forbidden"), of_job, times=None)
    async with half_bound(api) as (_, controller), leading(api, tmp_path, **SILENT):
        gone = evicted(api)
        policy = {"rules": [{"action": "Ignore"}]}
        api.put(JOB_PATH, a_job(podFailurePolicy=policy))
        await until(lambda: was_taken_back(api))
        assert "may not suspend" in await told(api) or "may not be suspended" in await told(api)
        assert len(gone) == 3, "the one that is bound stays"
        assert (controller.failed["train"], controller.suspended["train"]) == (0, 0)


async def test_pods_of_a_controller_that_does_not_act_are_evicted(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspensions, "_ACT_SECONDS", 0.5)
    async with half_bound(api) as (_, controller), leading(api, tmp_path, **SILENT):
        gone = evicted(api)
        api.put(JOB_PATH, a_job())
        await until(lambda: len(pods(api)) == 4)
        controller.acts = False
        await until(lambda: was_taken_back(api))
        assert (await told(api)).endswith("Job train did not act on its suspension")
        assert len(gone) == 3
        assert is_free(job(api))


BY_OTHERS = {"apiVersion": "example.com/v1", "kind": "Run", "name": "r", "uid": "r"}


@pytest.mark.parametrize(
    ("change", "is_found"),
    [
        ({}, True),
        ({"metadata": {"ownerReferences": [{**BY_OTHERS, "controller": True}]}}, False),
        ({"metadata": {"ownerReferences": [BY_OTHERS]}}, True),
        ({"metadata": {"uid": "another"}}, False),
        ({"spec": {"suspend": True}}, False),
        ({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, False),
        ({"spec": {"template": member_template("other")}}, False),
    ],
)
async def test_only_an_owner_that_is_bireme_s_to_suspend_is(
    api: FakeApi, client: ApiClient, change: dict[str, Any], is_found: bool
) -> None:
    owned = deepcopy(a_job())
    for part, given in change.items():
        owned[part] |= given
    uid = owned["metadata"].get("uid", "job-uid")
    api.put(JOB_PATH, owned, uid)
    state, made = ClusterState(SchedulingSettings()), []
    for index in range(3):
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-uid"}
        template = member_template("group", schedulingGates=[], nodeName="n0")
        meta = {**template["metadata"], "ownerReferences": [{**owner, "controller": True}]}
        pod = api.put(f"/api/v1/namespaces/default/pods/p{index}", {**template, "metadata": meta})
        state.objects.put_member(("default", f"p{index}"), through_the_wire(pod, wire.V1Pod))
        made.append(state.objects.members["default", f"p{index}"])
    known = Suspensions(state, Writes(client, PrioritySemaphore(4)), lambda: 0.0)
    notes: list[str] = []
    found = await known.owners(("default", "group"), made, (), notes)
    assert [[p.uid for p in owner.pods] for owner in found] == (
        [[p.uid for p in made]] if is_found else []
    )
    spared = await known.owners(("default", "group"), made[:2], made[2:], notes)
    assert len(spared) == is_found
    assert await known.owners(("default", "group"), made[:2], (), notes) == [], "one stays"
    assert notes == []
