"""``python -m bireme_lab.contest`` end to end, on small generated worlds."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bireme.contender import Contender
from bireme.policy_names import checkpoint_folders
from bireme_lab.contest import benchmark as module
from bireme_lab.contest import runs, tuning
from bireme_lab.contest.__main__ import main
from bireme_lab.contest.candidates import TunedRule
from bireme_lab.contest.families import FAMILIES, LOADS, Family
from bireme_lab.contest.worlds import Part, World, world_of
from bireme_lab.simulator.loads import make_window
from bireme_lab.simulator.metrics import SimulationMetrics
from bireme_lab.simulator.traces.sources import read_trace

RULES = (
    TunedRule("fifo"),
    TunedRule("tiresias-las", {"threshold_device_seconds": (1e9, 1e8, 30_000)}),
)


SHIPPED = checkpoint_folders()


def tiny(data: Path, part: Part, blocks: int) -> Iterator[World]:
    """Long and short jobs, more than fit at a time."""
    del data
    for seed in range({"training": 0, "validation": 50, "test": 100}[part], 150)[:blocks]:
        jobs = read_trace("gen:poisson?jobs=20&spread=2&sizes=8:1&mean_seconds=36000", seed=seed)
        for load in LOADS:
            name = f"tiny {seed} {load}"
            yield world_of(
                make_window(seed, jobs), load, name=name, block=f"seed {seed}", part=part
            )


@pytest.fixture(scope="module", autouse=True)
def _only_tiny() -> Iterator[None]:
    family = Family("tiny", "few jobs", "by seed", RULES, tiny, needs_data=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAMILIES, "tiny", family)
        patch.setattr(module, "LEARNED", {"learned-index": ("orderer",)})
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a benchmark that was played to its end, and its numbers."""
    folder = tmp_path_factory.mktemp("finished")
    return folder, benchmark(folder)


