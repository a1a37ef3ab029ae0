"""The outcome of a simulation, the input of reports, plots and tests."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bireme.core.resources import FloatArray
from bireme_lab.simulator.workload import TraceJob


@dataclass(frozen=True, slots=True)
class RunSegment:
    """A period in which a job held the same places.

    Attributes:
        began, ended: Seconds after the start of the trace.
        places: (task name, node name, replicas) for every node used.
        ended_by: "finished", "preempted", "moved" (to faster GPUs), "maintenance", "resized",
            "node lost" or "still running".
    """

    began: float
    ended: float
    places: tuple[tuple[str, str, int], ...]
    ended_by: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The history of one job.

    Attributes:
        started: First start, seconds after the start of the trace; None when it never started.
        finished: None when it did not finish (it never fits, or the simulation was cut off).
        verdict: The last reason of its wait; for jobs that never ran.
        reserved_start: The start of its first reservation; None when it never had one.
    """

    job: TraceJob
    started: float | None
    finished: float | None
    segments: tuple[RunSegment, ...] = ()
    verdict: str = ""
    preemptions: int = 0
    resizes: int = 0
    reserved_start: float | None = None
    wait_bound_seconds: float = 86_400.0


@dataclass(frozen=True, slots=True)
class UsageSeries:
    """Use of the cluster over time, as step functions: value ``i`` holds from ``times[i]``.

    Attributes:
        times: Seconds after the start of the trace, shape (points,), ascending.
        used_gpus: Shape (points,).
        waiting: Gangs waiting, shape (points,).
        fragmented_gpus: Free GPUs on nodes that are partly used, shape (points,).
    """

    times: FloatArray
    used_gpus: FloatArray
    waiting: FloatArray
    fragmented_gpus: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class PoolSeries:
    """A node pool over time, as step functions like those of :class:`UsageSeries`.

    Attributes:
        maximum: The largest number of nodes.
        times: Seconds after the start of the trace, shape (points,), ascending.
        demand: Nodes that running, planned and waiting gangs need, shape (points,).
        ready_nodes: Shape (points,).
        requested_nodes: Nodes that are ready or coming, shape (points,).
    """

    name: str
    gpus_per_node: int
    maximum: int
    times: FloatArray
    demand: FloatArray
    ready_nodes: FloatArray
    requested_nodes: FloatArray


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one simulation.

    Attributes:
        policy: Its name, such as ``combined-priority/packing``.
        jobs: In order of submission.
        nodes: The number of nodes, with pools at their maximum.
        total_gpus: The GPUs of those nodes.
        counts: Numbers of "cycles", "admissions", "backfills", "preemptions", "moves",
            "shrinks", "growths", "reservations", "reservations_honoured", "fallbacks".
        decision_seconds: Processor seconds spent deciding.
        pools: Pools that grow and shrink; other nodes are always present.
    """

    policy: str
    trace: str
    seed: int
    nodes: int
    total_gpus: int
    jobs: tuple[JobRecord, ...]
    series: UsageSeries
    counts: Mapping[str, int] = field(default_factory=dict)
    decision_seconds: float = 0.0
    pools: tuple[PoolSeries, ...] = ()


# A long simulation has more steps than a plot has pixels. Merging neighbouring steps into their
# mean over time keeps every integral (GPU-seconds used, mean queue length) exact.
_MAX_POINTS = 20_000


class Recorder:
    """Records step functions: points of ``width`` values each, in ascending order of time."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._times = array("d")
        self._values = array("d")
        self._last: tuple[float, ...] | None = None

    def record(self, time: float, *values: float) -> None:
        """Record values from ``time`` on; a later record of the same moment replaces this one."""
        if values == self._last:
            return
        if self._times and self._times[-1] == time:
            del self._times[-1], self._values[-self._width :]
        self._times.append(time)
        self._values.extend(values)
        self._last = values

    def points(self) -> tuple[FloatArray, FloatArray]:
        """Return times, shape (points,), and values, shape (points, width)."""
        values = np.array(self._values, dtype=np.float64).reshape(-1, self._width)
        return np.array(self._times, dtype=np.float64), values

    def series(self, most_points: int = _MAX_POINTS) -> UsageSeries:
        """Return the series of a recorder of used GPUs, waiting gangs and fragmented GPUs."""
        times, values = self.points()
        if len(times) > most_points:
            # Runs of neighbouring steps become one; the last point has no end and stays.
            lengths = np.diff(times)
            first = np.linspace(0, len(lengths), most_points - 1, endpoint=False).astype(np.int64)
            totals = np.add.reduceat(values[:-1] * lengths[:, None], first, axis=0)
            means = totals / np.add.reduceat(lengths, first)[:, None]
            times, values = np.append(times[first], times[-1]), np.vstack([means, values[-1]])
        return UsageSeries(times, *(column.copy() for column in values.T))
