"""What happened in a simulation: the record every report, plot and test is made from."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bireme.core.resources import FloatArray
from bireme.simulator.workload import TraceJob


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of a job's life on a fixed set of places.

    Attributes:
        began, ended: Seconds after the start of the trace.
        places: (task name, node name, replicas) for every node used.
        ended_by: "finished", "preempted", "resized", "node lost" or "still running".
    """

    began: float
    ended: float
    places: tuple[tuple[str, str, int], ...]
    ended_by: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The life of one job.

    Attributes:
        started: First start, seconds after the start of the trace; None when it never started.
        finished: None when it did not finish (it never fits, or the simulation was cut off).
        verdict: The last reason it was given while it did not run; for jobs that never ran.
        reserved_start: The earliest start the first reservation made for it promised; None when
            it never held one.
        wait_bound_seconds: The bound that applied to it.
    """

    job: TraceJob
    started: float | None
    finished: float | None
    spans: tuple[Span, ...] = ()
    verdict: str = ""
    preemptions: int = 0
    resizes: int = 0
    reserved_start: float | None = None
    wait_bound_seconds: float = 86_400.0


@dataclass(frozen=True, slots=True)
class Series:
    """What the cluster held over time, as a step function: value ``i`` holds from ``times[i]``.

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
    """A node pool over time, as step functions like those of :class:`Series`.

    Attributes:
        name: Of the pool.
        gpus_per_node: What each of its nodes has.
        maximum: Nodes there could be.
        times: Seconds after the start of the trace, shape (points,), ascending.
        demand: What runs, is planned or waits asks for, in nodes, shape (points,).
        there: Nodes there, shape (points,).
        asked: Nodes there or on their way, shape (points,).
    """

    name: str
    gpus_per_node: int
    maximum: int
    times: FloatArray
    demand: FloatArray
    there: FloatArray
    asked: FloatArray


@dataclass(frozen=True, slots=True)
class Outcome:
    """One simulation, whole.

    Attributes:
        policy: As it was asked for, ``combined-priority/packing`` say.
        jobs: In order of submission.
        nodes: All that there are, or may be.
        total_gpus: Of those.
        counts: How often what was decided: "cycles", "admissions", "backfills", "preemptions",
            "shrinks", "growths", "reservations", "reservations_honoured", "fallbacks".
        decision_seconds: Processor seconds spent deciding.
        pools: Those that grow and shrink; other nodes are always there.
    """

    policy: str
    trace: str
    seed: int
    nodes: int
    total_gpus: int
    jobs: tuple[JobRecord, ...]
    series: Series
    counts: Mapping[str, int] = field(default_factory=dict)
    decision_seconds: float = 0.0
    pools: tuple[PoolSeries, ...] = ()


# The step functions of an outcome, written down as they happen and thinned out at the end.
#
# A long simulation has more steps than any plot has pixels. Neighbouring steps are then merged into
# their mean over time, which keeps every integral (GPU-seconds used, mean queue length) as it was.

MOST_POINTS = 20_000


class Recorder:
    """Points of ``width`` values each, in ascending order of time."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._times = array("d")
        self._values = array("d")
        self._last: tuple[float, ...] | None = None

    def record(self, time: float, *values: float) -> None:
        """What holds from ``time`` on; a later word about the same moment replaces the earlier."""
        if values == self._last:
            return
        if self._times and self._times[-1] == time:
            del self._times[-1], self._values[-self._width :]
        self._times.append(time)
        self._values.extend(values)
        self._last = values

    def points(self, most_points: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Times, shape (points,), and values, shape (points, width); ``most_points`` at most."""
        times = np.array(self._times, dtype=np.float64)
        values = np.array(self._values, dtype=np.float64).reshape(-1, self._width)
        if most_points is not None and len(times) > most_points:
            return _merged(times, values, most_points)
        return times, values

    def series(self, most_points: int = MOST_POINTS) -> Series:
        """Of a recorder of used GPUs, waiting gangs and fragmented GPUs."""
        times, values = self.points(most_points)
        return Series(times, *(column.copy() for column in values.T))


def _merged(
    times: FloatArray, values: FloatArray, most_points: int
) -> tuple[FloatArray, FloatArray]:
    """Runs of neighbouring steps as one step each; the last point, which never ends, stays."""
    lengths = np.diff(times)
    first = np.linspace(0, len(lengths), most_points - 1, endpoint=False).astype(np.int64)
    totals = np.add.reduceat(values[:-1] * lengths[:, None], first, axis=0)
    means = totals / np.add.reduceat(lengths, first)[:, None]
    return np.append(times[first], times[-1]), np.vstack([means, values[-1]])
