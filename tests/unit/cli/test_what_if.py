"""``bireme why --what-if`` and ``bireme submit --dry-run`` from a record to their words."""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from bireme.cli import main
from bireme.cli.what_if import ASSUMPTIONS
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from bireme.testing import GPU, a_gang, a_node, a_task
from testbed.recordings import RecordedCluster

NOW = 1e9
QUEUES = (Queue("default"), Queue("small", limit={GPU: 2}), Queue("shut", is_open=False))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two minutes on two nodes: ``long`` runs on one and a half, ``large`` waits for both."""
    world = RecordedCluster(
        [a_node("n0"), a_node("n1")],
        settings=SchedulingSettings(preemption=False),
        folder=tmp_path,
        now=NOW,
        queues=QUEUES,
    )
    arrivals = {
        0: a_gang("long", a_task(12), estimated_seconds=600.0),
        60: a_gang("large", a_task(16), estimated_seconds=60.0),
        80: a_gang("huge", a_task(17)),
        100: a_gang("held", a_task(4), queue="small", namespace="nlp", estimated_seconds=60.0),
    }
    world.decide()
    for second in range(0, 120, 20):
        world.advance(NOW + second)
        if second in arrivals:
            world.submit(arrivals[second], 1000.0)
        world.settle()
    world.writer.close()
    assert not world.problems
    return tmp_path


class Asker:
    """Asks the record as a person would; exit status, output and errors."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = folder, capsys

    def __call__(self, *arguments: str, is_recorded: bool = True) -> tuple[int, str, str]:
        record = ["--record", str(self._folder)] if is_recorded else []
        status = main([*arguments, *record])
        captured = self._capsys.readouterr()
        return status, captured.out, captured.err

    def file(self, *manifests: dict[str, Any]) -> str:
        path = self._folder.parent / f"{self._folder.name}.yaml"
        path.write_text(yaml.safe_dump_all(manifests))
        return str(path)

    def data(self, *arguments: str) -> dict[str, Any]:
        status, out, _ = self(*arguments, "-o", "json")
        assert status == 0
        found: dict[str, Any] = json.loads(out)
        assert found["apiVersion"] == "cli.bireme.dev/v1"
        return found


@pytest.fixture
def ask(folder: Path, capsys: pytest.CaptureFixture[str]) -> Asker:
    return Asker(folder, capsys)


def job(name: str = "new", replicas: int = 4, **spec: Any) -> dict[str, Any]:
    resources = {"limits": {GPU: 1}, "requests": {"cpu": "1", "memory": "1Gi"}}
    pod = {"spec": {"containers": [{"name": "main", "image": "x", "resources": resources}]}}
    tasks = [{"name": "worker", "role": "worker", "replicas": replicas, "template": pod}]
    head = {"apiVersion": names.API_VERSION, "kind": "TrainingJob", "metadata": {"name": name}}
    return {**head, "spec": {"queue": "default", "estimatedDuration": "1h", "tasks": tasks} | spec}


def test_a_new_job_is_told_when_where_behind_whom_and_what_is_sooner(ask: Asker) -> None:
    status, out, err = ask("submit", ask.file(job()), "--dry-run")
    assert (status, err) == (0, "")
    waits = (
        "WaitingBehind: fits now, but would take places kept for default/large from "
        "2001-09-09T01:56:40Z on; it may start with a spec.estimatedDuration that ends before "
        "then; 1 ahead"
    )
    assert out.splitlines() == [
        "TrainingJob default/new: 4 worker, queue default, priority 0, runs 1h",
        "at 2001-09-09T01:48:20Z, by combined-priority/packing",
        "",
        "starts    in 10 min, 2001-09-09T01:57:40Z",
        "places    worker: 4 on n0",
        f"waits for {waits}",
        "order     position 2, behind default/large",
        "sooner    with estimate 8m20s: at once",
        "no sooner with 3 worker, 2 worker, 1 worker",
        "",
        ASSUMPTIONS,
    ]


def test_a_waiting_job_is_told_what_a_change_would_do(ask: Asker) -> None:
    asked = ("why", "large", "--what-if", "replicas=4", "--what-if", "estimate=5m")
    found = ask.data(*asked)
    assert found["kind"] == "WhatIf"
    assert found["gang"]["replicas"] == {"worker": 4}
    assert found["gang"]["estimatedSeconds"] == 300.0
    assert (found["begins"], found["waitSeconds"]) == ("AtOnce", 0.0)
    assert found["nodes"] == {"worker": {"n1": 4}}


