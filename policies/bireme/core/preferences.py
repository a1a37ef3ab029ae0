"""Preferences: of the places that a gang could start on, those that its pods would rather have.

Who starts is decided without them; only then is a gang moved, to places that nobody else got in
this cycle. So a preference delays, stops and refuses nothing, and every rule that the first places
kept, the new ones keep.

Nodes come first (:func:`_onto_better_nodes`), then other pods (:func:`_towards_pods`). Each is
tried as a demand, so that the policy's own placer chooses among what is left: a preference goes
before tight packing, but never stretches a gang over a wider topology domain than it needs, unless
it is one of being spread.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bireme.core.gangs import Gang, LeastScore, PodKind, PodPreference, SpreadLimit, Task
from bireme.core.guardrails import flaw
from bireme.core.nodes import NodeTable, score
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.pod_rules import attracts, matches
from bireme.core.policy import Placer
from bireme.core.resources import BoolArray, IntArray
from bireme.core.ruled_placement import keeps_rules

MAX_TRIES = 16
"""How often the placer is asked for one gang."""


def has_any(gang: Gang, nodes: NodeTable) -> bool:
    """Return whether ``gang`` would rather have some places than others."""
    return gang.has_preferences or bool(nodes.softly_tainted)


def is_leant_on(gang: Gang, others: Iterable[Gang]) -> bool:
    """Return whether affinity or spread ties the places of ``gang`` to those of ``others``.

    Such a gang stays where it is: the others were placed by where it is, or would have to be.
    """
    if not gang.has_rules:
        return False
    own = [task.pod for task in gang.tasks if task.pod is not None]
    theirs = (t.pod for o in others if o is not gang and o.has_rules for t in o.tasks)
    return any(_leans(a, b) or _leans(b, a) for b in theirs if b is not None for a in own)


def _leans(kind: PodKind, other: PodKind) -> bool:
    """Return whether required affinity or spread of ``kind`` is about pods of ``other``."""
    is_near = bool(kind.near) and attracts(other, kind)
    return is_near or any(matches(limit.pods, other) for limit in kind.spread)


def kinds(task: Task) -> Iterable[PodKind]:
    """Yield what rules see of the pods of ``task``, also with what these would rather have."""
    if task.pod is not None:
        yield task.pod
    if task.preferences.pods:
        yield _demanding(task.pod, task.preferences.pods)


def preferred(gang: Gang, placement: Placement, room: FreeCapacity, placer: Placer) -> Placement:
    """Return the places in ``room`` that ``gang`` would rather have than ``placement``.

    ``placement`` itself where there are none. ``room`` is what it may use, those places included.
    """
    search = _Search(gang, placement, room, placer)
    _onto_better_nodes(search)
    _towards_pods(search)
    return search.best


class _Search:
    """A search for better places of one gang; ``best`` are those found so far."""

    def __init__(
        self, gang: Gang, placement: Placement, room: FreeCapacity, placer: Placer
    ) -> None:
        self.gang = gang
        self.best = placement
        self.room = room
        self.tries = MAX_TRIES
        self.inside: BoolArray | None = None
        self._placer = placer
        self._width = _width(placement, room.nodes)
        self.scores = [
            score(task.preferences.nodes, task.constraints.tolerations, room.nodes)
            for task in gang.tasks
        ]

    def place(
        self, tried: Gang, inside: BoolArray | None = None, may_widen: bool = False
    ) -> Placement | None:
        """Return places for ``tried``, the gang with more demands, that keep every rule."""
        if not self.tries:
            return None
        self.tries -= 1
        room = self.room if inside is None else self.room.inside(inside)
        found = self._placer.place(tried, room)
        if found is None or (not may_widen and _width(found, room.nodes) > self._width):
            return None
        # Where a preference is taken for a demand, the demands of the gang itself are read anew.
        if flaw(self.gang, found, self.room):
            return None
        if self.gang.has_demands and not keeps_rules(self.gang, found, self.room):
            return None
        return found

    def value(self, placement: Placement) -> int:
        """Return how good the nodes of ``placement`` are for all replicas together."""
        by_name = {task.task: task for task in placement.tasks}
        return sum(
            int(known[by_name[task.name].rows] @ by_name[task.name].counts)
            for task, known in zip(self.gang.tasks, self.scores, strict=True)
        )

    def lowest(self) -> list[int]:
        """Return the lowest score of a node that each task has."""
        rows = {task.task: task.rows for task in self.best.tasks}
        pairs = zip(self.gang.tasks, self.scores, strict=True)
        return [int(known[rows[task.name]].min()) for task, known in pairs]

    def take(self, found: Placement | None) -> bool:
        """Remember ``found`` if its nodes are better; return whether they are."""
        if found is None or self.value(found) <= self.value(self.best):
            return False
        self.best = found
        return True


def _width(placement: Placement, nodes: NodeTable) -> int:
    """Return the topology level of the domain that holds ``placement``, 0 for the narrowest."""
    levels = nodes.topology_levels
    return levels.index(placement.level) if placement.level in levels else len(levels)


# --- nodes ---
#
# The score of a node for a task is the weight of all that its pods prefer there. The least score
# that the tasks put up with is lowered step by step, where that costs the least, to the first step
# at which the gang fits; then as few nodes of the last step are used as can be.


def _onto_better_nodes(search: _Search) -> None:
    """Move the gang to nodes of higher scores."""
    gang, room = search.gang, search.room
    lowest = search.lowest()
    if all(least == known.max() for least, known in zip(lowest, search.scores, strict=True)):
        return
    counts = [np.minimum(room.replicas(task), task.replicas) for task in gang.tasks]
    by_name = {task.task: task for task in search.best.tasks}
    for task, count in zip(gang.tasks, counts, strict=True):
        # What is reserved for pods that must be apart from these does not close their own places.
        there = by_name[task.name]
        count[there.rows] = np.maximum(count[there.rows], there.counts)
    steps = _steps(search, counts, lowest)
    # The last step is where the gang is. Most gangs fit at the first, the others are found by
    # halving.
    low, high, found = 0, len(steps) - 1, None
    at = 0
    while low < high and search.tries:
        placement = search.place(_at_least(gang, steps[at], search.scores))
        if placement is None:
            low = at + 1
        else:
            high, found = at, placement
        at = (low + high) // 2
    search.take(found)
    _on_fewer_of_the_last_step(search, steps[high], counts)


def _steps(search: _Search, counts: Sequence[IntArray], lowest: Sequence[int]) -> list[list[int]]:
    """Return the least score of each task, step by step, down to ``lowest``, where the gang is."""
    tasks, scores = search.gang.tasks, search.scores
    classes, at, last = [], [], []
    for task, known, count, least_now in zip(tasks, scores, counts, lowest, strict=True):
        may = count > 0
        found, number = np.unique(-known[may], return_inverse=True)
        held = np.bincount(number, count[may]).cumsum()
        classes.append(-found)
        at.append(int(np.argmax(held >= task.replicas)))
        last.append(int(np.searchsorted(found, -least_now)))
    steps = [[int(found[i]) for found, i in zip(classes, at, strict=True)]]
    while True:
        costs = [
            (int(found[i] - found[i + 1]) * task.replicas, number)
            for number, (task, found, i, end) in enumerate(
                zip(tasks, classes, at, last, strict=True)
            )
            if i < end
        ]
        if not costs:
            return steps
        at[min(costs)[1]] += 1
        steps.append([int(found[i]) for found, i in zip(classes, at, strict=True)])


def _at_least(gang: Gang, least: Sequence[int], scores: Sequence[IntArray]) -> Gang:
    """Return ``gang`` with the demand that each task gets nodes of its ``least`` score."""
    tasks = (
        replace(
            task,
            constraints=replace(task.constraints, least=LeastScore(task.preferences.nodes, lowest)),
        )
        if (known < lowest).any()
        else task
        for task, lowest, known in zip(gang.tasks, least, scores, strict=True)
    )
    return replace(gang, tasks=tuple(tasks))


def _on_fewer_of_the_last_step(
    search: _Search, step: Sequence[int], counts: Sequence[IntArray]
) -> None:
    """Use as few as can be of the nodes that are good enough for ``step`` alone."""
    gang, nodes = search.gang, search.room.nodes
    tried = _at_least(gang, step, search.scores)
    better = np.zeros(len(nodes), dtype=np.bool_)
    for known, least, count in zip(search.scores, step, counts, strict=True):
        better |= (count > 0) & (known > least)
    if not better.any():
        return
    # In another domain as narrow, more of the gang may get better nodes.
    level = _width(search.best, nodes)
    if level < len(nodes.domains):
        codes = nodes.domains[level]
        total = np.minimum(sum(counts), gang.replicas)
        member = better & (codes >= 0)
        held = np.bincount(codes[member], total[member])
        if held.size:
            search.take(search.place(tried, codes == int(held.argmax())))
    used = np.zeros(len(nodes), dtype=np.int64)
    for task in search.best.tasks:
        used[task.rows] += task.counts
    others = np.flatnonzero((used > 0) & ~better)
    others = others[np.argsort(-used[others], kind="stable")]
    low, high = 0, len(others)
    while low < high and search.tries:
        middle = (low + high) // 2
        inside = better.copy()
        inside[others[:middle]] = True
        found = search.place(tried, inside)
        if search.take(found):
            high, search.inside = middle, inside
        else:
            low = middle + 1


# --- other pods ---
#
# Anti-affinity and spread are tried as a spread that goes round the domains with room. What cannot
# be kept all at once is taken one by one, the heaviest first, as far as it goes beside what was
# taken before.


@dataclass(frozen=True, slots=True)
class _Wish:
    """A preference of the pods of the task at ``place``."""

    place: int
    given: PodPreference


def _towards_pods(search: _Search) -> None:
    """Move the gang to where its pods have those of others, and each other, as they would."""
    wishes = [
        _Wish(place, given)
        for place, task in enumerate(search.gang.tasks)
        for given in task.preferences.pods
    ]
    if not wishes:
        return
    wishes.sort(key=lambda wish: (-wish.given.weight, wish.place))
    base = _as_placed(search)
    if _take_up(search, base, wishes):
        return
    kept: list[_Wish] = []
    # So many that they exceed the tries stand and fall together, the lightest ones.
    single = max(0, search.tries - 1)
    for group in (*([wish] for wish in wishes[:single]), wishes[single:]):
        if group and len(kept) + len(group) < len(wishes) and _take_up(search, base, kept + group):
            kept += group


def _as_placed(search: _Search) -> Gang:
    """Return the gang with the demand for nodes as good as those of ``search.best``."""
    return _at_least(search.gang, search.lowest(), search.scores)


def _take_up(search: _Search, base: Gang, wishes: Sequence[_Wish]) -> bool:
    """Move the gang such that it has all of ``wishes``; return whether that worked."""
    tasks = []
    for place, task in enumerate(base.tasks):
        given = [wish.given for wish in wishes if wish.place == place]
        if not given:
            tasks.append(task)
            continue
        if not _can_be_together(task.pod, given):
            return False
        tasks.append(replace(task, pod=_demanding(task.pod, given)))
    tried = replace(base, tasks=tuple(tasks))
    if not flaw(tried, search.best, search.room) and keeps_rules(tried, search.best, search.room):
        return True
    may_widen = any(wish.given.near is None for wish in wishes)
    found = search.place(tried, search.inside, may_widen)
    if found is None or search.value(found) < search.value(search.best):
        return False
    search.best = found
    return True


def _can_be_together(kind: PodKind | None, given: Iterable[PodPreference]) -> bool:
    # One pod must match all terms of a required affinity, but not of several preferred ones.
    required = [term.pods for term in kind.near] if kind is not None else []
    wanted = [each.near.pods for each in given if each.near is not None]
    return not wanted or len({*required, *wanted}) == 1


def _demanding(kind: PodKind | None, given: Iterable[PodPreference]) -> PodKind:
    """Return ``kind`` with preferences as demands."""
    kind = kind or PodKind()
    near, spread = list(kind.near), list(kind.spread)
    for each in given:
        if each.near is not None:
            near.append(each.near)
        elif each.apart is not None:
            # No more than where there are the fewest, but for itself.
            own = int(matches(each.apart.pods, kind))
            spread.append(SpreadLimit(each.apart.key, own, each.apart.pods, is_soft=True))
        elif each.spread is not None:
            spread.append(replace(each.spread, is_soft=True))
    return replace(kind, near=tuple(near), spread=tuple(spread))
