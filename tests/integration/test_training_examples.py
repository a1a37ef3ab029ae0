"""The examples that train and evaluate, admitted as jobs and run on this machine."""

import csv
import re
from pathlib import Path
from typing import Any

from bireme.kube import names
from testbed.controlplane.process import free_ports
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs, start
from testbed.operator_term.term import (
    furnish,
    leading,
    phases,
    pods,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import documents
from testbed.toys.recipe import ENVS, UPDATES

RECIPE = "testbed.toys.recipe:EchoRecipe"
MAX_SECONDS = 300


async def admitted(api: FakeApi, jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """The pods of ``jobs``, once all run."""
    furnish(api)
    for job in jobs:
        submit(api, job)
    async with FakeKubelets(api, runs), leading(api, folder):
        await until(lambda: phases(api) == ["Running"] * len(jobs))
    return sorted(pods(api), key=lambda pod: str(pod["metadata"]["name"]))


def jobs_of(found: list[dict[str, Any]]) -> list[str]:
    return sorted({pod["metadata"]["labels"][names.JOB_LABEL] for pod in found})


def train(found: list[dict[str, Any]], folder: Path, swapped: dict[str, str]) -> str:
    """Output of the programs of these pods, run here together until all have ended well."""
    log = folder / "log"
    (port,) = free_ports(1)
    here = {**swapped, "29500": str(port)}
    programs = [start(pod, here, log) for pod in found]
    try:
        ended = [program.wait(MAX_SECONDS) for program in programs]
    finally:
        for program in programs:
            program.kill()
    assert ended == [0] * len(found), log.read_text()
    return log.read_text()


async def test_replicas_of_the_training_example_start_as_a_gang_and_train_together(
    api: FakeApi, tmp_path: Path
) -> None:
    both = await admitted(api, documents("08-train-a-policy.yaml"), tmp_path)
    assert [pod["metadata"]["name"] for pod in both] == ["train-a2c-master-0", "train-a2c-worker-0"]
    (plan,) = [status(api, job)["plan"] for job in jobs_of(both)]
    assert {place["task"] for place in plan["placements"]} == {"master", "worker"}
    train(both, tmp_path, {"/runs/a2c": str(tmp_path / "run"), "a2c": RECIPE})
    with (tmp_path / "run" / "curves.csv").open(newline="") as lines:
        steps = [int(row["step"]) for row in csv.DictReader(lines)]
    assert steps[-1] == 2 * 2 * ENVS * UPDATES


async def test_shares_of_a_comparison_are_jobs_of_their_own(api: FakeApi, tmp_path: Path) -> None:
    found = await admitted(api, documents("09-compare-policies.yaml"), tmp_path)
    shards = [pod["spec"]["containers"][0]["args"][1] for pod in found]
    assert shards == [f"{i}/{len(found)}" for i in range(len(found))]
    assert jobs_of(found) == ["compare-0", "compare-1", "compare-2"]


async def test_the_elastic_example_trains_to_its_end_and_takes_less_loss(
    api: FakeApi, tmp_path: Path
) -> None:
    config, job = documents("10-elastic-torch.yaml")
    job["spec"]["tasks"][0]["minReplicas"] = 2  # or the first may begin before the second is there
    (tmp_path / "train.py").write_text(config["data"]["train.py"])
    found = (await admitted(api, [job], tmp_path))[:2]
    swapped = {"/workspace": str(tmp_path), "/state": str(tmp_path), "200000": "300"}
    losses = re.findall(
        r"^step (\d+), loss (\S+), 2 processes$", train(found, tmp_path, swapped), re.MULTILINE
    )
    assert [int(step) for step, _ in losses] == [100, 200, 300]
    assert float(losses[-1][1]) < float(losses[0][1])
