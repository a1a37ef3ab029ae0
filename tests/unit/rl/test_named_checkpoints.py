"""Checkpoints by name: one's own folder first, then those that come with Bireme, nothing else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bireme import policy_names
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.onnx.errors import CheckpointError
from bireme.registry import make_policy
from bireme.rl import lookup
from bireme.rl.components import ChosenOrderer, ChosenPlacer, LearnedSizer
from bireme.rl.lookup import PolicySource
from testbed.networks import checkpoints
from testbed.networks.encoders import CHOICE_FACTS


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the one that comes with Bireme."""
    folder = tmp_path / "shipped"
    monkeypatch.setattr(policy_names, "BIREME", replace(policy_names.BIREME, checkpoints=folder))
    monkeypatch.setattr(policy_names, "added", dict)
    return folder


def test_a_folder_of_ones_own_goes_before_the_one_that_comes_with_bireme(
    tmp_path: Path, ours: Path
) -> None:
    checkpoints.write(ours / "first", orderer=[1.0], name="shipped")
    own = tmp_path / "own"
    own.mkdir()
    assert lookup.load_named("first", str(own)).card.name == "shipped"
    checkpoints.write(own / "first", orderer=[1.0], name="own")
    assert lookup.load_named("first", str(own)).card.name == "own"
    assert lookup.load_named("first").card.name == "shipped"


def test_another_checkpoint_than_the_one_that_was_meant_is_refused(
    tmp_path: Path, ours: Path
) -> None:
    checkpoints.write(tmp_path / "first", orderer=[1.0])
    digest = lookup.load_named("first", str(tmp_path)).sha256
    assert lookup.load_named("first", str(tmp_path), digest).sha256 == digest
    checkpoints.write(tmp_path / "first", orderer=[2.0])
    with pytest.raises(CheckpointError, match=f"expected is {digest}"):
        lookup.load_named("first", str(tmp_path), digest)


PARTS = {"orderer": "fifo", "placer": "packing", "sizer": "min"}


def policy_of(source: PolicySource, directory: Path) -> Policy:
    made, found = lookup.policy_of(source, SchedulingSettings(), make_policy, str(directory))
    assert len(found.sha256) == 64
    return made


@pytest.mark.parametrize("left_out", sorted(PARTS))
def test_a_chooser_is_whichever_part_a_policy_leaves_out(tmp_path: Path, left_out: str) -> None:
    checkpoints.write(tmp_path / "chooser", sizer=[1.0], size_encoder=CHOICE_FACTS)
    named_parts: dict[str, Any] = {part: name for part, name in PARTS.items() if part != left_out}
    policy = policy_of(PolicySource("policy", **named_parts, checkpoint="chooser"), tmp_path)
    learned = {
        "orderer": isinstance(policy.orderer, ChosenOrderer),
        "placer": isinstance(policy.placer, ChosenPlacer),
        "sizer": isinstance(policy.sizer, LearnedSizer),
    }
    assert [part for part, is_learned in learned.items() if is_learned] == [left_out]


def test_a_checkpoint_beside_all_that_it_could_be_is_refused(tmp_path: Path) -> None:
    checkpoints.write(tmp_path / "sizes", sizer=[1.0])
    kept = policy_of(PolicySource("policy", "fifo", "packing", checkpoint="sizes"), tmp_path)
    assert isinstance(kept.sizer, LearnedSizer)
    with pytest.raises(CheckpointError, match=r"'sizes' would not be used: what it has .sizer."):
        policy_of(PolicySource("policy", sizer="min", checkpoint="sizes"), tmp_path)


def test_a_damaged_folder_of_ones_own_is_not_replaced_by_one_that_comes_with_bireme(
    tmp_path: Path, ours: Path
) -> None:
    checkpoints.write(ours / "first", orderer=[1.0])
    (tmp_path / "first").mkdir()
    with pytest.raises(CheckpointError, match=r"card\.json cannot be read"):
        lookup.load_named("first", str(tmp_path))


@pytest.mark.parametrize("name", ["second", "..", "first/", "/etc", ""])
def test_a_name_that_is_no_folder_is_refused_with_what_there_is(
    tmp_path: Path, ours: Path, name: str
) -> None:
    checkpoints.write(ours / "first", orderer=[1.0])
    with pytest.raises(CheckpointError, match=r"\(first\); copy its folder below"):
        lookup.find_folder(name, str(tmp_path))


def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path, ours: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(CheckpointError, match=r"checkpoint_directory '.*missing' cannot be read"):
        lookup.find_folder("first", missing)
