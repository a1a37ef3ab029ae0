"""``bireme simulate`` from its arguments to its files, over small generated workloads."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bireme.cli import main
from bireme_lab.cli import simulate
from bireme_lab.simulator.metrics import KEYS

SMALL = ("simulate", "--trace", "gen:poisson?jobs=30", "--nodes", "2x8")
OWN_POLICIES = '''
from bireme.core.policy import Ranked
from bireme.heuristics.packing import Packing

class LastFirst:
    """The last to arrive goes first."""
    def order(self, gangs, snapshot):
        ordered = sorted(gangs, key=lambda gang: (-gang.arrived, gang.uid))
        return [Ranked(gang, gang.arrived) for gang in ordered]

class Broken:
    """Never gives a valid answer."""
    def order(self, gangs, snapshot):
        return []

class Unmakeable(LastFirst):
    """Raises what no library foresees."""
    def __init__(self):
        raise ZeroDivisionError("no luck")
'''


def numbers(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The report that ``--json -`` prints."""
    assert main([*SMALL, *arguments, "--json", "-"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.fixture
def own_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder, which is on no import path."""
    name = f"own_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(OWN_POLICIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return name


def test_table_compares_the_policies_in_the_order_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*SMALL, "--policy", "srtf,fifo"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0] == "gen:poisson?jobs=30: 30 jobs on 2 nodes with 16 GPUs"
    assert [line.split()[0] for line in lines[2:5]] == ["policy", "srtf", "fifo"]
    assert printed.err == ""


def test_json_has_every_documented_key_for_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    document = numbers(capsys, "--policy", "fifo,srtf", "--seed", "0,1")
    assert [(run["policy"], run["seed"]) for run in document["runs"]] == [
        *(("fifo", 0), ("fifo", 1)),
        *(("srtf", 0), ("srtf", 1)),
    ]
    assert all(list(run) == list(KEYS) for run in document["runs"])
    assert document["cluster"] == {"nodes": 2, "gpus": 16}
    assert document["trace"]["jobs"] == 30
    assert document["command"].startswith("bireme simulate --trace 'gen:poisson?jobs=30'")
    first, second = document["comparison"]["policies"]
    assert first["ratios_to_first"]["mean_jct_seconds"]["mean"] == 1
    assert second["means"]["mean_jct_seconds"]["low"] is not None


def test_same_arguments_give_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    def settled() -> list[dict[str, Any]]:
        runs = numbers(capsys, "--policy", "combined-priority", "--seed", "3")["runs"]
        return [run | {"decision_seconds": 0} for run in runs]

    assert settled() == settled()


def test_generated_workloads_differ_by_seed(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = numbers(capsys, "--seed", "0,1")["runs"]
    assert one["makespan_seconds"] != other["makespan_seconds"]


def test_page_is_written_for_all_policies_of_the_first_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.html"
    arguments = ("--policy", "fifo,srtf", "--seed", "0,1", "--html", str(target))
    assert main([*SMALL, *arguments]) == 0
    text = target.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.count('class="map"') == 2
    assert capsys.readouterr().out.startswith("gen:poisson")


def test_policy_names_orderer_placer_and_sizer_by_slashes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["fifo", "fifo/load-balance", "fifo/best-fit"]
    runs = numbers(capsys, "--policy", ",".join(names), "--placer", "load-balance")["runs"]
    assert [run["policy"] for run in runs] == names
    spread, same, packed = (run["mean_fragmentation"] for run in runs)
    assert spread == same != packed


def test_limit_and_start_cut_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert numbers(capsys, "--limit", "7")["trace"]["jobs"] == 7
    assert 0 < numbers(capsys, "--start", "600")["trace"]["jobs"] < 30


def test_without_preemption_nothing_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--policy", "srtf", "--estimates", "true")
    assert numbers(capsys, *arguments)["runs"][0]["preemptions"] > 0
    assert numbers(capsys, *arguments, "--no-preemption")["runs"][0]["preemptions"] == 0


def test_node_pools_are_compared_by_how_they_look_ahead(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # By the default order a pool that can still grow stops nobody, and one that cannot does.
    arguments = ("--policy", "fifo", "--pools", "0:60", "--floor", "fixed,reactive")
    fixed, reactive = numbers(capsys, *arguments)["runs"]
    assert [fixed["policy"], reactive["policy"]] == ["fifo, fixed", "fifo, reactive"]
    assert fixed["node_hours"] == pytest.approx(2 * fixed["makespan_seconds"] / 3600)
    assert reactive["node_hours"] < fixed["node_hours"]
    assert fixed["short_hours"] < reactive["short_hours"]


def test_table_of_node_pools_shows_node_hours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--pools", "1"]) == 0
    header = capsys.readouterr().out.splitlines()[2]
    assert "node-hours  hours short" in header
    assert numbers(capsys)["runs"][0]["short_hours"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pools", "3"), "argument --pools: pools is '3', of which '3' is no MIN"),
        (("--pools", "1", "--floor", "lps"), "argument --floor: no floor is called 'lps'; did you"),
        (("--floor", "lsp"), "argument --floor: has no effect without --pools"),
    ],
)
def test_pools_that_cannot_be_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert main([*SMALL, *arguments]) == 2
    assert words in capsys.readouterr().err


def test_physics_that_was_measured_makes_jobs_slower_and_fails_nodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain, measured, failing = (
        numbers(capsys, "--policy", "fifo", *arguments)
        for arguments in (
            (),
            ("--physics", "measured"),
            ("--physics", "plain?node_mtbf_seconds=3000&node_repair_seconds=600"),
        )
    )
    mean_jct = [each["runs"][0]["mean_jct_seconds"] for each in (plain, measured, failing)]
    assert mean_jct[0] < min(mean_jct[1:])
    assert plain["physics"]["node_mtbf_seconds"] is None
    assert plain["physics"]["per_neighbour"] == 1
    assert measured["physics"]["per_neighbour"] < 1
    assert measured["physics"]["fluctuation"]["median_variation"] > 0
    assert failing["physics"] == plain["physics"] | {
        "node_mtbf_seconds": 3000,
        "node_repair_seconds": 600,
    }


@pytest.mark.parametrize(
    ("physics", "words"),
    [
        ("mesured", "no physics is called 'mesured'; did you mean 'measured'?"),
        ("plain?node_mtbf=1", "no option is called 'node_mtbf'; did you mean 'node_mtbf_seconds'?"),
        ("plain?machines=1", "no option is called 'machines'; "),
        ("plain?over_racks=2", "over_racks is 2.0; it must be above 0, up to 1"),
        ("measured?start_seconds=soon", "start_seconds is 'soon'; it must be a number"),
    ],
)
def test_physics_that_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str], physics: str, words: str
) -> None:
    assert main([*SMALL, "--physics", physics]) == 2
    assert f"argument --physics: {words}" in capsys.readouterr().err


def test_wait_bound_is_the_one_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    late = numbers(capsys, "--policy", "fifo", "--wait-bound", "1")["runs"][0]
    assert late["wait_bound_violations"] > 0
    assert numbers(capsys, "--policy", "fifo")["runs"][0]["wait_bound_violations"] == 0


def test_policies_know_of_run_times_what_the_arguments_say(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def mean_jct(estimates: str) -> float:
        runs = numbers(capsys, "--policy", "sjf", "--estimates", estimates)["runs"]
        return float(runs[0]["mean_jct_seconds"])

    assert mean_jct("true") < mean_jct("history") != mean_jct("stated")


def test_machines_of_the_trace_serve_where_none_are_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["simulate", "--trace", "gen:tapfinger", "--limit", "5"]) == 0
    assert capsys.readouterr().out.startswith("gen:tapfinger: 5 jobs on 3 nodes with 48 GPUs\n")


def test_cluster_without_gpus_has_a_page_without_a_map_of_them(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    arguments = ["simulate", "--trace", "gen:a2c", "--limit", "5", "--html", str(target)]
    assert main(arguments) == 0
    text = target.read_text(encoding="utf-8")
    assert 'class="map"' not in text
    assert "Gangs waiting" in text


def test_class_of_ones_own_is_found_in_the_current_folder(
    own_policies: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{own_policies}:LastFirst"
    first, second = numbers(capsys, "--policy", f"fifo,{name}")["runs"]
    assert second["policy"] == name
    assert second["fallbacks"] == 0
    assert second["max_wait_seconds"] > first["max_wait_seconds"]


def test_policy_that_never_answers_is_shown_as_what_it_is(
    own_policies: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, "--policy", f"{own_policies}:Broken"]) == 0
    assert "gave no valid answer in" in capsys.readouterr().out


def test_class_that_cannot_be_made_is_one_line(
    own_policies: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{own_policies}:Unmakeable"
    assert main([*SMALL, "--policy", name]) == 2
    error = capsys.readouterr().err
    assert error == (
        f"bireme: argument --policy: {name!r} cannot be created: ZeroDivisionError: no luck\n"
    )


def test_interrupt_ends_with_a_line_and_its_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate, "carry_out", interrupted)
    assert main(SMALL) == 130
    assert capsys.readouterr().err == "bireme: interrupted\n"


def test_reader_that_goes_away_is_no_error() -> None:
    """As in ``bireme policies | true``."""
    program = [sys.executable, "-m", "bireme.cli", "policies"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 1


def test_record_of_a_simulation_is_decided_and_simulated_again_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = numbers(capsys, "--policy", "tiresias-las", "--record", str(tmp_path / "record"))
    assert main(["replay", str(tmp_path / "record"), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    ((_, decided),) = found["decisions"].items()
    assert decided["same"] == decided["cycles"] > 30
    (again,) = found["waits"]["runs"]
    same = ("finished", "preemptions", "mean_wait_seconds", "mean_jct_seconds")
    assert [again[key] for key in same] == [recorded["runs"][0][key] for key in same]


def test_record_of_a_simulation_needs_an_empty_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").touch()
    assert main([*SMALL, "--record", str(tmp_path)]) == 2
    assert "--record" in (said := capsys.readouterr().err)
    assert "is not an empty folder" in said
