"""Windows of a record: what each begins with, whom it takes, and what it must not know."""

from dataclasses import replace

import pytest

from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running
from bireme_lab.replay.windows import Part, RecordWindow, windows_of

NODES = (a_node("n0"),)
TABLE = NodeTable(NODES, ("kubernetes.io/hostname",))


def gang(name: str, arrived: float) -> Gang:
    return replace(a_gang(name, a_task(2), arrived=arrived), estimated_seconds=7.0)


def held(one: Gang, started: float) -> RunningGang:
    return a_running(one, TABLE, {"n0": 2}, started=started)


def at(now: float, *waiting: Gang, running: tuple[RunningGang, ...] = ()) -> ClusterSnapshot:
    return with_running(a_snapshot(NODES, *waiting, now=now), *running)


EARLY, LATE, LAST = gang("early", 5.0), gang("late", 150.0), gang("last", 250.0)
MOMENTS = (
    at(5, EARLY),
    at(5, running=(held(EARLY, 5.0),)),
    at(150, LATE, running=(held(EARLY, 5.0),)),
    at(160, LATE),
    at(160, running=(held(LATE, 160.0),)),
    at(250, LAST, running=(held(LATE, 160.0),)),
    at(290, LAST),
)


def durations(window: RecordWindow) -> dict[str, float]:
    return {job.name: job.duration_seconds for job in window.workload.trace.jobs}


def test_windows_take_who_arrives_in_them_and_see_how_they_end() -> None:
    (part,) = (Part("all", 0.0, 300.0, 3),)
    first, second, third = windows_of(iter(MOMENTS), [part])
    assert durations(first) == {"early": 155.0}, "also what it did after the window"
    assert durations(second) == {"early": 60.0, "late": 130.0}, "what it still had to do"
    assert {there.job for there in second.workload.trace.underway} == {"early"}
    assert durations(third) == {"late": 90.0, "last": pytest.approx(7.0)}
    assert [window.number for window in (first, second, third)] == [0, 1, 2]


def test_part_knows_nothing_of_what_came_after_it() -> None:
    parts = [Part("train", 0.0, 155.0, 1), Part("judge", 155.0, 300.0, 1)]
    train, judge = windows_of(iter(MOMENTS), parts)
    assert durations(train)["early"] == 145.0, "it ran on, but that was later"
    assert durations(train)["late"] == 7.0, "as estimated: its start was later"
    assert durations(judge) == {"early": 5.0, "late": 130.0, "last": 7.0}
    assert (train.part, judge.part) == ("train", "judge")


def test_gang_that_is_preempted_after_its_window_goes_on() -> None:
    """It leaves in one cycle, in which it neither runs nor waits, and runs again in the next."""
    long = gang("long", 5.0)
    leaves = replace(held(long, 5.0), is_leaving=True)
    moments = (
        at(5, long),
        at(5, running=(held(long, 5.0),)),
        at(195, running=(leaves,)),
        at(200, replace(long, interrupted=True)),
        at(200, running=(held(long, 200.0),)),
        at(590),
    )
    first, *_ = windows_of(iter(moments), [Part("all", 0.0, 600.0, 6)])
    assert durations(first) == {"long": 190.0 + 390.0}


def test_window_to_which_no_gang_came_is_left_out() -> None:
    part = Part("all", 0.0, 300.0, 6)
    assert [window.number for window in windows_of(iter(MOMENTS), [part])] == [0, 3, 5]
