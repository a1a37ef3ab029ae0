"""``bireme train`` and ``bireme evaluate``: what they write, say, and refuse."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bireme.cli import main
from bireme.onnx.checkpoints import read_card
from testbed.networks.checkpoints import write

ECHO = "testbed.toys.recipe:EchoRecipe"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write(tmp_path / "checkpoint", orderer=(1,), order_encoder="a2c-jobs/1", name="echo")


def evaluated(checkpoint: Path, *more: str) -> int:
    given = ["evaluate", str(checkpoint), "--recipe", ECHO, "--setting", "plain", *more]
    return main(given if "--jobs" in more else [*given, "--jobs", "1"])


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which ``arguments`` are refused."""
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    return printed


def test_training_leaves_a_checkpoint_and_curves_and_says_what_to_type_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", ECHO, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "trained testbed.toys.recipe:EchoRecipe in" in printed.out
    assert f"bireme evaluate {out}/checkpoint --recipe {ECHO} --setting plain" in printed.out
    assert "echo: 128 of 1,536 steps; return" in printed.err
    assert (out / "curves.png").exists()
    assert read_card(out / "checkpoint")[0].name == "echo"
    assert main(["train", ECHO, "--out", str(out)]) == 2
    assert main(["train", ECHO, "--out", str(out), "--resume"]) == 0


def test_table_ranks_policies_and_relates_them_to_the_best_baseline(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluated(checkpoint, "--seeds", "3") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:4] == ["echo", "in", "plain:", "means"]
    assert [line[0] for line in lines[2:6]] == ["policy", "echo", "twice", "lost"]
    assert lines[3][1] == "11.0"
    assert lines[3][-3] == "0.500"


def test_processes_find_what_one_finds(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for jobs in ("1", "2"):
        found = evaluated(
            checkpoint, "--seeds", "4", "--jobs", jobs, "--json", f"{tmp_path}/{jobs}"
        )
        assert found == 0
    one, two = (json.loads((tmp_path / jobs).read_text()) for jobs in ("1", "2"))
    assert one["settings"] == two["settings"]
    assert [run["seed"] for run in one["settings"][0]["runs"]] == [0, 1, 2, 3]


def test_shards_merge_to_what_one_evaluation_finds(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = ["--seed-range", "5:12"]
    files = [f"{tmp_path}/{shard}.json" for shard in range(3)]
    for shard, file in enumerate(files):
        evaluated(checkpoint, *seeds, "--shard", f"{shard}/3", "--json", file)
    evaluated(checkpoint, *seeds, "--json", f"{tmp_path}/whole.json")
    capsys.readouterr()
    assert main(["evaluate", "--merge", *files, "--json", "-"]) == 0
    joined = json.loads(capsys.readouterr().out)
    assert joined["settings"] == json.loads((tmp_path / "whole.json").read_text())["settings"]


def test_results_go_into_the_card_with_their_command(checkpoint: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert evaluated(checkpoint, "--seeds", "2", "--into-card", "--markdown", str(page)) == 0
    (cost, delay) = read_card(checkpoint)[0].results
    assert (cost.setting, cost.metric, cost.value, cost.interval) == (
        "plain",
        "cost",
        10.5,
        (10, 11),
    )
    assert (cost.rival, cost.rival_value) == ("twice", 21)
    assert cost.command.startswith("bireme evaluate ")
    assert (delay.metric, delay.value, delay.rival_value) == ("delay", 1, 3)
    assert "| echo | 10.5 [10.0, 11.0] |" in page.read_text()


def test_results_of_another_checkpoint_do_not_go_into_a_card(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = tmp_path / "numbers.json"
    evaluated(checkpoint, "--seeds", "2", "--json", str(numbers), "--into-card")
    merge = ["evaluate", str(checkpoint), "--recipe", ECHO, "--merge", str(numbers), "--into-card"]
    assert "measure it again" in refused(capsys, *merge)


def test_seed_that_fails_is_named(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated(checkpoint, "--seeds", "3", "--opt", "bad=1") == 1
    printed = capsys.readouterr().err
    assert printed == (
        "bireme: seed 1 of setting 'plain': the trace of seed 1 is missing; download it\n"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train"], "NAME"),
        (["train", "a2d"], "did you mean 'a2c'?"),
        (["train", "no.such:Recipe"], "argument NAME"),
        (["train", ECHO, "--minutes", "0"], "'0' is not a number of minutes above 0"),
        (["train", ECHO, "--data", "/nowhere"], "argument --data: there is no folder"),
        (["train", ECHO, "--seed", "-1"], "--seed"),
        (["train", ECHO, "--device", "cuda"], "learns only on cpu; leave it out"),
        (["train", "a2c", "--device", "tpu"], "argument --device"),
        (["evaluate"], "argument NAME: name one of"),
        (["evaluate", "no-such-checkpoint"], "argument NAME: no checkpoint is called"),
        (["evaluate", "/nowhere/checkpoint"], "argument NAME"),
        (["evaluate", "FOLDER"], "argument NAME: no recipe is called 'echo'"),
        (["evaluate", "FOLDER", "--recipe", "a2d"], "argument --recipe"),
        (["evaluate", "FOLDER", "--recipe", ECHO], "argument --setting: name one of plain: costs"),
        (["evaluate", "FOLDER", "--recipe", ECHO, "--setting", "plan"], "did you mean 'plain'?"),
        (["evaluate", "FOLDER", "--shard", "3/3"], "'3/3' is no share"),
        (["evaluate", "FOLDER", "--seed-range", "3:3"], "'3:3' is no range"),
        (["evaluate", "FOLDER", "--seeds", "2", "--seed-range", "0:2"], "not allowed with"),
        (["evaluate", "FOLDER", "--opt", "data"], "'data' is no option; write name=value"),
        (["evaluate", "--merge", "/nowhere.json"], "argument --merge"),
        (["evaluate", "--merge", __file__], "is not an output of `bireme evaluate --json`"),
        (["evaluate", "--merge", __file__, "--into-card"], "argument --into-card: name"),
    ],
)
def test_argument_that_cannot_be_used_is_one_line(
    arguments: list[str], says: str, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(checkpoint) if word == "FOLDER" else word for word in arguments]
    assert says in refused(capsys, *given)


def test_share_without_a_seed_is_refused(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--recipe", ECHO, "--setting", "plain", "--seeds", "2", "--shard", "2/3"]
    assert "leaves no seed" in refused(capsys, "evaluate", str(checkpoint), *arguments)


def test_commands_without_learning_load_nothing_of_it() -> None:
    """Neither ``bireme --help`` nor a simulation waits for torch or ONNX."""
    code = (
        "import sys; from bireme.cli import main; "
        "main(['simulate', '--trace', 'gen:poisson?jobs=3', '--nodes', '1x8']); "
        "print([name for name in ('torch', 'onnx', 'onnxruntime', 'gymnasium', 'rich', "
        "'matplotlib', 'safetensors') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_accelerator_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "run"
    said = refused(capsys, "train", "a2c", "--smoke", "--device", "cuda", "--out", str(out))
    assert "argument --device: torch" in said
    assert "finds no GPU here; train with --device cpu" in said
    assert not out.exists()
