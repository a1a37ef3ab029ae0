"""Orders by search: MALO, MOSA and RIFLING over a coarse forecast of the schedule.

These are the baselines of the DAS slides. Each tries orders of the first waiting gangs on a
forecast of the cluster and keeps the order with the least mean completion time and mean fee.

The forecast: the cluster becomes at most 32 equal machines of equal units; a gang takes its
dominant share of them, at least one. Gangs start in order, each as early as enough units are free,
first on its preferred machine. They run longer if spread over more machines than needed. Running
gangs hold their units until their expected end. The fee is the number of held unit-seconds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, TypeAlias

import numpy as np

from bireme.core.bounds import Within, check_bounds
from bireme.core.errors import require
from bireme.core.gangs import Gang
from bireme.core.parameters import check_parameters
from bireme.core.policy import Ranked
from bireme.core.resources import Amounts, BoolArray, FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot

UNITS = 128
"""Units of the whole cluster, rounded down to equal machines."""
MACHINES = 32
UNKNOWN_SECONDS = 3600.0
"""Run time of a gang without an estimate if no gang has one."""
_SEED = 0
SPREAD_SLOWDOWN = 0.25
"""Part by which a gang runs longer on more machines than it needs. Assumed: the slides say that
spread has a cost, but not how large."""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Waiting gangs, in order of arrival, and the cluster they wait for, in units.

    Attributes:
        units: Units of each gang, int64, shape (gangs,).
        run_seconds: Expected run time of each, shape (gangs,).
        waited_seconds: Wait of each so far, shape (gangs,).
        is_distributed: True for several replicas, which communicate, shape (gangs,).
        free_at: Seconds from now until each unit is free, shape (units,).
        machines: Number of machines; the units belong to them in order, equally many each.
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
        is_taken = is_free & (np.cumsum(is_free, axis=1) <= needed[:, None])
        spread = is_taken.reshape(self.rows, problem.machines, per_machine).any(axis=2).sum(axis=1)
        is_slow = spread > -(-needed // per_machine)
        run = problem.run_seconds[gangs] * np.where(is_slow, 1 + SPREAD_SLOWDOWN, 1.0)
        finish = begin + run
        self.free_at[row[:, None], turned] = np.where(is_taken, finish[:, None], free_at)
        return finish, run


def costs(problem: Problem, order: IntArray, machines: IntArray) -> FloatArray:
    """Return mean completion time and mean fee of schedules, shape (rows, 2), in (unit-)seconds.

    ``order[row]`` lists gangs, first to start first; ``machines[row, gang]`` is the preferred
    machine of each gang; both int64, shape (rows, gangs).
    """
    rows, gangs = order.shape
    forecast = Forecast(problem, rows)
    total = np.zeros((rows, 2))
    # Schedules side by side: a search tries thousands.
    for place in range(gangs):
        gangs_in_place = order[:, place]
        finish, run = forecast.start(gangs_in_place, machines[np.arange(rows), gangs_in_place])
        total[:, 0] += finish + problem.waited_seconds[gangs_in_place]
        total[:, 1] += run * problem.units[gangs_in_place]
    total /= gangs
    return total


def decode(problem: Problem, keys: FloatArray) -> tuple[IntArray, IntArray]:
    """Return order and preferred machines of random keys (Bean 1994), shape (rows, 2 * gangs).

    The first half sorts the gangs, the lowest key first; the second half names machines.
    """
    gangs = len(problem)
    machines = np.minimum(keys[:, gangs:] * problem.machines, problem.machines - 1)
    return np.argsort(keys[:, :gangs], axis=1, kind="stable"), machines.astype(np.int64)


def relative_costs(problem: Problem) -> Callable[[FloatArray], FloatArray]:
    """Return a function from keys to costs, shape (rows, 2), as multiples of the arrival
    order's.
    """
    base = np.maximum(costs(problem, *decode(problem, arrival_keys(problem)[None])), 1e-9)
    return lambda keys: costs(problem, *decode(problem, keys)) / base


def arrival_keys(problem: Problem) -> FloatArray:
    """Return the keys of arrival order on the first machine, shape (2 * gangs,)."""
    return np.concatenate([np.linspace(0.0, 1.0, len(problem)), np.zeros(len(problem))])


def _best(problem: Problem, keys: FloatArray, cost: FloatArray) -> list[int]:
    """Return the order of the row of ``keys`` with the least ``cost``, shape (rows,)."""
    order, _ = decode(problem, keys[np.argmin(cost)][None])
    return [int(gang) for gang in order[0]]


def problem_of(waiting: Sequence[Gang], snapshot: ClusterSnapshot) -> Problem:
    """Return the problem of ``waiting``, in order of arrival, on ready nodes of ``snapshot``."""
    nodes = snapshot.nodes
    machines = min(MACHINES, max(1, int(nodes.accepts.sum())))
    units = UNITS // machines * machines
    gangs = [*waiting, *(running.gang for running in snapshot.running)]
    estimates = [gang.estimated_seconds for gang in gangs if gang.estimated_seconds is not None]
    unknown = float(np.median(estimates)) if estimates else UNKNOWN_SECONDS
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
    """Return dominant shares of the cluster, shape (gangs,); 1 for resources that no node
    offers.
    """
    nodes = snapshot.nodes
    offered = nodes.allocatable[nodes.accepts].sum(axis=0)
    total = dict(zip(nodes.axis.names, offered.tolist(), strict=True))

    def dominant_share(demand: Amounts) -> float:
        shares = (n / total[name] if total.get(name, 0) > 0 else 1.0 for name, n in demand.items())
        return min(1.0, max(shares, default=0.0))

    return np.array([dominant_share(gang.demand) for gang in gangs])


def _free_at(units: int, unknown: float, snapshot: ClusterSnapshot) -> FloatArray:
    """Return when units become free, seconds from now, shape (units,)."""
    free_at = np.zeros(units)
    holding = [running for running in snapshot.running if running.sizes]
    if not holding:
        return free_at
    # Side by side in order of their nodes: the units of a machine become free as its gangs end.
    holding.sort(key=lambda holder: (int(holder.placement.node_rows()[0]), holder.gang.uid))
    ends = np.rint(np.cumsum(_shares([holder.current for holder in holding], snapshot)) * units)
    for running, start, end in zip(holding, [0, *ends[:-1]], ends, strict=True):
        seconds = _estimate(running.gang, unknown) - running.elapsed_seconds(snapshot.now)
        free_at[int(start) : int(end)] = 0.0 if running.is_leaving else max(0.0, seconds)
    return free_at


def order_by_search(
    gangs: Sequence[Gang],
    snapshot: ClusterSnapshot,
    window: int,
    search: Callable[[Problem], Sequence[int]],
) -> list[Ranked]:
    """Return running gangs by arrival, then the first ``window`` waiting ones by ``search``.

    The rest follows by arrival. The score counts down to 1.
    """
    by_arrival = sorted(gangs, key=lambda gang: (gang.arrived, gang.uid))
    # Running gangs come first and without a preemption priority: a search result is an estimate,
    # too
    # weak a reason to stop a gang.
    running = [gang for gang in by_arrival if gang.uid in snapshot.running_by_uid]
    waiting = [gang for gang in by_arrival if gang.uid not in snapshot.running_by_uid]
    searched, rest = waiting[:window], waiting[window:]
    if len(searched) > 1:
        searched = [searched[place] for place in search(problem_of(searched, snapshot))]
    ordered = [*running, *searched, *rest]
    return [Ranked(gang, float(len(ordered) - place)) for place, gang in enumerate(ordered)]


class SearchOrderer(ABC):
    """Base of orderers that search random keys, ``generations`` times ``population`` of them."""

    least_population: ClassVar[int]

    def __init__(
        self,
        generations: Annotated[int, Within(0), "rounds of the search per decision"] = 50,
        population: Annotated[int, Within(1), "orders that are tried in a round"] = 40,
    ) -> None:
        check_parameters(type(self), generations=generations)
        require("population", population, self.least_population)
        self.generations, self.population = generations, population

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Return the best order found; equal snapshots give equal orders."""
        return order_by_search(gangs, snapshot, _WINDOW, self._search)

    @abstractmethod
    def _search(self, problem: Problem) -> list[int]: ...


