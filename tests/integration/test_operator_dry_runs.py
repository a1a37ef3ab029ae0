"""Admission webhooks that dry runs do not foretell, and what becomes of the gangs."""

import time
from itertools import count
from pathlib import Path

import pytest

from bireme.kube import mutations, names, plans
from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.fakeapi import FakeApi, Fault
from testbed.fakeapi.faults import DRY_RUN, dry_runs
from testbed.fakeapi.store import Object
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import furnish, leading, pods, status, submit, until
from testbed.scenario.manifests import pod, pod_spec, task, training_job
from testbed.simcluster.objects import PODS

NO_DRY_RUN = 'admission webhook "sidecars.example.com" does not support dry run'
EVENTS = "/api/v1/events"


def ask(pod: Object, memory: str) -> None:
    requests = {"memory": memory}
    container = {"name": "proxy", "image": "proxy", "resources": {"requests": requests}}
    pod["spec"]["containers"].append(container)


def reasons(api: FakeApi) -> list[str]:
    events = api.store.collection(EVENTS).objects.values()
    return [f"{event['reason']}: {event['message']}" for event in events]


async def test_a_webhook_without_dry_runs_is_named_and_its_changes_are_planned(
    api: FakeApi, tmp_path: Path
) -> None:
    def inject(pod: Object, dry_run: bool) -> None:
        if dry_run:
            raise ApiRefusal(400, "BadRequest", NO_DRY_RUN)
        ask(pod, "3Gi")

    api.store.admission["Pod"] = [inject]
    furnish(api)
    submit(api, training_job("job", task(replicas=4)))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api, "job").get("phase") == "Running")
        assert status(api, "job")["plan"]["tasks"][0]["requests"]["memory"] == "3Gi"
        assert status(api, "job")["interruptions"] == 1
        before = api.requests[DRY_RUN, PODS]
        # The next of its shape is planned right from what the pods of the first told.
        submit(api, training_job("next", task(replicas=4)))
        await until(lambda: status(api, "next").get("phase") == "Running")
        assert status(api, "next").get("interruptions", 0) == 0
        assert api.requests[DRY_RUN, PODS] == before
    (event,) = [each for each in reasons(api) if "DryRunUnsupported" in each]
    assert NO_DRY_RUN in event


async def test_pods_that_grow_with_every_start_are_a_failed_start_and_others_run(
    api: FakeApi, tmp_path: Path
) -> None:
    numbers = count(1)

    def grow(pod: Object, dry_run: bool) -> None:
        if not dry_run and pod["metadata"]["labels"][names.POD_GROUP_LABEL] == "odd":
            ask(pod, f"{next(numbers)}Gi")

    api.store.admission["Pod"] = [grow]
    furnish(api)
    submit(api, training_job("odd", task(replicas=4, gpus=4)))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api, "odd").get("startFailures"))
        odd = status(api, "odd")
        assert (odd["reason"], odd["interruptions"]) == ("PodsChanged", 2)
        assert "memory where" in odd["message"]
        assert odd["retryTime"]
        submit(api, training_job("other", task(replicas=4, gpus=4)))
        await until(lambda: status(api, "other").get("phase") == "Running")
        assert len(pods(api)) == 4


async def test_a_slow_webhook_delays_an_admission_for_two_seconds_and_no_verdict(
    api: FakeApi, tmp_path: Path
) -> None:
    api.faults.add(Fault(delay_seconds=60), dry_runs, times=None)
    furnish(api)
    began = time.monotonic()
    submit(api, training_job("fits", task(replicas=4)), training_job("wide", task(replicas=99)))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api, "wide").get("reason") == "NeverFits")
        verdict = time.monotonic()
        await until(lambda: status(api, "fits").get("phase") == "Running")
        assert 2 <= time.monotonic() - began < 60
        assert time.monotonic() - verdict > 1, "the verdict waited for the webhook"


@pytest.mark.parametrize("has_dry_runs", [True, False])
async def test_a_job_starts_once_admission_no_longer_gates_its_pods(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_dry_runs: bool
) -> None:
    monkeypatch.setattr(mutations, "_REFUSED_SECONDS", 0.5)

    def gate(pod: Object, dry_run: bool) -> None:
        pod["spec"]["schedulingGates"] = [{"name": "example.com/budget"}]

    def refuse(pod: Object, dry_run: bool) -> None:
        if dry_run:
            raise ApiRefusal(400, "BadRequest", NO_DRY_RUN)

    api.store.admission["Pod"] = [gate]
    furnish(api)
    submit(api, training_job("job", task(replicas=2)))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api, "job").get("reason") == "PodsRefused")
        assert "example.com/budget" in status(api, "job")["message"]
        # Another webhook may be all that a dry run meets now.
        api.store.admission["Pod"] = [] if has_dry_runs else [refuse]
        await until(lambda: status(api, "job").get("phase") == "Running")


def guarded(api: FakeApi) -> None:
    """Have a pod of nobody on n0 keep pods with the label ``tier: gpu`` away."""
    selector = {"matchLabels": {"tier": "gpu"}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    spec = pod_spec(0, affinity={"podAntiAffinity": required}, nodeName="n0")
    api.put("/api/v1/namespaces/default/pods/guard", pod("guard", 0) | {"spec": spec})


def planned_nodes(api: FakeApi, name: str, attempt: int = 0) -> set[str]:
    plan = plans.read(status(api, name))
    if plan is None or plan.attempt != attempt:
        return set()
    return {member.node for member in plan.members}


async def test_labels_that_admission_adds_are_what_rules_over_pods_select_by(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    guarded(api)
    api.store.admission["Pod"] = [lambda pod, _: pod["metadata"]["labels"].update(tier="gpu")]
    submit(api, training_job("job", task(replicas=4)))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api, "job").get("phase") == "Running")
    assert planned_nodes(api, "job") == {"n1"}
    assert status(api, "job").get("interruptions", 0) == 0


async def test_labels_that_only_pods_tell_are_planned_once_again_and_for_the_next_gang(
    api: FakeApi, tmp_path: Path
) -> None:
    numbers = count(1)

    def label(pod: Object, dry_run: bool) -> None:
        if dry_run:
            raise ApiRefusal(400, "BadRequest", NO_DRY_RUN)
        # No rule asks for the second one, which no two pods have alike.
        pod["metadata"]["labels"] |= {"tier": "gpu", "number": f"{next(numbers)}"}

    furnish(api)
    guarded(api)
    api.store.admission["Pod"] = [label]
    submit(api, training_job("job", task(replicas=4)))
    async with FakeKubelets(api, runs, binds=False), leading(api, tmp_path):
        await until(lambda: planned_nodes(api, "job", attempt=1))
        assert planned_nodes(api, "job", attempt=1) == {"n1"}
        submit(api, training_job("next", task(replicas=4)))
        await until(lambda: planned_nodes(api, "next"))
        assert planned_nodes(api, "next") == {"n1"}
        await until(lambda: len(pods(api)) == 9)
        assert [status(api, name).get("interruptions", 0) for name in ("job", "next")] == [1, 0]
    (event,) = [each for each in reasons(api) if each.startswith("PodsChanged")]
    assert "labels number=" in event
    assert "tier=gpu" in event
