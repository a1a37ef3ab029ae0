"""The two verbs over a cache made by hand: who passes, what waits, what is counted."""

import asyncio
import time
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from bireme.core.policy import ScoreQuestion
from bireme.core.resources import FloatArray
from bireme.kube.cluster_state import ClusterState
from bireme_extender import protocol
from bireme_extender.app import VERBS
from bireme_extender.cache import PlanWaits
from bireme_extender.metrics import Metrics
from bireme_extender.verbs import CacheBehind, Verbs
from testbed.extender_calls import (
    FixedFreshness,
    a_body,
    a_group,
    a_node,
    a_pod,
    a_state,
    make_metrics,
    put_gang,
)

NODES = [a_node(f"n{number}") for number in range(4)]
ALL = [f"n{number}" for number in range(4)]
KEY = ("team", "job")


class Lab:
    """Verbs with their parts at hand."""

    def __init__(
        self, state: ClusterState | None = None, *, wait_seconds: float = 0.2, **options: Any
    ) -> None:
        self.freshness = FixedFreshness()
        self.state = state or a_state(NODES, [a_group(places=(("worker", "n2", "0"),))])
        self.metrics: Metrics = make_metrics()
        self.waits = PlanWaits(wait_seconds)
        options = {"cache": self.freshness, **options}
        self.verbs = Verbs(self.state, self.waits, self.metrics, **options)

    async def filter(self, pod: Any, names: list[str] | None = ALL, nodes: Any = None) -> Any:
        return msgspec.json.decode(await self.verbs.call("filter", a_body(pod, names, nodes)))

    async def prioritize(self, pod: Any, names: list[str] | None = ALL, nodes: Any = None) -> Any:
        return msgspec.json.decode(await self.verbs.call("prioritize", a_body(pod, names, nodes)))

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"bireme_extender_{name}_total", labels) or 0

    def publish(self, group: dict[str, Any]) -> None:
        put_gang(self.state, group)
        self.waits.notify(KEY)


