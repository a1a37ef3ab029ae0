"""Several processes train one policy: equal weights, other envs, one folder."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bireme.onnx.checkpoints import read_card
from bireme_lab.training.distributed import average, average_gradients, least, process_seed, rank
from testbed.toys.recipe import ENVS, UPDATES

ROOT = Path(__file__).parents[2]
RECIPE = "testbed.toys.recipe:EchoRecipe"
MAX_SECONDS = 300


def torchrun(*program: str) -> str:
    """Output of two processes that torchrun starts on this machine."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, *program],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        },
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that two processes trained in, and their output."""
    folder = tmp_path_factory.mktemp("run")
    return folder, torchrun("-m", "bireme_lab.training", RECIPE, "--out", str(folder / "run"))


def test_two_processes_end_with_equal_weights_that_one_alone_would_not_have(
    trained: tuple[Path, str], tmp_path: Path
) -> None:
    first, second = (load_file(trained[0] / f"run/weights-{n}.safetensors") for n in (0, 1))
    assert all(first[name].equal(second[name]) for name in first)
    command = [
        sys.executable,
        "-m",
        "bireme_lab.training",
        RECIPE,
        "--out",
        str(tmp_path / "alone"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=environment, capture_output=True, check=True)
    alone = load_file(tmp_path / "alone/weights-0.safetensors")
    assert not all(first[name].equal(alone[name]) for name in first)


def test_curves_and_checkpoint_exist_once_and_count_the_samples_of_both(
    trained: tuple[Path, str],
) -> None:
    folder, printed = trained
    assert printed.count("trained ") == 1
    with (folder / "run/curves.csv").open(newline="") as lines:
        steps = [int(row["step"]) for row in csv.DictReader(lines)]
    assert steps == [2 * 2 * ENVS * n for n in range(1, UPDATES + 1)]
    assert sorted(path.name for path in (folder / "run").iterdir()) == [
        "checkpoint",
        "curves.csv",
        "curves.png",
        "echo.safetensors",
        "run.json",
        "weights-0.safetensors",
        "weights-1.safetensors",
    ]
    assert read_card(folder / "run/checkpoint")[0].name == "echo"


def test_two_processes_resume_what_they_trained(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    torchrun("-m", "bireme_lab.training", RECIPE, "--out", str(folder / "run"), "--resume")


def test_gradients_are_averaged_and_numbers_agreed_on() -> None:
    printed = torchrun(__file__)
    assert printed.count("agreed") == 2


def _agree() -> None:
    """Assertions of each of the two processes of the test before."""
    mine, other = (torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(2))
    mine.grad = torch.full((2, 3), 1.0 + 2.0 * rank())
    if rank() == 0:
        other.grad = torch.ones(2, 3)
    average_gradients([mine, other])
    assert mine.grad.eq(2.0).all()
    assert other.grad is not None
    assert other.grad.eq(0.5).all(), "no gradient counts as zeros"
    assert (average(1.0 + rank()), least(1.0 + rank())) == (1.5, 1.0)
    assert (process_seed(7) == 7) == (rank() == 0)
    sys.stdout.write("agreed\n")


if __name__ == "__main__":
    from bireme_lab.training.distributed import start_from_environment

    with start_from_environment():
        _agree()
