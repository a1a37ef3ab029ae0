"""The checkpoints that come with Bireme: whole, small, named in the registry, and in the wheel."""

import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from bireme import policy_names, registry
from bireme.cli import main
from bireme.core.cycle import run_cycle
from bireme.core.policy import PartName
from bireme.core.settings import SchedulingSettings
from bireme.onnx.cards import VERSIONED
from bireme.policy_names import BIREME, PolicyNames
from bireme.rl import builtin
from bireme.rl.components import parts_of
from bireme.testing import a_gang, a_snapshot, a_task, racks
from bireme_lab.policy_names import NAMES

ROOT = Path(__file__).parents[3]
MAX_BYTES = 300_000
MAX_BYTES_OF_PAPER_SIZE = 5_000_000
PAPER_SIZE = {"a2c-cnn"}
MAX_TRAINING_MINUTES = 30
FOLDERS = list(policy_names.checkpoint_folders().values())
LEARNED = ("bireme.rl.builtin:", "bireme_lab.builtin:")
TABLES: dict[PartName, dict[str, str]] = {
    "orderer": dict(policy_names.class_paths("orderer")),
    "placer": dict(policy_names.class_paths("placer")),
    "sizer": dict(policy_names.class_paths("sizer")),
}
each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@each
def test_a_shipped_checkpoint_loads_and_is_called_what_its_folder_is(folder: Path) -> None:
    assert builtin.checkpoint(folder.name).card.name == folder.name


@each
def test_a_shipped_checkpoint_is_small_and_nothing_else_lies_beside_it(folder: Path) -> None:
    parts = builtin.checkpoint(folder.name).card.parts.by_name().values()
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["card.json", *(part.file for part in parts)]
    )
    most = MAX_BYTES_OF_PAPER_SIZE if folder.name in PAPER_SIZE else MAX_BYTES
    assert sum(path.stat().st_size for path in folder.iterdir()) < most


@each
def test_a_card_says_how_to_train_it_again_within_half_an_hour_and_how_it_did(
    folder: Path,
) -> None:
    card = builtin.checkpoint(folder.name).card
    assert card.command.startswith(f"bireme train {folder.name}")
    assert 0 < card.training["minutes"] <= MAX_TRAINING_MINUTES
    assert card.seeds
    assert card.results
    assert all(result.command.startswith("bireme evaluate") for result in card.results)


@each
def test_a_card_states_commit_versions_and_split(folder: Path) -> None:
    card = builtin.checkpoint(folder.name).card
    assert card.commit is not None
    assert set(card.versions) == set(VERSIONED)
    assert "trained on" in card.split
    assert "evaluated on" in card.split


def test_the_registry_names_every_part_that_is_shipped_and_no_other() -> None:
    named = {
        (part, name)
        for part, table in TABLES.items()
        for name, path in table.items()
        if path.startswith(LEARNED)
    }
    lies = {
        (part, folder.name)
        for folder in FOLDERS
        for part in parts_of(builtin.checkpoint(folder.name).card)
    }
    assert named == lies


@each
def test_a_shipped_policy_decides_without_falling_back(folder: Path) -> None:
    parts = parts_of(builtin.checkpoint(folder.name).card)
    settings = SchedulingSettings(**dict.fromkeys(parts, folder.name))  # type: ignore[arg-type]
    gangs = [a_gang(f"g{n}", a_task(n % 5 + 1), estimated_seconds=60.0 * n) for n in range(1, 20)]
    decision = run_cycle(a_snapshot(racks(3, 4), *gangs), registry.make_policy(settings))
    assert decision.fallback == ""
    assert len(decision.admitted) == len(gangs)


@each
def test_its_card_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies", folder.name]) == 0
    shown = capsys.readouterr().out
    assert builtin.checkpoint(folder.name).sha256 in shown
    card = builtin.checkpoint(folder.name).card
    assert all(text in shown for text in (card.summary, card.split, str(card.commit), *card.notes))
    assert f"torch {card.versions['torch']}" in shown


@pytest.mark.parametrize(
    ("source", "names", "package"),
    [(ROOT, BIREME, "bireme/rl"), (ROOT / "policies", NAMES, "bireme_lab")],
)
def test_each_wheel_contains_every_file_of_its_own_checkpoints(
    source: Path, names: PolicyNames, package: str, tmp_path: Path
) -> None:
    (built,) = WheelBuilder(str(source)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        packed = {
            name for name in wheel.namelist() if "/checkpoints/" in name and "forecast" not in name
        }
    assert names.checkpoints is not None
    lies = {
        f"{package}/checkpoints/{path.relative_to(names.checkpoints)}"
        for path in names.checkpoints.glob("*/*")
    }
    assert packed == lies
