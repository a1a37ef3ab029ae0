"""Canaries, promotion and rollback under a running operator."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bireme.core.cycle import run_cycle
from bireme.core.gangs import Gang
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import names
from bireme.onnx.sessions import Array
from bireme.registry import make_policy
from bireme.replay.reader import open_record
from bireme.replay.writer import outline_of
from bireme.rl.lookup import policy_of
from bireme.rl.shadow import RegretEstimate
from bireme_operator.leader import LeaderTerm
from bireme_operator.policies import ShadowStats
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.networks.encoders import GangFacts
from testbed.operator_term.term import furnish, pods, status, submit, until
from testbed.scenario.manifests import queue, task, training_job
from testbed.trained_policies import (
    becomes,
    events,
    leads,
    metric,
    node_of,
    put_policy,
    status_in,
    trained_by,
    words,
)

AUTOMATIC = {"promote": "Automatic", "rollBack": "Automatic"}


async def node_in(api: FakeApi, name: str, queue_name: str) -> str:
    """Return the node of a new job of one GPU in a queue."""
    submit(api, training_job(name, queue=queue_name))
    await until(lambda: status(api, name).get("phase") == "Running")
    pod = next(pod for pod in pods(api) if pod["metadata"]["name"] == f"{name}-worker-0")
    return str(pod["spec"]["nodeName"])


async def test_a_canary_decides_for_its_queues_alone_and_its_record_can_be_decided_again(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    records = tmp_path / "records"
    records.mkdir()
    furnish(api, 3)
    for name, parent in (("research", ""), ("vision", "research")):
        api.put(
            f"{names.path('queues')}/{name}", queue(name, **({"parent": parent} if parent else {}))
        )
    put_policy(api, "policy", **trained_by("first"))
    scope = {"stage": "Canary", "canary": {"queues": ["research"]}}
    put_policy(api, "canary", **trained_by("last", **scope))
    recorded = {"record_directory": str(records)}
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained, **recorded) as term:
        await becomes(api, "True PolicyLoaded")
        await becomes(api, "True PolicyLoaded", "canary")
        assert words(api, "Loaded", "canary") == "it decides for research"
        await until(lambda: term.policies.in_force.policy.canaries)
        assert await node_in(api, "one", "default") == "n0"
        assert await node_in(api, "two", "research") == "n2"
        assert await node_in(api, "three", "vision") == "n2", "it stands below research"
        await until(lambda: status_in(api, "canary").get("decisions") == 2)
        await until(lambda: status_in(api).get("decisions") == 1)
        assert metric(term, "policy_stage", policy="canary", stage="Canary") == 1.0
    record, sources = open_record([records]), set[tuple[str, str]]()
    for moment in record.cycles():
        policy, _ = policy_of(moment.source, record.settings, make_policy, str(trained))
        decision = run_cycle(moment.snapshot, policy)
        assert outline_of(decision, moment.snapshot.nodes) == moment.outline
        beside = ",".join(canary.name for canary in moment.source.canaries)
        sources |= {(moment.source.name, beside)} if decision.admitted else set()
    assert sources == {("policy", "canary")}


def no_facts(_: GangFacts, gangs: Sequence[Gang], __: ClusterSnapshot) -> dict[str, Array]:
    return {"facts": np.full((len(gangs), 3), np.nan, dtype=np.float32)}


async def test_a_policy_that_turns_bad_is_rolled_back_and_a_new_leader_leaves_it_so(
    api: FakeApi,
    tmp_path: Path,
    trained: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    furnish(api, 1)
    put_policy(api, "policy", **trained_by("fewest", rollout={"rollBack": "Automatic"}))
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained) as term:
        await becomes(api, "True PolicyLoaded")
        assert await node_of(api, "before") == "n0"
        assert status_in(api)["stage"] == "Active"
        monkeypatch.setattr(GangFacts, "encode", no_facts)
        submit(api, training_job("waits", task("worker", 9)))  # every sweep has a cycle now
        await until(lambda: status_in(api)["conditions"].get("RolledBack") == "True RulesAnswered")
        assert status_in(api)["stage"] == "RolledBack"
        assert await node_of(api, "after") == "n0"
        await until(lambda: term.policies.deciding.name == "")
        assert metric(term, "policy_rollbacks_total", reason="RulesAnswered") == 1.0
        await until(
            lambda: metric(term, "policy_stage", policy="policy", stage="RolledBack") == 1.0
        )
        assert metric(term, "policy_stage", policy="policy", stage="Active") is None
    said = words(api, "RolledBack")
    assert "the orderer failed" in said
    assert said.endswith("the settings decide now")
    assert ("RulesAnswered", "Warning") in [(e["reason"], e["type"]) for e in events(api)]
    spec = api.store.get(names.path("schedulingpolicies"), ("", "policy"))["spec"]
    assert spec["rollout"] == {"rollBack": "Automatic"}, "the spec is its author's"

    monkeypatch.undo()
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained, epoch=2) as term:
        assert await node_of(api, "later") == "n0"
        assert term.policies.deciding.name == ""
        assert words(api, "RolledBack") == said
        put_policy(api, "policy", **trained_by("fewest", rollout={"rollBack": "Never"}))
        await becomes(api, "True PolicyLoaded")
        await until(lambda: term.policies.deciding.name == "policy")
        await until(lambda: "RolledBack" not in status_in(api)["conditions"])


def told(term: LeaderTerm, name: str, outcome: RegretEstimate) -> bool:
    """Let the comparison of a policy come to ``outcome``, once there is one."""
    found = term.policies.evidence(term.policies.known.known[name])
    if found is None:
        return False
    told_stats = type("Told", (ShadowStats,), {"outcome": outcome})
    found[0].stats.shadow = told_stats()
    return True


async def test_a_shadow_that_does_better_is_promoted_and_its_rival_may_take_over_again(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    furnish(api, 3)
    put_policy(api, "policy", **trained_by("first"))
    put_policy(api, "shadow", **trained_by("last", stage="Shadow", rollout=AUTOMATIC))
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained) as term:
        await becomes(api, "True PolicyLoaded")
        await becomes(api, "True PolicyLoaded", "shadow")
        await until(lambda: told(term, "shadow", RegretEstimate(40, 9.0, 4.0, 14.0, 0.09)))
        assert await node_of(api, "one") == "n0"
        await until(lambda: status_in(api, "shadow")["stage"] == "Active")
        assert status_in(api, "shadow")["conditions"]["Promoted"] == "True OutcomeBetter"
        assert "9.0 s less (9.0%)" in words(api, "Promoted", "shadow")
        await becomes(api, "False Superseded")
        assert await node_of(api, "two") == "n2"
        await until(lambda: told(term, "shadow", RegretEstimate(40, 9.0, 4.0, 14.0, 0.09)))
        submit(api, training_job("three"))
        await until(lambda: status_in(api, "shadow")["stage"] == "RolledBack")
        assert "compared with SchedulingPolicy policy" in words(api, "RolledBack", "shadow")
        await becomes(api, "True PolicyLoaded")
        assert await node_of(api, "four") == "n0"
    reasons = [event["reason"] for event in events(api)]
    assert reasons.count("OutcomeBetter") == reasons.count("OutcomeWorse") == 1
