"""``bireme replay`` from a record to its report, over small worlds."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bireme.cli import main
from bireme.core.decision import Decision
from bireme.core.settings import SchedulingSettings
from bireme.replay.writer import record_files
from bireme.testing import GIB, a_gang, a_node, a_running, a_snapshot, a_task, with_running
from testbed.recordings import RecordedCluster, a_writer, record

PATIENT = SchedulingSettings(preemption=False)
OWN = "combined-priority/packing"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An hour on one node: ``long`` runs, ``short`` and ``urgent`` wait, the latter goes first."""
    world = RecordedCluster([a_node("n0")], settings=PATIENT, folder=tmp_path, now=1e9)
    arrivals = {
        0: (a_gang("long", a_task(8), estimated_seconds=600.0), 600.0),
        60: (a_gang("short", a_task(8)), 60.0),
        120: (a_gang("urgent", a_task(8), priority=1000), 120.0),
    }
    world.decide()
    for second in range(0, 3600, 20):
        world.advance(1e9 + second)
        if second in arrivals:
            world.submit(*arrivals[second])
        world.settle()
    world.writer.close()
    assert not world.problems
    return tmp_path


def replayed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    """The report that ``--json -`` prints."""
    assert main(["replay", *map(str, arguments), "--json", "-"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_report_says_in_how_many_cycles_the_record_is_decided_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(folder), "--policy", "fifo"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].endswith(f"3 gangs on 1 node, by {OWN}")
    cycles = int(lines[0].split()[0])
    assert lines[1] == f"{OWN} decides {cycles} of {cycles} cycles exactly as recorded."
    waits = "wait mean 6.3 min, p50 8.0 min, p99 11 min"
    assert f"As it was: {waits} over the 3 gangs that started." in lines
    at = lines.index("2 gangs would wait another time under fifo, most of all:")
    assert [" ".join(line.split()) for line in lines[at + 1 :]] == [
        "default/short 11 min -> 9.0 min",
        "default/urgent 8.0 min -> 9.0 min",
    ]
    assert printed.err == ""


def test_simulation_of_the_own_policy_waits_as_it_was(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = replayed(capsys, folder, "--policy", "fifo,srtf")
    assert list(document["decisions"]) == [OWN, "fifo", "srtf"]
    own, fifo, _ = document["waits"]["runs"]
    actual = document["waits"]["actual"]
    assert [own[f"{key}_wait_seconds"] for key in ("mean", "p50", "p99")] == [
        actual[key] for key in ("mean", "p50", "p99")
    ]
    assert fifo["mean_wait_seconds"] < own["mean_wait_seconds"]
    assert document["record"]["gangs"] == own["finished"] == 3
    assert document["record"]["torn_lines"] == document["record"]["lost_cycles"] == 0


def test_without_another_policy_the_record_alone_is_checked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = replayed(capsys, *record_files(folder))
    assert list(document["decisions"]) == [OWN]
    assert document["decisions"][OWN]["same"] == document["decisions"][OWN]["cycles"]


def test_gangs_found_running_hold_their_places_from_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``new`` waits for ``old``, which was found running and goes on for 40 s."""
    new = a_gang("new", a_task(8), arrived=1e9, estimated_seconds=30.0)
    bare = a_snapshot([a_node("n0")], now=1e9)
    old = a_running(a_gang("old", a_task(8)), bare.nodes, {"n0": 8}, started=1e9 - 50)
    waits = replace(with_running(bare, old), waiting=(new,))
    starts = replace(bare, waiting=(new,), now=1e9 + 40)
    runs = with_running(
        replace(bare, now=1e9 + 41), a_running(new, bare.nodes, {"n0": 8}, started=1e9 + 40)
    )
    record(tmp_path, waits, starts, runs, replace(bare, now=1e9 + 70))
    document = replayed(capsys, tmp_path)
    (run,) = document["waits"]["runs"]
    assert (run["jobs"], run["mean_wait_seconds"], run["mean_jct_seconds"]) == (1, 40.0, 70.0)
    assert document["record"]["gangs"] == 2


def test_pods_outside_all_gangs_keep_their_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node of which others use half the memory takes one gang after the other."""
    jobs = [
        a_gang(name, a_task(1, memory_bytes=500 * GIB), arrived=1e9, estimated_seconds=10.0)
        for name in ("one", "two")
    ]
    bare = a_snapshot([a_node("n0")], *jobs, now=1e9)
    used = bare.used.copy()
    used[0, bare.nodes.axis.names.index("memory")] = 512 * GIB
    record(tmp_path, replace(bare, used=used))
    (run,) = replayed(capsys, tmp_path)["waits"]["runs"]
    assert (run["jobs"], run["max_wait_seconds"]) == (2, 10.0)


def test_record_of_an_idle_cluster_has_no_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, a_snapshot([a_node("n0")]))
    assert main(["replay", str(tmp_path)]) == 0
    assert "No gang came in this record" in capsys.readouterr().out


def test_torn_line_and_lost_cycles_are_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = a_writer(folder, run="next", settings=PATIENT)
    writer.lost = 7
    writer.write(a_snapshot([a_node("n0")], now=2e9), Decision())
    writer.close()
    first, _ = record_files(folder)
    first.write_bytes(first.read_bytes()[:-3])
    assert main(["replay", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "7 cycles more could not be recorded." in printed
    assert "1 last line cut off and left out." in printed
    assert "The operator began anew 1 time." in printed


def test_record_that_is_decided_otherwise_is_reported_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody recorded that nothing was decided."""
    writer = a_writer(tmp_path)
    writer.write(a_snapshot([a_node("n0")], a_gang("one")), Decision())
    writer.close()
    (path,) = record_files(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"outline":{', b'"outline":{"holds":{"one":"x"},'))
    assert main(["replay", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert f"{OWN} decides 0 of 1 cycles exactly as recorded." in printed
    assert f"The first other one: {path} line 2." in printed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{folder}/none"], "argument RECORD: {folder}/none cannot be read: No such file"),
        (["{folder}", "--policy", "fif"], "did you mean 'fifo'?"),
        (["{folder}", "--policy", "fifo,fifo"], "names 'fifo' twice"),
        (["{folder}", "--json", "{folder}"], "is a folder"),
        ([], "RECORD"),
    ],
)
def test_wrong_argument_is_one_line_and_status_2(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, a_snapshot([a_node("n0")]))
    assert main(["replay", *(word.format(folder=tmp_path) for word in arguments)]) == 2
    printed = capsys.readouterr().err
    assert says.format(folder=tmp_path) in printed
    assert printed.startswith("bireme: ")
    assert printed.count("\n") == 1


def test_damaged_line_is_one_line_and_status_2(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = record_files(folder)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"{}\n", *lines[3:]]))
    assert main(["replay", str(path)]) == 2
    assert f"argument RECORD: {path} line 3: it is no line of a record" in capsys.readouterr().err
