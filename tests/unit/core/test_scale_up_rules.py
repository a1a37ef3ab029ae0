"""Growth keeps the rules: constraints, limits, reservations, and what a placer says."""

from dataclasses import replace

import numpy as np
import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.errors import SnapshotError
from bireme.core.gangs import AffinityMode, Gang, Role, RoleAffinity
from bireme.core.nodes import HOSTNAME_LABEL, GrowablePool
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.pod_constraints import NodeConstraints, SpreadLimit, Taint, Toleration
from bireme.core.policy import Policy
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import (
    GPU,
    a_gang,
    a_node,
    a_pool,
    a_running_gang,
    a_snapshot,
    a_task,
    racks,
    with_running,
)
from testbed.decisions import hold_of
from tests.unit.core.growth_cases import FIFO, after, asked
from tests.unit.core.test_pod_affinity import of, pods

RACK = "topology.bireme.dev/rack"


def test_taints_and_labels_of_the_template_are_respected() -> None:
    tainted = a_node("t", taints=[Taint("gpu", "yes", "NoSchedule")], labels={"kind": "h200"})
    pools = (a_pool("a", template=tainted), a_pool("b"))
    chooses = NodeConstraints(node_selector=(("kind", "h200"),))
    tolerates = replace(chooses, tolerations=(Toleration("gpu", "Exists"),))
    plain, choosy, able = (
        a_gang("job", a_task(8, constraints=wish))
        for wish in (NodeConstraints(), chooses, tolerates)
    )
    assert asked(after([], plain, growable=pools)) == [("job", "b", 1)]
    assert hold_of(after([], choosy, growable=pools)).reason is Reason.NEVER_FITS
    assert asked(after([], able, growable=pools)) == [("job", "a", 1)]


def test_what_daemons_use_of_the_template_is_not_for_gangs() -> None:
    template = replace(a_node("t"), fixed={GPU: 1})
    assert asked(after([], a_gang("job", a_task(8)), growable=(a_pool(template=template),))) == [
        ("job", "pool", 2)
    ]


def test_no_new_node_is_the_one_that_the_template_was_read_from() -> None:
    here = NodeConstraints(node_selector=(("kubernetes.io/hostname", "n0"),))
    gang = a_gang("job", a_task(9, constraints=here))
    decision = after([a_node("n0")], gang, growable=(a_pool(template=a_node("n0")),))
    assert hold_of(decision).reason is Reason.NEVER_FITS


@pytest.mark.parametrize(("rack", "nodes"), [("r0", 2), (None, 2)])
def test_required_affinity_holds_on_new_nodes_as_their_template_says(
    rack: str | None, nodes: int
) -> None:
    pool = a_pool(template=a_node("t", rack=rack))
    beside = RoleAffinity(AffinityMode.REQUIRED, RACK)
    servers = a_task(1, 0, role=Role.PS)
    gang = a_gang("job", a_task(16), servers, role_affinity=beside)
    decision = after([], gang, growable=(pool,))
    if rack:
        assert asked(decision) == [("job", "pool", nodes)]
    else:  # without a rack every node is on its own, and one server serves one node
        assert hold_of(decision).reason is Reason.NEVER_FITS


def test_an_elastic_gang_asks_for_no_more_than_its_least_size() -> None:
    gang = a_gang("job", a_task(32, min_replicas=12))
    assert asked(after([], gang, growable=(a_pool(),))) == [("job", "pool", 2)]


@pytest.mark.parametrize(("limit", "growing"), [(4, 0), (8, 1), (16, 2)])
def test_gangs_grow_nothing_beyond_the_limit_of_their_queue(limit: int, growing: int) -> None:
    gangs = [a_gang(f"g{at}", a_task(8), arrived=float(at)) for at in range(2)]
    queues = [Queue("default", limit={GPU: limit})]
    decision = run_cycle(a_snapshot([], *gangs, queues=queues, now=10.0, growable=[a_pool()]), FIFO)
    assert asked(decision) == [("g0", "pool", 1), ("g1", "pool", 1)][:growing]


