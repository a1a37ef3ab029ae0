"""Fair orders: the example of the DRF paper, users and namespaces, queues with weights."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bireme.core.gangs import Gang
from bireme.core.nodes import Node
from bireme.core.policy import Orderer, Ranked
from bireme.core.queues import Queue
from bireme.heuristics.fairness import DominantResourceFairness, FairShare, dominant_share
from bireme.testing import GIB, a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running
from testbed.decisions import uids

ONE = a_node("n", 10)
QUEUES = (Queue("default"), Queue("one", weight=1), Queue("three", weight=3))


def job(
    uid: str, user: str = "", *, gpus: int = 1, arrived: float = 0.0, queue: str = "default"
) -> Gang:
    return replace(a_gang(uid, a_task(1, gpus), arrived=arrived, queue=queue), user=user)


def ranked(
    orderer: Orderer,
    *waiting: Gang,
    running: Sequence[Gang] = (),
    nodes: Sequence[Node] = (ONE,),
    listed: Sequence[Gang] | None = None,
) -> list[Ranked]:
    """All gangs ranked, or those ``listed``; ``running`` ones started in that order."""
    snapshot = a_snapshot(nodes, *waiting, queues=QUEUES, now=100.0)
    held = [
        a_running_gang(gang, snapshot.nodes, started=float(start))
        for start, gang in enumerate(running)
    ]
    gangs = [*waiting, *running] if listed is None else listed
    return orderer.order(gangs, with_running(snapshot, *held))


def test_the_example_of_the_paper_is_served_in_its_order() -> None:
    # Ghodsi et al., table 1: 9 CPUs and 18 GB; A asks (1 CPU, 4 GB) each time, B (3 CPUs, 1 GB).
    node = a_node("n", 0, cpu_millis=9000, memory_bytes=18 * GIB)
    a, b = (a_task(1, 0, cpu_millis=1000, memory_bytes=4 * GIB), a_task(1, 0, cpu_millis=3000))
    gangs = [replace(a_gang(f"a{n}", a, arrived=1.0), user="A") for n in range(3)]
    gangs += [replace(a_gang(f"b{n}", b), user="B") for n in range(2)]
    entries = ranked(DominantResourceFairness(), *gangs, nodes=[node])
    assert uids(entries) == ["b0", "a0", "a1", "b1", "a2"]
    assert [-entry.score for entry in entries] == pytest.approx([0, 0, 4 / 18, 3 / 9, 8 / 18])


def test_of_two_users_the_one_who_holds_less_goes_first() -> None:
    rich, poor = job("rich", "R"), job("poor", "P", arrived=50.0)
    held = [job("r0", "R", gpus=2), job("p0", "P")]
    entries = ranked(DominantResourceFairness(), rich, poor, running=held)
    assert uids(entries) == ["p0", "r0", "poor", "rich"]
    assert [entry.preemption_priority for entry in entries] == [0.0, 0.0, -0.1, -0.2]


def test_what_a_user_runs_counts_also_when_it_is_not_in_the_list() -> None:
    rich, poor = job("rich", "R"), job("poor", "P", arrived=50.0)
    held = [job("r0", "R")]
    entries = ranked(DominantResourceFairness(), rich, poor, running=held, listed=[rich, poor])
    assert uids(entries) == ["poor", "rich"]


def test_a_user_without_anything_may_take_from_one_with_much_until_they_are_even() -> None:
    held = [job(f"r{n}", "R") for n in range(4)]
    new = [job(f"p{n}", "P") for n in range(4)]
    claims = {
        e.gang.uid: e.preemption_priority
        for e in ranked(DominantResourceFairness(), *new, running=held)
    }
    assert claims["p0"] == claims["r0"] > claims["r3"]  # type: ignore[operator]
    held, new = [*held[:2], *new[:2]], [*held[2:], *new[2:]]
    claims = {
        e.gang.uid: e.preemption_priority
        for e in ranked(DominantResourceFairness(), *new, running=held)
    }
    weakest = min(claims[gang.uid] for gang in held)  # type: ignore[type-var]
    assert all(claims[gang.uid] < weakest for gang in new)  # type: ignore[operator]


def test_the_gangs_of_one_user_go_by_arrival_interrupted_ones_first() -> None:
    gangs = [job("b", "U", arrived=2.0), job("a", "U", arrived=1.0), job("c", "U", arrived=3.0)]
    gangs[2] = replace(gangs[2], interrupted=True)
    assert uids(ranked(DominantResourceFairness(), *gangs)) == ["c", "a", "b"]


def test_gangs_without_a_user_belong_to_their_namespace() -> None:
    gangs = [a_gang(f"a{n}", arrived=float(n), namespace="a") for n in range(2)]
    gangs.append(a_gang("b0", arrived=9.0, namespace="b"))
    assert uids(ranked(DominantResourceFairness(), *gangs)) == ["a0", "b0", "a1"]


def test_the_dominant_share_is_the_largest_of_what_the_cluster_offers() -> None:
    total = {"cpu": 1000, "memory": 2000, "none": 0}
    assert dominant_share({"cpu": 100, "memory": 500}, total) == 0.25
    assert dominant_share({"none": 5, "other": 5}, total) == 0.0
    assert dominant_share({}, total) == 0.0


def test_a_queue_of_three_times_the_weight_is_served_three_times_as_often() -> None:
    gangs = [job(f"{queue}{n}", queue=queue) for queue in ("one", "three") for n in range(6)]
    first = uids(ranked(FairShare(), *gangs))[:8]
    assert sum(uid.startswith("three") for uid in first) == 6
    assert sum(uid.startswith("one") for uid in first) == 2


def test_the_score_is_minus_the_share_of_the_queue_for_its_weight() -> None:
    gangs = [job("t0", gpus=3, queue="three"), job("t1", queue="three"), job("o0", queue="one")]
    entries = ranked(FairShare(), *gangs)
    assert [(entry.gang.uid, entry.score) for entry in entries] == [
        ("o0", 0.0),
        ("t0", 0.0),
        ("t1", pytest.approx(-0.3 / 3)),
    ]


def test_inside_a_queue_users_take_turns() -> None:
    gangs = [job(f"a{n}", "A", arrived=float(n)) for n in range(3)]
    gangs += [job("b0", "B", arrived=9.0)]
    assert uids(ranked(FairShare(), *gangs)) == ["a0", "b0", "a1", "a2"]


def test_a_gang_that_runs_in_a_queue_that_is_gone_is_ranked_all_the_same() -> None:
    orphan, other = job("orphan", queue="deleted"), job("other", arrived=1.0)
    assert uids(ranked(FairShare(), other, running=[orphan])) == ["orphan", "other"]


def test_on_a_cluster_without_nodes_all_shares_are_nothing() -> None:
    gangs = job("b", "B"), job("a", "A", arrived=1.0)
    assert [e.score for e in ranked(DominantResourceFairness(), *gangs, nodes=[])] == [0.0, 0.0]
