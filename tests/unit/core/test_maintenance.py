"""Maintenance of nodes: what may still start there, what is moved, and that it is moved once."""

from dataclasses import replace

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.errors import SnapshotError
from bireme.core.maintenance import UNKNOWN_RUN_SECONDS
from bireme.core.nodes import MaintenanceWindow, Node
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.testing import a_gang, a_node, a_task
from bireme_lab.simulator.simulation import simulate
from bireme_lab.simulator.workload import Trace, TraceJob
from tests.unit.core.elastic_cases import a_world, elastic, runs

HOUR = 3600.0


def in_maintenance(name: str, begins: float, ends: float) -> Node:
    return replace(a_node(name), maintenance=MaintenanceWindow(begins, ends))


def decide(snapshot: ClusterSnapshot) -> Decision:
    return run_cycle(snapshot, make_policy(snapshot.settings))


def starts(decision: Decision, snapshot: ClusterSnapshot) -> dict[str, list[str]]:
    names = snapshot.nodes.names
    return {a.gang.name: [names[row] for row in a.placement.node_rows()] for a in decision.admitted}


ONE = [in_maintenance("n0", 2 * HOUR, 4 * HOUR)]
TWO = [*ONE, a_node("n1")]


@pytest.mark.parametrize(
    ("now", "estimate", "may_start"),
    [
        pytest.param(0.0, 2 * HOUR, True, id="ends-as-it-begins"),
        pytest.param(1.0, 2 * HOUR, False, id="would-outlast-it"),
        pytest.param(0.0, None, False, id="unknown"),
        pytest.param(2 * HOUR - UNKNOWN_RUN_SECONDS, None, True, id="unknown-a-day-ahead"),
        pytest.param(2 * HOUR, 1.0, False, id="it-has-begun"),
        pytest.param(4 * HOUR, None, True, id="it-is-over"),
    ],
)
def test_a_gang_starts_on_a_node_only_if_it_ends_before_its_maintenance(
    now: float, estimate: float | None, may_start: bool
) -> None:
    gang = a_gang("job", a_task(8), arrived=now, estimated_seconds=estimate)
    snapshot = a_world(gang, nodes=ONE, now=now)
    found = decide(snapshot)
    assert starts(found, snapshot) == ({"job": ["n0"]} if may_start else {})
    assert all(admit.gang.tasks == gang.tasks for admit in found.admitted)


def test_it_starts_on_another_node_and_says_nothing_of_it() -> None:
    snapshot = a_world(a_gang("job", a_task(8)), nodes=TWO)
    found = decide(snapshot)
    assert starts(found, snapshot) == {"job": ["n1"]}
    assert found.admitted[0].message == "8 worker planned on node n1"


def test_what_waits_says_which_nodes_it_is_kept_off_and_what_helps() -> None:
    when = "from 1970-01-01T02:00:00Z to 1970-01-01T04:00:00Z"
    only = a_gang("only", a_task(8))
    (held,) = decide(a_world(only, nodes=ONE)).held
    assert (held.gang, held.reason, held.position) == (only, Reason.MAINTENANCE_AHEAD, None)
    remedy = "it may start there with a spec.estimatedDuration that ends before then"
    assert held.message == f"may not use node n0 because of maintenance {when}; {remedy}"
    (begun,) = decide(a_world(only, nodes=ONE, now=3 * HOUR)).held
    assert (begun.reason, begun.message) == (
        Reason.MAINTENANCE_AHEAD,
        f"may not use node n0 because of maintenance {when}",
    )
    (never,) = decide(a_world(a_gang("large", a_task(1, 99)), nodes=ONE)).held
    assert never.reason is Reason.NEVER_FITS
    full = runs(a_world(a_gang("next", a_task(8)), nodes=TWO), a_gang("full", a_task(8)), {"n1": 8})
    (held,) = decide(full).held
    assert held.reason is Reason.WAITING_FOR_CAPACITY
    assert held.message.endswith(f"; may not use node n0 because of maintenance {when}; {remedy}")


def at_begin(nodes: list[Node] | None = None) -> ClusterSnapshot:
    return a_world(nodes=nodes or [*TWO, a_node("n2")], now=2 * HOUR)


