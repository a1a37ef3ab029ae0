"""Local programs that a test starts, freezes and kills, and that never outlive it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.process import (
    FIRST,
    Process,
    answers,
    command_line,
    ended,
    free_ports,
    is_free,
    processes_from,
)
from testbed.controlplane.waiting import wait_until

ROOT = Path(__file__).parents[3]


@pytest.fixture
def server(tmp_path: Path) -> Process:
    (tmp_path / "readyz").write_text("ok")
    (port,) = free_ports(1)
    module = ["-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    command = [sys.executable, *module]
    return Process("server", command, tmp_path / "log", f"http://127.0.0.1:{port}/readyz")


def test_program_starts_is_ready_and_ends_on_request(server: Process) -> None:
    server.start().wait_ready()
    pid = server.pid
    assert command_line(pid) == server.command
    assert server.terminate() == -signal.SIGTERM
    assert ended(pid)
    assert not server.running
    assert server.terminate() == -signal.SIGTERM  # twice is fine


def test_killed_program_can_be_started_again_on_its_port(server: Process) -> None:
    first = server.start().wait_ready().pid
    assert server.kill() == -signal.SIGKILL
    assert server.returncode == -signal.SIGKILL
    second = server.start().wait_ready().pid
    assert second != first
    server.kill()


def test_paused_program_does_not_answer_until_it_is_resumed(server: Process) -> None:
    server.start().wait_ready()
    server.pause()
    assert not answers(server.ready_url)
    server.resume()
    assert answers(server.ready_url)
    server.kill()


def test_paused_program_obeys_terminate(server: Process) -> None:
    server.start().wait_ready()
    server.pause()
    assert server.terminate(timeout_seconds=5) == -signal.SIGTERM


def test_program_that_ignores_terminate_is_killed(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True)"
    command = [sys.executable, "-c", f"{deaf}; time.sleep(60)"]
    process = Process("deaf", command, tmp_path / "log", "http://127.0.0.1:1/").start()
    wait_until(lambda: process.log_path.read_text() == "deaf\n", 10, "the program")
    assert process.terminate(timeout_seconds=0.2) == -signal.SIGKILL


def test_program_that_ends_early_fails_the_wait_with_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such queue')"]
    process = Process("early", command, tmp_path / "log", "http://127.0.0.1:1/").start()
    with pytest.raises(ControlPlaneError, match=r"(?s)early ended with status 1.*no such queue"):
        process.wait_ready()
    with pytest.raises(ControlPlaneError, match="early does not run: start it first"):
        process.kill()


def test_program_that_runs_cannot_be_started_twice(server: Process) -> None:
    server.start()
    with pytest.raises(ControlPlaneError, match="server runs already"):
        server.start()
    server.kill()


def test_environment_is_laid_over_at_every_start(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "import os; print(os.environ['SETTING'], 'PATH' in os.environ)",
    ]
    process = Process("env", command, tmp_path / "log", "http://127.0.0.1:1/")
    for value in ("one", "two"):
        process.env["SETTING"] = value
        process.start()
        wait_until(lambda: not process.running, 10, "the program to end")
    assert process.log_path.read_text() == "one True\ntwo True\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's parent-death signal")
def test_program_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = (
        "import sys, time; from pathlib import Path;"
        "from testbed.controlplane.process import Process;"
        "p = Process('child', ['sleep', '600'], Path(sys.argv[1]), 'http://127.0.0.1:1/').start();"
        "print(p.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", parent, str(tmp_path / "log")]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None
            pid = int(started.stdout.readline())
            assert not ended(pid)
        finally:
            started.kill()
    wait_until(lambda: ended(pid), 10, "the child to end")


def test_processes_are_found_by_the_folder_of_their_program(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "sleeper"
    program.parent.mkdir()
    program.symlink_to("/bin/sleep")
    assert processes_from(tmp_path) == {}
    with subprocess.Popen([str(program), "60"]) as sleeper:
        found = {sleeper.pid: [str(program), "60"]}
        wait_until(lambda: processes_from(tmp_path) == found, 10, "the sleeper")
        assert processes_from(tmp_path / "bi") == {}
        sleeper.kill()
    assert command_line(sleeper.pid) == []


CHOOSER = """
import sys
from testbed.controlplane import process

process.FIRST, process.LAST = int(sys.argv[1]), int(sys.argv[1]) + 3
print(*process.free_ports(2), flush=True)
sys.stdin.read()
"""


def test_ports_that_another_interpreter_chose_are_not_chosen_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither listens yet, as between the choice of a cluster's ports and the start of it."""
    # Below what anybody else chooses from.
    first = next(n for n in range(FIRST - 4, 1024, -4) if all(map(is_free, range(n, n + 4))))
    other = subprocess.Popen(
        [sys.executable, "-c", CHOOSER, str(first)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other, monkeypatch.context() as patch:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        patch.setattr("testbed.controlplane.process.FIRST", first)
        patch.setattr("testbed.controlplane.process.LAST", first + 3)
        assert theirs | set(free_ports(2)) == set(range(first, first + 4))
        with pytest.raises(ControlPlaneError, match="found 0 of 1 free ports"):
            free_ports(1)