def test_who_waits_for_preemption_grows_nothing() -> None:
    nodes = racks(1, 1)
    low = a_gang("low", a_task(8))
    bare = a_snapshot(nodes, a_gang("urgent", a_task(8), priority=1000), growable=[a_pool()])
    leaving = a_running_gang(low, bare.nodes, is_leaving=True)
    decision = run_cycle(with_running(bare, leaving), FIFO)
    assert hold_of(decision, "urgent").reason is Reason.WAITING_FOR_PREEMPTION
    assert decision.node_requests == ()


def test_a_configuration_fault_grows_nothing() -> None:
    decision = after([], a_gang("job", a_task(8), queue="gone"), growable=(a_pool(),))
    assert (decision.node_requests, hold_of(decision).reason) == ((), Reason.QUEUE_NOT_FOUND)


def blocked_and_behind(growable: tuple[GrowablePool, ...]) -> Decision:
    """One node is taken, one is free; ``wide`` needs both, ``long`` fits but would delay it."""
    holder = replace(a_gang("holder", a_task(8)), estimated_seconds=100.0)
    wide = a_gang("wide", a_task(16), arrived=1.0)
    long = replace(a_gang("long", a_task(4), arrived=2.0), estimated_seconds=1e6)
    bare = a_snapshot(racks(1, 2), wide, long, now=10.0, growable=growable)
    return run_cycle(with_running(bare, a_running_gang(holder, bare.nodes)), FIFO)


def test_growth_leaves_a_reservation_and_those_behind_it_as_they_are() -> None:
    fixed, growing = blocked_and_behind(()), blocked_and_behind((a_pool(),))
    before, now = hold_of(fixed, "wide"), hold_of(growing, "wide")
    assert before.reservation is not None
    assert now.reservation is not None
    assert now.reservation.start == before.reservation.start == 100.0
    assert now.reason is Reason.SCALING_UP
    assert asked(growing) == [("wide", "pool", 1), ("long", "pool", 1)]
    assert hold_of(fixed, "long").reason is Reason.WAITING_BEHIND


def test_who_comes_before_the_blocked_gang_counts_on_what_is_free_whatever_is_kept() -> None:
    holder = replace(a_gang("holder", a_task(8)), estimated_seconds=100.0)
    first, second = a_gang("first", a_task(24)), a_gang("second", a_task(16), arrived=1.0)
    bare = a_snapshot(racks(1, 2), first, second, now=10.0, growable=[a_pool()])
    decision = run_cycle(with_running(bare, a_running_gang(holder, bare.nodes)), FIFO)
    assert hold_of(decision, "second").reservation is not None
    assert asked(decision) == [("first", "pool", 2), ("second", "pool", 2)]


def test_who_comes_behind_a_blocked_gang_that_no_pool_helps_leaves_it_its_places() -> None:
    holder = replace(a_gang("holder", a_task(8)), estimated_seconds=100.0)
    here = NodeConstraints(node_selector=(("kubernetes.io/hostname", "r0-n0"),))
    wide = a_gang("wide", a_task(8, constraints=here), a_task(8, name="more"), arrived=1.0)
    long = a_gang("long", a_task(8), arrived=2.0)
    bare = a_snapshot(racks(1, 2), wide, long, now=10.0, growable=[a_pool()])
    decision = run_cycle(with_running(bare, a_running_gang(holder, bare.nodes)), FIFO)
    assert hold_of(decision, "wide").reason is Reason.WAITING_FOR_CAPACITY
    assert asked(decision) == [("long", "pool", 1)]


def test_nodes_that_waiting_gangs_count_on_are_named_to_be_kept() -> None:
    assert blocked_and_behind((a_pool(),)).kept_nodes == {"r0-n0", "r0-n1"}
    assert blocked_and_behind(()).kept_nodes == frozenset()
    free = after(racks(1, 2), a_gang("job", a_task(24)), growable=(a_pool(),))
    assert free.kept_nodes == {"r0-n0", "r0-n1"}


