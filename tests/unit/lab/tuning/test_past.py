"""The past of a cluster: who decided, what is left out, and that no part knows a later one."""

from dataclasses import replace
from pathlib import Path

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.settings import SchedulingSettings
from bireme.policy_names import checkpoint_folder
from bireme.registry import make_policy
from bireme.replay.reader import open_record
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource
from bireme_lab.contest.tuning import play
from bireme_lab.contest.worlds import CHARGED
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.traces.tables import tasks_of_gpus
from bireme_lab.simulator.workload import Trace, TraceJob
from bireme_lab.tuning import past
from bireme_lab.tuning.past import Past, read_past
from testbed.recordings import a_writer, simulated_record, snapshots_in

FIFO = SchedulingSettings(orderer="fifo")
ONE = tasks_of_gpus(1, 1)
STEADY = tuple(TraceJob(f"{n:02}", 100.0 * n + 5, ONE, 50.0) for n in range(40))


def past_of(folder: Path, *more: TraceJob, stops: Physics = CHARGED) -> Past:
    jobs = sorted((*STEADY, *more), key=lambda job: job.submitted)
    simulated_record(folder, Trace("steady", tuple(jobs)), parse_nodes("2x1"), FIFO)
    record = open_record([folder])
    span = record.span()
    assert span is not None
    return read_past(record, span, stops=stops)


def test_parts_follow_each_other_and_cover_the_record(tmp_path: Path) -> None:
    found = past_of(tmp_path)
    sizes = {part: len(worlds) for part, worlds in found.worlds.items()}
    assert sizes == {"training": 10, "validation": 4, "test": 6}
    came = [
        [job.name for world in worlds for job in world.trace.jobs]
        for worlds in found.worlds.values()
    ]
    assert [name for names in came for name in names] == [job.name for job in STEADY]
    assert found.judged_from == pytest.approx(found.begin + 0.7 * (found.end - found.begin))


def test_training_does_not_know_how_long_a_gang_ran_on(tmp_path: Path) -> None:
    """It runs to the end of the record; when training ends it had run for half of it."""
    found = past_of(tmp_path, TraceJob("long", 3.0, ONE, 3900.0))
    (long,) = [job for job in found.worlds["training"][0].trace.jobs if job.name == "long"]
    assert long.duration_seconds < 2100
    assert found.gangs == len(STEADY) + 1, "it runs in all windows, and is one gang"


def test_gang_that_could_never_start_is_left_out(tmp_path: Path) -> None:
    wide = TraceJob("wide", 200.0, tasks_of_gpus(3, 1), 50.0)
    found = past_of(tmp_path, wide)
    assert found.left_out == 1, "though it waits in many windows"
    assert found.gangs == len(STEADY)
    every = [world for worlds in found.worlds.values() for world in worlds]
    assert not any(job.name == "wide" for world in every for job in world.trace.jobs)


def test_waits_are_of_gangs_that_came_in_the_window(tmp_path: Path) -> None:
    """Three of them, the last behind the second, while a fourth runs on from before."""
    late = TraceJob("late", 2106.0, ONE, 50.0)
    found = past_of(tmp_path, TraceJob("long", 3.0, ONE, 3900.0), late)
    behind = [
        world
        for worlds in found.worlds.values()
        for world in worlds
        if any(job.name == "late" for job in world.trace.jobs)
    ]
    world = next(each for each in behind if "long" in {there.job for there in each.trace.underway})
    metrics = play(found.baseline, world)
    assert metrics.jobs == 4
    assert metrics.wait_seconds.mean == pytest.approx(49 / 3)


def test_window_in_which_nobody_who_came_could_start_is_left_out(tmp_path: Path) -> None:
    """In one of about 200 s the only gang that comes is too wide, while another runs."""
    few = [job for job in STEADY if not 900 <= job.submitted < 1200]
    wide = TraceJob("wide", 1030.0, tasks_of_gpus(3, 1), 50.0, estimated_seconds=50.0)
    jobs = sorted((*few, TraceJob("long", 3.0, ONE, 3900.0), wide), key=lambda job: job.submitted)
    simulated_record(tmp_path, Trace("few", tuple(jobs)), parse_nodes("2x1"), FIFO)
    record = open_record([tmp_path])
    span = record.span()
    assert span is not None
    for worlds in read_past(record, span).worlds.values():
        for world in worlds:
            assert len(world.trace.jobs) > len(world.trace.underway), world.name


def test_stops_cost_what_was_said(tmp_path: Path) -> None:
    found = past_of(tmp_path, stops=Physics(restart_seconds=7.0, checkpoint_interval_seconds=60.0))
    physics = found.worlds["test"][0].physics
    assert (physics.restart_seconds, physics.checkpoint_interval_seconds) == (7.0, 60.0)


def test_cycles_without_anything_to_do_do_not_say_who_decided(tmp_path: Path) -> None:
    """The operator records them as the settings'; here they are two of three."""
    (tmp_path / "simulated").mkdir()
    simulated_record(tmp_path / "simulated", Trace("steady", STEADY), parse_nodes("2x1"), FIFO)
    mine = PolicySource("mine", orderer="srtf")
    writer = a_writer(tmp_path, FIFO)
    for snapshot in snapshots_in(tmp_path / "simulated"):
        decision = run_cycle(snapshot, make_policy(FIFO))
        writer.write(snapshot, decision, mine if snapshot.may_change else SETTINGS_SOURCE)
    writer.close()
    record = open_record([tmp_path])
    span = record.span()
    assert span is not None
    found = read_past(record, span)
    assert (found.decided_by, found.baseline.name) == (mine, "srtf")


def test_baseline_is_the_policy_that_decided() -> None:
    settings = replace(FIFO, placer="best-fit")
    named = past._baseline(PolicySource("mine", orderer="srtf"), settings, "")
    assert named.name == "srtf/best-fit"
    learned = past._baseline(PolicySource("mine", checkpoint="learned-index"), settings, "")
    assert learned.orderer == f"checkpoint:{checkpoint_folder('learned-index')}"
    assert learned.placer == "best-fit"
    patient = PolicySource("mine", orderer="tiresias-las", orderer_parameters="promote_knob=8")
    assert past._baseline(patient, settings, "").orderer == "tiresias-las?promote_knob=8"
    assert past._baseline(PolicySource(), settings, "").name == "fifo/best-fit"
