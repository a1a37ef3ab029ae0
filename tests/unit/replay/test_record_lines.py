"""Cycles to lines and back: nothing is lost, and little is written of what did not change."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import TrainingProgress
from bireme.core.nodes import GrowablePool, Node, NodeTable
from bireme.core.policy import Policy
from bireme.core.queues import Queue
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import InverseQuadratic, LinearSpeed
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.replay.reader import Decoder, RecordedCycle
from bireme.replay.record import RecordError
from bireme.replay.writer import Encoder, outline_of
from bireme.testing import (
    GPU,
    a_gang,
    a_node,
    a_pool,
    a_running,
    a_snapshot,
    a_task,
    with_running,
)
from bireme_lab.simulator.physics.laws import MeasuredSpeed
from testbed.random_snapshots import SnapshotCase, cases, pools
from testbed.recordings import content
from testbed.small_cluster import SmallCluster
from testbed.workloads import (
    COMBINED,
    ELASTIC,
    KINDS,
    NODES,
    PATIENT,
    QUEUES,
    Arrival,
    arrivals,
)

POLICY = Policy(CombinedPriority(), Packing())


def decided(snapshot: ClusterSnapshot) -> Decision:
    return run_cycle(snapshot, POLICY, explain=False)


def pairs(*snapshots: ClusterSnapshot) -> list[tuple[ClusterSnapshot, RecordedCycle]]:
    """Those of ``snapshots`` that have something to say, with what a reader hears of them."""
    encoder, decoder = Encoder(), Decoder(snapshots[0].settings)
    lines = [(one, encoder.encode(one, decided(one))) for one in snapshots]
    return [(one, decoder.decode(line)) for one, line in lines if line is not None]


def through(*snapshots: ClusterSnapshot) -> list[RecordedCycle]:
    """The cycles that a reader gets of a record of ``snapshots``."""
    return [moment for _, moment in pairs(*snapshots)]


def last_line(*snapshots: ClusterSnapshot) -> dict[str, object] | None:
    """The last line of a record of ``snapshots``, without its number and time; None for none."""
    encoder, line = Encoder(), None
    for snapshot in snapshots:
        line = encoder.encode(snapshot, decided(snapshot))
    if line is None:
        return None
    found: dict[str, object] = msgspec.json.decode(line)
    del found["line"], found["now"]
    return found


@given(st.lists(st.tuples(cases(most_gangs=4), pools()), min_size=1, max_size=3))
def test_any_clusters_one_after_another_are_read_as_they_were(
    given: list[tuple[SnapshotCase, tuple[GrowablePool, ...]]],
) -> None:
    settings = given[0][0].snapshot.settings
    seen = [
        replace(
            case.snapshot,
            settings=settings,
            now=100.0 + at,
            nodes=NodeTable(case.nodes, settings.topology_levels),
            growable=growable,
        )
        for at, (case, growable) in enumerate(given)
    ]
    for snapshot, moment in pairs(*seen):
        assert content(moment.snapshot) == content(snapshot)
        assert moment.outline == outline_of(decided(snapshot), snapshot.nodes)


@given(arrivals((*KINDS, *ELASTIC), tuple(q.name for q in QUEUES), (1.0, None)))
def test_life_of_a_cluster_is_read_as_it_was_and_decided_again(todo: list[Arrival]) -> None:
    """Starts, preemptions, resizes and ends, some of them in cycles with nothing to say."""
    world = SmallCluster(NODES, COMBINED, PATIENT, QUEUES, stop_seconds=3.0)
    for at, gang, seconds in todo:
        world.advance(float(at))
        world.submit(gang, seconds)
        world.decide()
    for snapshot, moment in pairs(*world.seen):
        assert content(moment.snapshot) == content(snapshot)
        assert moment.outline == outline_of(decided(moment.snapshot), moment.snapshot.nodes)


def test_cycle_like_the_one_before_it_is_not_written() -> None:
    snapshot = a_snapshot([a_node("n0")], a_gang("wide", a_task(9)))
    assert last_line(snapshot, replace(snapshot, now=60.0)) is None


def test_line_tells_only_what_has_changed() -> None:
    before = a_snapshot([a_node("n0"), a_node("n1")], a_gang("wide", a_task(17)), now=10.0)
    used = before.used.copy()
    used[1, 0] = 500
    late = a_gang("late", a_task(18), arrived=9.0)
    line = last_line(before, replace(before, used=used, waiting=(*before.waiting, late), now=11.0))
    assert line is not None
    assert line.keys() == {"used", "waiting", "outline"}
    assert line["used"] == {"n1": [500, 0, 0, 0, 0]}
    assert isinstance(line["waiting"], dict)
    assert list(line["waiting"]) == ["late"]


def test_service_of_submitters_is_read_as_it_was_in_each_line() -> None:
    first = a_snapshot([a_node("n0")], a_gang("a"), now=1.0)
    served = replace(first, now=2.0, waiting=(), service={"a": 5.5, "b": 1.0})
    later = replace(first, now=3.0, service={"b": 0.5})
    assert [cycle.snapshot.service for cycle in through(first, served, later)] == [
        {},
        {"a": 5.5, "b": 1.0},
        {"b": 0.5},
    ]


def test_gang_that_runs_on_is_not_recorded_again() -> None:
    bare = a_snapshot([a_node("n0")], a_gang("wide", a_task(9)))
    before, after = (
        with_running(bare, a_running(a_gang("runs", a_task(2)), bare.nodes, {"n0": 2}))
        for _ in range(2)
    )
    assert last_line(before, replace(after, now=60.0)) is None


def table(*nodes: Node) -> NodeTable:
    return NodeTable(nodes, ("kubernetes.io/hostname",))


def test_nodes_that_come_and_go_take_nothing_from_the_others() -> None:
    first, second, third = a_node("n0"), a_node("n1"), a_node("n2")
    before = replace(a_snapshot([]), nodes=table(first, second), used=np.ones((2, 5), np.int64))
    after = replace(before, nodes=table(second, third), used=np.ones((2, 5), np.int64))
    line = last_line(before, after)
    assert line is not None
    assert line["used"] == {"n2": [1, 1, 1, 1, 1]}
    assert content(through(before, after)[1].snapshot)["used"] == after.used.tolist()


def test_resource_that_is_new_moves_no_amount_into_its_column() -> None:
    odd = replace(a_node("n1"), allocatable={**a_node("n1").allocatable, "a.example/fpga": 1})
    before = replace(a_snapshot([]), nodes=table(a_node("n0")), used=np.full((1, 5), 7, np.int64))
    used = np.array([[7, 7, 7, 7, 0, 7], [0] * 6])
    after = replace(before, nodes=table(a_node("n0"), odd), used=used)
    assert content(through(before, after)[1].snapshot)["used"] == used.tolist()


def test_queue_that_is_gone_is_gone_for_the_reader() -> None:
    before = a_snapshot([], queues=[Queue("a"), Queue("b")], queue_usage={"b": {GPU: 1}})
    (_, read) = through(before, replace(before, queues={"a": Queue("a")}, queue_usage={}))
    assert read.snapshot.queues == {"a": Queue("a")}
    assert read.snapshot.queue_usage == {}


def test_what_a_gang_reported_and_what_follows_from_it_is_read_again() -> None:
    gang = replace(
        a_gang("reporting"),
        progress=TrainingProgress(7.0, fraction=0.5, loss=0.25, accuracy_gain=-0.1),
        speed=LinearSpeed(2.0, 0.1),
        loss=InverseQuadratic(0.0, 0.1, 2.0, 0.3),
        remaining_steps=9.0,
    )
    (read,) = through(a_snapshot([a_node("n0")], gang))
    assert read.snapshot.waiting == (gang,)


def test_law_that_no_report_leads_to_is_refused_by_name() -> None:
    gang = replace(a_gang("fast"), speed=MeasuredSpeed((1,), (1.0,)))
    snapshot = a_snapshot([a_node("n0")], gang)
    with pytest.raises(RecordError, match="'fast' has a MeasuredSpeed"):
        Encoder().encode(snapshot, Decision())


def test_two_gangs_of_one_uid_are_refused() -> None:
    snapshot = a_snapshot([a_node("n0")], a_gang("twin"), a_gang("twin"))
    with pytest.raises(RecordError, match="one uid"):
        Encoder().encode(snapshot, Decision())


def test_nodes_asked_for_are_recorded_by_gang_and_change_the_digest() -> None:
    snapshot = a_snapshot([], a_gang("wide", a_task(9)), growable=[a_pool("h200")])
    decision = decided(snapshot)
    outline = outline_of(decision, snapshot.nodes)
    assert (outline.growth, outline.holds) == ({"wide": {"h200": 2}}, {"wide": "ScalingUp"})
    assert outline_of(replace(decision, node_requests=()), snapshot.nodes).digest != outline.digest


def test_a_pool_whose_nodes_have_come_is_recorded_again() -> None:
    before = a_snapshot([], growable=[a_pool("a", coming=1, asked_at=5.0), a_pool("b")])
    line = last_line(before, replace(before, growable=(a_pool("a"),)))
    assert line is not None
    assert isinstance(line["growable"], dict)
    assert (list(line["growable"]), line["growable"]["b"]) == (["a", "b"], None)


def test_decisions_that_differ_only_in_the_order_have_other_digests() -> None:
    snapshot = a_snapshot([a_node("n0", 0)], a_gang("a", arrived=1.0), a_gang("b", arrived=2.0))
    one = decided(snapshot)
    other = Decision(tuple(reversed(one.actions)))
    assert len(one.held) == 2
    found = [outline_of(decision, snapshot.nodes) for decision in (one, other)]
    assert found[0].holds == found[1].holds
    assert found[0].digest != found[1].digest
