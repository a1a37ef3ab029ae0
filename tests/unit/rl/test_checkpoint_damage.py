"""Damage by chance: with flipped bytes a checkpoint is refused or whole, and nothing else."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from bireme.onnx.checkpoints import read_card
from bireme.onnx.errors import CheckpointError
from bireme.rl.checkpoint import OUTPUTS, load
from testbed.examples import examples
from testbed.networks import checkpoints, graphs
from testbed.networks.encoders import GangFacts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkpoints.write(tmp_path / "small", orderer=(1, 0, 0), placer=(1, 0, 0))


damages = examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
flips = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=4)


def flipped(text: bytes, damage: list[tuple[int, int]]) -> bytes:
    out = bytearray(text)
    for place, mask in damage:
        out[place % len(out)] ^= mask
    return bytes(out)


@damages
@given(flips, st.sampled_from(["card.json", "orderer.onnx", "placer.onnx"]))
def test_damage_to_any_file_is_found_by_the_digest_of_the_checkpoint(
    folder: Path, damage: list[tuple[int, int]], name: str
) -> None:
    checkpoints.write(folder, orderer=(1, 0, 0), placer=(1, 0, 0))
    _, digest = read_card(folder)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(flipped(whole, damage))
    if (folder / name).read_bytes() != whole:
        with pytest.raises(CheckpointError):
            load(folder, expected_sha256=digest)


@damages
@given(flips)
def test_a_damaged_card_is_refused_or_still_a_card(
    folder: Path, damage: list[tuple[int, int]]
) -> None:
    checkpoints.write(folder, orderer=(1, 0, 0), placer=(1, 0, 0))
    path = folder / "card.json"
    path.write_bytes(flipped(path.read_bytes(), damage))
    assert_refused_or_whole(folder)


@damages
@given(flips)
def test_a_damaged_model_whose_card_agrees_is_refused_or_answers(
    tmp_path: Path, damage: list[tuple[int, int]]
) -> None:
    model = graphs.weighted_sum(GangFacts.inputs, OUTPUTS["orderer"], (1, 2, 3)).SerializeToString()
    assert_refused_or_whole(checkpoints.write_orderer(tmp_path, flipped(model, damage)))


def assert_refused_or_whole(folder: Path) -> None:
    """Loading ends in a CheckpointError or in a checkpoint, never in anything else."""
    try:
        loaded = load(folder)
    except CheckpointError:
        return
    assert loaded.orderer is not None or loaded.placer is not None
