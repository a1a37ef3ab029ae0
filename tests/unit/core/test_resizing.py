"""Elastic gangs: when they grow and shrink, how far, and that replicas which stay stay put."""

from dataclasses import replace

import pytest

from bireme.core.gangs import AffinityMode, Gang, Role, RoleAffinity
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.testing import GPU, a_gang, a_task, racks
from tests.unit.core.elastic_cases import NODES, a_world, elastic, places, resizes, runs, sizes

# --- growing --------------------------------------------------------------------------------------


def test_a_gang_grows_to_its_maximum_where_there_is_room() -> None:
    snapshot = runs(a_world(), elastic("e", 4, 2, 12), {"n0": 4})
    (resize,) = resizes(snapshot)
    assert places(resize, snapshot) == {"worker": {"n0": 4, "n1": 8}}
    assert (resize.reason, resize.message) == (
        Reason.GROWN,
        "grown by 8 worker into idle capacity",
    )


def test_a_gang_grows_in_its_own_rack_before_it_goes_to_a_tighter_node_elsewhere() -> None:
    nodes = racks(2, 2)
    snapshot = runs(a_world(nodes=nodes), a_gang("other", a_task(4)), {"r1-n0": 4})
    snapshot = runs(snapshot, elastic("e", 8, 2, 12), {"r0-n0": 8})
    (resize,) = resizes(snapshot)
    assert places(resize, snapshot) == {"worker": {"r0-n0": 8, "r0-n1": 4}}


def test_a_gang_grows_into_what_there_is() -> None:
    snapshot = runs(a_world(nodes=NODES[:1]), elastic("e", 4, 2, 100), {"n0": 4})
    assert sizes(snapshot) == {"e": 8}


@pytest.mark.parametrize("waiting", [a_gang("waits", a_task(3, 8)), a_gang("over", a_task(2))])
def test_nobody_grows_while_somebody_waits(waiting: Gang) -> None:
    queues = [Queue("default"), Queue("full", limit={GPU: 2})]
    if waiting.name == "over":
        waiting = replace(waiting, queue="full")
    snapshot = a_world(waiting, queues=queues)
    snapshot = runs(snapshot, a_gang("full", a_task(1), queue="full"), {"n1": 1})
    assert sizes(runs(snapshot, elastic("e", 4, 2, 12), {"n0": 4})) == {}


def test_a_gang_that_can_never_start_keeps_nobody_from_growing() -> None:
    snapshot = a_world(a_gang("never", a_task(99)), a_gang("faulty", queue="gone"))
    assert sizes(runs(snapshot, elastic("e", 4, 2, 8), {"n0": 4})) == {"e": 8}


def test_what_is_admitted_in_the_same_cycle_goes_first() -> None:
    snapshot = a_world(a_gang("new", a_task(6)), nodes=NODES[:1])
    assert sizes(runs(snapshot, elastic("e", 1, 1, 8), {"n0": 1})) == {"e": 2}


def test_the_first_in_order_grows_first() -> None:
    snapshot = runs(a_world(nodes=NODES[:1]), elastic("late", 2, 1, 8, arrived=2.0), {"n0": 2})
    assert sizes(runs(snapshot, elastic("early", 2, 1, 5, arrived=1.0), {"n0": 2})) == {
        "early": 5,
        "late": 3,
    }


@pytest.mark.parametrize(("resized", "grows"), [(-59.0, False), (-60.0, True)])
def test_a_gang_keeps_its_size_for_a_while(resized: float, grows: bool) -> None:
    snapshot = runs(a_world(), elastic("e", 4, 2, 8), {"n0": 4}, resized=resized)
    assert bool(sizes(snapshot)) is grows


@pytest.mark.parametrize(
    "gang",
    [
        pytest.param(replace(elastic("e", 4, 2, 8), is_elastic=False), id="not-elastic"),
        pytest.param(elastic("e", 4, 2, 4), id="at-its-maximum"),
    ],
)
def test_a_gang_that_cannot_grow_does_not(gang: Gang) -> None:
    assert sizes(runs(a_world(), gang, {"n0": 4})) == {}


def test_a_gang_that_is_being_stopped_does_not_grow() -> None:
    assert sizes(runs(a_world(), elastic("e", 4, 2, 8), {"n0": 4}, is_leaving=True)) == {}


def test_a_gang_grows_as_far_as_its_queue_may_hold() -> None:
    """Seven more fit the nodes, five more the limit; sizes are halved until they fit."""
    queues = [Queue("default", limit={GPU: 9})]
    snapshot = runs(a_world(queues=queues), elastic("e", 4, 2, 11), {"n0": 4})
    assert sizes(snapshot) == {"e": 7}


def test_tasks_grow_together() -> None:
    servers = replace(a_task(1, 0, role=Role.PS), max_replicas=2)
    workers = replace(a_task(4, min_replicas=1), max_replicas=6)
    gang = a_gang("e", servers, workers, is_elastic=True)
    snapshot = runs(a_world(), gang, {"ps": {"n0": 1}, "worker": {"n0": 4}})
    (resize,) = resizes(snapshot)
    assert resize.running.gang is gang
    assert {task: sum(on.values()) for task, on in places(resize, snapshot).items()} == {
        "ps": 2,
        "worker": 6,
    }


@pytest.mark.parametrize(("mode", "replicas"), [("Required", None), ("Preferred", 12)])
def test_no_worker_grows_away_from_the_server_it_must_be_near(
    mode: str, replicas: int | None
) -> None:
    gang = replace(
        elastic("e", 8, 2, 12),
        role_affinity=RoleAffinity(AffinityMode(mode)),
        tasks=(
            a_task(1, 0, role=Role.PS),
            replace(a_task(8, min_replicas=2), max_replicas=12),
        ),
    )
    snapshot = runs(a_world(), gang, {"ps": {"n0": 1}, "worker": {"n0": 8}})
    grown = {
        r.running.gang.uid: sum(places(r, snapshot)["worker"].values()) for r in resizes(snapshot)
    }
    assert grown == ({} if replicas is None else {"e": replicas})
