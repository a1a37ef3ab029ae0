"""Pollux' goodput: steps a second times the worth of a step, which depends on the batch size.

Qiao et al., Pollux, OSDI 2021, section 3; petuum/adaptdl, branch osdi21-artifact. A step of batch
``m`` is worth, in steps of the smallest batch ``m0``,

    gain = (var + sqr) / (var / (m / m0) + sqr)

with the squared norm ``sqr`` and the variance ``var`` of the gradient, both measured per epoch
(``validation-<batch>.csv``). The unit of work is a step of ``m0``; an application is done after all
its epochs, whatever the batch.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path

import numpy as np

from bireme.core.resources import FloatArray
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.physics.model import Course
from bireme_lab.simulator.physics.tables import read_numbers

# Pollux' step times: one application on the machines its authors measured.
#
# Qiao et al., Pollux, OSDI 2021; petuum/adaptdl, branch osdi21-artifact,
# ``simulator/traces/<application>/placements.csv`` (every placement of up to 16 replicas on up to 4
# nodes of 4 GPUs) and ``scalability.csv`` (6 to 16 nodes, up to 64 replicas).
#
# Interpolation. A measured placement has its measured step time. Policies ask by size only: by
# nodes and replicas, not by replicas on each node. Such a query averages all placements with the
# same number of nodes, replicas and local batch size, as the authors' simulator does for unmeasured
# placements. For unmeasured numbers of nodes and replicas the authors triangulate in three
# dimensions. This law keeps the replicas per node. It interpolates linearly first between the
# nearest measured numbers of replicas, then between numbers of nodes. At measured points both give
# the measurement. As in theirs, more than 16 nodes count as 16. A gang denser than the measured
# machines (8 GPUs a node) counts as spread over nodes of 4.

_GPUS_PER_NODE = 4
_MAX_NODES = 16

Size = tuple[int, int]
"""(nodes, replicas)"""

Places = tuple[int, ...]
"""Replicas on each node; the smallest rotation of a measured placement stands for all."""

_Points = dict[float, list[FloatArray]]
"""One [step seconds, sync seconds] per measurement, by local batch size."""


@dataclass(frozen=True, slots=True, eq=False)
class StepTimes:
    """Seconds of a step and of its synchronisation, for one size, by local batch size.

    Attributes:
        batches: Shape (points,), ascending.
        seconds: Shape (2, points).
    """

    batches: FloatArray
    seconds: FloatArray

    def at(self, batch: FloatArray) -> FloatArray:
        """Return seconds at local batch sizes in the measured range, shape (2, sizes)."""
        return np.array([np.interp(batch, self.batches, seconds) for seconds in self.seconds])


@dataclass(frozen=True, slots=True, eq=False)
class PolluxTable:
    """Step times of one application by size, and by measured placement."""

    sizes: Mapping[Size, StepTimes]
    placements: Mapping[Places, StepTimes]

    @classmethod
    def load(cls, folder: Path) -> "PolluxTable":
        """Read ``placements.csv`` and ``scalability.csv`` in ``folder``."""
        measurements = ("local_bsz", "step_time", "sync_time")
        points: dict[Size, _Points] = defaultdict(lambda: defaultdict(list))
        by_placement: dict[Places, _Points] = defaultdict(lambda: defaultdict(list))
        for row in read_numbers(folder / "placements.csv", ("placement", *measurements)):
            places = tuple(int(digit) for digit in str(int(row[0])))
            points[len(places), sum(places)][row[1]].append(row[2:])
            by_placement[_smallest_rotation(places)][row[1]].append(row[2:])
        columns = ("num_nodes", "num_replicas", *measurements)
        for row in read_numbers(folder / "scalability.csv", columns):
            points[int(row[0]), int(row[1])][row[2]].append(row[3:])
        return cls(
            {size: _mean_step_times(by_batch) for size, by_batch in points.items()},
            {places: _mean_step_times(by_batch) for places, by_batch in by_placement.items()},
        )

    def batch_range(
        self, nodes: int, replicas: int, places: Places = ()
    ) -> tuple[float, float] | None:
        """Return the smallest and the largest local batch size; None without measurements."""
        batches = [times.batches for _, times in self._parts(nodes, replicas, places)]
        if not batches:
            return None
        return max(sizes[0] for sizes in batches), min(sizes[-1] for sizes in batches)

    def seconds(
        self, nodes: int, replicas: int, batch: FloatArray, places: Places = ()
    ) -> tuple[FloatArray, FloatArray]:
        """Return seconds of a step and of its synchronisation, by local batch size."""
        parts = self._parts(nodes, replicas, places)
        step, sync = np.sum([weight * times.at(batch) for weight, times in parts], axis=0)
        return step, sync

    def find_placement(self, places: Places) -> Places:
        """Return the measured rotation of ``places``; () for none."""
        rotation = _smallest_rotation(places)
        return rotation if rotation in self.placements else ()

    def _parts(
        self, nodes: int, replicas: int, places: Places
    ) -> Iterator[tuple[float, StepTimes]]:
        """Yield measurements with weights, which sum to 1; nothing outside the measured range."""
        if replicas < 1:
            return
        if placement := self.find_placement(places):
            yield 1.0, self.placements[placement]
            return
        nodes = min(max(nodes, ceil(replicas / _GPUS_PER_NODE)), replicas, _MAX_NODES)
        for node_weight, count in _between(nodes, sorted({n for n, _ in self.sizes})):
            measured = sorted(r for n, r in self.sizes if n == count)
            for weight, neighbour in _between(replicas / nodes * count, measured):
                yield node_weight * weight, self.sizes[count, neighbour]


def _smallest_rotation(places: Places) -> Places:
    return min((places[shift:] + places[:shift] for shift in range(len(places))), default=())


def _mean_step_times(by_batch: _Points) -> StepTimes:
    batches = np.array(sorted(by_batch))
    return StepTimes(batches, np.array([np.mean(by_batch[batch], axis=0) for batch in batches]).T)


def _between(value: float, measured: Sequence[int]) -> Iterator[tuple[float, int]]:
    """Yield weights and neighbours of ``value`` in ``measured``; nothing outside its range."""
    if not measured[0] <= value <= measured[-1]:
        return
    high = next(point for point in measured if point >= value)
    if high == value:
        yield 1.0, high
        return
    low = max(point for point in measured if point < value)
    share = (value - low) / (high - low)
    yield 1 - share, low
    yield share, high


_CANDIDATES = 50
"""Batch sizes that an adaptive job tries per epoch, in equal ratios, as the authors do."""

_LARGEST_LOCAL_BATCH: Mapping[str, int] = {"yolov3": 8}
"""Limits of the authors' simulator that are below the measured range."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingRecord:
    """Whole trainings of one application, each at one batch size.

    Attributes:
        batches: Shape (trainings,), ascending; the first is ``m0``.
        progress: Work done by the end of each epoch in steps of ``m0``, shape (trainings, epochs).
        squares, variances: The gradient's moments in each epoch, same shape.
    """

    batches: FloatArray
    progress: FloatArray
    squares: FloatArray
    variances: FloatArray

    @classmethod
    def load(cls, folder: Path) -> "TrainingRecord":
        """Read all ``validation-<batch>.csv`` in ``folder``; the shortest sets the epochs."""
        files = ((path.stem.partition("-")[2], path) for path in folder.glob("validation-*.csv"))
        paths = {int(batch): path for batch, path in files if batch.isdecimal()}
        if len(paths) < 2:
            raise TraceError(
                f"{folder} has {len(paths)} files validation-<batch>.csv; "
                "give Pollux' own folder, with at least two"
            )
        columns = ("progress", "grad_sqr", "grad_var")
        batches = sorted(paths)
        trainings = [read_numbers(paths[batch], columns) for batch in batches]
        epochs = min(len(training) for training in trainings)
        stacked = np.stack([training[:epochs].T for training in trainings], axis=1)
        return cls(np.array(batches, dtype=np.float64), *stacked)

    @property
    def epoch_work(self) -> FloatArray:
        """Return the steps of ``m0`` in each epoch of the fastest training, shape (epochs,)."""
        return np.diff(self.progress.min(axis=0), prepend=0.0)

    def gain(self, batch: float | FloatArray) -> FloatArray:
        """Return the worth of a step of ``batch`` in steps of ``m0``, shape (..., epochs)."""
        # The gradient's moments are linear between measured batch sizes.
        high = np.clip(np.searchsorted(self.batches, batch), 1, len(self.batches) - 1)
        low = high - 1
        share = (batch - self.batches[low]) / (self.batches[high] - self.batches[low])
        square, variance = (
            moments[low] + share[..., None] * (moments[high] - moments[low])
            for moments in (self.squares, self.variances)
        )
        scale = np.asarray(batch / self.batches[0])[..., None]
        return np.asarray((variance + square) / (variance / scale + square))


