"""Evictions between queues: guarantees are taken back, never broken into, and it ends."""

import pytest

from bireme.core.queue_tree import QueueTree
from bireme.core.queues import Queue
from testbed.examples import examples

thorough = examples(300)


def a_tree(*queues: Queue, **gpus: int) -> QueueTree:
    usage = {name: {"gpu": count} for name, count in gpus.items()}
    return QueueTree({queue.name: queue for queue in queues}, usage, {"gpu": 100})


def queue(name: str, gpus: int = 0, parent: str = "") -> Queue:
    return Queue(name, parent=parent, guaranteed={"gpu": gpus} if gpus else {})


def may(
    tree: QueueTree, ours: tuple[str, int], theirs: tuple[str, int], ranks_above: bool = False
) -> bool:
    """Whether a gang of a queue and a number of GPUs may evict another."""
    return tree.may_evict(
        ours[0], {"gpu": ours[1]}, theirs[0], {"gpu": theirs[1]}, ranks_above=ranks_above
    )


@pytest.mark.parametrize("ranks_above", [True, False])
def test_in_one_queue_and_between_queues_without_guarantees_rank_decides(ranks_above: bool) -> None:
    tree = a_tree(queue("a"), queue("b"), queue("c", parent="b"), a=4, b=4, c=4)
    for victim in ("a", "b", "c", "gone"):
        assert may(tree, ("a", 4), (victim, 4), ranks_above) is ranks_above


@pytest.mark.parametrize("ranks_above", [True, False])
def test_a_gang_within_the_guarantee_takes_back_what_others_borrow_whatever_its_rank(
    ranks_above: bool,
) -> None:
    tree = a_tree(queue("a", 4), queue("b", 4), a=1, b=5, gone=1)
    assert may(tree, ("a", 3), ("b", 1), ranks_above)
    assert may(tree, ("a", 3), ("gone", 1), ranks_above)


@pytest.mark.parametrize("ranks_above", [True, False])
def test_a_branch_within_its_guarantee_loses_nothing_to_others(ranks_above: bool) -> None:
    tree = a_tree(queue("a", 4), queue("b", 4), queue("c"), a=1, b=4, c=1)
    assert not may(tree, ("a", 3), ("b", 1), ranks_above)
    assert not may(tree, ("a", 9), ("b", 1), ranks_above)
    assert not may(tree, ("c", 1), ("b", 1), ranks_above)


def test_who_borrows_needs_a_higher_rank_and_gets_no_part_of_a_guarantee() -> None:
    tree = a_tree(queue("a", 4), queue("b", 4), a=3, b=6)
    assert may(tree, ("a", 2), ("b", 2), ranks_above=True)
    assert not may(tree, ("a", 2), ("b", 2), ranks_above=False)
    assert not may(tree, ("a", 2), ("b", 3), ranks_above=True), "b would fall to 3 of 4"


def test_a_reclaim_takes_the_last_gang_that_did_not_fit_and_then_no_more() -> None:
    tree = a_tree(queue("a", 4), queue("b", 4), b=6)
    with tree.without(()):
        assert may(tree, ("a", 4), ("b", 3)), "two gangs of 3 hold 6 of the 4 guaranteed"
        tree.give_back("b", {"gpu": 3})
        assert not may(tree, ("a", 4), ("b", 3))


def test_one_gang_far_above_the_guarantee_does_not_hide_behind_it() -> None:
    assert may(a_tree(queue("a", 4), queue("b", 1), b=64), ("a", 4), ("b", 64))


def test_the_guarantee_of_every_queue_on_the_victims_side_protects() -> None:
    queues = queue("a", 4), queue("org", 6), queue("team", 4, "org"), queue("spare", 0, "org")
    tree = a_tree(*queues, team=4, spare=3)
    assert not may(tree, ("a", 4), ("team", 1)), "team is within its own"
    assert may(tree, ("a", 4), ("spare", 1)), "org is above, and spare has none"
    assert not may(a_tree(*queues, team=5, spare=1), ("a", 4), ("team", 1)), "org is within its own"


def test_queues_of_one_parent_may_use_what_the_other_is_guaranteed_until_it_asks() -> None:
    queues = queue("org"), queue("x", 4, "org"), queue("y", 0, "org"), queue("b")
    tree = a_tree(*queues, b=9)
    assert may(tree, ("y", 4), ("b", 4)), "org is guaranteed 4 through x"
    tree.take("y", {"gpu": 4})
    assert may(tree, ("x", 4), ("y", 4))
    assert not may(tree, ("x", 4), ("b", 4)), "org has its 4 already: x asks y, not strangers"


def test_gangs_of_an_inner_queue_have_no_part_in_the_guarantees_below_it() -> None:
    tree = a_tree(queue("org"), queue("team", 4, "org"), org=2, team=3)
    assert may(tree, ("team", 1), ("org", 2))
    assert not may(tree, ("org", 1), ("team", 3), ranks_above=True)
    tree.take("team", {"gpu": 2})
    assert may(tree, ("org", 1), ("team", 1), ranks_above=True)


def test_a_gang_too_large_for_the_guarantee_does_not_stop_those_of_its_queue_that_fit() -> None:
    tree = a_tree(queue("a", 4), a=4)
    assert may(tree, ("a", 4), ("a", 2), ranks_above=True)
    assert not may(tree, ("a", 5), ("a", 2), ranks_above=True)
    tree.take("a", {"gpu": 2})
    assert may(tree, ("a", 5), ("a", 2), ranks_above=True), "what it borrows is open to all"


def test_nobody_becomes_entitled_by_stopping_gangs_of_its_own_queue() -> None:
    tree = a_tree(queue("a", 4), queue("b"), a=4, b=4)
    with tree.without(()):
        assert may(tree, ("a", 4), ("a", 4), ranks_above=True)
        tree.give_back("a", {"gpu": 4})
        assert not may(tree, ("a", 4), ("b", 4))


def test_a_guarantee_protects_no_gang_that_asks_nothing_it_names() -> None:
    tree = QueueTree(
        {"a": Queue("a", guaranteed={"gpu": 4}), "b": Queue("b", guaranteed={"cpu": 4})},
        {"a": {"gpu": 1, "cpu": 9}},
        {"gpu": 8, "cpu": 9},
    )
    assert tree.may_evict("b", {"cpu": 4}, "a", {"cpu": 8}, ranks_above=False)
    assert not tree.may_evict("b", {"cpu": 4}, "a", {"cpu": 8, "gpu": 1}, ranks_above=False)


# --- properties -------------------------------------------------------------------------------
