"""Growth: which nodes of which pools are asked for, for whom, and the message to the gang."""

from dataclasses import replace

from bireme.core.gangs import Role
from bireme.core.reasons import Reason
from bireme.core.resources import ATTACHABLE
from bireme.testing import (
    GPU,
    a_gang,
    a_node,
    a_pool,
    a_task,
    racks,
)
from testbed.decisions import hold_of
from tests.unit.core.growth_cases import after, asked


def test_a_gang_that_fits_nowhere_asks_for_the_nodes_it_lacks_and_says_so() -> None:
    decision = after(racks(1, 1), a_gang("job", a_task(32)), growable=(a_pool("h200"),))
    assert asked(decision) == [("job", "h200", 3)]
    hold = hold_of(decision)
    assert (hold.reason, hold.position) == (Reason.SCALING_UP, 1)
    assert hold.message.startswith(f"waits for 3 more nodes of pool h200; asks 32 {GPU}")


def test_new_nodes_have_as_many_volumes_attached_as_those_there_are() -> None:
    """A pool's template does not say how many."""
    disk = f"{ATTACHABLE}disks.example.com"
    node = a_node("n", 8)
    node = replace(node, allocatable={**node.allocatable, disk: 4})
    task = a_task(16)
    task = replace(task, request=(*task.request, (disk, 1)))
    assert asked(after([node], a_gang("job", task), growable=(a_pool(),))) == [("job", "pool", 3)]


def test_a_gang_that_fits_asks_for_nothing() -> None:
    decision = after(racks(1, 1), a_gang("job", a_task(8)), growable=(a_pool(),))
    assert [admit.gang.uid for admit in decision.admitted] == ["job"]
    assert decision.node_requests == ()


def test_without_pools_a_gang_too_large_for_the_cluster_never_fits() -> None:
    assert hold_of(after(racks(1, 1), a_gang("job", a_task(9)), growable=())).reason is (
        Reason.NEVER_FITS
    )


def test_a_gang_too_large_for_the_cluster_with_its_pools_at_their_most_never_fits() -> None:
    gang = a_gang("job", a_task(100))
    hold = hold_of(after(racks(1, 1), gang, growable=(a_pool(room=2, coming=1),)))
    assert (hold.reason, hold.position) == (Reason.NEVER_FITS, None)
    assert "the empty cluster, with all pools at their maximum, holds at most 32" in hold.message


def test_an_empty_cluster_grows_from_nothing() -> None:
    decision = after([], a_gang("job", a_task(9)), growable=(a_pool(),))
    assert asked(decision) == [("job", "pool", 2)]


def test_the_pool_that_needs_the_fewest_nodes_is_asked_and_of_two_the_first_by_name() -> None:
    pools = (
        a_pool("b"),
        a_pool("a"),
        a_pool("aa-small", template=a_node("t", 4)),
    )
    assert asked(after([], a_gang("job", a_task(16)), growable=pools)) == [("job", "a", 2)]


def test_a_pool_with_too_little_room_leaves_it_to_one_that_needs_more_nodes() -> None:
    pools = (a_pool("large", room=1), a_pool("small", template=a_node("t", 4)))
    assert asked(after([], a_gang("job", a_task(16)), growable=pools)) == [("job", "small", 4)]


def test_gangs_in_order_share_new_nodes_and_do_not_count_them_twice() -> None:
    gangs = [a_gang(f"g{at}", a_task(3, 2)) for at in range(3)]
    decision = after([], *gangs, growable=(a_pool(),))
    # 6 of 8 GPUs each: the second needs one more node, the third fills the rest of both.
    assert asked(decision) == [("g0", "pool", 1), ("g1", "pool", 1), ("g2", "pool", 1)]
    small = after([], *(a_gang(f"g{at}", a_task(4)) for at in range(3)), growable=(a_pool(),))
    assert asked(small) == [("g0", "pool", 1), ("g1", "pool", 0), ("g2", "pool", 1)]
    assert hold_of(small, "g1").message.startswith("waits for 1 more node of pool pool; ")


def test_when_the_pool_is_exhausted_the_rest_wait_for_capacity() -> None:
    gangs = [a_gang(f"g{at}", a_task(8)) for at in range(3)]
    decision = after([], *gangs, growable=(a_pool(room=2),))
    assert asked(decision) == [("g0", "pool", 1), ("g1", "pool", 1)]
    assert hold_of(decision, "g2").reason is Reason.WAITING_FOR_CAPACITY


def test_while_its_nodes_come_a_gang_keeps_its_words_and_asks_for_nothing_more() -> None:
    gang = a_gang("job", a_task(24))
    first = after([], gang, growable=(a_pool(),))
    second = after([], gang, growable=(a_pool(room=7, coming=3, asked_at=10.0),))
    third = after(racks(1, 1), gang, growable=(a_pool(room=7, coming=2, asked_at=10.0),))
    assert [asked(one) for one in (first, second, third)] == [
        [("job", "pool", 3)],
        [("job", "pool", 0)],
        [("job", "pool", 0)],
    ]
    assert hold_of(first).message == hold_of(second).message
    assert hold_of(third).message.startswith("waits for 2 more nodes of pool pool; ")


def test_nodes_that_come_in_any_pool_count_before_new_ones() -> None:
    pools = (a_pool("a"), a_pool("b", coming=1, asked_at=5.0))
    decision = after([], a_gang("job", a_task(16)), growable=pools)
    assert asked(decision) == [("job", "a", 1), ("job", "b", 0)]
    assert hold_of(decision).message.startswith(
        "waits for 1 more node of pool a and 1 more node of pool b; "
    )


def test_late_nodes_are_asked_of_another_pool_and_the_gang_reports_it() -> None:
    late = a_pool("a", coming=2, asked_at=-200.0)
    decision = after([], a_gang("job", a_task(16)), growable=(late, a_pool("b")))
    assert asked(decision) == [("job", "b", 2)]
    assert hold_of(decision).message.startswith(
        "waits for 2 more nodes of pool b; 2 nodes of pool a requested 4 min ago, none has joined; "
    )


def test_where_no_other_pool_helps_a_gang_waits_for_late_nodes_and_asks_for_no_more() -> None:
    late = a_pool("a", coming=2, asked_at=-200.0)
    decision = after([], a_gang("job", a_task(16)), a_gang("more", a_task(8)), growable=(late,))
    assert asked(decision) == [("job", "a", 0)]
    assert hold_of(decision).message.startswith(
        "waits for 2 more nodes of pool a; 2 nodes of pool a requested 4 min ago, none has joined; "
    )
    assert hold_of(decision, "more").reason is Reason.WAITING_FOR_CAPACITY


def test_tasks_that_no_single_pool_takes_grow_several() -> None:
    gpu_only = a_node("t", cpu_millis=8000)
    pools = (a_pool("cpu", template=a_node("t", 0)), a_pool("gpu", template=gpu_only))
    servers = a_task(2, 0, role=Role.PS, cpu_millis=32_000)
    decision = after([], a_gang("job", a_task(16), servers), growable=pools)
    assert asked(decision) == [("job", "cpu", 1), ("job", "gpu", 2)]
