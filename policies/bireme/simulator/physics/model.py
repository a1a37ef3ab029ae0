"""The physics of a simulation in one object: how fast jobs run, and what goes wrong.

At rate 1 a job runs exactly its ``duration_seconds``. A job without a speed law has rate 1 at the
size it asks for; one with a law does ``steps_per_second`` of its ``steps``, so that its
``duration_seconds`` cancels out. On top come the factors for spread, neighbours and stragglers,
all of them 1 unless switched on.
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
from bireme.simulator.errors import SimulationError
from bireme.simulator.workload import TraceJob

# --- Random numbers -----------------------------------------------------------------------------
#
# A failure of one node, or the stragglers of one start, must not change because another node was
# added or two events changed places. So each has a stream of its own, seeded by what it is for.


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the random stream of ``names`` under ``seed``; equal arguments, equal numbers."""
    key = repr((seed, *names)).encode()
    digest = hashlib.blake2b(key, digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


# --- Node failures ------------------------------------------------------------------------------
#
# A node that is up fails after an exponential time (a Poisson process) and is repaired after a
# fixed one, whatever other nodes there are. A longer horizon only adds failures.

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
    """The inequality of the replicas of a start: one coefficient of variation for each start.

    A synchronous job waits for its slowest replica in every step. With step times of mean 1 and
    coefficient of variation ``c``, the slowest of ``n`` takes ``1 + c e(n)``, ``e(n)`` being the
    expected largest of ``n`` standard normal values (Blom's approximation). ``c`` is drawn from a
    lognormal law.

    Calibrated with Alibaba's PAI (clusterdata, cluster-trace-gpu-v2020, CC-BY-4.0:
    coefficient_variation.csv, 100 jobs of ten workers, up to 2000 steps each): median 0.093, 90th
    percentile 1.06. The law has the median and the tail, not the shape between them: measured
    quartiles are 0.05 and 0.55, the law's 0.03 and 0.33.

    Attributes:
        median_variation, p90_variation: Of ``c``.
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
        # The variation of ten workers, of which the law was measured, cannot exceed sqrt(10).
        return min(self.median_variation * exp(spread * luck), sqrt(_MEASURED_REPLICAS))

    def factor(self, seed: int, job: str, start: int) -> float:
        """Return the speed of that start with ten replicas, relative to equal ones."""
        slowest = self.variation(seed, job, start) * expected_largest(_MEASURED_REPLICAS)
        return 1 / (1 + slowest)


def straggling(factor: float, replicas: int) -> float:
    """Turn a start's ``factor``, which is for ten replicas, into that for ``replicas``."""
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
        speeds: Speed of a replica on its own by node name, 1 being the machine that run times are
            stated for: the GPU model times the health of the machine.
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

    def rate(self, others: Mapping[str, int]) -> float:
        """Return the speed of a gang from the number of other gangs on each of its nodes, by name.

        Raises SettingError for a node without a speed.
        """
        for name in others:
            if name not in self.speeds:
                raise SettingError(f"node {name} has no speed; give speeds for every node")
        # A synchronous gang waits for its slowest replica.
        return min(
            self.speeds[name] * float(self.per_neighbour**count) for name, count in others.items()
        )


# --- Courses: trainings of uneven speed ---------------------------------------------------------
#
# Where a job chooses its batch anew in every epoch, late epochs, in which large batches are worth
# most, gain far more by a larger size than early ones. Its mean speed at a size is then right only
# for a whole training at that size.


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Work over time in a whole training at one size; straight lines between the points.

    ``done`` are shares of the work, shape (points,), ascending from 0 to 1, and ``elapsed`` the
    shares of the time after which they are done.
    """

    done: FloatArray
    elapsed: FloatArray

    @classmethod
    def of(cls, work: FloatArray, paces: FloatArray) -> "Course":
        """Make the course of phases with so much ``work`` at such ``paces``, shape (phases,)."""
        done, seconds = np.cumsum(work), np.cumsum(work / paces)
        return cls(np.append(0.0, done / done[-1]), np.append(0.0, seconds / seconds[-1]))

    def time_left(self, left: float) -> float:
        """Return the share of a whole training's time that a share ``left`` of its work takes."""
        return float(1 - np.interp(1 - left, self.done, self.elapsed))

    def left_after(self, left: float, spent: float) -> float:
        """Return the share of work left after a share ``spent`` of a whole training's time."""
        elapsed = np.interp(1 - left, self.done, self.elapsed) + spent
        return float(1 - np.interp(elapsed, self.elapsed, self.done))


@runtime_checkable
class PlacedSpeedLaw(Protocol):
    """A speed law that was measured by placement: 3 + 1 replicas are not 2 + 2."""

    def steps_per_second_on(self, places: tuple[int, ...]) -> float:
        """Return the mean speed, ``places[i]`` replicas on the i-th node; 0 if it cannot run."""
        ...

    def course(self, places: tuple[int, ...]) -> Course | None:
        """Return how work is spread over time on ``places``; None for evenly."""
        ...


_NO_OTHERS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Physics:
    """Effects on the run times of a trace; by default none.

    Attributes:
        over_nodes, over_racks: Speed of a gang on several nodes, or several racks, relative to
            one node. Not for jobs whose law says that it knows the spread.
        per_neighbour: Speed per gang that shares a node with it.
        machines: How fast each machine is; None for machines that are all alike.
        fluctuation: How unequal the replicas of a start are; None for equal.
        start_seconds: From the first start until work begins (images, rendezvous).
        restart_seconds: From every later start until work goes on (checkpoint restore).
        checkpoint_interval_seconds: A start that is stopped loses its work since the last
            checkpoint, written every so often; 0 for no loss, infinity for no checkpoint.
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
        others: Mapping[str, int] = _NO_OTHERS,
    ) -> float:
        """Return the progress of ``job`` relative to its ``duration_seconds``.

        Args:
            sizes: Replicas by task name.
            nodes, racks: How many of each it is on.
            neighbours: Other gangs with a replica on any of its nodes.
            straggler: What :meth:`straggler` gave for this start.
            places: Replicas on each of its nodes, for laws that were measured by placement.
            others: Other gangs on each of its nodes, by node name, where ``machines`` is set.

        Returns 0 where it cannot run; raises SimulationError for a job without a law at a size it
        did not ask for, and for ``steps`` that do not go with its law.
        """
        # Training of DAS does the same with arrays, to the last bit: the order of factors counts.
        rate = _own_rate(job, sizes, nodes, places)
        if nodes > 1 and not getattr(job.speed, "knows_spread", False):
            rate *= self.over_racks if racks > 1 else self.over_nodes
        if neighbours:
            rate *= self.per_neighbour**neighbours
        if straggler != 1.0:
            rate *= straggling(straggler, sum(sizes.values()))
        if self.machines is not None:
            rate *= self.machines.rate(others)
        return rate

    @property
    def interferes(self) -> bool:
        """Return whether a gang's neighbours change its speed at all."""
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
"""Everything switched on, at what was measured elsewhere; sources beside the constants."""


def _own_rate(
    job: TraceJob, sizes: Mapping[str, int], nodes: int, places: tuple[int, ...]
) -> float:
    """Return the rate by size, places and law alone."""
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
    """Return the physics that ``text`` names; SettingError for a name or option that is none."""
    name, _, query = text.partition("?")
    physics = PHYSICS[check_name("physics", name, PHYSICS, SettingError)]
    numbers = {name: value for name, value in asdict(physics).items() if isinstance(value, float)}
    given: dict[str, Any] = read_options(query, numbers, SettingError)
    return replace(physics, **given)


def to_json(physics: Physics) -> dict[str, object]:
    """Return its fields by name, those beneath ``fluctuation`` too; null for what is off."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in asdict(physics).items()
    }
