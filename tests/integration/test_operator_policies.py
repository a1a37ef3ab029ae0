"""Policies change under a running operator: swaps, failures, fallbacks, shadows, deletion."""

import shutil
from pathlib import Path

from bireme.rl.checkpoints import read_card
from fakeapi import FakeApi
from kubeobjects.kubelets import FakeKubelets, runs
from kubeobjects.policy_terms import (
    FIRST_NODE,
    becomes,
    delete_policy,
    events,
    leads,
    metric,
    node_of,
    put_policy,
    said,
    trained_by,
    words,
)
from kubeobjects.terms import furnish, phases, pods, submit, until
from scenario.manifests import training_job
from smallnets import checkpoints


async def test_another_checkpoint_places_otherwise_without_a_restart(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    furnish(api, 3)
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained) as term:
        put_policy(api, "policy", **trained_by("last"))
        await becomes(api, "True PolicyLoaded")
        assert await node_of(api, "one") == "n2"
        put_policy(api, "policy", **trained_by("first"))
        await until(lambda: said(api)["observedGeneration"] == 2)
        assert await node_of(api, "two") == "n0"
        delete_policy(api, "policy")
        await until(lambda: term.loop.policies.deciding.name == "")
        assert await node_of(api, "three") == "n0", "packing fills what is in use"
    assert term.loop.policies.known.known == {}
    assert metric(term, "policy_loads_total", outcome="loaded") == 2


async def test_a_new_leader_begins_with_the_policy_that_counts(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    furnish(api, 3)
    put_policy(api, "policy", **trained_by("last"))
    submit(api, training_job("waits"))
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained):
        await until(lambda: phases(api) == ["Running"])
    (pod,) = pods(api)
    assert pod["spec"]["nodeName"] == "n2"


async def test_status_tells_what_decides_and_how_often(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    furnish(api)
    digest = read_card(trained / "last")[1]
    put_policy(api, "policy", checkpoint={"name": "last", "sha256": digest})
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained) as term:
        await becomes(api, "True PolicyLoaded")
        await node_of(api, "one")
        await until(lambda: said(api).get("decisions") == 1)
        await until(lambda: metric(term, "policy_deciding", policy="policy") == 1.0)
    assert said(api)["checkpointSha256"] == digest
    assert said(api)["conditions"]["Degraded"] == "False AnswersValid"
    (event,) = events(api)
    assert (event["reason"], event["type"]) == ("PolicyLoaded", "Normal")
    assert event["metadata"]["namespace"] == "default"


async def test_a_corrupt_checkpoint_degrades_nothing_but_itself(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    furnish(api, 3)
    part = trained / "last" / "placer.onnx"
    part.write_bytes(part.read_bytes()[:-1] + b"!")
    put_policy(api, "policy", **trained_by("last"))
    submit(api, training_job("waits-already"))
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained) as term:
        await until(lambda: phases(api) == ["Running"])
        await becomes(api, "False LoadFailed")
        assert "sha256" in words(api, "Loaded")
        assert words(api, "Loaded").endswith("; the settings decide")
        await until(lambda: metric(term, "policy_loads_total", outcome="failed") == 1)
        await node_of(api, "one")
    (event,) = events(api)
    assert (event["reason"], event["type"]) == ("LoadFailed", "Warning")


async def test_the_last_good_policy_goes_on_when_its_new_spec_is_bad(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    furnish(api, 3)
    put_policy(api, "policy", **trained_by("last"))
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained):
        await becomes(api, "True PolicyLoaded")
        put_policy(api, "policy", **trained_by("missing"))
        await becomes(api, "False LoadFailed")
        assert "SchedulingPolicy policy, as last loaded, decides" in words(api, "Loaded")
        assert await node_of(api, "one") == "n2"


async def test_files_that_change_under_a_loaded_policy_change_nothing(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    furnish(api, 3)
    put_policy(api, "policy", **trained_by("last"))
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained) as term:
        await becomes(api, "True PolicyLoaded")
        checkpoints.write(trained / "last", placer=FIRST_NODE)
        assert await node_of(api, "one") == "n2"
        shutil.rmtree(trained)
        assert await node_of(api, "two") == "n2"
        checkpoints.write(trained / "last", placer=FIRST_NODE)
        digest = read_card(trained / "last")[1]
        put_policy(api, "policy", checkpoint={"name": "last", "sha256": digest})
        await until(lambda: said(api).get("checkpointSha256") == digest)
        assert metric(term, "policy_loads_total", outcome="failed") is None
        assert await node_of(api, "three") == "n0"
