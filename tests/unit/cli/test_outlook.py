"""``bireme outlook`` from a record to its table, over a small world."""

import json
from pathlib import Path
from typing import Any

import pytest

from bireme.cli import main
from bireme.core.settings import SchedulingSettings
from bireme.core.times import clock_time
from bireme.testing import a_gang, a_node, a_task
from testbed.recordings import RecordedCluster

NOW = 1e9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two minutes on one node: ``long`` runs, two others wait, and ``huge`` never fits."""
    settings = SchedulingSettings(preemption=False)
    world = RecordedCluster([a_node("n0")], settings=settings, folder=tmp_path, now=NOW)
    arrivals = {
        0: a_gang("long", a_task(8), estimated_seconds=600.0),
        60: a_gang("short", a_task(8), estimated_seconds=60.0),
        80: a_gang("huge", a_task(9)),
        120: a_gang("urgent", a_task(8), priority=1000, estimated_seconds=120.0),
    }
    world.decide()
    for second in range(0, 140, 20):
        world.advance(NOW + second)
        if second in arrivals:
            world.submit(arrivals[second], 1000.0)
        world.settle()
    world.writer.close()
    assert not world.problems
    return tmp_path


def test_every_gang_that_waits_is_told_when_and_for_what(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["outlook", str(folder)]) == 0
    printed = capsys.readouterr()
    title, assumed, _, *table = printed.out.splitlines()
    assert title.startswith(f"3 gangs wait at {clock_time(NOW + 120)}; 2 have a start by combined")
    assert assumed.startswith("The forecast assumes that no gangs arrive")
    first, second = clock_time(NOW + 600), clock_time(NOW + 720)
    assert [" ".join(line.split()) for line in table] == [
        "POS GANG QUEUE GPUS WAITS FOR STARTS",
        f"1 default/urgent default 8 WaitingForCapacity in 8 min, {first}",
        f"2 default/short default 8 WaitingForCapacity in 10 min, {second}",
        "- default/huge default 9 NeverFits not foreseen",
    ]
    assert printed.err == ""


def test_another_policy_is_played_in_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["outlook", str(folder), "--policy", "fifo", "--json", "-"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["policy"], found["cut"]) == ("fifo", "NothingEnds")
    starts = {each["gang"]: each["waitSeconds"] for each in found["gangs"]}
    assert starts == {"default/short": 480.0, "default/urgent": 540.0, "default/huge": None}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "fifo,srtf"], "argument --policy: name one policy"),
        (["--limit", "0"], "argument --limit: '0' is not a whole number from 1 on"),
    ],
)
def test_what_cannot_be_used_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["outlook", str(folder), *arguments]) == 2
    assert words in capsys.readouterr().err
