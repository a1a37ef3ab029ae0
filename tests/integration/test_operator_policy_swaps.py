"""Many policies under a running operator: who counts, what is overruled, what shadows tell."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bireme.cli import main
from bireme.core.gangs import Gang
from bireme.core.snapshot import ClusterSnapshot
from bireme.onnx.checkpoints import read_card
from bireme.onnx.sessions import Array, Ask
from bireme_operator.policies import GOOD_CYCLES
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.networks.encoders import GangFacts, SizeFacts
from testbed.operator_term.term import furnish, phases, status, submit, until, written
from testbed.scenario.manifests import task, training_job
from testbed.trained_policies import (
    becomes,
    delete_policy,
    events,
    leads,
    metric,
    node_of,
    put_policy,
    status_in,
    trained_by,
    words,
)


async def test_of_two_active_policies_one_counts_until_it_is_deleted(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    furnish(api, 3)
    put_policy(api, "a", **trained_by("last"))
    put_policy(api, "b", **trained_by("first"))
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained) as term:
        await becomes(api, "True PolicyLoaded", "a")
        await becomes(api, "False Superseded", "b")
        assert words(api, "Loaded", "b").startswith("SchedulingPolicy a is Active too and older")
        assert await node_of(api, "one") == "n2"
        delete_policy(api, "a")
        await becomes(api, "True PolicyLoaded", "b")
        assert await node_of(api, "two") == "n0"
        await until(lambda: metric(term, "policy_deciding", policy="a") is None)
        assert metric(term, "policy_deciding", policy="b") == 1.0


async def test_swaps_under_load_lose_no_job_and_start_none_twice(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    furnish(api, 3)
    specs = [trained_by("last"), {"orderer": "srtf"}, trained_by("fewest"), trained_by("missing")]
    async with FakeKubelets(api) as kubelets, leads(api, tmp_path, trained) as term:
        for turn in range(40):
            put_policy(api, "policy", **specs[turn % len(specs)])
            submit(api, *(training_job(f"job-{turn}-{i}", task("worker", 2)) for i in range(3)))
            await asyncio.sleep(0.02)
        await until(lambda: set(phases(api)) == {"Succeeded"})
        assert (metric(term, "policy_loads_total", outcome="loaded") or 0) > 3
    assert set(kubelets.created.values()) == {1}
    assert kubelets.violations == []


def no_facts(_: GangFacts, gangs: Sequence[Gang], __: ClusterSnapshot) -> dict[str, Array]:
    return {"facts": np.full((len(gangs), 3), np.nan, dtype=np.float32)}


def no_sizes(_: SizeFacts, ask: Ask, *__: object) -> dict[str, dict[str, int]]:
    ask({"facts": np.full((1, 3), np.nan, dtype=np.float32)}, 1)
    raise AssertionError("no answer is given")


@pytest.mark.parametrize(
    ("name", "encoder", "method", "nonsense", "part"),
    [
        ("fewest", GangFacts, "encode", no_facts, "orderer"),
        ("smallest", SizeFacts, "sizes", no_sizes, "sizer"),
    ],
)
async def test_a_policy_that_answers_nonsense_is_overruled_in_the_same_cycle(
    api: FakeApi,
    tmp_path: Path,
    trained: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    encoder: type,
    method: str,
    nonsense: object,
    part: str,
) -> None:
    furnish(api, 1)
    put_policy(api, "policy", **trained_by(name))
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained) as term:
        await becomes(api, "True PolicyLoaded")
        with monkeypatch.context() as patch:
            patch.setattr(encoder, method, nonsense)
            submit(api, training_job("job"))
            await until(lambda: status(api).get("phase") == "Running")
            await until(lambda: status_in(api)["conditions"]["Degraded"] == "True PolicyOverruled")
        assert f"the rules answered in its place: the {part} failed" in words(api, "Degraded")
        assert status_in(api)["conditions"]["Loaded"] == "True PolicyLoaded"
        assert metric(term, "policy_degraded", policy="policy") == 1.0
        assert (metric(term, "policy_fallbacks_total") or 0) >= status_in(api)["fallbacks"] >= 1
        submit(api, training_job("waits", task("worker", 9)))  # every sweep has a cycle now
        await until(lambda: status_in(api)["conditions"]["Degraded"] == "False AnswersValid")
        assert term.policies.deciding.stats.good_cycles >= GOOD_CYCLES
    recorded = [(event["reason"], event["type"]) for event in events(api)]
    assert recorded == [("PolicyLoaded", "Normal"), ("PolicyOverruled", "Warning")]


async def test_a_shadow_is_compared_and_decides_nothing(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    furnish(api, 1)
    put_policy(api, "shadow", **trained_by("fewest", stage="Shadow"))
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained) as term:
        await becomes(api, "True PolicyLoaded", "shadow")
        submit(api, training_job("wide", task("worker", 8), estimatedDuration="1h"))
        await until(lambda: metric(term, "policy_shadow_agreement", policy="shadow") == 1.0)
        submit(api, training_job("small", estimatedDuration="1m"))
        await until(lambda: status_in(api, "shadow").get("shadow", {}).get("decisions") == 1)
        assert metric(term, "policy_shadow_decisions", policy="shadow") == 1.0
        # Its encoder is known to this process alone, not to the one that plays forward: that costs
        # samples, and nothing else.
        await until(lambda: metric(term, "shadow_samples_total", outcome="died"))
        assert metric(term, "policy_shadow_regret_seconds", policy="shadow") is None
        assert metric(term, "policy_deciding", policy="shadow") == 0.0
        assert term.policies.deciding.name == ""
        delete_policy(api, "shadow")
        await until(lambda: metric(term, "policy_deciding", policy="shadow") is None)
        assert metric(term, "policy_shadow_agreement", policy="shadow") is None


async def test_policies_are_not_written_to_in_a_quiet_cluster(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    furnish(api, 1)
    put_policy(api, "active", **trained_by("last"))
    put_policy(api, "shadow", **trained_by("fewest", stage="Shadow"))
    put_policy(api, "younger", **trained_by("first"))
    jobs = training_job("runs", task("worker", 2)), training_job("waits", task("worker", 7))
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained):
        loaded, superseded = "True PolicyLoaded", "False Superseded"
        for name, state in (("active", loaded), ("shadow", loaded), ("younger", superseded)):
            await becomes(api, state, name)
        submit(api, *jobs)
        await until(lambda: "Running" in phases(api))
        await until(lambda: status_in(api, "active").get("decisions") == 1)
        await until(lambda: status_in(api, "shadow").get("shadow"))
        before = -1
        while written(api) != before:  # bounded by the time a test may take
            before = written(api)
            await asyncio.sleep(1.0)


async def test_a_record_names_the_policy_and_replay_asks_it_again(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    records = tmp_path / "records"
    records.mkdir()
    furnish(api, 3)
    leading = leads(api, tmp_path, trained, record_directory=str(records))
    async with FakeKubelets(api, runs), leading as term:
        await node_of(api, "before")
        put_policy(api, "policy", **trained_by("last"))
        await becomes(api, "True PolicyLoaded")
        await node_of(api, "after")
        await until(lambda: (metric(term, "recorded_cycles_total", outcome="written") or 0) > 1)
    target = tmp_path / "replay.json"
    arguments = ["--checkpoints", str(trained), "--json", str(target)]
    assert main(["replay", str(records), *arguments]) == 0
    found = json.loads(target.read_text())
    digest = read_card(trained / "last")[1]
    named = [(s["name"], s["checkpoint"], s["sha256"]) for s in found["record"]["sources"]]
    assert named == [("", "", ""), ("policy", "last", digest)]
    own = found["decisions"]["combined-priority/packing"]
    assert own["same"] == own["cycles"] == sum(s["cycles"] for s in found["record"]["sources"])


async def test_a_directory_that_cannot_be_read_is_reported_and_harms_nobody(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    furnish(api, 1)
    put_policy(api, "policy", **trained_by("last"))
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained / "last" / "card.json"):
        await becomes(api, "False LoadFailed")
        assert "card.json' cannot be read" in words(api, "Loaded")
        assert await node_of(api, "one") == "n0"