@dataclass(frozen=True, slots=True, eq=False)
class PolluxSpeed:
    """The speed law of one Pollux job, in steps of the application's smallest batch ``m0``.

    ``batch`` is the total batch size of the job at any size. A local batch too large for a GPU is
    split into several passes. A job without ``batch`` chooses the best batch in every epoch from
    the measurements (Pollux itself fits a model to its observations).
    """

    table: PolluxTable
    training: TrainingRecord
    batch: int | None = None
    largest_local_batch: float = inf
    _cache: dict[tuple[int, ...], tuple[float, Course | None]] = field(
        default_factory=dict, init=False, repr=False
    )

    knows_spread = True
    """The measurements already contain the slowdown on more nodes."""

    @classmethod
    def load(cls, folder: Path, batch: int | None = None) -> "PolluxSpeed":
        """Read the application measured in ``folder``; the folder's name is its name."""
        largest = _LARGEST_LOCAL_BATCH.get(folder.name, inf)
        return cls(PolluxTable.load(folder), TrainingRecord.load(folder), batch, largest)

    def __post_init__(self) -> None:
        low, high = self.training.batches[[0, -1]]
        if self.batch is not None and not low <= self.batch <= high:
            raise TraceError(
                f"batch is {self.batch}; the application was measured from {low:.0f} to {high:.0f}"
            )

    @property
    def steps(self) -> float:
        """Return the work of a whole training, in steps of ``m0``."""
        return float(self.training.epoch_work.sum())

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        """Return the mean over a training; 0 at unmeasured or too large sizes."""
        return self._way(nodes, sum(sizes.values()), ())[0]

    def steps_per_second_on(self, places: Places) -> float:
        """Return the mean on the placement ``places``, or of its size if it was not measured."""
        return self._way(len(places), sum(places), places)[0]

    def course(self, places: Places) -> Course | None:
        """Return the distribution of work over time on ``places``; None for a fixed batch."""
        return self._way(len(places), sum(places), places)[1]

    def _way(self, nodes: int, replicas: int, places: Places) -> tuple[float, Course | None]:
        """Return mean speed and course of a training, cached by size and placement."""
        placement = self.table.find_placement(places)
        key = nodes, replicas, *placement
        if key not in self._cache:
            self._cache[key] = self._new_way(nodes, replicas, placement)
        return self._cache[key]

    def _new_way(self, nodes: int, replicas: int, places: Places) -> tuple[float, Course | None]:
        batches, seconds = self._batches(nodes, replicas, places)
        if not len(batches):
            return 0.0, None
        work = self.training.epoch_work
        paces = np.max(self.training.gain(batches) / seconds[:, None], axis=0)
        # With a fixed batch every epoch takes the same share of a training at every size, apart
        # from the rounding of local batches. So one number per size gives the exact finish.
        course = None if self.batch else Course.of(work, paces)
        return float(work.sum() / (work / paces).sum()), course

    def _batches(self, nodes: int, replicas: int, places: Places) -> tuple[FloatArray, FloatArray]:
        """Return the total batch sizes possible at this size, and the step seconds of each."""
        local = self.table.batch_range(nodes, replicas, places)
        if local is None:
            return np.empty(0), np.empty(0)
        smallest, largest = local[0], min(local[1], self.largest_local_batch)
        low, high = self.training.batches[[0, -1]]
        targets = (
            np.array([self.batch])
            if self.batch
            else _candidate_batches(low, smallest * replicas, high)
        )
        # The authors' tolerances: rounding must not make a batch larger.
        passes = np.ceil(np.ceil(targets / replicas - 1e-8) / largest)
        if replicas == 1:
            # One pass on one GPU gives no estimate of the gradient's variance.
            passes = np.where(targets > low, np.maximum(2, passes), passes)
        per_pass = np.ceil(targets / replicas / passes - 1e-8)
        per_pass = np.minimum(per_pass, high // (replicas * passes))
        fits = (smallest <= per_pass) & (per_pass <= largest)
        per_pass, passes = per_pass[fits], passes[fits]
        step, sync = self.table.seconds(nodes, replicas, per_pass, places)
        return replicas * per_pass * passes, step + (passes - 1) * (step - sync)


def _candidate_batches(low: float, minimum: float, high: float) -> FloatArray:
    start = max(low, minimum)
    return np.geomspace(start, high, _CANDIDATES) if start <= high else np.empty(0)
