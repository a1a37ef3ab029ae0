"""Learned policies by name: from a folder wherever a policy is named, and shown with their card."""

import json
import re
from pathlib import Path

import pytest

from bireme import registry
from bireme.cli import main
from bireme.core.errors import SettingError
from bireme.core.settings import SchedulingSettings
from bireme.policy_names import checkpoint_folder
from bireme.rl.components import (
    ChosenOrderer,
    ChosenPlacer,
    LearnedOrderer,
    LearnedPlacer,
    LearnedSizer,
)
from bireme.rl.lookup import PolicySource, policy_of
from bireme.testing import a_gang, a_node, a_task
from testbed.networks import checkpoints
from testbed.networks.encoders import CHOICE_FACTS
from testbed.recordings import RecordedCluster


@pytest.fixture
def both(tmp_path: Path) -> str:
    """The name of a checkpoint with an orderer (shortest estimate first) and a placer."""
    folder = checkpoints.write(
        tmp_path / "run" / "checkpoint", orderer=(0, -1, 0), placer=(1, 0, 0)
    )
    return f"checkpoint:{folder}"


@pytest.fixture
def sizer(tmp_path: Path) -> str:
    """The name of a checkpoint that makes gangs as large as they may be."""
    return f"checkpoint:{checkpoints.write(tmp_path / 'sizing', sizer=(1, 0, 0))}"


@pytest.fixture
def chooser(tmp_path: Path) -> str:
    """The name of a checkpoint that chooses the shortest estimate first."""
    folder = tmp_path / "choosing"
    return f"checkpoint:{checkpoints.write(folder, sizer=(0, -1, 0), size_encoder=CHOICE_FACTS)}"


@pytest.fixture
def orderer(tmp_path: Path) -> str:
    return f"checkpoint:{checkpoints.write(tmp_path / 'ordering', orderer=(0, -1, 0))}"


def test_settings_may_name_the_folder_of_a_checkpoint(both: str) -> None:
    policy = registry.make_policy(SchedulingSettings(orderer=both, placer=both))
    assert isinstance(policy.orderer, LearnedOrderer)
    assert isinstance(policy.placer, LearnedPlacer)


def test_a_chooser_may_be_named_as_every_part_and_a_sizer_as_that_alone(
    sizer: str, chooser: str
) -> None:
    policy = registry.make_policy(
        SchedulingSettings(orderer=chooser, placer=chooser, sizer=chooser)
    )
    assert isinstance(policy.orderer, ChosenOrderer)
    assert isinstance(policy.placer, ChosenPlacer)
    assert isinstance(policy.sizer, LearnedSizer)
    assert isinstance(registry.make_sizer(sizer), LearnedSizer)
    with pytest.raises(SettingError, match=r"orderer 'checkpoint:.*sizing': .* has no orderer"):
        registry.make_orderer(sizer)


def test_a_parameter_of_a_checkpoint_reaches_its_encoder_by_each_way_to_name_it() -> None:
    settings = SchedulingSettings()
    sources = [
        PolicySource("named", sizer="rlpto", sizer_parameters="beta=0.001"),
        PolicySource("trained", checkpoint="rlpto", sizer_parameters="beta=0.001"),
    ]
    sizers = [policy_of(each, settings, registry.make_policy)[0].sizer for each in sources]
    sizers.append(registry.make_sizer(f"checkpoint:{checkpoint_folder('rlpto')}?beta=0.001"))
    for sizer in sizers:
        assert isinstance(sizer, LearnedSizer)
        assert getattr(sizer.encoder, "beta", None) == 0.001
    plain = registry.make_sizer("rlpto")
    assert isinstance(plain, LearnedSizer)
    assert getattr(plain.encoder, "beta", None) == 0.0003


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            PolicySource("p", checkpoint="rlpto", sizer_parameters="beta=1"),
            "parameters.sizer, of checkpoint 'rlpto': beta is 1.0; it must be from 1e-06 to 0.1",
        ),
        (
            PolicySource("p", checkpoint="rlpto", orderer_parameters="beta=0.001"),
            "and no orderer is named, nor has checkpoint 'rlpto' one; name the orderer that",
        ),
        (
            PolicySource("p", orderer="fifo", placer_parameters="share_of_1=2"),
            "parameters.placer are 'share_of_1=2', and no placer is named; name the placer",
        ),
        (
            PolicySource("p", sizer="goodput", sizer_parameters="fairness=1"),
            "no parameter is called 'fairness', given as '1'; did you mean 'fairness_power'?",
        ),
    ],
)
def test_a_bad_parameter_of_a_scheduling_policy_is_answered_with_part_and_remedy(
    source: PolicySource, message: str
) -> None:
    with pytest.raises(SettingError, match=re.escape(message)):
        policy_of(source, SchedulingSettings(), registry.make_policy)


