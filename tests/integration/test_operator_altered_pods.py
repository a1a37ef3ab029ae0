"""Admission that makes other pods of a job than were sent: a reason, no places, nobody stopped."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube import mutations, names
from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.fakeapi import FakeApi
from testbed.fakeapi.store import Change, Object
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    JOBS,
    furnish,
    leading,
    pods,
    silence,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import pod_spec, priority_class, task, training_job

Alteration = Callable[[Object], object]
NO_DRY_RUN = 'admission webhook "pods.example.com" does not support dry run'
EAGER = SchedulingSettings(min_runtime_seconds=0, service_threshold=0)


def foreign_owner(pod: Object) -> None:
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "example.com/v1", "kind": "Ring", "name": "ring", "uid": "other"}
    ]


CHANGES: dict[str, tuple[Alteration, str]] = {
    "spec.schedulerName": (lambda pod: pod["spec"].update(schedulerName="yunikorn"), "yunikorn"),
    "spec.nodeName": (lambda pod: pod["spec"].update(nodeName="n1"), "n1"),
    "spec.schedulingGates": (
        lambda pod: pod["spec"].update(schedulingGates=[{"name": names.PLAN_GATE}]),
        names.PLAN_GATE,
    ),
    "spec.schedulingGroup.podGroupName": (
        lambda pod: pod["spec"].update(schedulingGroup={"podGroupName": "ring"}),
        "ring",
    ),
    f"metadata.labels[{names.POD_GROUP_LABEL}]": (
        lambda pod: pod["metadata"]["labels"].update({names.POD_GROUP_LABEL: "ring"}),
        "ring",
    ),
    f"metadata.labels[{names.TASK_LABEL}]": (
        lambda pod: pod["metadata"]["labels"].pop(names.TASK_LABEL),
        "from worker to nothing",
    ),
    f"metadata.labels[{names.QUEUE_LABEL}]": (
        lambda pod: pod["metadata"]["labels"].update({names.QUEUE_LABEL: "theirs"}),
        "theirs",
    ),
    "metadata.ownerReferences": (foreign_owner, "Ring ring"),
}


def planned(api: FakeApi, name: str) -> list[bool]:
    """From now on: note for each version of a job whether it has a plan."""
    seen: list[bool] = []

    def note(change: Change) -> None:
        if change.after is not None and change.after["metadata"]["name"] == name:
            seen.append("plan" in (change.after.get("status") or {}))

    api.store.collection(JOBS).subscribers.append(note)
    return seen


@pytest.mark.parametrize("field", CHANGES)
async def test_what_a_dry_run_shows_to_be_changed_is_said_and_holds_no_places(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    monkeypatch.setattr(mutations, "_REFUSED_SECONDS", 0.5)
    change, after = CHANGES[field]

    def admit(pod: Object, _: bool) -> None:
        if pod["metadata"]["name"].startswith("odd"):
            change(pod)

    api.store.admission["Pod"] = [admit]
    furnish(api, 1)
    api.put("/apis/scheduling.k8s.io/v1/priorityclasses/high", priority_class("high", 1000))
    submit(api, training_job("low", task(replicas=4, gpus=2)))
    async with FakeKubelets(api, runs), leading(api, tmp_path, scheduling=EAGER):
        await until(lambda: status(api, "low").get("phase") == "Running")
        has_plan = planned(api, "odd")
        odd = task(replicas=4, gpus=2)
        submit(api, training_job("odd", odd, priorityClassName="high"))
        await until(lambda: status(api, "odd").get("reason") == "PodsRefused")
        message = status(api, "odd")["message"]
        assert field in message
        assert after in message
        await silence(api)
        assert not any(has_plan)
        assert status(api, "low").get("preemptions", 0) == 0
        api.store.admission["Pod"] = []
        await until(lambda: status(api, "odd").get("phase") == "Running")


@pytest.mark.parametrize("field", CHANGES)
async def test_what_only_pods_show_to_be_changed_is_said_and_leaves_nothing(
    api: FakeApi, tmp_path: Path, field: str
) -> None:
    change, after = CHANGES[field]

    def admit(pod: Object, dry_run: bool) -> None:
        if dry_run:
            raise ApiRefusal(400, "BadRequest", NO_DRY_RUN)
        if pod["metadata"]["name"].startswith("odd"):
            change(pod)

    api.store.admission["Pod"] = [admit]
    furnish(api, 2)
    submit(api, training_job("odd", task(replicas=4, gpus=4)))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api, "odd").get("reason") == "PodsRefused")
        await until(lambda: "plan" not in status(api, "odd") and not pods(api))
        message = status(api, "odd")["message"]
        assert field in message
        assert after in message
        submit(api, training_job("equal", task(replicas=4, gpus=4)))
        await until(lambda: status(api, "equal").get("phase") == "Running")


PIN = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("field", "change"),
    [
        (PIN, lambda pod: pod["spec"].pop("affinity")),
        ("spec.nodeSelector[pool]", lambda pod: pod["spec"].update(nodeSelector={"pool": "x"})),
    ],
)
async def test_a_pod_that_came_back_without_its_pin_or_kept_from_its_node_is_refused(
    api: FakeApi, tmp_path: Path, field: str, change: Alteration
) -> None:
    def admit(pod: Object, dry_run: bool) -> None:
        if not dry_run:
            change(pod)

    api.store.admission["Pod"] = [admit]
    furnish(api)
    submit(api, training_job("job", task(replicas=2)))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api).get("reason") == "PodsRefused")
        assert field in status(api)["message"]
        await until(lambda: "plan" not in status(api) and not pods(api))


async def test_a_scheduling_group_that_an_older_api_server_drops_is_no_difference(
    api: FakeApi, tmp_path: Path
) -> None:
    api.store.admission["Pod"] = [lambda pod, _: pod["spec"].pop("schedulingGroup")]
    furnish(api)
    spec = pod_spec(2, schedulingGroup={"podGroupName": "ring"})
    submit(api, training_job("job", task(replicas=2, spec=spec)))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api).get("phase") == "Running")
