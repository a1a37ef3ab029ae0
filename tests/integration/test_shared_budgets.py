"""One budget over several gangs: all stops of a decision draw on it, and none ends halfway."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bireme.core.settings import SchedulingSettings
from bireme.core.times import clock_time
from bireme.kube import names
from bireme_operator.leader import LeaderTerm
from bireme_operator.term import wall_clock
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    furnish,
    leading,
    pods,
    silence,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import disruption_budget, priority_class, task, training_job


def allow(api: FakeApi, allowed: int) -> None:
    """Set one budget over the pods of all gangs of the queue that lets ``allowed`` of them go."""
    budget = disruption_budget("shared", 1, **{names.QUEUE_LABEL: "default"})
    budget_status = {"disruptionsAllowed": allowed, "observedGeneration": 1}
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/shared"
    api.put(path, {**budget, "status": budget_status})


def is_running(api: FakeApi, *jobs: str) -> bool:
    return all(status(api, name).get("phase") == "Running" for name in jobs)


@asynccontextmanager
async def two_gangs(
    api: FakeApi, folder: Path, *, nodes: int, workers: int
) -> AsyncIterator[LeaderTerm]:
    """Two gangs of so many workers of 2 GPUs each run; nodes have 8 GPUs."""
    furnish(api, nodes)
    api.put("/apis/scheduling.k8s.io/v1/priorityclasses/high", priority_class("high", 1000))
    eager = SchedulingSettings(min_runtime_seconds=0)
    async with FakeKubelets(api, runs) as kubelets, leading(api, folder, scheduling=eager) as term:
        for name in ("first", "second"):
            submit(api, training_job(name, task("worker", workers, gpus=2)))
            await until(lambda name=name: is_running(api, name))  # type: ignore[misc]
        yield term
    assert kubelets.violations == []


async def test_two_victims_of_one_preemptor_count_together(api: FakeApi, tmp_path: Path) -> None:
    """Each alone fits the budget; both together do not, so none is stopped."""
    async with two_gangs(api, tmp_path, nodes=2, workers=4):
        allow(api, 4)
        wide = task("worker", 8, gpus=2)
        submit(api, training_job("urgent", wide, priorityClassName="high"))
        await until(lambda: status(api, "urgent").get("reason") == "WaitingForCapacity")
        await silence(api)
        assert is_running(api, "first", "second")
        assert len(pods(api)) == 8
    assert "preemptions" not in status(api, "first") | status(api, "second")


async def test_victims_of_two_preemptors_of_one_decision_count_together(
    api: FakeApi, tmp_path: Path
) -> None:
    async with two_gangs(api, tmp_path, nodes=2, workers=4):
        allow(api, 6)
        one = task("worker", 4, gpus=2)
        urgent = [training_job(f"u{at}", one, priorityClassName="high") for at in range(2)]
        submit(api, *urgent)
        await until(lambda: any(is_running(api, name) for name in ("u0", "u1")))
        await silence(api)
        stopped = [n for n in ("first", "second") if status(api, n).get("preemptions")]
        assert len(stopped) == 1
        assert len(pods(api)) == 8


async def test_two_gangs_that_leave_one_node_for_maintenance_go_one_after_the_other(
    api: FakeApi, tmp_path: Path
) -> None:
    """The budget has room for one of them; the other one runs on, whole, until it has more."""
    async with two_gangs(api, tmp_path, nodes=1, workers=2):
        furnish(api, 2)
        allow(api, 3)
        stored = api.store.get("/api/v1/nodes", ("", "n0"))
        window = f"{clock_time(wall_clock() - 5)}/{clock_time(wall_clock() + 7200)}"
        about = {**stored["metadata"], "annotations": {names.MAINTENANCE: window}}
        api.store.update("/api/v1/nodes", ("", "n0"), {**stored, "metadata": about})

        def moved() -> list[str]:
            attempts = {name: status(api, name).get("attempt") for name in ("first", "second")}
            return [name for name, attempt in attempts.items() if attempt]

        await until(moved)
        await until(lambda: is_running(api, "first", "second"))
        await silence(api)
        assert len(moved()) == 1
        assert is_running(api, "first", "second")
        assert len(pods(api)) == 4
