"""Canaries: a policy that decides for the gangs of some queues, in one order with another."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from bireme.core.canary import PolicySet
from bireme.core.cycle import run_cycle
from bireme.core.gangs import Gang
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.policy import Canary, GangSizes, Policy, Ranked
from bireme.core.queues import Queue
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.replay.writer import outline_of
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running
from testbed.examples import examples
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

TREE = (*QUEUES, Queue("team", parent="first", user_priority=70))
OWN = {"first", "team"}
"""The queues of a canary that names ``first``."""
NAMES = tuple(queue.name for queue in TREE)


@dataclass(frozen=True)
class Arbitrary:
    """Orders in some fixed way that nobody else does, with claims that follow another one."""

    seed: int = 0

    def _number(self, gang: Gang, what: str) -> float:
        return float(zlib.crc32(f"{what}{self.seed}{gang.uid}".encode()))

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        made = [
            Ranked(g, self._number(g, "rank"), preemption_priority=self._number(g, "claim"))
            for g in gangs
        ]
        return sorted(made, key=lambda entry: entry.score)


class Fails:
    """An orderer, a sizer and a placer that raise."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        raise ValueError("no order")

    def sizes(self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot) -> GangSizes:
        raise ValueError("no size")

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        raise ValueError("no place")


class LastNode:
    """Places on the last node that has room for the whole gang."""

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        nodes = capacity.nodes
        (task,) = gang.tasks
        fits = [row for row in range(len(nodes)) if capacity.replicas(task)[row] >= task.replicas]
        names = [nodes.names[row] for row in fits]
        return a_running(gang, nodes, {names[-1]: task.replicas}).placement if names else None


def beside(
    policy: Policy, *canaries: tuple[str, Policy], queues: Sequence[str] = ("first",)
) -> Policy:
    """``policy`` with canaries for the same queues, oldest first."""
    made = tuple(Canary(name, frozenset(queues), each) for name, each in canaries)
    return replace(policy, canaries=made)


def moments(policy: Policy, todo: Sequence[Arrival]) -> list[ClusterSnapshot]:
    """Some of what a cluster with ``policy`` decides on, when much waits and runs."""
    world = SmallCluster(NODES, policy, PATIENT, TREE)
    left = list(todo)
    for _ in range(20):
        moment = min(world.next_end, float(left[0][0]) if left else float("inf"))
        if moment == float("inf"):
            break
        world.advance(moment)
        while left and left[0][0] <= moment:
            _, gang, seconds = left.pop(0)
            world.submit(gang, seconds)
        world.settle()
    assert world.problems == []
    crowded = sorted(world.seen, key=lambda each: -len(each.waiting) * len(each.running))
    return crowded[:4]


def decided(snapshot: ClusterSnapshot, policy: Policy) -> list[object]:
    """The decision, with every word of it."""
    found = run_cycle(snapshot, policy)
    words = [(action.gang.uid, action.message) for action in found.actions]
    return [*words, outline_of(replace(found, canary_fallbacks=()), snapshot.nodes)]


crowds = arrivals((*KINDS, *ELASTIC), NAMES, (1.0, None))


@examples(10)
@given(crowds, st.integers(0, 99))
def test_the_canarys_gangs_exchange_their_places_and_nobody_else_moves(
    todo: list[Arrival], seed: int
) -> None:
    canary = Arbitrary(seed)
    policy = beside(COMBINED, ("c", Policy(canary, Packing())))
    for snapshot in moments(policy, todo):
        gangs = [*snapshot.waiting, *(held.gang for held in snapshot.running)]
        plain = COMBINED.orderer.order(gangs, snapshot)
        mixed = PolicySet(policy, snapshot).order(gangs, snapshot)
        for before, after in zip(plain, mixed, strict=True):
            is_own = before.gang.queue in OWN
            assert is_own == (after.gang.queue in OWN)
            assert is_own or after == before
        own = [entry.gang.uid for entry in mixed if entry.gang.queue in OWN]
        theirs = [each.gang.uid for each in canary.order(gangs, snapshot)]
        assert own == [uid for uid in theirs if uid in set(own)]
        claims = {entry.gang.uid: entry.preemption_priority for entry in plain}
        assert {e.gang.uid: e.preemption_priority for e in mixed} == claims


@examples(10)
@given(crowds)
def test_a_canary_that_decides_as_the_other_policy_changes_nothing(todo: list[Arrival]) -> None:
    policy = beside(COMBINED, ("c", COMBINED))
    for snapshot in moments(COMBINED, todo):
        assert decided(snapshot, policy) == decided(snapshot, COMBINED)


