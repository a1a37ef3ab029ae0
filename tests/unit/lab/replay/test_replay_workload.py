"""A record as a workload: who came when, ran how long, and the notes on the others."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bireme.core.gangs import Gang
from bireme.core.nodes import Node, NodeTable
from bireme.core.placement import TaskPlacement
from bireme.core.reasons import Reason
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import GPU, a_gang, a_node, a_running, a_snapshot, a_task, with_running
from bireme_lab.replay import workload as treatments
from bireme_lab.replay.workload import Workload, WorkloadBuilder
from bireme_lab.simulator.physics.model import NodeChange
from bireme_lab.simulator.workload import TraceJob

EPOCH = 1_800_000_000.0
NODES = (a_node("n0"), a_node("n1"))
TABLE = NodeTable(NODES, ("kubernetes.io/hostname",))


def gang(name: str = "job", replicas: int = 4, arrived: float = 0.0, **facts: object) -> Gang:
    made = a_gang(name, a_task(replicas), arrived=EPOCH + arrived)
    return replace(made, **facts)  # type: ignore[arg-type]  # fields of a gang


def held(one: Gang, replicas: int, started: float, *, is_leaving: bool = False) -> RunningGang:
    """``one`` on the first node, since ``started``."""
    places = {"n0": replicas}
    return a_running(one, TABLE, places, started=EPOCH + started, is_leaving=is_leaving)


def at(
    now: float,
    waiting: Sequence[Gang] = (),
    running: Sequence[RunningGang] = (),
    nodes: Sequence[Node] = NODES,
) -> ClusterSnapshot:
    return with_running(a_snapshot(nodes, *waiting, now=EPOCH + now), *running)


def seen(*moments: ClusterSnapshot) -> Workload:
    builder = WorkloadBuilder()
    for moment in moments:
        builder.observe(moment)
    return builder.workload()


def job_of(found: Workload, name: str = "job") -> TraceJob:
    return next(job for job in found.trace.jobs if job.name == name)


def test_gang_runs_from_its_start_until_the_first_cycle_without_it() -> None:
    job = gang(arrived=2.0)
    found = seen(at(0), at(3, [job]), at(8, running=[held(job, 4, started=3.0)]), at(20))
    assert (job_of(found).submitted, job_of(found).duration_seconds) == (2.0, 17.0)
    assert found.waits == {"job": 1.0}
    assert found.trace.treatments == {}
    assert found.wait_uids == {"job"}


def test_gang_that_is_leaving_has_ended() -> None:
    job = gang()
    last = held(job, 4, started=0.0, is_leaving=True)
    found = seen(at(0, [job]), at(5, running=[held(job, 4, 0.0)]), at(9, running=[last]), at(30))
    assert job_of(found).duration_seconds == 9.0


def test_runs_of_one_gang_add_up() -> None:
    job = gang()
    again = replace(job, interrupted=True)
    runs = held(job, 4, 0.0)
    found = seen(
        at(0, [job]),
        at(4, running=[runs]),
        at(10, [again]),
        at(20, running=[held(again, 4, 15.0)]),
        at(22),
    )
    assert job_of(found).duration_seconds == 10.0 + 7.0
    assert not job_of(found).gang.interrupted  # type: ignore[union-attr]  # it has one


def test_whole_seconds_of_the_api_server_make_no_wait() -> None:
    """By them it came before a cycle without it, and started before one in which it waited."""
    job = gang(arrived=3.0)
    found = seen(at(3.8), at(3.9, [job]), at(4.0, running=[held(job, 4, started=3.0)]), at(9))
    assert found.waits["job"] == pytest.approx(0.05, abs=1e-6)
    assert job_of(found).duration_seconds == pytest.approx(5.1, abs=1e-6)


def test_gang_of_the_same_second_as_a_cycle_without_it_comes_after_that_cycle() -> None:
    """Else a simulation decides on both together, and none stops the other."""
    early, late = gang("early", arrived=3.0), gang("late", arrived=3.0)
    runs = held(early, 4, started=3.0)
    found = seen(at(3.2, [early]), at(3.6, [late], [runs]), at(9, [], [runs, held(late, 4, 4.0)]))
    assert job_of(found, "early").submitted == 0.0
    assert job_of(found, "late").submitted == pytest.approx(0.2, abs=1e-6)
    assert found.trace.treatments[treatments.WAITED_BEFORE] == 1


def test_gang_that_left_without_having_run_is_left_out() -> None:
    found = seen(at(0), at(1, [gang()]), at(2))
    assert found.trace.jobs == ()
    assert found.trace.treatments == {treatments.WITHDRAWN: 1}


def test_elastic_gang_has_done_what_its_replicas_did() -> None:
    """Ten seconds with two replicas and ten with six are 20 s at the four it asks for."""
    wide = replace(a_task(4, min_replicas=2), max_replicas=6)
    job = replace(gang(), tasks=(wide,), is_elastic=True)
    found = seen(
        at(0, [job]),
        at(0.0, running=[held(job, 2, 0.0)]),
        at(10, running=[held(job, 6, 0.0)]),
        at(20),
    )
    done = job_of(found)
    assert done.duration_seconds == 20.0
    assert done.speed is not None
    assert done.speed.steps_per_second({"worker": 2}, 1) == 0.5
    assert done.gang is not None
    assert done.gang.speed is None, "no policy knows what the simulation takes for granted"


def test_gang_found_running_keeps_its_places_and_is_not_counted() -> None:
    job = gang(arrived=-900.0)
    found = seen(at(0, running=[held(job, 4, started=-600.0)]), at(50))
    assert job_of(found).duration_seconds == 50.0
    (underway,) = found.trace.underway
    assert (underway.places, underway.started) == ({"worker": {"n0": 4}}, -600.0)
    assert found.trace.treatments == {treatments.RAN_BEFORE: 1}
    assert found.wait_uids == frozenset()
    assert found.waits == {}


def test_gang_found_waiting_waits_from_then_but_keeps_its_age() -> None:
    job = gang(arrived=-70.0)
    found = seen(at(0, [job]), at(5, running=[held(job, 4, started=4.0)]), at(9))
    seen_gang = job_of(found).gang
    assert seen_gang is not None
    assert (job_of(found).submitted, seen_gang.arrived) == (0.0, -70.0)
    assert found.waits == {"job": 4.0}
    assert found.trace.treatments == {treatments.WAITED_BEFORE: 1}


@pytest.mark.parametrize(("estimate", "seconds"), [(None, 20.0), (5.0, 20.0), (60.0, 60.0)])
def test_gang_that_still_runs_runs_as_long_as_seen_or_as_estimated(
    estimate: float | None, seconds: float
) -> None:
    job = gang(estimated_seconds=estimate)
    runs = held(job, 4, 0.0)
    found = seen(at(0, [job]), at(10, running=[runs]), at(20, running=[runs]))
    assert job_of(found).duration_seconds == seconds
    assert found.trace.treatments == {treatments.RUNNING: 1}


@pytest.mark.parametrize(("estimate", "seconds"), [(None, 10.0), (60.0, 60.0)])
def test_gang_that_never_started_runs_as_estimated_or_as_others_did(
    estimate: float | None, seconds: float
) -> None:
    job, waits = gang(), gang("late", 17, estimated_seconds=estimate)
    found = seen(at(0, [job, waits]), at(1, [waits], [held(job, 4, 0.0)]), at(10, [waits]))
    assert job_of(found, "late").duration_seconds == seconds
    assert found.trace.treatments == {treatments.WAITING: 1}


def test_gang_of_which_no_run_time_is_known_is_left_out() -> None:
    found = seen(at(0, [gang()]), at(1, [gang()]))
    assert found.trace.jobs == ()
    assert found.trace.treatments == {treatments.UNKNOWN: 1}


def test_fault_that_passes_is_not_taken_over() -> None:
    job = gang()
    faulty = replace(job, fault=(Reason.STOPPING, "pods are ending"))
    found = seen(at(0, [job]), at(1, [faulty]), at(2, running=[held(job, 4, 2.0)]), at(3))
    assert job_of(found).gang == replace(job, arrived=0.0)


def test_what_others_use_of_a_node_stays_used() -> None:
    job = gang()
    moment = at(0, running=[held(job, 4, 0.0)])
    others = moment.used.copy()
    others[0, moment.nodes.axis.names.index(GPU)] += 3
    found = seen(replace(moment, used=others), at(9))
    assert [node.fixed for node in found.trace.nodes] == [{GPU: 3}, {}]


def test_nodes_go_and_come_as_they_did_unless_they_were_away_for_a_moment() -> None:
    down = (NODES[0], replace(NODES[1], is_ready=False))
    late = (*NODES, a_node("n2"))
    found = seen(
        *(at(0), at(10, nodes=down), at(20), at(100, nodes=down), at(200, nodes=late)),
        at(300, nodes=late[1:]),
    )
    assert [node.name for node in found.trace.nodes] == ["n0", "n1", "n2"]
    assert found.physics.failures((), math.inf, 0) == [
        NodeChange(0.0, "n2", False),
        NodeChange(100.0, "n1", False),
        NodeChange(200.0, "n1", True),
        NodeChange(200.0, "n2", True),
        NodeChange(300.0, "n0", False),
    ]


def test_node_that_is_lost_with_its_amounts_does_not_unsettle_the_rows_of_others() -> None:
    job = a_running(gang(), NodeTable(NODES, ()), {"n1": 4}, started=EPOCH)
    moved = replace(job, placement=replace(job.placement, tasks=(one_row(job, 0),)))
    first = at(0, running=[job])
    found = seen(first, at(5, running=[moved], nodes=NODES[1:]), at(9, nodes=NODES[1:]))
    assert job_of(found).duration_seconds == 9.0
    assert [node.fixed for node in found.trace.nodes] == [{}, {}]


def one_row(running: RunningGang, row: int) -> TaskPlacement:
    (task,) = running.placement.tasks
    return replace(task, rows=np.array([row]))
