"""The physics of a simulation in one object: speeds of jobs, and failures.

At rate 1 a job runs exactly its ``duration_seconds``. A job without a speed law has rate 1 at its
requested size. A job with a law completes ``steps_per_second`` of its ``steps``, so that its
``duration_seconds`` cancels out. Factors for spread, neighbours and stragglers multiply the rate;
all are 1 by default.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import exp, inf, isfinite, log, sqrt
from statistics import NormalDist
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np

from bireme.core.errors import SettingError, require
from bireme.core.nodes import Node
from bireme.core.options import check_name, read_options
from bireme.core.resources import FloatArray
from bireme.core.speed import require_positive
from bireme_lab.simulator.errors import SimulationError
from bireme_lab.simulator.workload import TraceJob

# --- Random numbers -----------------------------------------------------------------------------
#
# Another node, or another order of events, must not change the failures of one node or the
# stragglers of one start. So each has its own stream, seeded by its purpose.


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the random stream of ``names`` under ``seed``; equal arguments give equal numbers."""
    key = repr((seed, *names)).encode()
    digest = hashlib.blake2b(key, digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


# --- Node failures ------------------------------------------------------------------------------
#
# A ready node fails after an exponential time (a Poisson process), and its repair takes a fixed
# time, independent of other nodes. A longer horizon only adds failures.

_NODE_MTBF_SECONDS = 22_800_000.0
"""264 days between failures of one node. Llama Team, The Llama 3 Herd of Models, 2024, section
3.3.4: 419 unexpected interruptions in 54 days on 16,384 GPUs, eight to a node."""


class NodeChange(NamedTuple):
    """A node goes or comes, ``time`` seconds after the start of the trace."""

    time: float
    node: str
    is_up: bool


# --- Spread, neighbours and stragglers ----------------------------------------------------------
#
# Each is a factor on speed, 1 for none. The constants are measurements, named with their source;
# :class:`Physics` applies none by default.

OVER_NODES = 0.74
"""Speed on several nodes relative to one. Median over the six models of Pollux' placements.csv
(petuum/adaptdl, osdi21-artifact) of one node against several with the same 2 to 4 replicas and
local batch; the models range from 0.49 (BERT) to 0.96 (ResNet-50). Gavel's medians over jobs of
two GPUs are 0.50 on V100, 0.69 on P100 and 1.01 on K80: fast GPUs wait more for the network."""

OVER_RACKS = 0.55
"""Speed on several racks relative to one node. An assumption: the step from rack to rack costs as
much again as the step from node to node (0.74 squared)."""

PER_NEIGHBOUR = 0.94
"""Speed beside one more gang on the same nodes. Taken from jobs that share even one GPU: 1388
measured pairs keep 0.94 of their speed on average, a twentieth of them less than 0.69."""

_MEASURED_REPLICAS = 10
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Fluctuation:
    """The unequal speed of the replicas of a start: one coefficient of variation per start.

    A synchronous job waits for its slowest replica in every step. With step times of mean 1 and
    coefficient of variation ``c``, the slowest of ``n`` takes ``1 + c e(n)``, ``e(n)`` being the
    expected largest of ``n`` standard normal values (Blom's approximation). ``c`` is drawn from a
    lognormal law.

    Calibrated with Alibaba's PAI (clusterdata, cluster-trace-gpu-v2020, CC-BY-4.0:
    coefficient_variation.csv, 100 jobs of ten workers, up to 2000 steps each): median 0.093, 90th
    percentile 1.06. The law has the median and the tail, not the shape between them: measured
    quartiles are 0.05 and 0.55, the law's 0.03 and 0.33.

    Attributes:
        median_variation, p90_variation: Median and 90th percentile of ``c``.
    """

    median_variation: float = 0.093
    p90_variation: float = 1.06

    def __post_init__(self) -> None:
        if not 0 < self.median_variation <= self.p90_variation:
            raise SettingError(
                f"median_variation is {self.median_variation}, p90_variation "
                f"{self.p90_variation}; the first must be above 0 and not above the second"
            )

    def variation(self, seed: int, job: str, start: int) -> float:
        """Draw ``c`` of the ``start``-th start of ``job``, a function of the arguments alone."""
        spread = log(self.p90_variation / self.median_variation) / _NORMAL.inv_cdf(0.9)
        luck = stream(seed, "straggler", job, start).standard_normal()
        # The law was measured with ten workers, whose variation cannot exceed sqrt(10).
        return min(self.median_variation * exp(spread * luck), sqrt(_MEASURED_REPLICAS))

    def factor(self, seed: int, job: str, start: int) -> float:
        """Return the speed of that start with ten replicas, relative to equal replicas."""
        slowest = self.variation(seed, job, start) * expected_largest(_MEASURED_REPLICAS)
        return 1 / (1 + slowest)


def straggling(factor: float, replicas: int) -> float:
    """Convert a start's ``factor`` for ten replicas into the factor for ``replicas``."""
    slowest = (1 / factor - 1) / expected_largest(_MEASURED_REPLICAS)
    return 1 / (1 + slowest * expected_largest(replicas))


@lru_cache(maxsize=4096)
def expected_largest(count: int) -> float:
    """Return the expected largest of ``count`` >= 1 standard normal values (Blom 1958).

    Exact at 1, 5 % too high at 2, within 1.5 % from 5 on.
    """
    return _NORMAL.inv_cdf((count - 0.375) / (count + 0.25))


# --- Machines that differ -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class MachineLaw:
    """Speed by machine: GPU model, health, and other gangs on it.

    Attributes:
        speeds: Speed of a replica alone, by node name: the GPU model times the health of the
            machine. 1 is the machine for which run times are stated.
        per_neighbour: Factor per other gang on the same machine.
    """

    speeds: Mapping[str, float]
    per_neighbour: float = PER_NEIGHBOUR

    def __post_init__(self) -> None:
        for name, speed in self.speeds.items():
            require_positive(f"speed of node {name}", speed)
        if not 0 < self.per_neighbour <= 1:
            raise SettingError(
                f"per_neighbour is {self.per_neighbour}; it must be above 0, up to 1"
            )

    def rate(self, neighbours: Mapping[str, int]) -> float:
        """Return the speed of a gang; ``neighbours`` counts other gangs by name of its nodes.

        Raises SettingError for a node without a speed.
        """
        for name in neighbours:
            if name not in self.speeds:
                raise SettingError(f"node {name} has no speed; give speeds for every node")
        # A synchronous gang waits for its slowest replica.
        return min(
            self.speeds[name] * float(self.per_neighbour**count)
            for name, count in neighbours.items()
        )


# --- Courses: trainings of uneven speed ---------------------------------------------------------
#
# A job may choose a new batch in every epoch. Large batches are worth most in late epochs, so these
# gain far more from a larger size than early epochs. Then the mean speed at a size holds only for a
# whole training at that size.


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Work over time in a whole training at one size; straight lines between the points.

    ``done`` are shares of the work, shape (points,), ascending from 0 to 1. ``elapsed`` are the
    shares of the time that they take.
    """

    done: FloatArray
    elapsed: FloatArray

    @classmethod
    def of(cls, work: FloatArray, paces: FloatArray) -> "Course":
        """Make the course of phases with ``work`` at ``paces``, both of shape (phases,)."""
        done, seconds = np.cumsum(work), np.cumsum(work / paces)
        return cls(np.append(0.0, done / done[-1]), np.append(0.0, seconds / seconds[-1]))

    def time_left(self, share: float) -> float:
        """Return the share of a whole training's time that the last ``share`` of work takes."""
        return float(1 - np.interp(1 - share, self.done, self.elapsed))

    def remaining_after(self, share: float, spent: float) -> float:
        """Return the remaining work, of ``share``, after the share ``spent`` of the time."""
        elapsed = np.interp(1 - share, self.done, self.elapsed) + spent
        return float(1 - np.interp(elapsed, self.elapsed, self.done))


@runtime_checkable
class PlacedSpeedLaw(Protocol):
    """A speed law by placement: 3 + 1 replicas differ from 2 + 2."""

    def steps_per_second_on(self, places: tuple[int, ...]) -> float:
        """Return the mean speed, ``places[i]`` replicas on the i-th node; 0 if it cannot run."""
        ...

    def course(self, places: tuple[int, ...]) -> Course | None:
        """Return the distribution of work over time on ``places``; None for even."""
        ...


_NO_OTHERS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Physics:
    """Effects on the run times of a trace; by default none.

    Attributes:
        over_nodes, over_racks: Speed of a gang on several nodes, or several racks, relative to
            one node. Jobs with a law that knows the spread are exempt.
        per_neighbour: Speed factor per gang that shares a node.
        machines: Speed of each machine; None for equal machines.
        fluctuation: Unequal speed of the replicas of a start; None for equal replicas.
        start_seconds: From the first start until work begins (images, rendezvous).
        restart_seconds: From every later start until work continues (checkpoint restore).
        checkpoint_interval_seconds: Time between checkpoints. A stopped gang loses its work since
            the last one; 0 for no loss, infinity for no checkpoint.
        node_mtbf_seconds: Mean time between failures of one node; infinity for none.
        node_repair_seconds: From a failure until the node is back.
    """

    over_nodes: float = 1.0
    over_racks: float = 1.0
    per_neighbour: float = 1.0
    machines: MachineLaw | None = None
    fluctuation: Fluctuation | None = None
    start_seconds: float = 0.0
    restart_seconds: float = 0.0
    checkpoint_interval_seconds: float = 0.0
    node_mtbf_seconds: float = inf
    node_repair_seconds: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("over_nodes", "over_racks", "per_neighbour"):
            if not 0 < getattr(self, name) <= 1:
                raise SettingError(f"{name} is {getattr(self, name)}; it must be above 0, up to 1")
        least_zero = ("start_seconds", "restart_seconds", "checkpoint_interval_seconds")
        for name in (*least_zero, "node_repair_seconds"):
            require(name, getattr(self, name), 0)
        if not self.node_mtbf_seconds > 0:
            raise SettingError(f"node_mtbf_seconds is {self.node_mtbf_seconds}; it must be above 0")

    def rate(
        self,
        job: TraceJob,
        sizes: Mapping[str, int],
        nodes: int,
        racks: int = 1,
        neighbours: int = 0,
        straggler: float = 1.0,
        places: tuple[int, ...] = (),
        neighbours_by_node: Mapping[str, int] = _NO_OTHERS,
    ) -> float:
        """Return the progress of ``job`` relative to its ``duration_seconds``.

        Args:
            sizes: Replicas by task name.
            nodes, racks: The number of each that it uses.
            neighbours: The number of other gangs on its nodes.
            straggler: The result of :meth:`straggler` for this start.
            places: Replicas on each of its nodes, for laws by placement.
            neighbours_by_node: The number of other gangs by node name, if ``machines`` is set.

        Returns 0 where it cannot run. Raises SimulationError for a job without a law at another
        size than requested, and for ``steps`` that do not match its law.
        """
        # The DAS environment computes the same with arrays, bit by bit: keep the order of factors.
        rate = _own_rate(job, sizes, nodes, places)
        if nodes > 1 and not getattr(job.speed, "knows_spread", False):
            rate *= self.over_racks if racks > 1 else self.over_nodes
        if neighbours:
            rate *= self.per_neighbour**neighbours
        if straggler != 1.0:
            rate *= straggling(straggler, sum(sizes.values()))
        if self.machines is not None:
            rate *= self.machines.rate(neighbours_by_node)
        return rate

    @property
    def interferes(self) -> bool:
        """Return whether a gang's neighbours change its speed."""
        return self.per_neighbour < 1 or self.machines is not None

    def straggler(self, job: str, start: int, seed: int) -> float:
        """Return the speed of the ``start``-th start of ``job`` with ten replicas, up to 1."""
        return 1.0 if self.fluctuation is None else self.fluctuation.factor(seed, job, start)

    def failures(self, nodes: Iterable[Node], horizon: float, seed: int) -> list[NodeChange]:
        """Return all failures before ``horizon``, each with its repair, in order of time."""
        return sorted(change for node in nodes for change in self._fails(node.name, horizon, seed))

    def _fails(self, node: str, horizon: float, seed: int) -> Iterator[NodeChange]:
        if self.node_mtbf_seconds == inf:
            return
        chance = stream(seed, "failure", node)
        fails = chance.exponential(self.node_mtbf_seconds)
        while fails < horizon:
            yield NodeChange(fails, node, is_up=False)
            yield NodeChange(fails + self.node_repair_seconds, node, is_up=True)
            fails += self.node_repair_seconds + chance.exponential(self.node_mtbf_seconds)


MEASURED = Physics(
    over_nodes=OVER_NODES,
    over_racks=OVER_RACKS,
    per_neighbour=PER_NEIGHBOUR,
    fluctuation=Fluctuation(),
    restart_seconds=30.0,  # Pollux' simulator (petuum/adaptdl): every rescale stalls that long
    checkpoint_interval_seconds=1800.0,  # an assumption
    node_mtbf_seconds=_NODE_MTBF_SECONDS,
)
"""All effects, at values measured elsewhere; the constants name their sources."""


def _own_rate(
    job: TraceJob, sizes: Mapping[str, int], nodes: int, places: tuple[int, ...]
) -> float:
    """Return the rate from size, places and law."""
    if job.speed is None:
        if any(sizes.get(task.name, 0) != task.replicas for task in job.tasks):
            raise SimulationError(
                f"job {job.name} has no speed law and runs with {dict(sizes)} replicas, which is "
                "not what it asks for; give it a speed and steps"
            )
        return 1.0
    if job.steps is None or not 0 < job.steps < inf:
        raise SimulationError(
            f"job {job.name} has a speed law, but steps is {job.steps}; "
            "give its work in the law's unit, above 0"
        )
    if places and isinstance(job.speed, PlacedSpeedLaw):
        pace = job.speed.steps_per_second_on(places)
    else:
        pace = job.speed.steps_per_second(sizes, nodes)
    return pace / job.steps * job.duration_seconds


# --- Physics by name ----------------------------------------------------------------------------
#
# ``measured?node_mtbf_seconds=400000&per_neighbour=1`` changes two numbers of ``measured``: nodes
# fail more often and gangs do not disturb each other. Options are the numeric fields of Physics.

PLAIN: Final = "plain"
PHYSICS: Final[Mapping[str, Physics]] = {PLAIN: Physics(), "measured": MEASURED}


def read_physics(text: str) -> Physics:
    """Return the physics that ``text`` names; SettingError for an unknown name or option."""
    name, _, query = text.partition("?")
    physics = PHYSICS[check_name("physics", name, PHYSICS, SettingError)]
    numbers = {name: value for name, value in asdict(physics).items() if isinstance(value, float)}
    options: dict[str, Any] = read_options(query, numbers, SettingError)
    return replace(physics, **options)


def to_json(physics: Physics) -> dict[str, object]:
    """Return its fields by name, with nested fields; null for an effect that is off."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in asdict(physics).items()
    }