@pytest.fixture
def no_play(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every run fail that is not in the file yet."""
    monkeypatch.setattr(runs, "play", None)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[World]:
    """Return the worlds that are played, filled as they are."""
    found, play = list[World](), tuning.play

    def noted(candidate: Contender, world: World) -> SimulationMetrics:
        found.append(world)
        return play(candidate, world)

    monkeypatch.setattr(runs, "play", noted)
    return found


def contest(*arguments: str) -> int:
    """Run ``python -m bireme_lab.contest`` and return its exit status."""
    return main(arguments)


def benchmark(folder: Path, *arguments: str) -> dict[str, Any]:
    """Return the numbers of the one family."""
    folder.mkdir(exist_ok=True)
    file = folder / "numbers.json"
    common = ["--family", "tiny", "--blocks", "5", "--training-blocks", "1"]
    assert contest(*common, "--out", str(folder), "--json", str(file), *arguments) == 0
    (found,) = json.loads(file.read_text())["families"]
    return dict(found)


def test_the_best_tuned_rule_is_the_baseline_and_everybody_is_judged_by_it(
    finished: tuple[Path, dict[str, Any]], no_play: None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, numbers = finished
    rows = {row["name"]: row for row in numbers["rows"]}
    best = "tiresias-las?threshold_device_seconds=30000"
    assert (numbers["worlds"], numbers["blocks"], numbers["training_worlds"]) == (15, 5, 3)
    assert numbers["rows"][0]["name"] == best
    assert rows[best]["overall"]["jct"]["mean"] == 1
    assert rows["default"]["finding"] == "worse"  # FIFO among jobs of unequal length
    assert rows["srtf, run times known"]["kind"] == "ceiling"
    learned = rows["learned-index"]
    assert (learned["seeds"], learned["policy"]) == (1, "learned-index")
    assert set(learned["by_load"]) == {"0.7", "0.9", "1.1"}

    # A second call plays nothing, and its numbers are the same.
    assert benchmark(folder) == numbers
    assert best in capsys.readouterr().out


def test_an_interrupted_benchmark_ends_like_an_uninterrupted_one(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path, played: list[World]
) -> None:
    folder, numbers = finished
    lines = (folder / runs.RUNS_FILE).read_bytes().splitlines(keepends=True)
    (tmp_path / runs.RUNS_FILE).write_bytes(b"".join(lines[:-4]) + lines[-4][:50])
    assert benchmark(tmp_path) == numbers
    assert len(played) == 4


def test_two_trainings_of_a_policy_are_one_row(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, one = finished
    shutil.copy(folder / runs.RUNS_FILE, tmp_path)
    two = benchmark(tmp_path, *(["--checkpoint", f"learned-index={SHIPPED['learned-index']}"] * 2))
    rows = [next(r for r in each["rows"] if r["name"] == "learned-index") for each in (one, two)]
    assert [row["seeds"] for row in rows] == [1, 2]
    assert rows[0]["overall"]["jct"]["mean"] != 1  # it is not the baseline itself
    assert rows[0]["overall"]["jct"] == pytest.approx(rows[1]["overall"]["jct"])


def test_a_checkpoint_of_ones_own_has_a_row_beside_those_that_come_with_bireme(
    tmp_path: Path,
) -> None:
    small = "--blocks", "1", "--training-blocks", "1", "--rules", "fifo"
    mine = "--checkpoint", f"mine={SHIPPED['das']}"
    found = benchmark(tmp_path, *small, *mine)
    rows = {row["name"]: row for row in found["rows"] if row["kind"] == "learned"}
    assert list(rows) == ["learned-index", "mine"]
    assert rows["mine"]["policy"] == f"checkpoint:{SHIPPED['das']}"
    assert rows["mine"]["seeds"] == 1
    assert rows["mine"]["overall"]["jct"] != rows["learned-index"]["overall"]["jct"]
    only = benchmark(tmp_path, *small, *mine, "--policies", "mine")
    assert only["rows"] == [found["rows"][0], rows["mine"]]


def test_skipped_blocks_and_policies_are_not_played(
    tmp_path: Path, played: list[World], capsys: pytest.CaptureFixture[str]
) -> None:
    small = "--training-blocks", "1", "--rules", "fifo"
    found = benchmark(
        tmp_path, *small, "--blocks", "2", "--skip-blocks", "3", "--policies", "default"
    )
    assert (found["blocks"], found["skipped"]) == (2, 3)
    blocks = {world.block for world in played}
    assert blocks == {"seed 0", "seed 103", "seed 104"}, "the training's, and the last two"
    assert {row["kind"] for row in found["rows"]} == {"baseline", "default"}

    all_of_it = ["--family", "tiny", "--skip-blocks", "50", "--out", str(tmp_path)]
    assert contest(*all_of_it) == 1
    assert "all 50 test blocks of family tiny are skipped" in capsys.readouterr().err


def test_constants_of_ones_own_are_tried_on_the_training_part(
    tmp_path: Path, played: list[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = "tiresias-las?threshold_device_seconds=30000&preemption_delay_seconds=20000"
    rules = replace(FAMILIES["tiny"], rules=[replace(RULES[1], placers=["best-fit"])])
    monkeypatch.setitem(FAMILIES, "tiny", rules)
    found = benchmark(tmp_path, "--part", "training", "--policies", f"{mine},fifo/fgd")
    assert {world.part for world in played} == {"training"}
    assert (found["part"], found["blocks"]) == ("training", 5)
    rows = [(row["kind"], row["name"], row["policy"]) for row in found["rows"]]
    assert rows[1:] == [
        ("candidate", mine, f"{mine}/best-fit"),
        ("candidate", "fifo/fgd", "fifo/fgd"),
    ], "what a candidate leaves out is the baseline's"
    assert found["rows"][0]["overall"]["stops"] > found["rows"][1]["overall"]["stops"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--family", "phily"], "argument --family: no family is called 'phily'; did you mean"),
        (
            ["--family", "philly"],
            "argument --data: the worlds of philly are made of public traces",
        ),
        (["--family", "tiny", "--policies", "dsa"], "argument --policies: no policy is called"),
        (["--family", "tiny", "--policies", "fifo/fdg"], "argument --policies: no placer is"),
        (
            ["--family", "tiny", "--policies", "tiresias-las?knob=3"],
            "argument --policies: orderer 'tiresias-las?knob=3': no parameter is called 'knob'",
        ),
        (["--family", "tiny", "--checkpoint", "dsa=x"], "argument --checkpoint: x/card.json"),
        (
            [
                "--family",
                "tiny",
                *(f"--checkpoint=mine={SHIPPED[name]}" for name in ("a2c", "das")),
            ],
            "das decides orderer, placer, and mine=",
        ),
    ],
)
def test_a_wrong_argument_is_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert contest(*arguments) == 2
    assert message in capsys.readouterr().err
