"""Device-seconds of a record, and ``bireme usage`` on it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bireme.cli import main
from bireme.core.gangs import TrainingProgress
from bireme.core.gpus import GPU
from bireme.core.settings import SchedulingSettings
from bireme.core.usage import Holder, Use
from bireme.replay.reader import open_record
from bireme.replay.usage import usage_of
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running
from testbed.recordings import RecordedCluster, record

NOW = 1e9
HURRIED = SchedulingSettings(min_runtime_seconds=0, eviction_budget=9)


def holder(use: Use, namespace: str = "default") -> Holder:
    return Holder(GPU, "default", namespace, "", use)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """200 s on one node: ``low`` makes room for ``urgent`` after 100 s, and starts again at 160."""
    world = RecordedCluster(
        [a_node("n0")], settings=HURRIED, stop_seconds=10.0, folder=tmp_path, now=NOW
    )
    arrivals = {
        0: (a_gang("low", a_task(8)), 1000.0),
        100: (a_gang("urgent", a_task(8), priority=1000, namespace="else"), 50.0),
        # A record ends with the last news.
        200: (a_gang("late", a_task(1)), 1.0),
    }
    for second in range(0, 201, 10):
        world.advance(NOW + second)
        if second in arrivals:
            world.submit(*arrivals[second])
        world.settle()
    world.writer.close()
    assert not world.problems
    assert world.moves == [(NOW + 100, "low")]
    return tmp_path


def test_what_gangs_held_and_what_a_stop_made_void_is_told_by_a_record(folder: Path) -> None:
    usage = usage_of(open_record([folder]), 1000.0)
    assert (usage.begin, usage.known_from, usage.end) == (NOW - 800, NOW, NOW + 200)
    assert usage.known_seconds == 200.0
    assert usage.device_seconds == {
        holder(Use.RUNNING): 8 * (100.0 + 40.0),
        holder(Use.STOPPING): 8 * 10.0,
        holder(Use.RUNNING, "else"): 8 * 50.0,
    }
    assert usage.lost == {holder(Use.RUNNING): 8 * 100.0}


def test_only_the_time_that_is_asked_for_counts(folder: Path) -> None:
    usage = usage_of(open_record([folder]), 130.0)
    assert (usage.known_from, usage.known_seconds) == (NOW + 70, 130.0)
    assert usage.device_seconds[holder(Use.RUNNING)] == 8 * (30.0 + 40.0)
    assert usage.lost == {holder(Use.RUNNING): 8 * 30.0}


def test_between_two_operators_nothing_is_known_and_reports_save_what_was_done(
    tmp_path: Path,
) -> None:
    bare = a_snapshot([a_node("n0")], settings=HURRIED)
    gang = a_gang("job", a_task(4))
    starts = replace(a_running(gang, bare.nodes, {"n0": 4}, started=NOW), is_starting=True)
    told = replace(gang, progress=TrainingProgress(reported=NOW + 530))
    runs = replace(starts, gang=told, is_starting=False)
    first = [(0.0, starts), (20.0, runs), (30.0, runs)]
    for run, moments in (("a", first), ("b", [(500.0, runs), (540.0, None)])):
        snapshots = [
            replace(with_running(bare, held), now=NOW + at)
            if held is not None
            else replace(bare, now=NOW + at, waiting=(gang,))
            for at, held in moments
        ]
        record(tmp_path, *snapshots, run=run)
    usage = usage_of(open_record([tmp_path]), 1000.0)
    # At 30 s nothing was new, so that the first operator's last word is of second 20.
    assert usage.known_seconds == 20.0 + 40.0
    assert usage.device_seconds == {holder(Use.STARTING): 4 * 20.0, holder(Use.RUNNING): 4 * 40.0}
    assert usage.lost == {holder(Use.RUNNING): 4 * 10.0}


def test_the_command_reads_records_and_says_what_they_cannot_tell(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["usage", str(folder), "--since", "1d", "--by", "namespace"]
    assert main(command) == 0
    title, _, head, first, second, total, *_ = capsys.readouterr().out.splitlines()
    assert "0.1 h of these 24.0 h are known (0 %), from 2001-09-09T01:46:40Z on." in title
    assert " ".join(head.split()) == "NAMESPACE RESOURCE HELD RUNNING LOST STARTING STOPPING"
    assert " ".join(first.split()).startswith(f"default {GPU} 0.3 0.3 (93 %) 0.2 (67 %) 0.0 (0 %)")
    assert [line.split()[0] for line in (second, total)] == ["else", "all"]
    assert main([*command, "-o", "json"]) == 0
    hours = json.loads(capsys.readouterr().out)["items"][0]["hours"]
    assert hours["running"] == pytest.approx(8 * 140 / 3600, abs=1e-4)
    assert "reserved" not in hours
    assert main([*command, "--label", "cluster=a"]) == 2
    assert "argument --label: a record has none" in capsys.readouterr().err
