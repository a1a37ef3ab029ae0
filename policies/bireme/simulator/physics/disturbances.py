"""What slows a gang down besides its size: spread, neighbours and its own slowest replica.

Each is a factor on speed, 1 for none. The defaults of the functions are measurements, named with
their source; :class:`~bireme.simulator.physics.Physics` applies none unless told to.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import exp, log, sqrt
from statistics import NormalDist

from bireme.core.errors import SettingError
from bireme.simulator.physics.seeds import stream

OVER_NODES = 0.74
"""Speed on several nodes relative to one. Median over the six models of Pollux' placements.csv
(petuum/adaptdl, osdi21-artifact) of one node against several with the same 2 to 4 replicas and
local batch; the models range from 0.49 (BERT) to 0.96 (ResNet-50). Gavel's medians over jobs of
two GPUs are 0.50 on V100, 0.69 on P100 and 1.01 on K80: fast GPUs wait more for the network."""

OVER_RACKS = 0.55
"""Speed on several racks relative to one node. An assumption, no measurement: the step from
rack to rack costs as much again as the step from node to node (0.74 squared)."""

PER_NEIGHBOUR = 0.94
"""Speed beside one more gang on the same nodes. Taken from jobs that share even one GPU: 1388
measured pairs keep 0.94 of their speed on average, a twentieth of them less than 0.69."""

_MEASURED_REPLICAS = 10
_NORMAL = NormalDist()


def placement_penalty(
    nodes: int, racks: int, over_nodes: float = OVER_NODES, over_racks: float = OVER_RACKS
) -> float:
    """Speed of a gang on ``nodes`` nodes in ``racks`` racks relative to one node, above 0."""
    if racks > 1:
        return over_racks
    return over_nodes if nodes > 1 else 1.0


def interference(neighbours: int, per_neighbour: float = PER_NEIGHBOUR) -> float:
    """Speed beside ``neighbours`` gangs on the same nodes relative to being alone."""
    return float(per_neighbour**neighbours)


@dataclass(frozen=True, slots=True)
class Fluctuation:
    """How unequal the replicas of a start are: one coefficient of variation for each start.

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
        """``c`` of the ``start``-th start of ``job``, a function of the arguments alone.

        At most the square root of ten, which ten workers cannot exceed.
        """
        spread = log(self.p90_variation / self.median_variation) / _NORMAL.inv_cdf(0.9)
        luck = stream(seed, "straggler", job, start).standard_normal()
        return min(self.median_variation * exp(spread * luck), sqrt(_MEASURED_REPLICAS))

    def factor(self, seed: int, job: str, start: int) -> float:
        """Speed of that start with ten replicas, relative to equal ones."""
        slowest = self.variation(seed, job, start) * expected_largest(_MEASURED_REPLICAS)
        return 1 / (1 + slowest)


def straggling(factor: float, replicas: int) -> float:
    """A start's ``factor``, which is for ten replicas, for ``replicas``; 1 for one replica."""
    slowest = (1 / factor - 1) / expected_largest(_MEASURED_REPLICAS)
    return 1 / (1 + slowest * expected_largest(replicas))


@lru_cache(maxsize=4096)
def expected_largest(count: int) -> float:
    """Expected largest of ``count`` >= 1 standard normal values (Blom 1958).

    Exact at 1, 5 % too high at 2, within 1.5 % from 5 on.
    """
    return _NORMAL.inv_cdf((count - 0.375) / (count + 0.25))
