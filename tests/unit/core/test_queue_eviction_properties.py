"""Rights to evict over random queues: guarantees hold, and evictions come to an end."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from bireme.core.queue_tree import QueueTree
from bireme.core.queues import Queue
from bireme.core.resources import Amounts
from testbed.examples import examples

thorough = examples(300)


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
            sum(used.usage(name).get(resource, 0) for name in self.queues if self.is_root(name))
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
    """A world and gangs that run in it, by any decision."""
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
    """The last state if nobody is evicted more than ``budget`` times; None if there is none."""
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
                    held = tree.usage(branch)["gpu"] - (0 if reclaims else lost["gpu"])
                    guaranteed = tree.guarantee(branch).get("gpu", 0) if lost["gpu"] else 0
                    assert held >= guaranteed + (1 if reclaims and guaranteed else 0)
                tree.give_back(theirs, lost)


@thorough
@given(starts(worlds(("gpu",))))
def test_an_evicted_gang_cannot_evict_in_return(start: tuple[World, frozenset[int]]) -> None:
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
