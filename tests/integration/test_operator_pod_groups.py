"""Gangs of other controllers' pods, from release to loss, beside jobs of the same name or not."""

from pathlib import Path
from typing import Any

from bireme.kube import names
from bireme.testing import a_node
from bireme_operator.leader import LeaderTerm
from tests.support.fakeapi import FakeApi, Fault
from tests.support.kubelets import FakeKubelets, runs
from tests.support.objects.facts import gated_pod, node_manifest
from tests.support.operator_term.term import (
    GROUPS,
    PODS,
    furnish,
    leading,
    pods,
    silence,
    status,
    submit,
    until,
)
from tests.support.scenario.manifests import GPU, pod_group, queue, task, training_job


def make(api: FakeApi, *members: str, gpus: int = 2, **labels: str) -> None:
    """Make gated pods of ``group`` as a controller does, each time with other uids."""
    container = {"name": "c", "resources": {"limits": {GPU: str(gpus)}}}
    for name in members:
        pod = gated_pod(name, containers=[container], labels=labels)
        del pod["metadata"]["uid"]
        api.put(f"/api/v1/namespaces/default/pods/{name}", pod)


def on_nodes(api: FakeApi) -> dict[str, str]:
    """The node of every member that has one."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in pods(api)
        if pod["spec"].get("nodeName")
    }


# --- a job of the same name -------------------------------------------------------------------


async def test_a_group_is_released_whole_and_completed_beside_a_job_of_its_name(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    submit(api, training_job("group", task(gpus=1)), pod_group("group", 2))

    def second(method: str, path: str, _: bool) -> bool:
        return method == "PATCH" and path.endswith("/pods/b")

    api.faults.add(Fault(status=500, reason="InternalError"), second, times=1)
    async with FakeKubelets(api), leading(api, tmp_path):
        make(api, "a", "b")
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Completed")
        await until(lambda: status(api, "group").get("reason") == "SpecInvalid")


async def test_a_refused_job_takes_no_places_from_a_group_of_its_name(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    api.put(f"{names.path('queues')}/closed", queue("closed", state="Closed"))
    refusal: Any = lambda method, path, _: method == "POST" and path.endswith("/pods")  # noqa: E731
    api.faults.add(Fault(status=422, reason="Invalid"), refusal, times=None)
    submit(api, training_job("group", task(gpus=1), queue="closed"))
    async with FakeKubelets(api, runs), leading(api, tmp_path, template_check_seconds=0.1) as term:
        await until(lambda: status(api, "group").get("reason") == "TemplateInvalid")
        submit(api, pod_group("group", 2))
        make(api, "a", "b")
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
        await until(lambda: status(api, "group").get("reason") == "TemplateInvalid")
        assert term.state.snapshot(0).queue_usage["default"][GPU] == 4


# --- members that are lost --------------------------------------------------------------------


async def lose_a_node(api: FakeApi, name: str) -> list[str]:
    """Take a node away with its pods; the names of these."""
    gone = [pod for pod, node in on_nodes(api).items() if node == name]
    api.store.delete("/api/v1/nodes", ("", name), {})
    for pod in gone:
        api.store.delete(PODS, ("default", pod), {})
    return gone


async def test_a_hole_is_filled_by_the_gang_that_lost_it_before_anybody_else(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2, gpus=4)
    submit(api, pod_group("group", 4))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        make(api, *"abcd")
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
        before = on_nodes(api)
        submit(api, training_job("rival", task("worker", 2, gpus=2)))
        await until(lambda: status(api, "rival").get("reason") == "WaitingForCapacity")
        gone = await lose_a_node(api, "n1")
        make(api, *gone)
        await until(lambda: "wait to join" in status(api, "group", GROUPS).get("message", ""))
        api.put("/api/v1/nodes/n1", node_manifest(a_node("n1", 4)))
        await until(lambda: on_nodes(api) == before)
        assert status(api, "rival")["phase"] == "Pending"


async def test_what_is_left_of_a_gang_makes_way_where_its_hole_stays_taken(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2, gpus=4)
    submit(api, pod_group("group", 4))
    async with FakeKubelets(api, runs), leading(api, tmp_path, bind_timeout_seconds=1.0) as term:
        make(api, *"abcd")
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
        gone = await lose_a_node(api, "n1")
        make(api, *gone)
        await until(lambda: not on_nodes(api))
        await until(lambda: status(api, "group", GROUPS)["phase"] == "Interrupted")
        await until(lambda: used(term) == 0)
        submit(api, training_job("rival", task("worker", 2, gpus=2)))
        await until(lambda: status(api, "rival").get("phase") == "Running")


def used(term: LeaderTerm) -> int:
    return sum(each.get(GPU, 0) for each in term.state.snapshot(0).queue_usage.values())


async def test_a_gang_that_lost_pods_which_nobody_replaces_goes_on(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2, gpus=4)
    submit(api, pod_group("group", 4))
    async with FakeKubelets(api, runs), leading(api, tmp_path, bind_timeout_seconds=0.2):
        make(api, *"abcd")
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
        await lose_a_node(api, "n1")
        await silence(api)
        assert set(on_nodes(api).values()) == {"n0"}
        assert status(api, "group", GROUPS)["phase"] == "Running"
