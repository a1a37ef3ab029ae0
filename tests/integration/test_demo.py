"""The demo as a stranger runs it, in its small variant, and the embedded cluster that stays."""

import json
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from bireme.cli import main as bireme
from testbed.controlplane.waiting import wait_until
from testbed.demo_runs import ENVIRONMENT, command, run
from tools.demo.cluster import ROOT


def servers(folder: Path) -> list[psutil.Process]:
    """The processes of embedded clusters that were started in a folder."""
    return [
        each
        for each in psutil.process_iter(["cmdline", "cwd"])
        if "tools.demo.embedded_server" in (each.info["cmdline"] or ())
        and each.info["cwd"] == str(folder)
    ]


def test_small_demo_keeps_every_promise_and_leaves_nothing_running(tmp_path: Path) -> None:
    done = run(tmp_path, "run", "--small", "--seed=3")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "demo-report.json").read_text())
    assert report["ok"]
    assert (report["seed"], report["nodes"], report["gpus"]) == (3, 4, 32)
    assert [job["name"] for job in report["jobs"] if job["finished"] is None] == ["llm-175b"]
    assert report["utilisation"]["peak"] == 1, "the cluster was full at least once"
    assert (tmp_path / "demo-gantt.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((tmp_path / ".run/demo/jobs").iterdir())) == 17
    assert "llm-175b        Pending    NeverFits: the cluster holds at most 15" in done.stdout
    turns = {turn["kind"] for turn in report["turns"]}
    assert turns >= {"reserved", "held back", "backfilled", "preempted", "grown", "shrunk"}
    assert all(turn["text"].strip() for turn in report["turns"])
    assert done.stdout.count("✓") == len(report["promises"])
    assert "\x1b" not in done.stdout, "no colours where there is no terminal"
    # What the operator recorded meanwhile is enough for a verdict, and never for a win.
    tune = ("tune", str(tmp_path / ".run/demo/records"), "--out", str(tmp_path / "tuned"))
    assert bireme([*tune, "--generations", "1"]) == 0
    verdict = json.loads((tmp_path / "tuned/verdict.json").read_text())["verdict"]
    assert verdict["jct"]["mean"] > 0
    assert any("record for longer" in reason for reason in verdict["reasons"])
    assert not servers(tmp_path)


@pytest.mark.parametrize("order", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_demo_leaves_nothing_running(tmp_path: Path, order: signal.Signals) -> None:
    log = tmp_path / "log"
    with log.open("w") as output:
        demo = subprocess.Popen(
            command("run", "--small"),
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A shell's background jobs ignore Ctrl-C, and so would all that they start.
            preexec_fn=lambda: signal.signal(  # noqa: PLW1509  # no other thread is here
                signal.SIGINT, signal.SIG_DFL
            ),
        )
        try:
            wait_until(lambda: "Running" in log.read_text(), 60, "a job to run", log.read_text)
            programs = psutil.Process(demo.pid).children(recursive=True)
            demo.send_signal(order)
            status = demo.wait(60)
        finally:
            demo.kill()
            demo.wait(10)
    assert psutil.wait_procs(programs, timeout=15)[1] == []
    if order != signal.SIGKILL:
        assert status == 130, log.read_text()
        assert "stopped; nothing is left running" in log.read_text()


def test_cluster_that_stays_takes_jobs_restarts_programs_and_goes_when_it_must(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = run(tmp_path, "run", "--small", "--keep")
    try:
        assert demo.returncode == 0, demo.stdout + demo.stderr
        again = run(tmp_path, "run", "--small", "--keep")
        assert again.returncode == 1
        assert "is up already; stop it with: make cluster-down" in again.stderr
        assert re.search(r"http://127\.0\.0\.1:\d+/open\?token=", demo.stdout)
        (kubeconfig,) = re.findall(r"export KUBECONFIG=(\S+)", demo.stdout)
        (server,) = servers(tmp_path)
        programs = server.children(recursive=True)
        (operator,) = [each for each in programs if "bireme_operator" in each.cmdline()]
        operator.kill()
        example = str(ROOT / "manifests/examples/01-single-gpu.yaml")
        submit = ("submit", example, "--wait", "60s", "--until", "running")
        assert bireme([*submit, f"--kubeconfig={kubeconfig}"]) == 0
        assert bireme(["why", "digits", f"--kubeconfig={kubeconfig}"]) == 0
        assert "Running" in capsys.readouterr().out
    finally:
        down = run(tmp_path, "down")
    assert down.returncode == 0, down.stderr
    assert psutil.wait_procs([server, *programs], timeout=15)[1] == []
    late = run(tmp_path, "down", "--name=nobody")
    assert late.returncode == 1
    assert "no cluster 'nobody'" in late.stderr
