"""Speed laws with few numbers: measured at some sizes, and of training with parameter servers.

Every law is a :class:`~bireme.core.speed.SpeedLaw` with its own unit of work, the step. A job with
a law states its work in the same unit. ``knows_spread`` means that the law itself slows down on
more nodes, so no general penalty is added to it.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType

from bireme.core.errors import SettingError
from bireme.core.speed import require_positive


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """Measurements at some numbers of GPUs; straight lines between them, 0 outside.

    Attributes:
        gpus: Ascending.
        together: Steps a second on the fewest nodes, one per entry of ``gpus``.
        apart: Steps a second on more nodes; empty if not measured.
        gpus_per_node: GPUs of a measured machine. A replica has one GPU.
    """

    gpus: tuple[int, ...]
    together: tuple[float, ...]
    apart: tuple[float, ...] = ()
    gpus_per_node: int = 8

    def __post_init__(self) -> None:
        if not self.gpus or list(self.gpus) != sorted(set(self.gpus)):
            raise SettingError(f"gpus is {self.gpus}; give at least one number, in ascending order")
        for name in ("together", "apart"):
            speeds = getattr(self, name)
            if (speeds or name == "together") and len(speeds) != len(self.gpus):
                raise SettingError(f"{name} has {len(speeds)} speeds; give {len(self.gpus)}")
        require_positive("gpus_per_node", self.gpus_per_node)

    @property
    def knows_spread(self) -> bool:
        """Return whether the law slows down by itself on more nodes."""
        return bool(self.apart)

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        """Return steps a second; 0 outside the measured sizes."""
        gpus = sum(sizes.values())
        is_apart = nodes > ceil(gpus / self.gpus_per_node)
        return self._between(gpus, self.apart if self.apart and is_apart else self.together)

    def _between(self, gpus: int, speeds: tuple[float, ...]) -> float:
        if not self.gpus[0] <= gpus <= self.gpus[-1]:
            return 0.0
        index = bisect_left(self.gpus, gpus)
        if self.gpus[index] == gpus:
            return speeds[index]
        low, high = speeds[index - 1], speeds[index]
        # A measured 0 means that the job did not run, so it does not run beside that size either.
        if low == 0 or high == 0:
            return 0.0
        share = (gpus - self.gpus[index - 1]) / (self.gpus[index] - self.gpus[index - 1])
        return low + share * (high - low)


# Training with parameter servers: the speed law of Optimus, and eight models fitted to it.
#
# Peng et al., Optimus, EuroSys 2018, section 3.2. With ``w`` workers, ``p`` servers, the total
# batch ``M`` of a synchronous job and ``theta`` >= 0, steps a second are
#
#     synchronous    1 / (theta0 M/w + theta1 + theta2 w/p + theta3 w + theta4 p)
#     asynchronous   w / (theta0 + theta1 w/p + theta2 w + theta3 p)
#
# The terms are the forward and backward pass, the update, the traffic between workers and servers,
# and the overhead of each worker and server. A step of an asynchronous job is one worker's.


@dataclass(frozen=True, slots=True)
class OptimusLaw:
    """Speed from the numbers of workers and servers.

    Attributes:
        theta: Five numbers for a synchronous job, four for an asynchronous one; seconds.
        batch: Samples of one step over all workers; None for asynchronous jobs.
        worker, ps: Names of the tasks that count.
    """

    theta: tuple[float, ...]
    batch: int | None = None
    worker: str = "worker"
    ps: str = "ps"

    def __post_init__(self) -> None:
        length = 4 if self.batch is None else 5
        if len(self.theta) != length:
            raise SettingError(
                f"theta has {len(self.theta)} numbers; give 5 and a batch for a synchronous job, "
                "4 and no batch for an asynchronous one"
            )
        if min(self.theta) < 0:
            raise SettingError(f"theta is {self.theta}; no number may be below 0")
        require_positive("the sum of theta", sum(self.theta))
        if self.batch is not None:
            require_positive("batch", self.batch)

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        """Return steps a second; 0 without a worker or without a server."""
        workers, servers = sizes.get(self.worker, 0), sizes.get(self.ps, 0)
        if not workers or not servers:
            return 0.0
        if self.batch is None:
            pass_, traffic, each_worker, each_server = self.theta
            seconds = pass_ / workers
            share = 1 / workers
        else:
            pass_, update, traffic, each_worker, each_server = self.theta
            seconds = pass_ * self.batch / workers + update
            share = 1.0
        overhead = traffic * workers / servers + each_worker * workers + each_server * servers
        return 1 / (seconds + share * overhead)


DL2_LAWS: Mapping[str, OptimusLaw] = MappingProxyType(
    {
        "cnn-text-classification": OptimusLaw((0.00753, 0.34222, 0.02711, 0.01635, 0.00011), 50),
        "dssm": OptimusLaw((0.00141, 0.1277, 0.0, 0.00698, 0.00022), 256),
        "inception-bn": OptimusLaw((0.00309, 0.1747, 0.15572, 0.02004, 0.00154), 128),
        "resnet-50": OptimusLaw((0.00449, 0.39656, 0.54254, 0.0, 0.0), 32),
        "resnext-110": OptimusLaw((0.00053, 0.163, 0.10468, 0.02032, 0.00093), 128),
        "seq2seq": OptimusLaw((0.00107, 0.05199, 0.0308, 0.01294, 0.0), 64),
        "vgg-16": OptimusLaw((0.01416, 0.66688, 1.10928, 0.09427, 0.0), 32),
        "wlm": OptimusLaw((0.00069, 0.20735, 0.21401, 0.02865, 0.00104), 160),
    }
)
"""Synchronous training of eight models, by name.

Fitted by non-negative least squares to the testbed measurements that Peng et al. published with
DL2 (pengyanghua/DL2, config_speed.txt: 803 of them, 1 to 23 servers, 1 to 12 workers). Mean error
3 to 11 %, R2 0.87 to 0.97, worst with one server.
"""
