"""Preferences: moves a starting gang to the places that its pods prefer.

The decision which gangs start ignores preferences. Only then does a gang move, to places that are
still free in this cycle. So a preference delays, stops and refuses no gang, and the new places keep
every rule that the first places kept.

Node preferences come first (:func:`_onto_better_nodes`), then preferences about other pods
(:func:`_towards_pods`). Each is tried as a demand, so that the policy's own placer chooses among
the matching places. A preference precedes tight packing. It never widens the topology domain of a
gang, unless the preference is to spread.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bireme.core.gangs import Gang, Task
from bireme.core.guardrails import flaw
from bireme.core.nodes import NodeTable, score
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.pod_constraints import LeastScore, PodKind, PodPreference, SpreadLimit
from bireme.core.pod_rules import attracts, matches
from bireme.core.policy import Placer
from bireme.core.resources import BoolArray, IntArray
from bireme.core.ruled_placement import keeps_rules

MAX_TRIES = 16
"""The limit on placer calls for one gang."""


def has_any(gang: Gang, nodes: NodeTable) -> bool:
    """Return whether ``gang`` prefers some places to others."""
    return gang.has_preferences or bool(nodes.softly_tainted)


def is_leant_on(gang: Gang, other_gangs: Iterable[Gang]) -> bool:
    """Return whether affinity or spread ties the places of ``gang`` to those of other gangs.

    Such a gang does not move: the places of the others depend on its own.
    """
    if not gang.has_rules:
        return False
    own_kinds = [task.pod for task in gang.tasks if task.pod is not None]
    other_kinds = (t.pod for o in other_gangs if o is not gang and o.has_rules for t in o.tasks)
    return any(
        _leans(a, b) or _leans(b, a) for b in other_kinds if b is not None for a in own_kinds
    )


def _leans(kind: PodKind, other: PodKind) -> bool:
    """Return whether required affinity or spread of ``kind`` selects pods of ``other``."""
    is_near = bool(kind.near) and attracts(other, kind)
    return is_near or any(matches(limit.pods, other) for limit in kind.spread)


def kinds(task: Task) -> Iterable[PodKind]:
    """Yield the pods of ``task`` as rules see them, without and with preferences as demands."""
    if task.pod is not None:
        yield task.pod
    if task.preferences.pods:
        yield _demanding(task.pod, task.preferences.pods)


def find_preferred_placement(
    gang: Gang, placement: Placement, room: FreeCapacity, placer: Placer
) -> Placement:
    """Return the places in ``room`` that ``gang`` prefers to ``placement``.

    ``placement`` itself if there are none. ``room`` is its available capacity, these places
    included.
    """
    search = _Search(gang, placement, room, placer)
    _onto_better_nodes(search)
    _towards_pods(search)
    return search.best


class _Search:
    """A search for better places of one gang; ``best`` holds the best places so far."""

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
        placement = self._placer.place(tried, room)
        if placement is None or (not may_widen and _width(placement, room.nodes) > self._width):
            return None
        # A preference replaces demands of the gang itself, so these are checked again.
        if flaw(self.gang, placement, self.room):
            return None
        if self.gang.has_demands and not keeps_rules(self.gang, placement, self.room):
            return None
        return placement

    def value(self, placement: Placement) -> int:
        """Return the total score of the nodes of ``placement``, over all replicas."""
        by_name = {task.task: task for task in placement.tasks}
        return sum(
            int(task_scores[by_name[task.name].rows] @ by_name[task.name].counts)
            for task, task_scores in zip(self.gang.tasks, self.scores, strict=True)
        )

    def lowest(self) -> list[int]:
        """Return the lowest score of a node of each task."""
        rows = {task.task: task.rows for task in self.best.tasks}
        pairs = zip(self.gang.tasks, self.scores, strict=True)
        return [int(task_scores[rows[task.name]].min()) for task, task_scores in pairs]

    def take(self, placement: Placement | None) -> bool:
        """Remember ``placement`` if its nodes are better; return whether they are."""
        if placement is None or self.value(placement) <= self.value(self.best):
            return False
        self.best = placement
        return True


def _width(placement: Placement, nodes: NodeTable) -> int:
    """Return the topology level of the domain that holds ``placement``, 0 for the narrowest."""
    levels = nodes.topology_levels
    return levels.index(placement.level) if placement.level in levels else len(levels)


# --- nodes ---
#
# The score of a node for a task is the total weight of the preferences that it meets. The tasks'
# minimum scores are lowered step by step, where that costs least, to the first step at which the
# gang fits. Then the search uses as few nodes of the last step as possible.


def _onto_better_nodes(search: _Search) -> None:
    """Move the gang to nodes of higher scores."""
    gang, room = search.gang, search.room
    lowest = search.lowest()
    if all(
        min_score == task_scores.max()
        for min_score, task_scores in zip(lowest, search.scores, strict=True)
    ):
        return
    counts = [np.minimum(room.replicas(task), task.replicas) for task in gang.tasks]
    by_name = {task.task: task for task in search.best.tasks}
    for task, count in zip(gang.tasks, counts, strict=True):
        # A reservation for pods that must be apart from these does not close the gang's own places.
        current = by_name[task.name]
        count[current.rows] = np.maximum(count[current.rows], current.counts)
    steps = _steps(search, counts, lowest)
    # The last step is the present placement. Most gangs fit at the first step, the others by
    # bisection.
    low, high, best = 0, len(steps) - 1, None
    index = 0
    while low < high and search.tries:
        placement = search.place(_at_least(gang, steps[index], search.scores))
        if placement is None:
            low = index + 1
        else:
            high, best = index, placement
        index = (low + high) // 2
    search.take(best)
    _on_fewer_of_the_last_step(search, steps[high], counts)


def _steps(search: _Search, counts: Sequence[IntArray], lowest: Sequence[int]) -> list[list[int]]:
    """Return the tasks' minimum scores, step by step, down to ``lowest``, the present scores."""
    tasks, scores = search.gang.tasks, search.scores
    classes, positions, last = [], [], []
    for task, task_scores, count, least_now in zip(tasks, scores, counts, lowest, strict=True):
        may = count > 0
        levels, number = np.unique(-task_scores[may], return_inverse=True)
        capacity = np.bincount(number, count[may]).cumsum()
        classes.append(-levels)
        positions.append(int(np.argmax(capacity >= task.replicas)))
        last.append(int(np.searchsorted(levels, -least_now)))
    steps = [[int(levels[i]) for levels, i in zip(classes, positions, strict=True)]]
    while True:
        costs = [
            (int(levels[i] - levels[i + 1]) * task.replicas, number)
            for number, (task, levels, i, end) in enumerate(
                zip(tasks, classes, positions, last, strict=True)
            )
            if i < end
        ]
        if not costs:
            return steps
        positions[min(costs)[1]] += 1
        steps.append([int(levels[i]) for levels, i in zip(classes, positions, strict=True)])


