"""A coarse, fast forecast of a schedule: what searching orderers judge an order by.

The cluster becomes at most 32 equal machines of equal units; a gang takes its dominant share of
them, at least one. Gangs start in order, each as early as enough units are free; it takes units
of its preferred machine first, then of the next ones, and runs longer when it is spread over more
machines than it needs. Gangs that run hold their units until their expected end. Many schedules
are forecast side by side, as rows of arrays.

What an order and a preference cost: the mean job completion time, waits so far included, and the
mean fee, which is unit-seconds held (the two metrics of the DAS slides; prices that are equal
everywhere do not change which order is best).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.resources import Amounts, BoolArray, FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot

UNITS = 128
"""Into how many units the whole cluster is divided, rounded down to equal machines."""
MACHINES = 32
UNKNOWN_SECONDS = 3600.0
"""Run time of a gang without an estimate where no gang has one."""
SPREAD_SLOWDOWN = 0.25
"""How much longer a gang runs on more machines than it needs. An assumption: the slides say that
spread costs, but not how much."""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Waiting gangs and the cluster they wait for, in units.

    Attributes:
        units: How many units each gang takes, int64, shape (gangs,), in order of arrival.
        run_seconds: How long each is expected to run, shape (gangs,).
        waited_seconds: How long each has waited, shape (gangs,).
        is_distributed: Whether it has more than one replica, and so communicates, shape (gangs,).
        free_at: Seconds from now until each unit is free, shape (units,).
        machines: How many machines the units belong to, equally many each, in order.
    """

    units: IntArray
    run_seconds: FloatArray
    waited_seconds: FloatArray
    is_distributed: BoolArray
    free_at: FloatArray
    machines: int

    def __len__(self) -> int:
        return len(self.units)


