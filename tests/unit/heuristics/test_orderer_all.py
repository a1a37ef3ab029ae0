"""What every registered orderer owes, with waiting and running gangs mixed."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.queues import Queue
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import ORDERERS, make_orderer
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running

orderers = pytest.mark.parametrize("name", sorted(ORDERERS))
several = settings(max_examples=60, deadline=None)
QUEUES = (Queue("default"), Queue("heavy", weight=5))


@st.composite
def gangs(draw: st.DrawFn, uid: str) -> Gang:
    """A gang from few values, so that ties are common."""
    gang = a_gang(
        uid,
        a_task(draw(st.sampled_from((1, 1, 4))), draw(st.sampled_from((0, 1, 8)))),
        arrived=draw(st.sampled_from((0.0, 1.0, 90.0))),
        queue=draw(st.sampled_from(("default", "heavy"))),
        interrupted=draw(st.booleans()),
    )
    return replace(
        gang,
        user=draw(st.sampled_from(("", "ann", "bob"))),
        estimated_seconds=draw(st.sampled_from((None, 10.0, 10.0, 5000.0))),
        attained_seconds=draw(st.sampled_from((0.0, 0.0, 5000.0))),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> ClusterSnapshot:
    """Up to six gangs, each waiting or running."""
    drawn = [draw(gangs(f"g{number}")) for number in range(draw(st.integers(0, 6)))]
    since = [draw(st.sampled_from((None, 50.0, 99.0))) for _ in drawn]
    waiting = [gang for gang, start in zip(drawn, since, strict=True) if start is None]
    snapshot = a_snapshot([a_node("n", 64)], *waiting, queues=QUEUES, now=100.0)
    held = [
        a_running_gang(gang, snapshot.nodes, started=start)
        for gang, start in zip(drawn, since, strict=True)
        if start is not None
    ]
    return with_running(snapshot, *held)


def everyone(snapshot: ClusterSnapshot) -> list[Gang]:
    return [*snapshot.waiting, *(running.gang for running in snapshot.running)]


def order(name: str, listed: list[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
    return make_orderer(name).order(listed, snapshot)


@orderers
@several
@given(snapshots())
def test_scores_are_numbers_and_claims_can_be_compared(
    name: str, snapshot: ClusterSnapshot
) -> None:
    for entry in order(name, everyone(snapshot), snapshot):
        assert math.isfinite(entry.score)
        assert entry.claim is None or not math.isnan(entry.claim)


@orderers
@several
@given(snapshots(), st.sampled_from((1.0, 5000.0, 1e7)))
def test_a_claim_does_not_grow_by_waiting_alone(
    name: str, snapshot: ClusterSnapshot, seconds: float
) -> None:
    waiting = list(snapshot.waiting)
    now = {e.gang.uid: e.claim for e in order(name, waiting, snapshot)}
    later = order(name, waiting, replace(snapshot, now=snapshot.now + seconds))
    for entry in later:
        earlier = now[entry.gang.uid]
        if entry.claim is not None and earlier is not None:
            assert entry.claim <= earlier


@orderers
def test_nobody_is_ordered_where_nobody_is(name: str) -> None:
    assert order(name, [], a_snapshot([a_node("n")])) == []
    assert order(name, [], a_snapshot([])) == []