def test_what_runs_there_when_it_begins_stops_once_and_only_then() -> None:
    gang = a_gang("job", a_task(12), estimated_seconds=HOUR)
    before = runs(a_world(nodes=TWO, now=2 * HOUR - 1), gang, {"n0": 8, "n1": 4})
    assert decide(before).actions == ()
    begun = runs(at_begin(), gang, {"n0": 8, "n1": 4})
    (stop,) = decide(begun).vacated
    assert (stop.gang, stop.reason) == (gang, Reason.NODE_MAINTENANCE)
    assert stop.message == "stopped for the maintenance of node n0 until 1970-01-01T04:00:00Z"
    leaving = runs(at_begin(), gang, {"n0": 8, "n1": 4}, is_leaving=True)
    assert decide(leaving).actions == ()
    others = runs(at_begin(), replace(gang, is_preemptible=False), {"n0": 8, "n1": 4})
    assert decide(others).actions == ()
    over = runs(a_world(nodes=TWO, now=4 * HOUR), gang, {"n0": 8, "n1": 4})
    assert decide(over).actions == ()


def test_an_elastic_gang_goes_on_without_the_replicas_there_and_does_not_grow_back() -> None:
    gang = elastic("e", 6, 2, 16)
    snapshot = runs(at_begin(), gang, {"n0": 4, "n1": 2}, anchor="n1")
    (shrink,) = decide(snapshot).resized
    assert (shrink.running.gang, shrink.reason) == (gang, Reason.SHRUNK)
    assert [snapshot.nodes.names[row] for row in shrink.placement.node_rows()] == ["n1"]
    assert shrink.message == "shrunk for the maintenance of node n0 until 1970-01-01T04:00:00Z"
    shrunk = runs(at_begin(nodes=TWO), gang, {"n1": 2}, anchor="n1")
    (grow,) = decide(shrunk).resized
    assert [shrunk.nodes.names[row] for row in grow.placement.node_rows()] == ["n1"]
    assert grow.running.gang is gang
    for places, anchor in (({"n0": 5, "n1": 1}, "n1"), ({"n0": 2, "n1": 4}, "n0")):
        moved = decide(runs(at_begin(), gang, places, anchor=anchor))
        assert [stop.gang.name for stop in moved.vacated] == ["e"], "too small, or first replica"


def test_a_moved_gang_goes_to_no_node_whose_turn_is_next() -> None:
    nodes = [in_maintenance("n0", 0.0, 2 * HOUR), in_maintenance("n1", 2 * HOUR, 4 * HOUR)]
    gang = a_gang("job", a_task(8), estimated_seconds=3 * HOUR, interrupted=True)
    assert decide(a_world(gang, nodes=nodes)).admitted == ()
    last = a_world(gang, nodes=[*nodes, in_maintenance("n2", -2 * HOUR, 0.0)])
    assert starts(decide(last), last) == {"job": ["n2"]}


def test_a_window_ends_after_it_begins() -> None:
    with pytest.raises(SnapshotError, match="end of a maintenance window"):
        MaintenanceWindow(2.0, 1.0)


def test_a_simulation_moves_a_job_once_and_gives_the_node_back_by_itself() -> None:
    """Both say an hour and run six: one is moved, and waits for its node, which comes back."""
    asks = a_gang("job", a_task(8)).tasks
    jobs = tuple(TraceJob(n, 0.0, asks, 6 * HOUR, estimated_seconds=HOUR) for n in ("a", "b"))
    nodes = [in_maintenance("n0", 2 * HOUR, 5 * HOUR), a_node("n1")]
    settings = SchedulingSettings(service_threshold=0)
    outcome = simulate(Trace("windows", jobs), nodes, make_policy(settings), settings)
    stays = sorted(
        [(segment.ended_by, segment.began / HOUR) for segment in record.segments]
        for record in outcome.jobs
    )
    assert stays == [[("finished", 0.0)], [("maintenance", 0.0), ("finished", 5.0)]]
    assert sum(record.preemptions for record in outcome.jobs) == 0
