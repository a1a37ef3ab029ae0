"""``bireme queue --record`` from a record to its table, over a small world."""

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


def test_every_gang_that_waits_has_its_start_and_its_reason(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["queue", "--record", str(folder)]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("bireme: 2 of 3 gangs have a start by combined")
    assert f"at {clock_time(NOW + 120)}: the remaining gangs cannot start" in printed.err
    rows = [line.split() for line in printed.out.splitlines()]
    assert rows[0] == ["#", "NAMESPACE", "NAME", "QUEUE", "GPUS", "PRIORITY", *rows[0][6:]]
    assert [(row[0], row[2], " ".join(row[8:])) for row in rows[1:]] == [
        ("1", "urgent", "in 8 min WaitingForCapacity"),
        ("2", "short", "in 10 min WaitingForCapacity"),
        ("-", "huge", "- NeverFits"),
    ]
    assert main(["queue", "--record", str(folder), "-n", "other"]) == 0
    assert capsys.readouterr().out == "No job waits.\n"


def test_another_policy_is_played_in_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["queue", "--record", str(folder), "--policy", "fifo", "-o", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["outlook"]["policy"], found["outlook"]["cut"]) == ("fifo", "NothingEnds")
    starts = {item["gang"]["name"]: item["estimatedStart"]["earliest"] for item in found["items"]}
    first, second = clock_time(NOW + 600), clock_time(NOW + 660)
    assert starts == {"short": first, "urgent": second, "huge": None}
    assert [item["gang"]["position"] for item in found["items"]] == [1, 2, None]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "fifo/fgd/x/y"], "argument --policy: 'fifo/fgd/x/y' is no policy; write"),
        (["--outlook"], "argument --outlook: not allowed with argument --record"),
    ],
)
def test_what_cannot_be_used_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["queue", "--record", str(folder), *arguments]) == 2
    assert words in capsys.readouterr().err
