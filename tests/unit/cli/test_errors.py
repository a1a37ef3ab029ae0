"""A wrong argument is one line that names it, exit status 2, and never a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from bireme.cli import main

TRACE = ("--trace", "gen:poisson?jobs=5")
NODES = ("--nodes", "2x8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param([], "COMMAND", id="no command"),
        pytest.param(["simulat"], "simulat", id="unknown command"),
        pytest.param(["simulate"], "--trace", id="no trace"),
        pytest.param(["simulate", *TRACE], "argument --nodes", id="no machines"),
        pytest.param(["simulate", *TRACE, "--racks", "2"], "argument --racks", id="racks of what"),
        pytest.param(["simulate", *TRACE, "--nodes", "64"], "argument --nodes", id="nodes"),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--racks", "9"], "argument --nodes, --racks", id="racks"
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--racks", "x"], "argument --racks: 'x'", id="rack count"
        ),
        pytest.param(
            ["simulate", "--trace", "philly:/none.csv", *NODES],
            "argument --trace",
            id="missing file",
        ),
        pytest.param(
            ["simulate", "--trace", "phily:x", *NODES], "did you mean 'philly'?", id="trace format"
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--policy", "fif"], "did you mean 'fifo'?", id="policy"
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--policy", "a/b/c/d"],
            "argument --policy: 'a/b/c/d' is no policy",
            id="too many parts",
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--policy", "fifo/"],
            "argument --policy: 'fifo/' is no policy",
            id="empty part",
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--policy", "fifo,fifo"],
            "argument --policy: 'fifo,fifo' names 'fifo' twice",
            id="policy twice",
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--policy", "no.such:Thing"],
            "argument --policy",
            id="own module",
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--placer", "packng"],
            "argument --placer: no placer is called 'packng'",
            id="placer",
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--sizer", "sparse"],
            "argument --sizer: no sizer is called 'sparse'",
            id="sizer",
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--seed", "1,x"], "argument --seed: '1,x'", id="seed"
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--limit", "0"], "argument --limit: '0'", id="limit"
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--start", "-1"], "argument --start", id="negative start"
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--start", "1e9"], "argument --start", id="late start"
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--wait-bound", "0"],
            "argument --wait-bound: '0'",
            id="wait bound",
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--html", "/no/such/folder/x.html"],
            "argument --html: there is no folder '/no/such/folder'",
            id="no folder",
        ),
        pytest.param(
            ["simulate", *TRACE, *NODES, "--json", "/"], "argument --json: '/' is a folder", id="/"
        ),
        pytest.param(["policies", "--all"], "--all", id="unknown option"),
    ],
)
def test_wrong_argument_is_named_in_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("bireme: ")
    assert printed.err.count("\n") == 1
    assert says in printed.err


def test_damaged_trace_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "philly.csv"
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\nnever,1,1,1,vc\n")
    assert main(["simulate", "--trace", f"philly:{path}", *NODES]) == 2
    error = capsys.readouterr().err
    assert error.startswith("bireme: argument --trace: ")
    assert "timestamp" in error
    assert "'never'" in error


def test_module_with_a_syntax_error_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "half_written.py").write_text("class Mine(:\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", *TRACE, *NODES, "--policy", "half_written:Mine"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "argument --policy: 'half_written:Mine' cannot be created: SyntaxError" in error


def test_program_itself_exits_with_the_status_and_no_traceback() -> None:
    program = [sys.executable, "-m", "bireme.cli", "simulate", "--trace", "nothing", *NODES]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("bireme: argument --trace: 'nothing' names no format")
    assert "Traceback" not in done.stderr
