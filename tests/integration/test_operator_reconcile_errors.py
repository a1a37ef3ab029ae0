"""Exceptions of the operator's own code about one object end nothing, and are reported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bireme.kube.training_jobs import JobFacts
from bireme_operator.admission import JobAdmission
from bireme_operator.dry_runs import DryRuns
from bireme_operator.jobs import JobReconciler
from bireme_operator.leader import LeaderTerm
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import furnish, leading, pods, status, submit, until
from testbed.scenario.manifests import pod_group, task, training_job

EVENTS = "/api/v1/events"


def reported(api: FakeApi) -> set[tuple[str, str]]:
    """Kind and name of the objects that an event says the operator failed on."""
    events = api.store.collection(EVENTS).objects.values()
    return {
        (event["involvedObject"]["kind"], event["involvedObject"]["name"])
        for event in events
        if event["reason"] == "OperatorFailed" and event["type"] == "Warning"
    }


def failing(real: Callable[..., Any], broken: list[str]) -> Callable[..., Any]:
    """``real``, but for jobs that are ``broken``."""

    def maybe(*args: Any, **options: Any) -> Any:
        for each in args:
            if isinstance(each, JobFacts) and each.key[1] in broken:
                raise ArithmeticError("a bug of ours")
        return real(*args, **options)

    return maybe


def count(term: LeaderTerm) -> float:
    found = term.metrics.registry.get_sample_value("bireme_reconcile_errors_total")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (JobFacts, "gang"),
        (JobReconciler, "reconcile"),
        (JobAdmission, "admit"),
        (DryRuns, "check"),
    ],
    ids=["a gang is made", "reconciled", "admitted", "held"],
)
async def test_a_job_that_cannot_be_handled_says_so_and_is_tried_again(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    broken = ["odd"]
    monkeypatch.setattr(owner, name, failing(getattr(owner, name), broken))
    furnish(api, 1)
    gpus = 9 if name == "check" else 1
    submit(api, training_job("odd", task(gpus=gpus)), training_job("fine"))
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        await until(lambda: status(api, "odd").get("reason") == "OperatorFailed")
        await until(lambda: status(api, "fine").get("phase") == "Running")
        message = status(api, "odd")["message"]
        assert message == "the operator failed on this object: ArithmeticError: a bug of ours"
        await until(lambda: ("TrainingJob", "odd") in reported(api))
        assert count(term) >= 1
        broken.clear()
        wanted = "NeverFits" if gpus == 9 else "GangRunning"
        await until(lambda: status(api, "odd").get("reason") == wanted)


async def test_a_job_that_runs_keeps_its_places_though_no_gang_can_be_made_of_it(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[str] = []
    monkeypatch.setattr(JobFacts, "gang", failing(JobFacts.gang, broken))
    furnish(api, 1)
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path):
        submit(api, training_job("odd", task("worker", 4, gpus=2)))
        await until(lambda: status(api, "odd").get("phase") == "Running")
        broken.append("odd")
        submit(api, training_job("next"))
        await until(lambda: status(api, "next").get("reason") == "WaitingForCapacity")
        await until(lambda: ("TrainingJob", "odd") in reported(api))
        assert (status(api, "odd")["phase"], len(pods(api))) == ("Running", 4)
        assert status(api, "odd")["reason"] == "GangRunning"
        broken.clear()
        for index in range(4):
            kubelets.end(f"odd-worker-{index}")
        await until(lambda: status(api, "next").get("phase") == "Running")
        await until(lambda: status(api, "odd").get("phase") == "Succeeded")


async def test_a_group_of_others_that_cannot_be_handled_stops_nothing(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(api, 1)
    submit(api, pod_group("group", 3), training_job("fine"))
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        monkeypatch.setattr(term.state.waiting, "_group", lambda *_: 1 / 0)
        await until(lambda: status(api, "fine").get("phase") == "Running")
        await until(lambda: ("PodGroup", "group") in reported(api))