@dataclass(slots=True, eq=False)
class Forecast:
    """``rows`` schedules of one problem, built gang by gang.

    Attributes:
        free_at: Seconds from now until each unit is free, shape (rows, units).
    """

    problem: Problem
    rows: int
    free_at: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.free_at = np.tile(self.problem.free_at, (self.rows, 1))

    def start(self, gangs: IntArray, machines: IntArray) -> tuple[FloatArray, FloatArray]:
        """Start ``gangs[row]``, preferably on ``machines[row]``; both int64, shape (rows,).

        Returns finish, in seconds from now, and run time in seconds, both of shape (rows,).
        """
        problem, units = self.problem, self.free_at.shape[1]
        needed = problem.units[gangs]
        row = np.arange(self.rows)
        begin = np.sort(self.free_at, axis=1)[row, needed - 1]
        per_machine = units // problem.machines
        turned = (machines[:, None] * per_machine + np.arange(units)) % units
        free_at = self.free_at[row[:, None], turned]
        is_free = free_at <= begin[:, None]
        taken = is_free & (np.cumsum(is_free, axis=1) <= needed[:, None])
        spread = taken.reshape(self.rows, problem.machines, per_machine).any(axis=2).sum(axis=1)
        is_slow = spread > -(-needed // per_machine)
        run = problem.run_seconds[gangs] * np.where(is_slow, 1 + SPREAD_SLOWDOWN, 1.0)
        finish = begin + run
        self.free_at[row[:, None], turned] = np.where(taken, finish[:, None], free_at)
        return finish, run


def costs(problem: Problem, order: IntArray, machines: IntArray) -> FloatArray:
    """Mean completion time and mean fee of schedules, shape (rows, 2), in (unit-)seconds.

    ``order[row]`` lists gangs, first to start first; ``machines[row, gang]`` is the preferred
    machine of each gang; both int64, shape (rows, gangs).
    """
    rows, gangs = order.shape
    forecast = Forecast(problem, rows)
    total = np.zeros((rows, 2))
    for place in range(gangs):
        chosen = order[:, place]
        finish, run = forecast.start(chosen, machines[np.arange(rows), chosen])
        total[:, 0] += finish + problem.waited_seconds[chosen]
        total[:, 1] += run * problem.units[chosen]
    total /= gangs
    return total


def decoded(problem: Problem, keys: FloatArray) -> tuple[IntArray, IntArray]:
    """Order and preferred machines of random keys in [0, 1], shape (rows, 2 * gangs) (Bean 1994).

    The first half sorts the gangs, the lowest key first; the second half names machines.
    """
    gangs = len(problem)
    machines = np.minimum(keys[:, gangs:] * problem.machines, problem.machines - 1)
    return np.argsort(keys[:, :gangs], axis=1, kind="stable"), machines.astype(np.int64)


def relative_costs(problem: Problem) -> Callable[[FloatArray], FloatArray]:
    """A function from keys to costs, shape (rows, 2), as multiples of those of arrival order."""
    base = np.maximum(costs(problem, *decoded(problem, arrival_keys(problem)[None])), 1e-9)
    return lambda keys: costs(problem, *decoded(problem, keys)) / base


def arrival_keys(problem: Problem) -> FloatArray:
    """The keys of arrival order on the first machine, shape (2 * gangs,)."""
    return np.concatenate([np.linspace(0.0, 1.0, len(problem)), np.zeros(len(problem))])


def problem_of(waiting: Sequence[Gang], snapshot: ClusterSnapshot) -> Problem:
    """``waiting``, in order of arrival, against the ready nodes of ``snapshot``."""
    nodes = snapshot.nodes
    machines = min(MACHINES, max(1, int(nodes.is_ready.sum())))
    units = UNITS // machines * machines
    gangs = [*waiting, *(running.gang for running in snapshot.running)]
    known = [gang.estimated_seconds for gang in gangs if gang.estimated_seconds is not None]
    unknown = float(np.median(known)) if known else UNKNOWN_SECONDS
    share = _shares(waiting, snapshot)
    return Problem(
        units=np.clip(np.rint(share * units), 1, units).astype(np.int64),
        run_seconds=np.array([_estimate(gang, unknown) for gang in waiting]),
        waited_seconds=np.array([snapshot.wait_seconds(gang) for gang in waiting]),
        is_distributed=np.array([gang.replicas > 1 for gang in waiting]),
        free_at=_free_at(units, unknown, snapshot),
        machines=machines,
    )


def _estimate(gang: Gang, unknown: float) -> float:
    return unknown if gang.estimated_seconds is None else max(1.0, gang.estimated_seconds)


def _shares(gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> FloatArray:
    """Dominant shares of the cluster, shape (gangs,); 1 for what no node offers."""
    nodes = snapshot.nodes
    offered = nodes.allocatable[nodes.is_ready].sum(axis=0)
    total = dict(zip(nodes.axis.names, offered.tolist(), strict=True))
    return np.array([_dominant_share(gang.demand, total) for gang in gangs])


def _dominant_share(demand: Amounts, total: Amounts) -> float:
    shares = (
        amount / total[name] if total.get(name, 0) > 0 else 1.0 for name, amount in demand.items()
    )
    return min(1.0, max(shares, default=0.0))


def _free_at(units: int, unknown: float, snapshot: ClusterSnapshot) -> FloatArray:
    """When units come free: gangs that run hold theirs side by side, in order of their nodes."""
    free_at = np.zeros(units)
    holding = [running for running in snapshot.running if running.sizes]
    if not holding:
        return free_at
    holding.sort(key=lambda held: (int(held.placement.node_rows()[0]), held.gang.uid))
    ends = np.rint(np.cumsum(_shares([held.current for held in holding], snapshot)) * units)
    for running, start, end in zip(holding, [0, *ends[:-1]], ends, strict=True):
        left = _estimate(running.gang, unknown) - running.elapsed_seconds(snapshot.now)
        free_at[int(start) : int(end)] = 0.0 if running.is_leaving else max(0.0, left)
    return free_at


def order_by_search(
    gangs: Sequence[Gang],
    snapshot: ClusterSnapshot,
    window: int,
    search: Callable[[Problem], Sequence[int]],
) -> list[Ranked]:
    """Running gangs by arrival, then the first ``window`` waiting ones as ``search`` orders them.

    The rest follows by arrival. Running gangs come first and nobody has a claim: what a search
    finds better is an estimate, too weak a reason to stop anybody. The score counts down to 1.
    """
    by_arrival = sorted(gangs, key=lambda gang: (gang.arrived, gang.uid))
    running = [gang for gang in by_arrival if gang.uid in snapshot.running_by_uid]
    waiting = [gang for gang in by_arrival if gang.uid not in snapshot.running_by_uid]
    searched, rest = waiting[:window], waiting[window:]
    if len(searched) > 1:
        searched = [searched[place] for place in search(problem_of(searched, snapshot))]
    ordered = [*running, *searched, *rest]
    return [Ranked(gang, float(len(ordered) - place)) for place, gang in enumerate(ordered)]