def _at_least(gang: Gang, min_scores: Sequence[int], scores: Sequence[IntArray]) -> Gang:
    """Return ``gang`` with the demand that each task gets nodes of at least its minimum score."""
    tasks = (
        replace(
            task,
            constraints=replace(task.constraints, least=LeastScore(task.preferences.nodes, lowest)),
        )
        if (task_scores < lowest).any()
        else task
        for task, lowest, task_scores in zip(gang.tasks, min_scores, scores, strict=True)
    )
    return replace(gang, tasks=tuple(tasks))


def _on_fewer_of_the_last_step(
    search: _Search, step: Sequence[int], counts: Sequence[IntArray]
) -> None:
    """Use as few as possible of the nodes that are good enough for ``step`` only."""
    gang, nodes = search.gang, search.room.nodes
    tried = _at_least(gang, step, search.scores)
    better = np.zeros(len(nodes), dtype=np.bool_)
    for task_scores, min_score, count in zip(search.scores, step, counts, strict=True):
        better |= (count > 0) & (task_scores > min_score)
    if not better.any():
        return
    # In another equally narrow domain, more of the gang may get better nodes.
    level = _width(search.best, nodes)
    if level < len(nodes.domains):
        codes = nodes.domains[level]
        total = np.minimum(sum(counts), gang.replicas)
        member = better & (codes >= 0)
        replicas_by_domain = np.bincount(codes[member], total[member])
        if replicas_by_domain.size:
            search.take(search.place(tried, codes == int(replicas_by_domain.argmax())))
    used = np.zeros(len(nodes), dtype=np.int64)
    for task in search.best.tasks:
        used[task.rows] += task.counts
    other_rows = np.flatnonzero((used > 0) & ~better)
    other_rows = other_rows[np.argsort(-used[other_rows], kind="stable")]
    low, high = 0, len(other_rows)
    while low < high and search.tries:
        middle = (low + high) // 2
        inside = better.copy()
        inside[other_rows[:middle]] = True
        placement = search.place(tried, inside)
        if search.take(placement):
            high, search.inside = middle, inside
        else:
            low = middle + 1


