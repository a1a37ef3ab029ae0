"""Waiting that counts: a gang that could not start however long it waited has not waited."""

import gc
from dataclasses import replace
from typing import Any

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision, Hold
from bireme.core.policy import Orderer, Policy
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_gang, a_snapshot, a_task, racks

DAY = 86_400.0
NOW = 2 * DAY


def decide(snapshot: ClusterSnapshot, orderer: Orderer | None = None) -> Decision:
    return run_cycle(snapshot, Policy(orderer or CombinedPriority(), Packing()))


def started(decision: Decision) -> list[str]:
    return [admit.gang.uid for admit in decision.admitted]


@pytest.mark.parametrize("orderer", [CombinedPriority(), Fifo()], ids=["combined", "fifo"])
@pytest.mark.parametrize(("parked", "first"), [(None, "old"), (60.0, "new"), (1.5 * DAY, "old")])
def test_a_gang_that_was_parked_has_waited_only_until_then(
    orderer: Orderer, parked: float | None, first: str
) -> None:
    """Its bound of a day has passed for one that stood in line, and the other came an hour ago."""
    old = replace(a_gang("old", a_task(8)), parked=parked)
    new = a_gang("new", a_task(8), arrived=NOW - 3600.0)
    snapshot = a_snapshot(racks(1, 1), old, new, now=NOW)
    decision = decide(snapshot, orderer)
    assert started(decision) == [first]
    assert snapshot.overdue_seconds(old) == (DAY if parked is None else max(0.0, parked - DAY))


def test_a_day_in_the_car_park_goes_before_no_priority() -> None:
    """25 hours with a node selector that no node has, then edited to ask for the whole cluster."""
    parked = a_gang("parked", a_task(16), parked=0.0)
    urgent = a_gang("urgent", a_task(8), arrived=NOW, priority=1_000_000)
    for waiting in ((parked, urgent), (replace(parked, parked=None), urgent)):
        decision = decide(a_snapshot(racks(1, 2), *waiting, now=NOW))
        assert started(decision) == (["urgent"] if waiting[0].parked == 0.0 else ["parked"])


def test_it_stands_in_line_from_the_decision_on_that_finds_it_could_start() -> None:
    old = a_gang("old", a_task(8), parked=100.0)
    new = a_gang("new", a_task(8), arrived=NOW - 50.0)
    blocked = decide(a_snapshot(racks(1, 1), old, new, now=NOW))
    (hold,) = blocked.held
    assert (hold.gang.uid, hold.is_parked) == ("new", False)
    (admit,) = blocked.admitted
    assert (admit.gang.parked, admit.gang.wait_seconds(NOW)) == (None, 100.0)
    # Its smallest size, for which places are reserved, has waited as long.
    elastic = a_gang("elastic", replace(a_task(8), min_replicas=2), parked=100.0)
    assert elastic.at_minimum.wait_seconds(NOW) == 100.0
    again = elastic.in_line(NOW)
    assert (again.wait_seconds(NOW), again.at_minimum.wait_seconds(NOW)) == (100.0, 100.0)
    assert again.at_minimum.arrived == NOW - 100.0


def test_a_decision_on_parked_gangs_is_freed_without_the_garbage_collector() -> None:
    """Thousands of them are copied in each cycle: one in a reference cycle stays until it runs."""
    parked = [a_gang(f"g{number}", a_task(16), parked=0.0) for number in range(3)]
    snapshot = a_snapshot(racks(1, 2), *parked, now=NOW)
    decide(snapshot)
    gc.collect()
    gc.disable()
    try:
        assert decide(snapshot).held
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("fields", "reason", "is_parked"),
    [
        ({}, Reason.WAITING_FOR_CAPACITY, False),
        ({"tasks": (a_task(17),)}, Reason.NEVER_FITS, True),
        ({"queue": "none"}, Reason.QUEUE_NOT_FOUND, True),
        ({"queue": "closed"}, Reason.QUEUE_CLOSED, True),
        ({"queue": "small"}, Reason.NEVER_FITS, True),
        ({"fault": (Reason.CLAIM_NOT_READY, "no volume")}, Reason.CLAIM_NOT_READY, True),
        ({"fault": (Reason.PODS_REFUSED, "no")}, Reason.PODS_REFUSED, True),
    ],
)
def test_only_who_could_start_if_others_left_stands_in_line(
    fields: dict[str, Any], reason: Reason, is_parked: bool
) -> None:
    queues = (
        Queue("default"),
        Queue("closed", is_open=False),
        Queue("small", limit={"nvidia.com/gpu": 1}),
    )
    nodes = racks(1, 2)
    snapshot = a_snapshot(nodes, replace(a_gang("a", a_task(16)), **fields), queues=queues)
    snapshot = replace(snapshot, used=snapshot.nodes.allocatable.copy())
    (hold,) = decide(snapshot).actions
    assert isinstance(hold, Hold)
    assert (hold.reason, hold.is_parked) == (reason, is_parked)
