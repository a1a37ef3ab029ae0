"""A record that SchedulingPolicies decided is checked against those very policies."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bireme.cli import main
from bireme.core.cycle import run_cycle
from bireme.core.settings import SchedulingSettings
from bireme.registry import make_policy
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource, policy_of
from bireme.testing import a_gang, a_node, a_snapshot, a_task
from testbed.networks import checkpoints, encoders
from testbed.recordings import a_writer

PLAIN = SchedulingSettings()
MIN_FIRST = PolicySource("small", checkpoint="fewest-first")


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with encoders.known():
        yield


def decided_by(folder: Path, *sources: PolicySource, trained: Path) -> list[PolicySource]:
    """Record a cycle by each, where a wide gang came before a small one and both need the node."""
    gangs = a_gang("wide", a_task(8), arrived=0.0), a_gang("small", a_task(2), arrived=1.0)
    writer, written = a_writer(folder), []
    for at, source in enumerate(sources):
        policy, full = policy_of(source, PLAIN, make_policy, str(trained))
        snapshot = a_snapshot([a_node("n0", gpus=8 + at)], *gangs, now=10.0 + at)
        writer.write(snapshot, run_cycle(snapshot, policy), full)
        written.append(full)
    writer.close()
    return written


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    checkpoints.write(tmp_path / "trained" / "fewest-first", orderer=[-1.0, 0.0, 0.0])
    return tmp_path / "trained"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "record"
    made.mkdir()
    return made


def replayed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["replay", *arguments, "--json", "-"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_each_cycle_is_decided_again_by_what_decided_it(
    folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = PolicySource("rule", orderer="smallest-first")
    sources = decided_by(folder, SETTINGS_SOURCE, MIN_FIRST, MIN_FIRST, rule, trained=trained)
    found = replayed(capsys, str(folder), "--checkpoints", str(trained), "--policy", "fifo")
    own = found["decisions"]["combined-priority/packing"]
    assert (own["cycles"], own["same"]) == (4, 4)
    assert found["decisions"]["fifo"]["cycles"] == 4
    rows = [(s["name"], s["sha256"], s["cycles"], s["fault"]) for s in found["record"]["sources"]]
    digest = sources[1].sha256
    assert rows == [("", "", 1, ""), ("small", digest, 2, ""), ("rule", "", 1, "")]


def test_report_says_who_decided_and_what_cannot_be_asked_again(
    folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (_, learned) = decided_by(folder, SETTINGS_SOURCE, MIN_FIRST, trained=trained)
    assert main(["replay", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2 cycles in 1 file")
    assert lines[1] == (
        f"SchedulingPolicy small, checkpoint fewest-first sha256 {learned.sha256[:12]}, "
        "decided 1 of them."
    )
    assert lines[2].startswith("It cannot be asked again: no checkpoint is called 'fewest-first'")
    assert lines[3] == "What decided then decides 1 of 1 cycles exactly as recorded."


def test_another_checkpoint_under_the_name_is_not_asked(
    folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decided_by(folder, MIN_FIRST, trained=trained)
    checkpoints.write(trained / "fewest-first", orderer=[1.0, 0.0, 0.0])
    found = replayed(capsys, str(folder), "--checkpoints", str(trained))
    (source,) = found["record"]["sources"]
    assert "expected is" in source["fault"]
    assert found["decisions"]["combined-priority/packing"]["cycles"] == 0
