"""Who may make whom go: guarantees are taken back, never broken into, and it comes to an end."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.core.queue_tree import QueueTree
from bireme.core.queues import Queue
from bireme.core.resources import Amounts

thorough = settings(max_examples=300, deadline=None)


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


@dataclass(frozen=True)
class World:
    """Queues, a cluster, and gangs in the policy's order, each a queue and a demand."""

    queues: Mapping[str, Queue]
    total: Amounts
    gangs: tuple[tuple[str, dict[str, int]], ...]

    def tree(self, running: frozenset[int]) -> QueueTree:
        tree = QueueTree(self.queues, {}, self.total)
        for gang in running:
            tree.take(*self.gangs[gang])
        return tree

    def fits(self, gang: int, running: frozenset[int]) -> bool:
        """Whether there is room for ``gang`` beside ``running``."""
        used = self.tree(running | {gang})
        return all(
            sum(used.used(name).get(resource, 0) for name in self.queues if self.is_root(name))
            <= amount
            for resource, amount in self.total.items()
        )

    def is_root(self, name: str) -> bool:
        return not self.queues[name].parent

    def victims(self, gang: int, running: frozenset[int]) -> list[int]:
        """All that ``gang`` may evict together, lowest rank first."""
        tree, found = self.tree(running), []
        with tree.without(()):
            for victim in sorted(running, reverse=True):
                if tree.may_evict(
                    *self.gangs[gang], *self.gangs[victim], ranks_above=gang < victim
                ):
                    found.append(victim)
                    tree.give_back(*self.gangs[victim])
        return found


@st.composite
def worlds(draw: st.DrawFn, resources: tuple[str, ...] = ("gpu", "cpu")) -> World:
    """Up to five queues, up to six gangs, and hardly room for two of them."""
    used = resources[: draw(st.integers(1, len(resources)))]
    names = "abcde"[: draw(st.integers(2, 5))]
    amounts = st.fixed_dictionaries({resource: st.integers(0, 4) for resource in used})
    queues = {
        name: Queue(
            name,
            parent=draw(st.sampled_from(["", *names[:place]])),
            guaranteed=draw(st.one_of(st.just({}), amounts)),
        )
        for place, name in enumerate(names)
    }
    total = {resource: draw(st.integers(4, 6)) for resource in used}
    gangs = draw(st.lists(st.tuples(st.sampled_from(names), amounts), min_size=2, max_size=6))
    return World(queues, total, tuple(gangs))


@st.composite
def starts(draw: st.DrawFn, worlds_: st.SearchStrategy[World]) -> tuple[World, frozenset[int]]:
    """A world and gangs that run in it, whoever let them."""
    world, running = draw(worlds_), frozenset[int]()
    for gang in draw(st.permutations(range(len(world.gangs)))):
        if world.fits(gang, running):
            running |= {gang}
    return world, running


def one_step(
    world: World, running: frozenset[int], spared: frozenset[int] = frozenset()
) -> frozenset[int] | None:
    """The first gang in order that fits starts, or the first that can make room does so."""
    for gang in range(len(world.gangs)):
        if gang in running:
            continue
        if world.fits(gang, running):
            return running | {gang}
        victims = [victim for victim in world.victims(gang, running) if victim not in spared]
        for count in range(1, len(victims) + 1):
            if world.fits(gang, running - set(victims[:count])):
                return running - set(victims[:count]) | {gang}
    return None


STEPS = 200
"""More than there are sets of six gangs, and than they can be evicted three times each."""


def last_state(
    world: World, running: frozenset[int], budget: float = math.inf
) -> frozenset[int] | None:
    """Where evictions end if nobody is evicted more than ``budget`` times; None if they do not."""
    evicted: Counter[int] = Counter()
    for _ in range(STEPS):
        spent = frozenset(gang for gang in evicted if evicted[gang] >= budget)
        after = one_step(world, running, spent)
        if after is None:
            return running
        evicted.update(running - after)
        running = after
    return None


@thorough
@given(starts(worlds()))
def test_a_budget_ends_evictions_wherever_they_begin(start: tuple[World, frozenset[int]]) -> None:
    assert last_state(*start, budget=3) is not None


@thorough
@given(starts(worlds()))
def test_without_guarantees_evictions_come_to_an_end_by_themselves(
    start: tuple[World, frozenset[int]],
) -> None:
    world, running = start
    world = replace(world, queues={n: replace(q, guaranteed={}) for n, q in world.queues.items()})
    assert last_state(world, running) is not None


def test_guarantees_in_several_resources_can_chase_each_other_which_the_budget_is_for() -> None:
    queues = {"open": Queue("open"), "sure": Queue("sure", guaranteed={"gpu": 2})}
    gangs = (
        ("open", {"gpu": 2, "cpu": 4}),
        ("sure", {"gpu": 1, "cpu": 0}),
        ("sure", {"gpu": 2, "cpu": 0}),
        ("sure", {"gpu": 1, "cpu": 1}),
    )
    world = World(queues, {"gpu": 4, "cpu": 4}, gangs)
    assert last_state(world, frozenset({0, 1})) is None
    assert last_state(world, frozenset({0, 1}), budget=3) is not None


@thorough
@given(starts(worlds(("gpu",))))
def test_a_branch_loses_none_of_its_guarantee_to_gangs_outside(
    start: tuple[World, frozenset[int]],
) -> None:
    world, running = start
    for gang in set(range(len(world.gangs))) - running:
        tree, (name, demand) = world.tree(running), world.gangs[gang]
        with tree.without(()):
            for victim in world.victims(gang, running):
                theirs, lost = world.gangs[victim]
                reclaims = tree.may_evict(name, demand, theirs, lost, ranks_above=False)
                for branch in set(tree.path(theirs)) - set(tree.path(name)):
                    held = tree.used(branch)["gpu"] - (0 if reclaims else lost["gpu"])
                    guaranteed = tree.guarantee(branch).get("gpu", 0) if lost["gpu"] else 0
                    assert held >= guaranteed + (1 if reclaims and guaranteed else 0)
                tree.give_back(theirs, lost)


@thorough
@given(starts(worlds(("gpu",))))
def test_whoever_was_evicted_cannot_evict_in_return(start: tuple[World, frozenset[int]]) -> None:
    world, running = start
    for gang in set(range(len(world.gangs))) - running:
        victims = frozenset(world.victims(gang, running))
        after = running - victims | {gang}
        if victims and world.fits(gang, running - victims):
            for victim in victims:
                assert gang not in world.victims(victim, after)


@thorough
@given(starts(worlds(("gpu",))))
def test_a_gang_within_its_guarantee_always_gets_its_room(
    start: tuple[World, frozenset[int]],
) -> None:
    world, running = start
    tree = world.tree(frozenset())
    promised = sum(tree.guarantee(n).get("gpu", 0) for n in world.queues if world.is_root(n))
    if promised > world.total["gpu"]:
        return  # first come, first served
    for gang in set(range(len(world.gangs))) - running:
        name, demand = world.gangs[gang]
        if world.tree(running).is_within_guarantee(name, demand):
            left = running
            with (tree := world.tree(running)).without(()):
                while not world.fits(gang, left):
                    victim = next((v for v in left if may_lowest(world, tree, gang, v)), None)
                    assert victim is not None
                    tree.give_back(*world.gangs[victim])
                    left -= {victim}


def may_lowest(world: World, tree: QueueTree, gang: int, victim: int) -> bool:
    """Whether ``gang`` may evict ``victim`` even if it ranks below it."""
    return tree.may_evict(*world.gangs[gang], *world.gangs[victim], ranks_above=False)
