"""An operator that records what it saw and decided, and a replay that decides the same again."""

import json
from pathlib import Path
from typing import Any

from bireme.cli import main
from bireme.core.settings import SchedulingSettings
from bireme.replay.reader import open_record
from bireme_operator.leader import LeaderTerm
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import furnish, leading, phases, status, submit, until
from testbed.scenario.manifests import Manifest, priority_class, task, training_job

EAGER = SchedulingSettings(min_runtime_seconds=0, service_threshold=0)


def gang(name: str, workers: int = 4, **spec: Any) -> Manifest:
    """Four workers of 2 GPUs fill a node, for ten minutes."""
    workers_of_2 = task("worker", workers, gpus=2)
    return training_job(name, workers_of_2, estimatedDuration="10m", **spec)


def cycles(term: LeaderTerm, outcome: str) -> float:
    name = "bireme_recorded_cycles_total"
    found = term.metrics.registry.get_sample_value(name, {"outcome": outcome})
    return found or 0.0


def replayed(folder: Path, *arguments: str) -> dict[str, Any]:
    """The output of ``bireme replay`` for the record in ``folder``."""
    target = folder / "replay.json"
    assert main(["replay", str(folder), "--json", str(target), *arguments]) == 0
    document: dict[str, Any] = json.loads(target.read_text())
    return document


async def test_replay_decides_every_recorded_cycle_as_the_operator_did(
    api: FakeApi, tmp_path: Path
) -> None:
    records = tmp_path / "records"
    records.mkdir()
    furnish(api, 2)
    api.put("/apis/scheduling.k8s.io/v1/priorityclasses/high", priority_class("high", 1000))
    leads = leading(api, tmp_path, scheduling=EAGER, record_directory=str(records))
    async with FakeKubelets(api, runs), leads as term:
        submit(api, gang("first"), gang("second"))
        await until(lambda: phases(api) == ["Running", "Running"])
        submit(api, gang("wide", 8), gang("odd", 99))
        await until(lambda: status(api, "odd").get("reason") == "NeverFits")
        submit(api, gang("urgent", priorityClassName="high"))
        await until(lambda: status(api, "urgent").get("phase") == "Running")
        await until(lambda: cycles(term, "written") > 3)
        assert not cycles(term, "lost")
    document = replayed(records, "--policy", "fifo,smallest-first")
    own = document["decisions"]["combined-priority/packing"]
    assert own["cycles"] == own["same"] > 3
    assert document["decisions"]["fifo"]["differences"]["missing_stops"] == 1
    waits = {run["policy"]: run for run in document["waits"]["runs"]}
    assert waits["combined-priority/packing"]["jobs"] == 5
    assert waits["combined-priority/packing"]["preemptions"] == 1
    assert waits["fifo"]["preemptions"] == 0


async def test_end_of_a_gang_is_recorded_though_nobody_waits(api: FakeApi, tmp_path: Path) -> None:
    furnish(api)
    async with FakeKubelets(api), leading(api, tmp_path, record_directory=str(tmp_path)):
        submit(api, gang("job"))
        await until(lambda: status(api).get("phase") == "Succeeded")
        await until(lambda: is_empty(tmp_path))


def is_empty(folder: Path) -> bool:
    """Whether nobody waited or ran in the cycle that was recorded last."""
    *_, moment = open_record([folder]).cycles()
    return not (moment.snapshot.waiting or moment.snapshot.running)


async def test_folder_that_is_missing_stops_nobody(api: FakeApi, tmp_path: Path) -> None:
    furnish(api)
    leads = leading(api, tmp_path, record_directory=str(tmp_path / "missing"))
    async with FakeKubelets(api, runs), leads as term:
        submit(api, gang("job"))
        await until(lambda: status(api).get("phase") == "Running")
        await until(lambda: cycles(term, "lost"))
        assert not cycles(term, "written")
    assert not (tmp_path / "missing").exists()