# --- other pods ---
#
# Anti-affinity and spread are tried as a spread over the domains with room. If all preferences
# cannot be met together, they are accepted one by one, the heaviest first, if they fit the earlier
# ones.


@dataclass(frozen=True, slots=True)
class _Wish:
    """A preference of the pods of the task at ``place``."""

    place: int
    preference: PodPreference


def _towards_pods(search: _Search) -> None:
    """Move the gang to places that meet its preferences about other pods and its own."""
    wishes = [
        _Wish(place, preference)
        for place, task in enumerate(search.gang.tasks)
        for preference in task.preferences.pods
    ]
    if not wishes:
        return
    wishes.sort(key=lambda wish: (-wish.preference.weight, wish.place))
    base = _as_placed(search)
    if _take_up(search, base, wishes):
        return
    accepted: list[_Wish] = []
    # Preferences beyond the number of tries, the lightest ones, are accepted or refused together.
    single = max(0, search.tries - 1)
    for group in (*([wish] for wish in wishes[:single]), wishes[single:]):
        if (
            group
            and len(accepted) + len(group) < len(wishes)
            and _take_up(search, base, accepted + group)
        ):
            accepted += group


def _as_placed(search: _Search) -> Gang:
    """Return the gang with the demand for nodes at least as good as those of ``search.best``."""
    return _at_least(search.gang, search.lowest(), search.scores)


def _take_up(search: _Search, base: Gang, wishes: Sequence[_Wish]) -> bool:
    """Move the gang to places that meet all of ``wishes``; return whether that worked."""
    tasks = []
    for place, task in enumerate(base.tasks):
        preferences = [wish.preference for wish in wishes if wish.place == place]
        if not preferences:
            tasks.append(task)
            continue
        if not _can_be_together(task.pod, preferences):
            return False
        tasks.append(replace(task, pod=_demanding(task.pod, preferences)))
    tried = replace(base, tasks=tuple(tasks))
    if not flaw(tried, search.best, search.room) and keeps_rules(tried, search.best, search.room):
        return True
    may_widen = any(wish.preference.near is None for wish in wishes)
    placement = search.place(tried, search.inside, may_widen)
    if placement is None or search.value(placement) < search.value(search.best):
        return False
    search.best = placement
    return True


def _can_be_together(kind: PodKind | None, preferences: Iterable[PodPreference]) -> bool:
    # A pod must match all terms of a required affinity, but not of several preferred ones.
    required = [term.pods for term in kind.near] if kind is not None else []
    preferred_pods = [
        preference.near.pods for preference in preferences if preference.near is not None
    ]
    return not preferred_pods or len({*required, *preferred_pods}) == 1


def _demanding(kind: PodKind | None, preferences: Iterable[PodPreference]) -> PodKind:
    """Return ``kind`` with preferences as demands."""
    kind = kind or PodKind()
    affinity, spread = list(kind.near), list(kind.spread)
    for preference in preferences:
        if preference.near is not None:
            affinity.append(preference.near)
        elif preference.apart is not None:
            # At most the number of the emptiest domain, plus one if the pod matches itself.
            self_match = int(matches(preference.apart.pods, kind))
            spread.append(
                SpreadLimit(preference.apart.key, self_match, preference.apart.pods, is_soft=True)
            )
        elif preference.spread is not None:
            spread.append(replace(preference.spread, is_soft=True))
    return replace(kind, near=tuple(affinity), spread=tuple(spread))