@examples(10)
@given(crowds, st.integers(0, 99))
def test_a_canary_stops_nobody_whom_the_other_policy_would_not_let_it_stop(
    todo: list[Arrival], seed: int
) -> None:
    """Rank is not asked in guaranteed queues, which are none here, and of those that yield."""
    canary = Arbitrary(seed)
    policy = beside(COMBINED, ("c", Policy(canary, Packing())))
    for snapshot in moments(policy, [each for each in todo if each[1].queue != "mine"]):
        snapshot = replace(snapshot, queues={q.name: q for q in TREE if q.name != "mine"})
        gangs = [*snapshot.waiting, *(held.gang for held in snapshot.running)]
        ours, theirs = (
            {e.gang.uid: e.preemption_priority or 0.0 for e in orderer.order(gangs, snapshot)}
            for orderer in (COMBINED.orderer, canary)
        )
        for stop in run_cycle(snapshot, policy).preempted:
            winner, loser = stop.beneficiary, stop.gang
            if snapshot.running_by_uid[loser.uid].is_opportunistic:
                continue
            assert ours[winner.uid] > ours[loser.uid]
            if {winner.queue, loser.queue} <= OWN:
                assert theirs[winner.uid] > theirs[loser.uid]


@dataclass(frozen=True)
class Claims:
    """Orders by arrival, and gives each gang the claim that is stated for it."""

    by_name: tuple[tuple[str, float], ...]

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        claims = dict(self.by_name)
        return [
            replace(entry, preemption_priority=claims[entry.gang.name])
            for entry in Fifo().order(gangs, snapshot)
        ]


def stopped(asks: str, runs: str, canary_claims: tuple[tuple[str, float], ...]) -> list[str]:
    """Who is stopped for the gang that asks, which the policy itself would let stop the other."""
    gang = a_gang("asks", a_task(8), queue=asks, arrived=0.0)
    other = a_gang("runs", a_task(8), queue=runs, arrived=1.0)
    snapshot = a_snapshot([a_node("n0", 8)], gang, queues=TREE, settings=PATIENT, now=10.0)
    snapshot = with_running(snapshot, a_running(other, snapshot.nodes, {"n0": 8}))
    policy = Policy(Claims((("asks", 2.0), ("runs", 1.0))), Packing())
    policy = beside(policy, ("c", Policy(Claims(canary_claims), Packing())))
    return [stop.gang.name for stop in run_cycle(snapshot, policy).preempted]


def test_within_its_queues_the_canary_may_refuse_a_stop_and_across_the_border_not() -> None:
    refuses = (("asks", 1.0), ("runs", 2.0))
    allows = (("asks", 2.0), ("runs", 1.0))
    assert stopped("first", "team", allows) == ["runs"]
    assert stopped("first", "team", refuses) == []
    assert stopped("first", "default", refuses) == ["runs"], "the other policy's claim counts"
    assert stopped("default", "first", refuses) == ["runs"]


def test_each_gang_is_placed_by_who_decides_for_its_queue() -> None:
    nodes = [a_node("n0", 8), a_node("n1", 8)]
    gangs = [a_gang(queue, queue=queue) for queue in ("default", "first", "team")]
    snapshot = a_snapshot(nodes, *gangs, queues=TREE)
    policy = beside(Policy(Fifo(), Packing()), ("c", Policy(Fifo(), LastNode())))
    places = {
        a.gang.uid: list(a.placement.node_rows()) for a in run_cycle(snapshot, policy).admitted
    }
    assert places == {"default": [0], "first": [1], "team": [1]}


def test_of_two_canaries_of_a_queue_the_first_decides() -> None:
    snapshot = a_snapshot([a_node("n0", 8), a_node("n1", 8)], a_gang(queue="team"), queues=TREE)
    last, packed = Policy(Fifo(), LastNode()), Policy(Fifo(), Packing())
    for canaries, row in (((("a", last), ("b", packed)), 1), ((("a", packed), ("b", last)), 0)):
        (start,) = run_cycle(snapshot, beside(packed, *canaries)).admitted
        assert list(start.placement.node_rows()) == [row]


@examples(10)
@given(crowds)
def test_invalid_answers_of_a_canary_are_those_of_its_rules_and_charged_to_it(
    todo: list[Arrival],
) -> None:
    fails = Policy(Fails(), Fails(), Fails(), rules=COMBINED)
    for snapshot in moments(COMBINED, todo):
        policy = beside(COMBINED, ("bad", fails))
        assert decided(snapshot, policy) == decided(snapshot, COMBINED)
        found = run_cycle(snapshot, policy)
        assert found.fallback == ""
        if any(gang.queue in OWN for gang in snapshot.waiting):
            ((name, why),) = found.canary_fallbacks
            assert name == "bad"
            assert why.startswith("the orderer failed: ")


@examples(10)
@given(crowds)
def test_invalid_answers_of_the_policy_are_not_charged_to_its_canary(todo: list[Arrival]) -> None:
    fails = Policy(Fails(), Fails(), rules=COMBINED)
    for snapshot in moments(COMBINED, todo):
        found = run_cycle(snapshot, beside(fails, ("good", COMBINED)))
        assert found.canary_fallbacks == ()
        assert found.fallback or not snapshot.waiting
