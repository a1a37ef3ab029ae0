"""How far a policy that only watches is from the one that decides, on one and the same snapshot.

*Agreement* is the share of starts in common; that of sizes speaks of elastic gangs. *Kendall's
tau* compares the orders: 1 for the same, -1 for the reverse. *Regret* is what the deciding policy's
order costs more than the other's: the difference of the mean job completion times that
:mod:`bireme.heuristics.list_schedule` forecasts for the waiting gangs, by their estimates. It is
positive where the watching policy would have been better. Stops, places and sizes are not in it.
"""

from bisect import bisect, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bireme.core.decision import Admit, Decision, Hold, Resize
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.list_schedule import costs, problem_of

WINDOW: Final = 256
"""So many gangs from the front of each order are forecast."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One decision beside another.

    Attributes:
        agreement: Gangs that both start, over gangs that any of them starts; 1 where none does.
        same_places: Of the gangs that both start, the share on the same nodes; 1 of none.
        same_sizes: Of the elastic gangs that both start or any of both resizes, the share that
            have the same size then; None of none.
        tau: Kendall's tau-a of the orders, from -1 to 1; 1 with fewer than two gangs.
        regret_seconds: How much longer gangs would take on average than under the other.
    """

    agreement: float
    same_places: float
    same_sizes: float | None
    tau: float
    regret_seconds: float


def compare(active: Decision, shadow: Decision, snapshot: ClusterSnapshot) -> Difference:
    """How far ``shadow`` is from ``active``; both were decided on ``snapshot``."""
    mine, other = _starts(active), _starts(shadow)
    both = mine.keys() & other.keys()
    same = sum(_places(mine[uid]) == _places(other[uid]) for uid in both)
    orders = _order(active), _order(shadow)
    return Difference(
        agreement=_share(len(both), len(mine.keys() | other.keys())),
        same_places=_share(same, len(both)),
        same_sizes=_same_sizes(active, shadow),
        tau=kendall_tau(*orders),
        regret_seconds=_regret(*orders, snapshot),
    )


def kendall_tau(one: Sequence[str], other: Sequence[str]) -> float:
    """Pairs in the same order less pairs in the opposite one, over all pairs of both lists.

    What only one of them has is left out. Source: Kendall, Biometrika 30, 1938.
    """
    place = {uid: at for at, uid in enumerate(other)}
    places = [place[uid] for uid in one if uid in place]
    pairs = len(places) * (len(places) - 1) / 2
    before: list[int] = []
    swapped = 0
    for at in places:
        swapped += len(before) - bisect(before, at)
        insort(before, at)
    return 1.0 - 2 * swapped / pairs if pairs else 1.0


def _starts(decision: Decision) -> dict[str, Admit]:
    return {admit.gang.uid: admit for admit in decision.admitted}


def _places(admit: Admit) -> Mapping[str, list[tuple[int, int]]]:
    """Node rows with replicas, by task."""
    return {
        task.task: list(zip(task.rows.tolist(), task.counts.tolist(), strict=True))
        for task in admit.placement.tasks
    }


def _same_sizes(active: Decision, shadow: Decision) -> float | None:
    """Gangs that one of them alone starts are left out: they have no size in the other."""
    mine, other = _sizes(active), _sizes(shadow)
    before = {each.gang.uid: each.running.sizes for d in (active, shadow) for each in d.resized}
    pairs = [(mine.get(u, before.get(u)), other.get(u, before.get(u))) for u in {*mine, *other}]
    same = [one == two for one, two in pairs if one is not None and two is not None]
    return sum(same) / len(same) if same else None


def _sizes(decision: Decision) -> dict[str, dict[str, int]]:
    """Replicas by task of the elastic gangs that it starts or resizes, by uid."""
    given: list[Admit | Resize] = [*decision.admitted, *decision.resized]
    return {
        action.gang.uid: {task.task: int(task.counts.sum()) for task in action.placement.tasks}
        for action in given
        if action.gang.is_elastic
    }


def _order(decision: Decision) -> list[str]:
    """Waiting gangs as they were decided on, but for those that no order helps."""
    return [
        action.gang.uid
        for action in decision.actions
        if isinstance(action, Admit) or (isinstance(action, Hold) and action.position is not None)
    ]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def _regret(active: Sequence[str], shadow: Sequence[str], snapshot: ClusterSnapshot) -> float:
    """The difference of forecast mean completion times, in seconds; 0 of the same order."""
    common = set(active) & set(shadow)
    front = {*active[:WINDOW], *shadow[:WINDOW]} & common
    waiting = sorted(
        (gang for gang in snapshot.waiting if gang.uid in front),
        key=lambda gang: (gang.arrived, gang.uid),
    )
    if not waiting:
        return 0.0
    index = {gang.uid: at for at, gang in enumerate(waiting)}
    order = np.array([[index[u] for u in uids if u in index] for uids in (active, shadow)])
    mean_seconds = costs(problem_of(waiting, snapshot), order, np.zeros_like(order))[:, 0]
    return float(mean_seconds[0] - mean_seconds[1])
