"""``bireme tune`` on records of simulations: what wins is written, what does not is refused."""

import contextlib
import io
import json
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from bireme.cli import main
from bireme.core.settings import SchedulingSettings
from bireme.kube.api.scheduling_policy import SchedulingPolicy
from bireme.registry import make_orderer
from bireme.rl.lookup import load_named
from bireme.testing import a_gang, a_node, a_snapshot, a_task
from bireme_lab.contest import runs
from bireme_lab.contest.candidates import RULES
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.traces.tables import tasks_of_gpus
from bireme_lab.simulator.workload import Trace, TraceJob
from bireme_lab.tuning import result_files, search
from testbed.recordings import record, simulated_record

LAS = SchedulingSettings(orderer="tiresias-las")
FIFO = SchedulingSettings(orderer="fifo")
SHORT = ("--least-days", "0", "--jobs", "1")
TURNS = 20
SAVES = ("--checkpoint-seconds", "60")


def bursts() -> Trace:
    """Every two hours a long job, and short ones when it has had 1200 device-seconds.

    By a threshold of 1000 they stop it, by the default one they wait for it.
    """
    alone = tasks_of_gpus(1, 1)
    jobs = []
    for turn in range(TURNS):
        at = 7200.0 * turn + 10
        jobs.append(TraceJob(f"{turn:02}-long", at, alone, 3000.0 + 50 * (turn % 4)))
        jobs += [
            TraceJob(f"{turn:02}-{n:02}", at + 1200 + n, alone, 60.0) for n in range(9 + turn % 3)
        ]
    return Trace("bursts", tuple(jobs))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def only_las(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_only_las(monkeypatch)


def leave_only_las(patch: pytest.MonkeyPatch) -> None:
    las = [rule for rule in RULES if rule.orderer == "tiresias-las"]
    patch.setattr(search, "RULES", las)
    patch.setattr(search, "INDEX", "fifo")


@dataclass(frozen=True)
class Tuning:
    """A record of LAS and what a tuning to it wrote, in a folder that no test changes."""

    folder: Path
    numbers: dict[str, Any]
    said: str

    def lay_out(self, *names: str) -> None:
        """Copy files and folders of it into this test's."""
        for name in names:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (self.folder / name).is_dir() else shutil.copy
            copy(self.folder / name, name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Tuning:
    """Return a tuning that nobody cut off."""
    folder, said = tmp_path_factory.mktemp("whole"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        leave_only_las(patch)
        patch.chdir(folder)
        recorded(LAS)
        return Tuning(folder, tuned("--generations", "1"), said.getvalue())


def recorded(settings: SchedulingSettings) -> None:
    simulated_record(Path("record"), bursts(), parse_nodes("1x1"), settings)


def tuned(*arguments: str) -> dict[str, Any]:
    """Tune to the record; return what lies in the folder afterwards."""
    assert main(["tune", "record", *SHORT, *SAVES, *arguments]) == 0
    found: dict[str, Any] = json.loads(Path("tuned/verdict.json").read_text())
    return found


def test_constant_that_wins_is_found_and_written(whole: Tuning) -> None:
    found, verdict = whole.numbers, whole.numbers["verdict"]
    assert verdict["wins"], verdict["reasons"]
    assert verdict["baseline"] == "tiresias-las"
    assert verdict["policy"].startswith("tiresias-las?threshold_device_seconds=")
    assert verdict["jct"]["high"] < 1
    assert verdict["worlds"] == found["record"]["windows"] * 0.3
    assert "It wins. Written:" in whole.said
    policy = yaml.safe_load((whole.folder / "tuned/policy.yaml").read_text())
    (name, value), *_ = policy["spec"]["parameters"]["orderer"].items()
    assert (policy["spec"]["orderer"], name) == ("tiresias-las", "threshold_device_seconds")
    assert value == 1000
    assert SchedulingPolicy.model_validate(policy).spec.stage == "Shadow"
    values = yaml.safe_load((whole.folder / "tuned/values.yaml").read_text())
    assert values["scheduling"]["orderer"] == verdict["policy"]


def test_what_does_not_win_is_refused_with_its_interval(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alike = [
        TraceJob(f"{turn:02}-{n}", 7200.0 * turn + 10 + n, tasks_of_gpus(1, 1), 600.0 + 5 * turn)
        for turn in range(TURNS)
        for n in range(3 + turn % 3)
    ]
    simulated_record(Path("record"), Trace("alike", tuple(alike)), parse_nodes("1x1"), FIFO)
    verdict = tuned("--generations", "1")["verdict"]
    assert not verdict["wins"]
    assert verdict["jct"]["low"] <= 1 <= verdict["jct"]["high"]
    said = capsys.readouterr().out
    assert "the interval contains 1" in said
    assert not Path("tuned/policy.yaml").exists()
    assert not Path("tuned/values.yaml").exists()


@pytest.mark.usefixtures("only_las")
def test_test_of_too_few_days_is_refused_though_it_is_better(whole: Tuning) -> None:
    whole.lay_out("record", "tuned/runs.jsonl")
    assert main(["tune", "record", *SAVES, "--jobs", "1", "--generations", "1"]) == 0
    verdict = json.loads(Path("tuned/verdict.json").read_text())["verdict"]
    assert verdict["jct"]["high"] < 1
    (reason,) = verdict["reasons"]
    assert reason.startswith("the test has 0.48"), "twelve of forty hours"
    assert reason.endswith(
        "days of the 3 that it needs: record for longer, and name another --out"
    ), "the same command prints the verdict"


@pytest.mark.usefixtures("only_las")
def test_tuning_that_was_cut_off_goes_on_and_ends_alike(
    whole: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole.lay_out("record")
    played = len((whole.folder / "tuned/runs.jsonl").read_text().splitlines())
    timed, left = runs._measure_play, iter(range(played // 2))

    def cut_off(*pair: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return timed(*pair)

    monkeypatch.setattr(runs, "_measure_play", cut_off)
    assert main(["tune", "record", *SHORT, *SAVES, "--generations", "1"]) == 130
    assert not Path("tuned/verdict.json").exists()
    monkeypatch.setattr(runs, "_measure_play", timed)
    assert tuned("--generations", "1") == whole.numbers
    assert len(Path("tuned/runs.jsonl").read_text().splitlines()) == played
    policy = whole.folder / "tuned/policy.yaml"
    assert Path("tuned/policy.yaml").read_text() == policy.read_text()


@pytest.mark.usefixtures("only_las")
def test_test_is_looked_at_once(whole: Tuning, monkeypatch: pytest.MonkeyPatch) -> None:
    whole.lay_out("record", "tuned")

    def refuse(*_: object) -> None:
        raise AssertionError("played again")

    monkeypatch.setattr(runs, "_measure_play", refuse)
    monkeypatch.setattr(search, "verdict", refuse)
    assert tuned("--generations", "1") == whole.numbers


def test_folder_of_another_tuning_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    recorded(FIFO)
    Path("tuned").mkdir()
    assert main(["tune", "record", *SHORT, "--generations", "3", "--jobs", "0"]) == 2
    Path("tuned/plan.json").write_text(
        f'{{"bireme":"{version("bireme")}"'
        ',"generations":4,"restart_seconds":30.0,"checkpoint_seconds":1800.0,'
        '"least_days":0.0,"began":0.0,"ended":1.0}'
    )
    capsys.readouterr()
    assert main(["tune", "record", *SHORT, "--generations", "3"]) == 2
    said = capsys.readouterr().err
    assert "--out: 'tuned' was begun with generations 4 instead of 3; name another" in said


@pytest.mark.parametrize("seconds", [(), (0.0,), (0.0, 50.0)], ids=["none", "one", "nobody ended"])
def test_record_that_says_nothing_is_refused(
    seconds: tuple[float, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    waits = a_gang("waits", a_task(99))
    Path("record").mkdir()
    if seconds:
        record(
            Path("record"),
            *(a_snapshot([a_node("n0")], waits, now=1e9 + now) for now in seconds),
        )
    assert main(["tune", "record"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("bireme: argument RECORD: ")
    assert ("record for longer" in said) or ("no record-" in said) or ("until some have" in said)


@pytest.mark.usefixtures("only_las")
def test_record_that_was_too_short_is_taken_once_it_is_longer() -> None:
    waits = a_gang("waits", a_task(99))
    Path("record").mkdir()
    record(Path("record"), *(a_snapshot([a_node("n0")], waits, now=1e9 + at) for at in (0.0, 50.0)))
    arguments = ["tune", "record", *SHORT, "--generations", "0"]
    assert main(arguments) == 2
    shutil.rmtree("record")
    short = [TraceJob(f"{n:02}", 100.0 * n + 5, tasks_of_gpus(1, 1), 50.0) for n in range(TURNS)]
    simulated_record(Path("record"), Trace("short", tuple(short)), parse_nodes("1x1"), FIFO)
    assert main(arguments) == 0


def test_file_that_is_no_record_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("nothing\n")
    assert main(["tune", "notes.txt"]) == 2
    assert "argument RECORD: notes.txt line 1: no first line of a record" in capsys.readouterr().err


def test_it_begins_nothing_without_the_extra_that_reads_the_index(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(FIFO)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["tune", "record", *SHORT]) == 1
    assert "pip install '.[serve]'" in capsys.readouterr().err
    assert not list(Path("tuned").iterdir()), "the folder is free for the next attempt"


def test_index_that_wins_is_a_checkpoint_with_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a record by which shortest first wins, and where only the index may be chosen."""
    whole = tasks_of_gpus(8, 8)
    jobs = [
        TraceJob(
            f"{hour:02}-{n}", 3600.0 * hour + 20 * n, whole, seconds, estimated_seconds=seconds
        )
        for hour in range(TURNS)
        for n, seconds in enumerate((1500.0, 900.0 + hour, 50.0, 40.0, 30.0))
    ]
    simulated_record(Path("record"), Trace("mix", tuple(jobs)), parse_nodes("1x8"), FIFO)
    monkeypatch.setattr(search, "RULES", ())
    monkeypatch.setattr(search, "INDEX", "fifo")
    found = tuned("--generations", "2")
    assert found["verdict"]["wins"], found["verdict"]["reasons"]
    policy = yaml.safe_load(Path("tuned/policy.yaml").read_text())
    assert SchedulingPolicy.model_validate(policy).spec.orderer is None, "it is the checkpoint's"
    named = policy["spec"]["checkpoint"]
    served = load_named(named["name"], "tuned", named["sha256"])
    assert served.card.results[0].value == found["verdict"]["jct"]["mean"]
    assert served.card.training["steps"] == 2 * 8 * 4
    assert make_orderer(f"checkpoint:tuned/{result_files.NAME}")
    assert "tuned/tuned" in found["files"]