def test_what_a_person_has_tried_is_reported_either_way(ask: Asker) -> None:
    tries = ("--try", "queue=default", "--try", "class=high", "--priority-class", "high=100")
    found = ask.data("why", "held", *tries)  # it is the only one of its name
    assert (found["gang"]["namespace"], found["reason"]) == ("nlp", "NeverFits")
    first = found["sooner"][0]
    assert (first["change"], first["begins"]) == ({"queue": "default"}, "AtOnce")
    assert {"priorityClass": "high"} in found["noSooner"]


def test_jobs_of_one_file_wait_beside_each_other(ask: Asker) -> None:
    file = ask.file(job("a", 4, estimatedDuration="5m"), job("b", 4, estimatedDuration="5m"))
    found = ask.data("submit", file, "--dry-run")
    assert found["kind"] == "WhatIfList"
    assert [each["begins"] for each in found["items"]] == ["AtOnce", "Later"]


def test_a_new_job_is_read_as_the_operator_reads_it(ask: Asker) -> None:
    manifest = job(queue=None)
    pod = manifest["spec"]["tasks"][0]["template"]["spec"]
    pod["nodeSelector"] = {"kubernetes.io/hostname": "n9"}
    pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    manifest["metadata"]["namespace"] = "nlp"
    (found,) = ask.data("submit", ask.file(manifest), "--dry-run")["items"]
    assert (found["begins"], found["reason"]) == ("NotForeseen", "NeverFits")
    assert found["remarks"] == [
        "spec.queue names none: default is assumed, as for namespaces without a label",
        "what its claims of volumes and devices ask of nodes is not minded",
    ]


def test_once_the_time_is_over_the_answer_says_what_it_lacks(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 25)  # every look at it finds 25 s later
    monkeypatch.setattr("bireme.cli.what_if.time", SimpleNamespace(monotonic=lambda: next(clock)))
    _, out, _ = ask("submit", ask.file(job()), "--dry-run")
    assert "starts    in 10 min, 2001-09-09T01:57:40Z" in out
    assert "no sooner" not in out
    assert "The time limit left some changes untried; name those that matter by --try." in out


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["why", "nobody"], 1, "no TrainingJob default/nobody waits; name one that does"),
        (["why", "long"], 1, "TrainingJob default/long has its places already"),
        (["why", "large", "--what-if", "replicas=0"], 2, "--what-if: replicas: '0' is not a whole"),
        (["why", "large", "--what-if", "size=9"], 2, "argument --what-if: size: is no key; write"),
        (["why", "large", "--try", "queue=none"], 2, "argument --try: queue: there is no queue"),
        (["why", "large", "--try", "estimate=soon"], 2, "--try: estimate: 'soon' is no duration"),
        (
            ["why", "large", "--what-if", "class=high"],
            2,
            "--what-if: class: a record holds no PriorityClass; state the value of this one by",
        ),
        (["why", "large", "--priority-class", "high=x"], 2, "high: 'x' is not a whole"),
        (["why", "large", "--what-if", "queue=a", "--what-if", "queue=b"], 2, "is given twice"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    ask: Asker, arguments: list[str], status: int, words: str
) -> None:
    came, out, err = ask(*arguments)
    assert (came, out) == (status, "")
    assert words in err


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (job(tasks=[]), "error: TrainingJob new: spec.tasks: "),
        (job(queue="defualt"), "spec.queue: there is no queue 'defualt'; name one of: default"),
        (job(queue="shut"), "spec.queue: queue 'shut' is closed"),
        (job(priorityClassName="high"), "state the value of this one by --priority-class high="),
        (job("long"), "metadata.name: a TrainingJob default/long exists already"),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
            "argument MANIFEST: has no TrainingJob",
        ),
    ],
)
def test_a_manifest_meets_the_errors_of_submit(
    ask: Asker, manifest: dict[str, Any], words: str
) -> None:
    status, out, err = ask("submit", ask.file(manifest), "--dry-run")
    assert (status, out) == (1, "")
    assert words in err


def test_what_is_of_a_dry_run_alone_is_refused_where_jobs_would_be_sent(ask: Asker) -> None:
    status, _, err = ask("submit", ask.file(job()))
    assert status == 2
    assert "argument --record: needs --dry-run" in err
