"""Previews of drains: gangs start again whole, elastic ones shrink."""

from typing import Any

from bireme.cli.maintenance_plan import Move, preview
from bireme.core.gangs import Gang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running

POLICY = make_policy(SchedulingSettings())


def workers(name: str, replicas: int, gpus: int = 1, **more: Any) -> Gang:
    task = a_task(replicas, gpus, min_replicas=more.pop("least", 0))
    return a_gang(name, task, **more)


def cluster(nodes: int, *placed: tuple[Gang, dict[str, Any]]) -> ClusterSnapshot:
    """Nodes n0, n1, ... of 8 GPUs, and gangs where they are placed."""
    snapshot = a_snapshot([a_node(f"n{i}", 8) for i in range(nodes)], now=1000.0)
    running = []
    for gang, places in placed:
        anchor = places.pop("anchor", "")
        running.append(a_running(gang, snapshot.nodes, places, anchor=anchor))
    return with_running(snapshot, *running)


def effects(moves: list[Move]) -> dict[str, tuple[int, str]]:
    return {move.gang.name: (move.replicas, move.effect) for move in moves}


def test_a_gang_starts_again_whole_where_it_fits() -> None:
    snapshot = cluster(3, (workers("a", 4), {"n0": 2, "n1": 2}), (workers("b", 2), {"n2": 2}))
    moves = preview(snapshot, ["n0"], POLICY)
    assert effects(moves) == {"a": (2, "restarts")}
    assert "4" in moves[0].message


def test_a_gang_that_fits_nowhere_waits_with_the_reason() -> None:
    snapshot = cluster(2, (workers("a", 8), {"n0": 8}), (workers("b", 8), {"n1": 8}))
    (move,) = preview(snapshot, ["n0"], POLICY)
    assert move.effect == "waits"
    assert move.message.startswith(("WaitingForCapacity", "NeverFits"))


def test_an_elastic_gang_goes_on_with_what_is_left() -> None:
    gang = workers("e", 4, least=2, is_elastic=True)
    snapshot = cluster(2, (gang, {"n0": 2, "n1": 2, "anchor": "n0"}))
    (move,) = preview(snapshot, ["n1"], POLICY)
    assert move.effect == "shrinks"
    assert move.message == "continues with 2 replicas"


def test_an_elastic_gang_that_loses_its_first_replica_starts_again() -> None:
    gang = workers("e", 4, least=2, is_elastic=True)
    snapshot = cluster(3, (gang, {"n0": 2, "n1": 2, "anchor": "n0"}))
    assert effects(preview(snapshot, ["n0"], POLICY)) == {"e": (2, "restarts")}


def test_an_elastic_gang_below_its_minimum_starts_again() -> None:
    gang = workers("e", 4, least=3, is_elastic=True)
    snapshot = cluster(3, (gang, {"n0": 2, "n1": 2, "anchor": "n0"}))
    assert effects(preview(snapshot, ["n1"], POLICY)) == {"e": (2, "restarts")}


def test_nothing_starts_again_on_any_of_the_drained_nodes() -> None:
    snapshot = cluster(2, (workers("a", 2), {"n0": 2}))
    (move,) = preview(snapshot, ["n0", "n1"], POLICY)
    assert move.effect == "waits"


def test_the_cluster_that_was_asked_about_stays_as_it_is() -> None:
    snapshot = cluster(2, (workers("a", 2), {"n0": 2}))
    used, queue_usage = snapshot.used.copy(), dict(snapshot.queue_usage)
    preview(snapshot, ["n0"], POLICY)
    assert (snapshot.used == used).all()
    assert snapshot.queue_usage == queue_usage
    assert len(snapshot.running) == 1


def test_a_node_nobody_uses_moves_nobody() -> None:
    assert preview(cluster(2, (workers("a", 2), {"n0": 2})), ["n1"], POLICY) == []
