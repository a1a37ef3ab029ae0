"""Metrics of gangs while an operator works: the state now, not when it decided."""

from pathlib import Path

from bireme.core.gpus import GPU
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import JOBS, furnish, leading, status, submit, until
from testbed.scenario.manifests import task, training_job
from testbed.simcluster.objects import PODS
from testbed.trained_policies import metric


async def test_a_gang_that_waits_is_counted_until_it_is_deleted(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, training_job("first", task("worker", 8)), training_job("next", task("worker", 8)))
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        await until(lambda: metric(term, "gangs_waiting", reason="WaitingForCapacity") == 1)
        await until(lambda: metric(term, "queue_gangs", queue="default", state="pending") == 1)
        await until(lambda: metric(term, "queue_gangs", queue="default", state="admitted") == 1)
        waiting = "first" if status(api, "next").get("phase") in ("Starting", "Running") else "next"
        api.store.delete(JOBS, ("default", waiting), {})
        await until(lambda: metric(term, "gangs_waiting", reason="WaitingForCapacity") is None)
        await until(lambda: metric(term, "queue_gangs", queue="default", state="pending") == 0)


async def test_a_gang_without_its_nodes_is_partial_and_a_job_that_ended_is_measured(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, training_job("job", task("worker", 2)))
    hasty = leading(api, tmp_path, bind_timeout_seconds=1.0)
    async with FakeKubelets(api, binds=False) as kubelets, hasty as term:
        await until(lambda: metric(term, "partial_gangs") == 1)
        kubelets.binds = True  # when the gang has been planned again
        await until(lambda: status(api).get("phase") == "Succeeded")
        await until(lambda: metric(term, "partial_gangs") == 0)
        labels = {"queue": "default", "phase": "Succeeded"}
        assert metric(term, "completion_seconds_count", **labels) == 1


async def test_turns_and_the_cycles_in_them_are_timed(api: FakeApi, tmp_path: Path) -> None:
    furnish(api, 1)
    submit(api, training_job("job", task("worker", 2)))
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        await until(lambda: status(api).get("phase") == "Running")
        decided = metric(term, "cycle_seconds_count")
        assert decided is not None
        assert decided >= 1
        await until(lambda: (metric(term, "turn_seconds_count") or 0) > decided)


async def test_what_a_gang_holds_loses_and_does_not_use_is_counted(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, training_job("job", task("worker", 2), runPolicy={"backoffLimit": 0}))
    where = {"resource": GPU, "queue": "default", "namespace": "default", "pool": ""}

    def seconds(use: str) -> float:
        return metric(term, "device_seconds_total", **where, use=use) or 0.0

    stalled = {"queue": "default", "reason": "ReplicasNotReady"}
    eager = leading(api, tmp_path, stalled_after_seconds=60.0)
    async with FakeKubelets(api, runs) as kubelets, eager as term:
        await until(lambda: status(api).get("phase") == "Running")
        await until(lambda: seconds("running") > 0)
        assert metric(term, "device_seconds_lost_total", **where) == 0
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        hangs = {"status": {"phase": "Running", "conditions": [ready]}}
        api.store.update(PODS, ("default", "job-worker-1"), hangs, "status")
        await until(lambda: status(api).get("reason") == "ReplicasNotReady")
        assert status(api)["phase"] == "Running"
        await until(lambda: metric(term, "gangs_stalled", **stalled) == 1)
        kubelets.end("job-worker-1", "Failed")
        await until(lambda: status(api).get("phase") == "Failed")
        await until(lambda: metric(term, "gangs_stalled", **stalled) is None)
        await until(lambda: (metric(term, "device_seconds_lost_total", **where) or 0.0) > 0)
        held = sum(map(seconds, ("running", "starting", "stopping")))
        assert 0 < held <= 2 * (metric(term, "usage_seconds_total") or 0.0)
