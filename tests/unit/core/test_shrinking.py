"""Shrinking: which replicas go, and which stay where they are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from bireme.core.decision import Resize
from bireme.core.elastic import smaller
from bireme.core.gangs import AffinityMode, Role, RoleAffinity
from bireme.core.policy import Ranked
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import GPU, a_gang, a_running, a_task
from tests.unit.core.elastic_cases import (
    NODES,
    Counts,
    a_world,
    elastic,
    places,
    resizes,
    runs,
    sizes,
)


class Wants:
    """A sizer that always wants the same."""

    def __init__(self, **sizes: Mapping[str, int]) -> None:
        self.wanted = sizes

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        return self.wanted


# --- shrinking ------------------------------------------------------------------------------------


def shrunk(running: RunningGang, snapshot: ClusterSnapshot, **to: int) -> Counts | None:
    placement = smaller(running, to, snapshot.nodes)
    if placement is None:
        return None
    return places(Resize(running, placement, "", Reason.SHRUNK), snapshot)


@pytest.mark.parametrize(
    ("size", "left"),
    [
        (12, {"n0": 6, "n1": 2, "n2": 4}),
        (11, {"n0": 6, "n1": 1, "n2": 4}),
        (10, {"n0": 6, "n2": 4}),
        (7, {"n0": 6, "n2": 1}),
        (5, {"n0": 5}),
        (1, {"n0": 1}),
    ],
)
def test_the_nodes_with_the_fewest_replicas_are_emptied_first(
    size: int, left: dict[str, int]
) -> None:
    snapshot = a_world()
    running = a_running(elastic("e", 12, 1, 12), snapshot.nodes, {"n0": 6, "n1": 2, "n2": 4})
    assert shrunk(running, snapshot, worker=size) == (None if size == 12 else {"worker": left})


def test_among_equally_full_nodes_the_last_is_emptied_first() -> None:
    snapshot = a_world()
    running = a_running(elastic("e", 9, 1, 9), snapshot.nodes, {"n0": 3, "n1": 3, "n2": 3})
    assert shrunk(running, snapshot, worker=5) == {"worker": {"n0": 3, "n1": 2}}


def test_the_node_where_the_others_meet_is_emptied_last() -> None:
    snapshot = a_world()
    running = a_running(
        elastic("e", 9, 1, 9), snapshot.nodes, {"n0": 5, "n1": 1, "n2": 3}, anchor="n1"
    )
    assert shrunk(running, snapshot, worker=2) == {"worker": {"n0": 1, "n1": 1}}
    assert shrunk(running, snapshot, worker=1) == {"worker": {"n1": 1}}


def test_only_the_tasks_that_are_too_large_shrink() -> None:
    gang = a_gang("e", a_task(2, 0, role=Role.PS), a_task(4, min_replicas=1), is_elastic=True)
    snapshot = a_world()
    running = a_running(gang, snapshot.nodes, {"ps": {"n0": 1, "n1": 1}, "worker": {"n0": 4}})
    assert shrunk(running, snapshot, ps=2, worker=3) == {
        "ps": {"n0": 1, "n1": 1},
        "worker": {"n0": 3},
    }


def test_no_server_goes_that_a_worker_must_have_near_it() -> None:
    gang = a_gang(
        "e",
        a_task(2, 0, role=Role.PS, min_replicas=1),
        a_task(4, min_replicas=1),
        is_elastic=True,
        role_affinity=RoleAffinity(AffinityMode.REQUIRED),
    )
    snapshot = a_world()
    running = a_running(
        gang, snapshot.nodes, {"ps": {"n0": 1, "n1": 1}, "worker": {"n0": 2, "n1": 2}}
    )
    assert shrunk(running, snapshot, ps=1, worker=4) is None
    assert shrunk(running, snapshot, ps=1, worker=2) == {"ps": {"n0": 1}, "worker": {"n0": 2}}


# --- sizers ---------------------------------------------------------------------------------------


def test_a_sizer_shrinks_a_gang_and_another_grows_in_the_next_cycle_only() -> None:
    sizer = Wants(a={"worker": 2}, b={"worker": 6})
    snapshot = runs(a_world(nodes=NODES[:1]), elastic("a", 6, 1, 8), {"n0": 6})
    snapshot = runs(snapshot, elastic("b", 2, 1, 8), {"n0": 2})
    (resize,) = resizes(snapshot, sizer)
    assert (resize.running.gang.uid, resize.reason) == ("a", Reason.SHRUNK)
    assert resize.message == "the sizer wants it smaller"


def test_a_gang_is_resized_once_in_a_cycle() -> None:
    """One task too large, one too small: it first gives back, and grows another time."""
    tasks = (
        replace(a_task(4, name="a", min_replicas=1), max_replicas=8),
        replace(a_task(2, name="b", min_replicas=1), max_replicas=8),
    )
    snapshot = runs(
        a_world(), a_gang("e", *tasks, is_elastic=True), {"a": {"n0": 4}, "b": {"n0": 2}}
    )
    (resize,) = resizes(snapshot, Wants(e={"a": 2, "b": 4}))
    assert places(resize, snapshot) == {"a": {"n0": 2}, "b": {"n0": 2}}


@pytest.mark.parametrize(("wanted", "size"), [(0, 3), (1, 3), (5, 5), (99, 8)])
def test_a_sizer_cannot_leave_the_bounds_of_a_running_gang(wanted: int, size: int) -> None:
    gang = elastic("e", 4, 1, 8, min_available=3)
    snapshot = runs(a_world(), gang, {"n0": 4})
    assert sizes(snapshot, Wants(e={"worker": wanted})) == {"e": size}


def test_a_gang_that_the_sizer_leaves_out_grows_only_when_nobody_waits() -> None:
    snapshot = a_world(a_gang("waits", a_task(1, 8)), nodes=NODES[:2])
    snapshot = runs(snapshot, elastic("left-out", 2, 1, 8), {"n0": 2})
    snapshot = runs(snapshot, elastic("wanted", 2, 1, 8), {"n1": 2})
    assert sizes(snapshot, Wants(wanted={"worker": 4})) == {"wanted": 4}
    alone = replace(snapshot, waiting=())
    assert sizes(alone, Wants(wanted={"worker": 4})) == {"left-out": 8, "wanted": 4}


def test_what_a_sizer_wants_does_not_take_places_kept_for_the_blocked_gang() -> None:
    """The blocked gang gets all of n0 when the other ends; beside it n1 has room for three."""
    blocked = a_gang("blocked", a_task(1, 8), estimated_seconds=5.0)
    snapshot = a_world(blocked, nodes=NODES[:2], now=1.0)
    busy = a_gang("busy", a_task(4), estimated_seconds=100.0)
    snapshot = runs(snapshot, busy, {"n0": 4})
    high = a_gang("high", a_task(4), estimated_seconds=1000.0)
    snapshot = runs(snapshot, high, {"n1": 4})
    snapshot = runs(snapshot, elastic("e", 1, 1, 8, estimated_seconds=500.0), {"n1": 1})
    (resize,) = resizes(snapshot, Wants(e={"worker": 8}))
    assert places(resize, snapshot) == {"worker": {"n1": 4}}


def test_what_a_sizer_wants_does_not_take_the_limit_an_overdue_gang_waits_for() -> None:
    queues = [Queue("default", limit={GPU: 8}, wait_bound_seconds=10)]
    overdue = a_gang("overdue", a_task(6), arrived=-100.0)
    snapshot = runs(a_world(overdue, queues=queues), elastic("e", 2, 1, 8), {"n0": 2})
    snapshot = runs(snapshot, a_gang("other", a_task(2)), {"n1": 2})
    assert sizes(snapshot, Wants(e={"worker": 4})) == {}