class OneRack:
    """A placer that places a gang inside one rack or not at all."""

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        codes = capacity.nodes.domains[1]
        for code in np.unique(codes[codes >= 0]):
            if placement := Packing().place(gang, capacity.inside(codes == code)):
                return placement
        return None


def test_the_placer_has_the_last_word_on_what_fits() -> None:
    pool = a_pool(template=a_node("t", rack="r1"))
    gang = a_gang("job", a_task(16))
    decision = run_cycle(a_snapshot(racks(2, 1), gang, growable=[pool]), Policy(Fifo(), OneRack()))
    assert asked(decision) == [("job", "pool", 1)]
    assert decision.kept_nodes == {"r1-n0"}


class Bound:
    """A placer that knows the nodes of its snapshot only, as learned ones do."""

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        if len(capacity.nodes) != 1:
            raise ValueError("nodes that were never seen")
        return Packing().place(gang, capacity)


def test_a_placer_of_its_own_snapshot_is_not_asked_about_new_nodes() -> None:
    policy = Policy(Fifo(), Bound(), rules=FIFO)
    servers = a_task(1, 0, role=Role.PS)
    gang = a_gang("job", a_task(12, 2), servers, role_affinity=RoleAffinity(AffinityMode.REQUIRED))
    decision = run_cycle(a_snapshot(racks(1, 1), gang, growable=[a_pool()]), policy)
    assert decision.fallback == ""
    assert hold_of(decision).reason is Reason.NEVER_FITS  # one server serves one node alone
    spread = run_cycle(
        a_snapshot(racks(1, 1), a_gang("job", a_task(12, 2)), growable=[a_pool()]), policy
    )
    assert (asked(spread), spread.fallback) == ([("job", "pool", 2)], "")


def test_pools_with_negative_room_or_one_name_are_refused() -> None:
    with pytest.raises(SnapshotError, match="room of pool 'pool' is -1; it must be at least 0"):
        a_pool(room=-1)
    with pytest.raises(SnapshotError, match="two growable pools have the same name, 'pool'"):
        a_snapshot([], growable=[a_pool(), a_pool()])


def spread_over_hosts(replicas: int, **fields: int) -> Gang:
    kind = of("a", spread=(SpreadLimit(HOSTNAME_LABEL, 1, pods("a"), **fields),))  # type: ignore[arg-type]
    return a_gang("job", a_task(replicas, pod=kind))


@pytest.mark.parametrize(("least", "nodes"), [(1, 1), (2, 2)])
def test_nodes_that_a_pool_could_still_add_are_no_domains_of_a_spread(
    least: int, nodes: int
) -> None:
    gang = spread_over_hosts(4, least_domains=least)
    assert asked(after([], gang, growable=[a_pool(room=8)])) == [("job", "pool", nodes)]


def test_nodes_that_there_are_and_that_come_are_domains_of_a_spread() -> None:
    """On the full one is none of the gang, so that every other node may have one."""
    gang, full = spread_over_hosts(4), a_node("full", 0)
    decision = after([full], gang, growable=[a_pool(room=8, coming=1)])
    assert asked(decision) == [("job", "pool", 3)]


def test_nodes_of_a_pool_that_takes_no_replica_do_not_keep_a_spread_from_fitting() -> None:
    pools = [a_pool("gpu", room=2), a_pool("cpu", template=a_node("t", 0), room=4)]
    assert asked(after([], spread_over_hosts(16), growable=pools)) == [("job", "gpu", 2)]


def test_a_spread_that_few_small_nodes_keep_from_growing_takes_nodes_of_one_pool() -> None:
    """With both pools the small nodes would be domains of which none takes two."""
    pools = [a_pool("large", room=2), a_pool("small", template=a_node("t", 1), room=2)]
    assert asked(after([], spread_over_hosts(16), growable=pools)) == [("job", "large", 2)]