async def test_planned_pod_gets_its_planned_node_and_no_other() -> None:
    lab = Lab()
    reply = await lab.filter(a_pod())
    assert reply == {
        "Nodes": None,
        "NodeNames": ["n2"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    assert await lab.prioritize(a_pod()) == [{"Host": "n2", "Score": 10}]
    assert lab.value("requests", verb="filter", outcome="pinned") == 1
    assert lab.value("requests", verb="prioritize", outcome="pinned") == 1


async def test_planned_node_passes_only_if_it_was_asked_about() -> None:
    lab = Lab()
    reply = await lab.filter(a_pod(), ["n0", "n1"])
    assert reply["NodeNames"] == []
    assert set(reply["FailedAndUnresolvableNodes"]) == {"n0", "n1"}
    assert "PlannedNodeNotOffered: planned node n2" in reply["FailedAndUnresolvableNodes"]["n0"]
    assert await lab.prioritize(a_pod(), ["n0", "n1"]) == []


async def test_refusal_among_many_nodes_names_its_reason_once() -> None:
    lab = Lab()
    many = [f"m{number}" for number in range(17)]
    reply = await lab.filter(a_pod(plan="0.0"), many)
    assert reply["NodeNames"] == []
    assert list(reply["FailedAndUnresolvableNodes"]) == ["m0"]
    assert reply["Error"] == ""
    assert lab.value("refusals", reason="StalePlan") == 1


async def test_same_request_gets_the_same_answer_and_changes_nothing() -> None:
    lab = Lab(a_state(NODES, [a_group(mode="Score")]))
    body = a_body(a_pod(), ALL)
    first = await lab.verbs.call("filter", body), await lab.verbs.call("prioritize", body)
    for _ in range(3):
        assert (
            await lab.verbs.call("filter", body),
            await lab.verbs.call("prioritize", body),
        ) == first


async def test_score_mode_pod_passes_on_feasible_nodes_and_gets_points() -> None:
    full = [a_pod(i, group="x", node="n1", phase="Running") for i in range(8)]
    lab = Lab(a_state(NODES, [a_group(mode="Score")], others=full))
    assert (await lab.filter(a_pod()))["NodeNames"] == ["n0", "n2", "n3"]
    scores = await lab.prioritize(a_pod())
    assert {entry["Host"] for entry in scores} == {"n0", "n2", "n3"}
    assert lab.value("requests", verb="filter", outcome="scored") == 1


async def test_score_mode_pod_that_fits_nowhere_is_refused_with_a_reason() -> None:
    lab = Lab(a_state([a_node("n0", is_ready=False)], [a_group(mode="Score")]))
    reply = await lab.filter(a_pod())
    assert reply["NodeNames"] == []
    assert reply["FailedAndUnresolvableNodes"]["n0"].startswith("NoFeasibleNode: ")
    assert await lab.prioritize(a_pod()) == []


async def test_resources_that_no_node_offers_are_left_to_kube_scheduler() -> None:
    """They are devices by Dynamic Resource Allocation, which the extender does not read."""
    lab = Lab(a_state([a_node("n0", gpus=0)], [a_group(mode="Score")]))
    assert (await lab.filter(a_pod()))["NodeNames"] == ["n0"]


@pytest.mark.parametrize("names", [None, []])
async def test_question_about_no_node_has_an_empty_answer(names: list[str] | None) -> None:
    for mode in ("Pinned", "Score"):
        lab = Lab(a_state(NODES, [a_group(mode=mode)]))
        reply = await lab.filter(a_pod(), names)
        assert (reply["NodeNames"], reply["FailedAndUnresolvableNodes"]) == ([], {})
        assert await lab.prioritize(a_pod(), names) == []


async def test_names_count_when_names_and_nodes_both_come() -> None:
    nodes = {"items": [{"metadata": {"name": "n2"}}]}
    assert (await Lab().filter(a_pod(), ["n0"], nodes))["NodeNames"] == []
    assert (await Lab().filter(a_pod(), ["n2"], {"items": None}))["NodeNames"] == ["n2"]


async def test_scheduler_that_sends_whole_nodes_is_answered_with_the_remedy() -> None:
    lab = Lab()
    nodes = {"items": [{"metadata": {"name": "n2"}, "status": {}}]}
    reply = await lab.filter(a_pod(), None, nodes)
    assert reply["NodeNames"] == []
    assert "nodeCacheCapable: true" in reply["FailedAndUnresolvableNodes"]["n2"]


async def test_request_without_a_pod_is_refused() -> None:
    lab = Lab()
    assert (await lab.filter(None))["FailedAndUnresolvableNodes"]["n0"].startswith("NoPodGroup")
    assert await lab.prioritize(None) == []


@pytest.mark.parametrize(
    "before", [None, a_group(is_planned=False), a_group(job_uid="the-job-before")]
)
async def test_no_verdict_on_an_unknown_plan_while_the_watches_are_down(before: Any) -> None:
    lab = Lab(a_state(NODES, [before] if before else []), wait_seconds=30)
    lab.freshness.is_live = False
    with pytest.raises(CacheBehind, match="but the watches are not open"):
        await lab.filter(a_pod())
    assert await lab.prioritize(a_pod()) == []
    assert lab.value("plan_waits", outcome="expired") == 0


async def test_what_no_newer_cache_can_change_is_decided_while_the_watches_are_down() -> None:
    lab = Lab()
    lab.freshness.is_live = False
    assert (await lab.filter(a_pod()))["NodeNames"] == ["n2"]
    for forged in (a_pod(group=None), a_pod(requests={"cpu": "90"}), a_pod(plan="0.9")):
        assert (await lab.filter(forged))["NodeNames"] == []


async def test_no_node_is_chosen_from_a_cache_that_is_not_complete() -> None:
    lab = Lab(a_state(NODES, [a_group(mode="Score")]))
    lab.freshness.is_complete = False
    with pytest.raises(CacheBehind, match="nodes and pods have not been read yet"):
        await lab.filter(a_pod())
    assert await lab.prioritize(a_pod()) == []


async def test_filter_waits_for_a_plan_that_is_on_its_way() -> None:
    for before in (None, a_group(is_planned=False), a_group(job_uid="the-job-before"), a_group()):
        lab = Lab(a_state(NODES, [before] if before else []), wait_seconds=0.9)
        asking = asyncio.create_task(lab.filter(a_pod(plan="1.1")))
        await asyncio.sleep(0.02)
        assert not asking.done()
        lab.publish(a_group(places=(("worker", "n3", "0"),), attempt=1))
        assert (await asking)["NodeNames"] == ["n3"]
        assert lab.value("plan_waits", outcome="arrived") == 1


async def test_filter_waits_for_the_uid_of_a_pod_that_joins_later() -> None:
    before = a_group(job_uid="", places=(("pod", "n0", "uid-a"),))
    lab = Lab(a_state(NODES, [before]), wait_seconds=0.9)
    asking = asyncio.create_task(lab.filter(a_pod(plan=None, job_uid="", uid="uid-b")))
    await asyncio.sleep(0.02)
    lab.publish(a_group(job_uid="", places=(("pod", "n0", "uid-a"), ("pod", "n1", "uid-b"))))
    assert (await asking)["NodeNames"] == ["n1"]


async def test_forged_pod_delays_the_scheduler_once_and_is_refused() -> None:
    lab = Lab(wait_seconds=0.1)
    forged = a_pod(group="none", uid="forged", job_uid="")
    began = time.monotonic()
    for _ in range(20):
        assert (await lab.filter(forged))["NodeNames"] == []
    assert time.monotonic() - began >= 0.09
    assert lab.value("plan_waits", outcome="expired") == 1
    assert lab.value("refusals", reason="UnknownPodGroup") == 20


async def test_pod_of_an_older_plan_does_not_wait() -> None:
    lab = Lab(a_state(NODES, [a_group(attempt=3)]), wait_seconds=1.0)
    await lab.filter(a_pod(plan="1.2"))
    assert lab.value("plan_waits", outcome="expired") == 0


async def test_other_calls_are_answered_while_one_waits() -> None:
    lab = Lab(wait_seconds=0.5)
    waiting = asyncio.create_task(lab.filter(a_pod(group="none")))
    await asyncio.sleep(0)
    assert (await lab.filter(a_pod()))["NodeNames"] == ["n2"]
    assert not waiting.done()
    await waiting


async def test_failed_scorer_is_counted_and_the_rules_answer() -> None:
    class Broken:
        def score(self, question: ScoreQuestion) -> FloatArray:
            raise ZeroDivisionError

    lab = Lab(a_state(NODES, [a_group(mode="Score")]), scorer=Broken)
    sound = Lab(a_state(NODES, [a_group(mode="Score")]))
    assert await lab.prioritize(a_pod()) == await sound.prioritize(a_pod())
    assert lab.value("score_fallbacks") == 1
    assert sound.value("score_fallbacks") == 0


async def test_fault_of_our_own_is_a_refusal_not_a_failed_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab()
    monkeypatch.setattr(lab.state.objects, "plan_of", Mock(side_effect=RuntimeError("bug")))
    reply = await lab.filter(a_pod())
    assert reply["NodeNames"] == []
    assert reply["FailedAndUnresolvableNodes"]["n0"].startswith("InternalError: ")
    assert await lab.prioritize(a_pod()) == []
    assert lab.value("refusals", reason="InternalError") == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{", b'{"Pod": 1}', b'{"Pod": {}}', b"\xff"],
)
async def test_malformed_body_is_distinguished_from_a_refusal(body: bytes) -> None:
    lab = Lab()
    for verb in VERBS.values():
        assert lab.verbs.at_once(verb, body) is None
        with pytest.raises(protocol.MALFORMED):
            await lab.verbs.call(verb, body)
