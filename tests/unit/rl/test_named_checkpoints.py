"""Checkpoints by name: one's own folder first, then those that come with Bireme, nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bireme.rl import named, shipped
from bireme.rl.errors import CheckpointError
from smallnets import checkpoints, encoders


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with encoders.known():
        yield


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the one that comes with Bireme."""
    folder = tmp_path / "shipped"
    monkeypatch.setattr(shipped, "FOLDER", folder)
    return folder


def test_a_folder_of_ones_own_goes_before_the_one_that_comes_with_bireme(
    tmp_path: Path, ours: Path
) -> None:
    checkpoints.write(ours / "first", orderer=[1.0], name="shipped")
    own = tmp_path / "own"
    own.mkdir()
    assert named.load("first", str(own)).card.name == "shipped"
    checkpoints.write(own / "first", orderer=[1.0], name="own")
    assert named.load("first", str(own)).card.name == "own"
    assert named.load("first").card.name == "shipped"


def test_another_checkpoint_than_the_one_that_was_meant_is_refused(
    tmp_path: Path, ours: Path
) -> None:
    checkpoints.write(tmp_path / "first", orderer=[1.0])
    digest = named.load("first", str(tmp_path)).sha256
    assert named.load("first", str(tmp_path), digest).sha256 == digest
    checkpoints.write(tmp_path / "first", orderer=[2.0])
    with pytest.raises(CheckpointError, match=f"expected is {digest}"):
        named.load("first", str(tmp_path), digest)


def test_a_damaged_folder_of_ones_own_is_not_replaced_by_one_that_comes_with_bireme(
    tmp_path: Path, ours: Path
) -> None:
    checkpoints.write(ours / "first", orderer=[1.0])
    (tmp_path / "first").mkdir()
    with pytest.raises(CheckpointError, match=r"card\.json cannot be read"):
        named.load("first", str(tmp_path))


@pytest.mark.parametrize("name", ["second", "..", "first/", "/etc", ""])
def test_a_name_that_is_no_folder_is_refused_with_what_there_is(
    tmp_path: Path, ours: Path, name: str
) -> None:
    checkpoints.write(ours / "first", orderer=[1.0])
    with pytest.raises(CheckpointError, match=r"\(first\); copy its folder below"):
        named.folder_of(name, str(tmp_path))


def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path, ours: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(CheckpointError, match=r"checkpoint_directory '.*missing' cannot be read"):
        named.folder_of("first", missing)
