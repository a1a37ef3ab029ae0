"""Bireme's own training and evaluation as jobs of Bireme: the examples, admitted and run."""

import csv
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from bireme.kube import names
from fakeapi import FakeApi
from kubeobjects.kubelets import FakeKubelets, runs
from kubeobjects.terms import GROUPS, furnish, leading, phases, pods, status, submit, until
from toyworlds.recipe import UPDATES, WORLDS

ROOT = Path(__file__).parents[2]
RECIPE = "toyworlds.recipe:EchoRecipe"
LONGEST_SECONDS = 120


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "manifests" / "examples" / name).read_text()))


async def admitted(api: FakeApi, jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """The pods of ``jobs``, once all run."""
    furnish(api)
    for job in jobs:
        submit(api, job)
    async with FakeKubelets(api, runs), leading(api, folder):
        await until(lambda: phases(api) == ["Running"] * len(jobs))
    return sorted(pods(api), key=lambda pod: str(pod["metadata"]["name"]))


def variables(pod: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}


def jobs_of(found: list[dict[str, Any]]) -> list[str]:
    return sorted({pod["metadata"]["labels"][names.JOB_LABEL] for pod in found})


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def started(pod: dict[str, Any], out: Path, port: int) -> subprocess.Popen[str]:
    """The program of ``pod``, here, with a recipe of seconds and this machine's address."""
    container = pod["spec"]["containers"][0]
    words: list[str] = [*container["command"], *container["args"]]
    here = {
        "PYTHONPATH": str(ROOT / "tools"),
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    swapped = {"a2c": RECIPE, "/runs/a2c": str(out)}
    return subprocess.Popen(
        [
            Path(sys.executable).with_name(words[0]),
            *(swapped.get(word, word) for word in words[1:]),
        ],
        env={**os.environ, **variables(pod), **here},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


async def test_replicas_of_the_training_example_start_as_a_gang_and_train_together(
    api: FakeApi, tmp_path: Path
) -> None:
    both = await admitted(api, documents("08-train-a-policy.yaml"), tmp_path)
    assert [pod["metadata"]["name"] for pod in both] == ["train-a2c-master-0", "train-a2c-worker-0"]
    (plan,) = [status(api, group, GROUPS)["plan"] for group in jobs_of(both)]
    assert {place["task"] for place in plan["placements"]} == {"master", "worker"}
    port = free_port()
    programs = [started(pod, tmp_path / "run", port) for pod in both]
    try:
        said = [program.communicate(timeout=LONGEST_SECONDS)[0] for program in programs]
    finally:
        for program in programs:
            program.kill()
    assert [program.returncode for program in programs] == [0, 0], said
    with (tmp_path / "run" / "curves.csv").open(newline="") as lines:
        steps = [int(row["step"]) for row in csv.DictReader(lines)]
    assert steps[-1] == 2 * 2 * WORLDS * UPDATES


async def test_shares_of_a_comparison_are_jobs_of_their_own(api: FakeApi, tmp_path: Path) -> None:
    found = await admitted(api, documents("09-compare-policies.yaml"), tmp_path)
    shards = [pod["spec"]["containers"][0]["args"][1] for pod in found]
    assert shards == [f"{i}/{len(found)}" for i in range(len(found))]
    assert jobs_of(found) == ["compare-0", "compare-1", "compare-2"]
