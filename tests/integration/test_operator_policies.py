"""Policies change under a running operator: swaps, failures, fallbacks, shadows, deletion."""

import shutil
from pathlib import Path

import pytest

from bireme.core.cycle import run_cycle
from bireme.onnx.checkpoints import read_card
from bireme.registry import make_policy
from bireme.replay.reader import open_record
from bireme.replay.writer import outline_of
from bireme.rl.lookup import policy_of
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.networks import checkpoints
from testbed.operator_term.term import furnish, phases, pods, status, submit, until
from testbed.scenario.manifests import task, training_job
from testbed.trained_policies import (
    FIRST_NODE,
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
from tests.integration.elastic_jobs import SETTLED, elastic, is_whole


async def test_another_checkpoint_places_otherwise_without_a_restart(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    furnish(api, 3)
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained) as term:
        put_policy(api, "policy", **trained_by("last"))
        await becomes(api, "True PolicyLoaded")
        assert await node_of(api, "one") == "n2"
        put_policy(api, "policy", **trained_by("first"))
        await until(lambda: status_in(api)["observedGeneration"] == 2)
        assert await node_of(api, "two") == "n0"
        delete_policy(api, "policy")
        await until(lambda: term.policies.deciding.name == "")
        assert await node_of(api, "three") == "n0", "packing fills what is in use"
    assert term.policies.known.known == {}
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
        await until(lambda: status_in(api).get("decisions") == 1)
        await until(lambda: metric(term, "policy_deciding", policy="policy") == 1.0)
    assert status_in(api)["checkpointSha256"] == digest
    assert status_in(api)["conditions"]["Degraded"] == "False AnswersValid"
    (event,) = events(api)
    assert (event["reason"], event["type"]) == ("PolicyLoaded", "Normal")
    assert event["metadata"]["namespace"] == "default"


@pytest.mark.parametrize(("name", "file"), [("last", "placer.onnx"), ("smallest", "sizer.onnx")])
async def test_a_corrupt_checkpoint_degrades_nothing_but_itself(
    api: FakeApi, tmp_path: Path, trained: Path, name: str, file: str
) -> None:
    furnish(api, 3)
    part = trained / name / file
    part.write_bytes(part.read_bytes()[:-1] + b"!")
    put_policy(api, "policy", **trained_by(name))
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


async def test_a_checkpoint_resizes_a_running_job_as_the_library_predicts(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    records = tmp_path / "records"
    records.mkdir()
    furnish(api, 1)
    submit(api, elastic(least=2, most=6))
    often = {"record_directory": str(records), "scheduling": SETTLED}
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained, **often) as term:
        await until(lambda: is_whole(api, 6))
        put_policy(api, "policy", **trained_by("smallest"))
        await becomes(api, "True PolicyLoaded")
        await until(lambda: is_whole(api, 2))
        await until(lambda: status_in(api).get("decisions", 0) >= 1)
        assert status_in(api)["conditions"]["Degraded"] == "False AnswersValid"
        await until(lambda: (metric(term, "resizes_total", reason="Shrunk") or 0) == 1)
    assert status(api, "elastic")["attempt"] == 0
    record = open_record([records])
    first = next(m for m in record.cycles() if m.source.checkpoint == "smallest")
    policy, _ = policy_of(first.source, record.settings, make_policy, str(trained))
    (predicted,) = run_cycle(first.snapshot, policy).resized
    assert predicted.placement.tasks[0].counts.tolist() == [2]


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
        await until(lambda: status_in(api).get("checkpointSha256") == digest)
        assert metric(term, "policy_loads_total", outcome="failed") is None
        assert await node_of(api, "three") == "n0"


async def test_a_changed_parameter_changes_where_a_job_goes_and_a_bad_one_nothing(
    api: FakeApi, tmp_path: Path, trained: Path
) -> None:
    """A policy that expects whole nodes keeps them; one of pairs keeps an even number free."""
    records = tmp_path / "records"
    records.mkdir()
    furnish(api, 2)

    def expects(share_of_2: float, share_of_8: float) -> None:
        shares = {"share_of_2": share_of_2, "share_of_8": share_of_8}
        parameters = {"placer": {"share_of_1": 0, "share_of_4": 0, **shares}}
        put_policy(api, "policy", placer="fgd", parameters=parameters)

    submit(api, training_job("five", task(gpus=5)))
    recorded = {"record_directory": str(records)}
    async with FakeKubelets(api, runs), leads(api, tmp_path, trained, **recorded) as term:
        await until(lambda: phases(api) == ["Running"])
        busy = pods(api)[0]["spec"]["nodeName"]
        expects(share_of_2=0, share_of_8=1)
        await becomes(api, "True PolicyLoaded")
        assert await node_of(api, "beside") == busy
        expects(share_of_2=1, share_of_8=0)
        await until(lambda: status_in(api)["observedGeneration"] == 2)
        assert await node_of(api, "apart") != busy
        expects(share_of_2=1, share_of_8=-1)
        await becomes(api, "False LoadFailed")
        said = words(api, "Loaded")
        assert "share_of_8 is -1.0; it must be at least 0" in said
        assert "SchedulingPolicy policy, as last loaded, decides" in said
        good = "share_of_1=0&share_of_2=1&share_of_4=0&share_of_8=0"
        assert term.policies.deciding.source.placer_parameters == good
    record, starts = open_record([records]), dict[str, str]()
    for moment in record.cycles():
        policy, _ = policy_of(moment.source, record.settings, make_policy, str(trained))
        decision = run_cycle(moment.snapshot, policy)
        assert outline_of(decision, moment.snapshot.nodes) == moment.outline
        starts |= {each.gang.name: moment.source.placer_parameters for each in decision.admitted}
    assert starts == {
        "five": "",
        "beside": good.replace("2=1", "2=0").replace("8=0", "8=1"),
        "apart": good,
    }