def test_a_folder_without_that_part_or_without_checkpoint_is_refused(
    orderer: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=r"placer 'checkpoint:.*ordering': .* has no placer"):
        registry.make_placer(orderer)
    with pytest.raises(SettingError, match=r"orderer 'checkpoint:.*nowhere': .* cannot be read"):
        registry.make_orderer(f"checkpoint:{tmp_path}/nowhere")
    with pytest.raises(SettingError, match=r"sizer 'checkpoint:.*ordering': .* has no sizer"):
        registry.make_sizer(orderer)


def simulated(capsys: pytest.CaptureFixture[str], policies: str) -> dict[str, dict[str, object]]:
    """Metrics by policy, of a workload whose run times are known."""
    trace = ["--trace", "gen:poisson?jobs=60&rate=200", "--nodes", "2x8", "--estimates", "true"]
    assert main(["simulate", *trace, "--policy", policies, "--json", "-"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    timeless = {"policy", "decision_seconds"}
    return {run["policy"]: {k: v for k, v in run.items() if k not in timeless} for run in runs}


def test_a_network_that_prefers_short_estimates_simulates_as_the_rule_does(
    orderer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = simulated(capsys, f"sjf,{orderer},fifo")
    assert found[orderer] == found["sjf"]
    assert found[orderer] != found["fifo"]


def test_a_checkpoint_alone_stands_for_all_its_parts_and_after_a_rule_for_the_next_one(
    both: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = simulated(capsys, f"sjf/{both},{both}")
    assert found[f"sjf/{both}"] == found[both]


def test_a_sizer_and_a_chooser_simulate_beside_rules_and_alone(
    sizer: str, chooser: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = simulated(capsys, f"sjf,{chooser},fifo/packing/{sizer},{sizer},fifo")
    assert found[chooser] == found["sjf"], "nobody is elastic, and there is one pool"
    assert found[f"fifo/packing/{sizer}"] == found["fifo"] != found[sizer]


@pytest.mark.parametrize("name", ["fifo//checkpoint:x", "a/b/c/checkpoint:x"])
def test_a_policy_of_too_many_parts_or_of_empty_ones_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--trace", "gen:poisson", "--nodes", "1x8", "--policy", name]) == 2
    assert "is no policy; write orderer" in capsys.readouterr().err


def test_a_record_is_replayed_by_a_checkpoint_and_made_by_one(
    both: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "record"
    folder.mkdir()
    settings = SchedulingSettings(orderer=both, placer=both, preemption=False)
    world = RecordedCluster([a_node("n0")], settings=settings, folder=folder, now=1e9)
    world.decide()
    for second in range(0, 600, 20):
        world.advance(1e9 + second)
        if second == 60:
            world.submit(a_gang("long", a_task(8), estimated_seconds=300.0), 300.0)
            world.submit(a_gang("short", a_task(8), estimated_seconds=60.0), 60.0)
        world.settle()
    world.writer.close()
    arguments = [str(folder), "--policy", f"fifo,{both}", "--json", "-"]
    assert main(["replay", *arguments]) == 0
    decisions = json.loads(capsys.readouterr().out)["decisions"]
    own = f"{both}/{both}"
    assert decisions[own]["same"] == decisions[own]["cycles"] == decisions[both]["same"] > 0
    assert decisions["fifo"]["same"] < decisions["fifo"]["cycles"]


# --- what is shown ----------------------------------------------------------------------------


def test_a_checkpoint_is_shown_with_its_parts_and_hashes(
    both: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policies", both]) == 0
    shown = capsys.readouterr().out
    for words in (
        "small: A weighted sum of a few facts.",
        "trained on  nothing",
        "encoder small-gangs/1",
        "in  facts (gangs, 3)",
        "out affinities (nodes)",
        "sha256",
    ):
        assert words in shown


def test_a_rule_is_shown_with_its_description_and_every_part_it_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["policies", "tetris"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("orderer tetris\n\nBest alignment with free capacity")
    assert "placer tetris\n\nEvery replica on the node" in shown


@pytest.mark.parametrize(
    ("name", "words"),
    [("fif", "is called 'fif' (did you mean 'fifo'?)"), ("checkpoint:x", "x/card.json")],
)
def test_what_cannot_be_shown_is_answered_with_what_is_missing(
    name: str, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["policies", name, f"--kubeconfig={tmp_path / 'none'}"]) in (1, 2)
    assert words in capsys.readouterr().err
