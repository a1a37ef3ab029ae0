"""Gangs of other controllers' pods, from release to loss, beside jobs of the same name or not."""

from pathlib import Path
from typing import Any

import pytest

from bireme.kube import names
from bireme.testing import a_node
from bireme_operator import guests
from bireme_operator.leader import LeaderTerm
from testbed.fakeapi import FakeApi, Fault
from testbed.fakeapi.faults import dry_runs
from testbed.kubelets import FakeKubelets, runs
from testbed.objects.facts import node_manifest
from testbed.operator_term.term import (
    GROUPS,
    PODS,
    endings,
    furnish,
    leading,
    make,
    pods,
    protect,
    silence,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import GPU, pod_group, queue, task, training_job


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
    api.faults.add(Fault(status=422, reason="Invalid"), dry_runs, times=None)
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


# --- how pods of others are stopped -----------------------------------------------------------


async def break_apart(api: FakeApi) -> list[str]:
    """Take node n1 away from a gang that runs, and make its pods anew; the names of the rest."""
    await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
    gone = await lose_a_node(api, "n1")
    make(api, *gone)
    return sorted(set("abcd") - set(gone))


async def test_pods_of_others_are_evicted_once_their_budget_lets_all_of_them_go(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2, gpus=4)
    submit(api, pod_group("group", 4))
    protect(api, "group", 1)
    async with FakeKubelets(api, runs), leading(api, tmp_path, bind_timeout_seconds=0.5):
        make(api, *"abcd")
        rest = await break_apart(api)
        ended = endings(api)
        await until(lambda: status(api, "group", GROUPS).get("reason") == "Stopping")
        assert status(api, "group", GROUPS)["message"].endswith(
            "budget keep-group allows 1 evictions, 2 are needed; the eviction is tried again for "
            "at most 300 s"
        )
        await silence(api)
        assert sorted(on_nodes(api)) == rest
        assert status(api, "group", GROUPS)["phase"] == "Running"
        protect(api, "group", 2)
        await until(lambda: status(api, "group", GROUPS)["phase"] == "Interrupted")
    assert ended == dict.fromkeys(rest, "EvictionByEvictionAPI: Eviction API: evicting")


@pytest.mark.parametrize("refusal", ["budget", "policy"])
async def test_whatever_keeps_half_a_gang_for_too_long_is_overridden(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    monkeypatch.setattr(guests, "EVICTING_SECONDS", 1.0)
    furnish(api, 2, gpus=4)
    submit(api, pod_group("group", 4))
    if refusal == "budget":
        protect(api, "group", 0)
    else:
        of_evictions: Any = lambda _method, path, _: path.endswith("/eviction")  # noqa: E731
        api.faults.add(Fault(status=403, reason="Forbidden"), of_evictions, times=None)
    async with FakeKubelets(api, runs), leading(api, tmp_path, bind_timeout_seconds=0.5):
        make(api, *"abcd")
        rest = await break_apart(api)
        ended = endings(api)
        await until(lambda: status(api, "group", GROUPS)["phase"] == "Interrupted")
    assert sorted(ended) == rest
    told = "PreemptionByScheduler: Bireme takes the gang's places back: 2 of minMember 4"
    assert all(words.startswith(told) for words in ended.values())


async def test_a_pod_on_a_lost_node_goes_whatever_its_budget_says(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2, gpus=4)
    submit(api, pod_group("group", 4))
    protect(api, "group", 2)
    api.store.lingers = lambda obj: obj["spec"].get("nodeName") == "n0"
    async with (
        FakeKubelets(api, runs),
        leading(api, tmp_path, bind_timeout_seconds=1.0, node_lost_seconds=0.5),
    ):
        make(api, *"abcd")
        rest = await break_apart(api)
        protect(api, "group", 0)
        ended = endings(api)
        dead = node_manifest(a_node("n0", 4))
        dead["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        api.put("/api/v1/nodes/n0", dead)
        await until(lambda: status(api, "group", GROUPS)["phase"] == "Interrupted")
    assert ended == dict.fromkeys(rest, "NodeLost: the node has not been ready for 0 s")


async def test_why_a_member_failed_stays_known_after_its_pod_is_gone(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    submit(api, pod_group("group", 2))
    killed = {"exitCode": 137, "reason": "OOMKilled"}
    container = {"name": "c", "state": {"terminated": killed}}
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        make(api, "a", "b")
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
        failed = {"phase": "Failed", "containerStatuses": [container]}
        api.store.update(PODS, ("default", "a"), {"status": failed}, "status")
        words = "1 of 2 failed, pod a: container c exited with 137 (OOMKilled, SIGKILL)"
        await until(lambda: words in status(api, "group", GROUPS)["message"])
        api.store.delete(PODS, ("default", "a"), {})
        events = api.store.collection("/api/v1/events").objects
        await until(lambda: any(e["reason"] == "PodFailed" for e in events.values()))
        assert [words in e["message"] for e in events.values() if e["reason"] == "PodFailed"] == [
            True
        ]
        assert words in status(api, "group", GROUPS)["message"]