# --- MALO: antlion optimisation with differential evolution around the elite ---
#
# Each antlion is one chromosome: keys that order gangs and keys that name machines. Ants walk at
# random around an antlion, chosen by roulette, and around the elite, in a box that shrinks; a
# better ant replaces the antlion. Then differential evolution recombines antlions with the elite.
# Both halves of a generation evaluate as many chromosomes as there are antlions. Unlike the
# paper's, the walk has 16 steps instead of one per generation, and the box is centred on the
# antlion.

_WINDOW = 24
"""Waiting gangs that MALO and MOSA search over; later arrivals keep their order."""
_DIFFERENCE_WEIGHT = 0.5
_CROSSOVER = 0.9
_WALK_STEPS = 16
_SHRINKING = ((0.95, 6), (0.9, 5), (0.75, 4), (0.5, 3), (0.1, 2))
"""Past this share of the generations the box is 10^w * share times smaller (Mirjalili 2015)."""


class Malo(SearchOrderer):
    """Order found by antlion optimisation and differential evolution.

    Source: Abualigah and Diabat, Cluster Computing 24 (2021); baseline "MALO" of the DAS slides.
    """

    least_population = 8  # half of them are antlions

    def _search(self, problem: Problem) -> list[int]:
        generator = np.random.default_rng(_SEED)
        relative = relative_costs(problem)
        lions = generator.random((self.population // 2, 2 * len(problem)))
        lions[0] = arrival_keys(problem)  # so that the forecast is never worse than by arrival
        cost = relative(lions).sum(axis=1)
        for generation in range(1, self.generations + 1):
            elite = lions[np.argmin(cost)]
            ants = _walks(lions, cost, elite, generation / self.generations, generator)
            _keep_better(lions, cost, ants, relative)
            elite = lions[np.argmin(cost)]
            _keep_better(lions, cost, _recombine(lions, elite, generator), relative)
        return _best(problem, lions, cost)


def _recombine(lions: FloatArray, elite: FloatArray, generator: np.random.Generator) -> FloatArray:
    """DE/best/1/bin: the elite plus a weighted difference of two other lions, crossed over."""
    one, other = (generator.permutation(len(lions)) for _ in range(2))
    mutants = elite + _DIFFERENCE_WEIGHT * (lions[one] - lions[other])
    is_mutant = generator.random(lions.shape) < _CROSSOVER
    return np.clip(np.where(is_mutant, mutants, lions), 0.0, 1.0)


def _walks(
    lions: FloatArray,
    cost: FloatArray,
    elite: FloatArray,
    progress: float,
    generator: np.random.Generator,
) -> FloatArray:
    """Ants: the mean of a walk around an antlion chosen by roulette and one around the elite."""
    chances = (1 / cost) / (1 / cost).sum()
    roulette_lions = lions[generator.choice(len(lions), len(lions), p=chances)]
    shrink = next((10.0**power * progress for past, power in _SHRINKING if progress > past), 1.0)
    around = [
        centre + (_walk_positions(lions.shape, generator) - 0.5) / shrink
        for centre in (roulette_lions, elite)
    ]
    return np.clip((around[0] + around[1]) / 2, 0.0, 1.0)


def _walk_positions(shape: tuple[int, ...], generator: np.random.Generator) -> FloatArray:
    """Return positions of random walks at a random step, scaled to their own range, in [0, 1]."""
    walks = np.cumsum(generator.integers(0, 2, (*shape, _WALK_STEPS)) * 2 - 1, axis=-1)
    low, high = walks.min(axis=-1), walks.max(axis=-1)
    position = walks[..., int(generator.integers(_WALK_STEPS))]
    return np.asarray((position - low) / np.maximum(high - low, 1), dtype=np.float64)


def _keep_better(
    lions: FloatArray,
    cost: FloatArray,
    rivals: FloatArray,
    relative: Callable[[FloatArray], FloatArray],
) -> None:
    """Replace every antlion by its rival if that costs less, in place."""
    rival_cost = relative(rivals).sum(axis=1)
    is_better = rival_cost < cost
    lions[is_better] = rivals[is_better]
    cost[is_better] = rival_cost[is_better]


# --- MOSA: multi-objective simulated annealing over orders and machines ---
#
# The DAS slides name MOSA without a source; multi-objective simulated annealing is assumed. Chains
# of annealing run side by side on random keys. A step changes a few keys; it is accepted if no
# objective gets worse, else with a probability that falls with the loss and with temperature.
# Chromosomes that no other beats in both objectives go to an archive. The order is that of its
# member with the least sum of mean completion time and mean fee.

_HOTTEST, _COLDEST = 0.05, 0.001
"""Temperatures: relative losses against arrival order that are accepted with probability 1/e."""
_KEYS_CHANGED = 2.0
"""Keys changed per step, on average."""
_STEP = 0.3
"""Standard deviation of a change; keys span 1."""


class Mosa(SearchOrderer):
    """Order found by multi-objective simulated annealing with an archive.

    Source: Ulungu et al., J. Multi-Criteria Decision Analysis 8 (1999); baseline "MOSA" of the
    DAS slides, an assumption.
    """

    least_population = 1  # as many chains of annealing

    def _search(self, problem: Problem) -> list[int]:
        generator = np.random.default_rng(_SEED)
        relative = relative_costs(problem)
        chains = generator.random((self.population, 2 * len(problem)))
        chains[0] = arrival_keys(problem)
        cost = relative(chains)
        archive, archive_cost = _archive(chains, cost, self.population)
        for temperature in np.geomspace(_HOTTEST, _COLDEST, self.generations):
            trials = _neighbours(chains, generator)
            trial_cost = relative(trials)
            archive, archive_cost = _archive(
                np.concatenate([archive, trials]),
                np.concatenate([archive_cost, trial_cost]),
                self.population,
            )
            loss = np.maximum(trial_cost - cost, 0.0).mean(axis=1)
            is_kept = generator.random(len(chains)) < np.exp(-loss / temperature)
            chains[is_kept], cost[is_kept] = trials[is_kept], trial_cost[is_kept]
        return _best(problem, archive, archive_cost.sum(axis=1))


def _neighbours(chains: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Return chains with a few keys changed; keys that leave [0, 1] are reflected into it."""
    is_changed = generator.random(chains.shape) < _KEYS_CHANGED / chains.shape[1]
    moved = chains + np.where(is_changed, generator.normal(0.0, _STEP, chains.shape), 0.0)
    return 1.0 - np.abs(1.0 - np.abs(moved) % 2.0)


def _archive(keys: FloatArray, cost: FloatArray, size: int) -> tuple[FloatArray, FloatArray]:
    """Return chromosomes that none beats, cheapest sum first, at most ``size``; and their costs."""
    cost, first = np.unique(cost, axis=0, return_index=True)
    nowhere_worse = (cost[:, None] <= cost[None]).all(axis=2)
    somewhere_better = (cost[:, None] < cost[None]).any(axis=2)
    rows = np.flatnonzero(~(nowhere_worse & somewhere_better).any(axis=0))
    rows = rows[np.argsort(cost[rows].sum(axis=1), kind="stable")[:size]]
    return keys[first[rows]], cost[rows]


# --- RIFLING: tabular Q-learning of the kind of gang to start next ---
#
# Every call plays a few episodes on the forecast of the present queue, learns from them, and then
# orders the queue greedily by the table. One step starts one gang. Its kind is the action:
# distributed (communicating) or not, shorter or longer than the median of the queue. The state is
# the number of free units and of free machines, and the waiting kinds. The reward is minus the
# completion time of the started gang, as a multiple of arrival order's mean.
#
# Only the abstract of the paper is known. Kept: a table, epsilon-greedy exploration, first come
# first served (within a kind), computation against communication. Left out: the action to wait,
# which an order cannot express, and placements, which are the placer's; here a gang prefers the
# machine with the most free units. Its state is the load of every machine, ours a summary of it.

_KINDS = 4
_BUCKETS = 4
_LEARNING_RATE = 0.1
_DISCOUNT = 0.95
_RIFLING_WINDOW = 32
"""The limit on waiting gangs that the table orders; later arrivals follow by arrival."""

_Key: TypeAlias = tuple[int, int, int]


@dataclass(slots=True)
class RiflingState:
    """The table of values, and the origin of its last lesson.

    Attributes:
        values: Expected sum of rewards by state, float64, shape (kinds,).
        learnt_from: The time and the gangs of the last lesson; an equal lesson teaches nothing
            more, so that equal calls give equal answers.
    """

    seed: int = 0
    values: dict[_Key, FloatArray] = field(default_factory=dict)
    learnt_from: object = None
    generator: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.seed)

    def row(self, key: _Key) -> FloatArray:
        """Return the values of one state, zero if unknown; shape (kinds,)."""
        return self.values.setdefault(key, np.zeros(_KINDS))


@dataclass(frozen=True, slots=True)
class Rifling:
    """Order by a table of values learned with Q-learning on the forecast of the queue.

    Source: baseline "RIFLING" of the DAS slides, after its abstract; Watkins and Dayan 1992.
    """

    # Passed in: the maker of the orderer decides the lifetime of the table.
    state: RiflingState = field(default_factory=RiflingState)
    episodes: Annotated[int, Within(0), "episodes played per decision to learn from"] = 8
    exploration: Annotated[
        float, Within(0, 1), "chance of a random kind per step while learning"
    ] = 0.1

    def __post_init__(self) -> None:
        check_bounds(self)

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Learn from the queue, then order it by the table."""
        lesson = (snapshot.now, frozenset(gang.uid for gang in gangs))

        def search(problem: Problem) -> list[int]:
            if lesson != self.state.learnt_from:
                self.state.learnt_from = lesson
                for _ in range(self.episodes):
                    self._play(problem, self.exploration)
            return self._play(problem, None)

        return order_by_search(gangs, snapshot, _RIFLING_WINDOW, search)

    def _play(self, problem: Problem, exploration: float | None) -> list[int]:
        """Play one episode and return its order; learn unless ``exploration`` is None."""
        forecast, queues = Forecast(problem, 1), _queues(problem)
        scale = float(costs(problem, *decode(problem, arrival_keys(problem)[None]))[0, 0])
        order: list[int] = []
        key = _state_of(forecast, queues)
        while len(order) < len(problem):
            kind = self._kind(key, queues, exploration)
            gang = queues[kind].pop(0)
            order.append(gang)
            freest = np.array([np.argmax(_by_machine(forecast))])
            finish, _ = forecast.start(np.array([gang]), freest)
            next_key = _state_of(forecast, queues)
            if exploration is not None:
                reward = -(float(finish[0]) + float(problem.waited_seconds[gang])) / max(scale, 1.0)
                self._learn(key, kind, reward, next_key, queues)
            key = next_key
        return order

    def _kind(self, key: _Key, queues: Sequence[list[int]], exploration: float | None) -> int:
        open_kinds = [kind for kind in range(_KINDS) if queues[kind]]
        generator = self.state.generator
        if exploration is not None and generator.random() < exploration:
            return int(generator.choice(open_kinds))
        row = self.state.row(key)
        return max(open_kinds, key=lambda kind: (row[kind], -queues[kind][0]))

    def _learn(
        self, key: _Key, kind: int, reward: float, next_key: _Key, queues: Sequence[list[int]]
    ) -> None:
        """Q(s, a) moves towards r + discount * max over open kinds of Q(s', a')."""
        row = self.state.row(next_key)
        future = max((float(row[k]) for k in range(_KINDS) if queues[k]), default=0.0)
        values = self.state.row(key)
        values[kind] += _LEARNING_RATE * (reward + _DISCOUNT * future - values[kind])


def _queues(problem: Problem) -> list[list[int]]:
    """Return the gangs of each kind, in order of arrival."""
    is_long = problem.run_seconds > np.median(problem.run_seconds)
    kinds = 2 * problem.is_distributed + is_long
    return [[int(gang) for gang in np.flatnonzero(kinds == kind)] for kind in range(_KINDS)]


def _by_machine(forecast: Forecast) -> FloatArray:
    """Return free units per machine when the next unit is free, shape (machines,)."""
    free_at = forecast.free_at[0]
    is_free = (free_at <= free_at.min()).reshape(forecast.problem.machines, -1)
    return np.asarray(is_free.sum(axis=1), dtype=np.float64)


def _state_of(forecast: Forecast, queues: Sequence[list[int]]) -> _Key:
    """Return free units and machines, in quarters of all, and the waiting kinds as bits."""
    free = _by_machine(forecast)
    per_machine = forecast.free_at.shape[1] // forecast.problem.machines
    shares = (free.mean() / per_machine, (free == per_machine).mean())
    units, machines = (min(_BUCKETS - 1, int(share * _BUCKETS)) for share in shares)
    return units, machines, sum(1 << kind for kind in range(_KINDS) if queues[kind])
