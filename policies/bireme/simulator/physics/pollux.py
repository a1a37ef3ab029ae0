"""Pollux' step times: one application on the machines its authors measured.

Qiao et al., Pollux, OSDI 2021; petuum/adaptdl, branch osdi21-artifact,
``simulator/traces/<application>/placements.csv`` (every placement of up to 16 replicas on up to 4
nodes of 4 GPUs) and ``scalability.csv`` (6 to 16 nodes, up to 64 replicas).

Interpolation. Where a placement was measured, that is its step time. A law that is asked about a
size only, as policies ask, knows how many nodes, not how many replicas on each: placements with
the same number of nodes, replicas and local batch size are averaged, as the authors' simulator
does for placements it has not measured. Along the local batch size: straight lines
within what was measured. For nodes and replicas that were not measured the authors triangulate in
three dimensions. Here the replicas per node are kept, and straight lines are drawn first between
the nearest measured numbers of replicas, then between the nearest measured numbers of nodes. At
measured points both give the measurement. As in theirs, more than 16 nodes count as 16. A gang
denser than the measured machines (8 GPUs a node) counts as spread over nodes of 4.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

from bireme.core.resources import FloatArray
from bireme.simulator.physics.files import read_numbers

_GPUS_PER_NODE = 4
_MOST_NODES = 16

Size = tuple[int, int]
"""(nodes, replicas)"""

Places = tuple[int, ...]
"""Replicas on each node; as measured, the smallest of its rotations stands for all."""

_Points = dict[float, list[FloatArray]]
"""[step seconds, sync seconds], as often as measured, by local batch size."""


@dataclass(frozen=True, slots=True, eq=False)
class StepTimes:
    """Of one size: ``step_seconds`` and, within them, ``sync_seconds``, by local batch size.

    Attributes:
        batches, step_seconds, sync_seconds: Shape (points,); ``batches`` ascending.
    """

    batches: FloatArray
    step_seconds: FloatArray
    sync_seconds: FloatArray

    def at(self, batch: FloatArray) -> FloatArray:
        """[step seconds, sync seconds] at local batch sizes within those measured.

        Shape (2, sizes) for a ``batch`` of shape (sizes,).
        """
        return np.array(
            [
                np.interp(batch, self.batches, self.step_seconds),
                np.interp(batch, self.batches, self.sync_seconds),
            ]
        )


@dataclass(frozen=True, slots=True, eq=False)
class PolluxTable:
    """Step times of one application by size, and by placement where that was measured."""

    sizes: Mapping[Size, StepTimes]
    placements: Mapping[Places, StepTimes]

    @classmethod
    def load(cls, folder: Path) -> "PolluxTable":
        """Read ``placements.csv`` and ``scalability.csv`` in ``folder``."""
        measured = ("local_bsz", "step_time", "sync_time")
        points: dict[Size, _Points] = defaultdict(lambda: defaultdict(list))
        placed: dict[Places, _Points] = defaultdict(lambda: defaultdict(list))
        for row in read_numbers(folder / "placements.csv", ("placement", *measured)):
            places = tuple(int(digit) for digit in str(int(row[0])))
            points[len(places), sum(places)][row[1]].append(row[2:])
            placed[_rotated(places)][row[1]].append(row[2:])
        for row in read_numbers(
            folder / "scalability.csv", ("num_nodes", "num_replicas", *measured)
        ):
            points[int(row[0]), int(row[1])][row[2]].append(row[3:])
        return cls(
            {size: _averaged(by_batch) for size, by_batch in points.items()},
            {places: _averaged(by_batch) for places, by_batch in placed.items()},
        )

    def batch_range(
        self, nodes: int, replicas: int, places: Places = ()
    ) -> tuple[float, float] | None:
        """The smallest and the largest local batch size at this size; None where nothing ran.

        Where ``places`` are given and were measured, at these, else at any of the size.
        """
        parts = list(self._parts(nodes, replicas, places))
        if not parts:
            return None
        return (
            max(times.batches[0] for _, times in parts),
            min(times.batches[-1] for _, times in parts),
        )

    def seconds(
        self, nodes: int, replicas: int, batch: FloatArray, places: Places = ()
    ) -> tuple[FloatArray, FloatArray]:
        """Seconds of one step, and of the synchronisation in it, at each local batch size."""
        parts = self._parts(nodes, replicas, places)
        step, sync = np.sum([weight * times.at(batch) for weight, times in parts], axis=0)
        return step, sync

    def measured(self, places: Places) -> Places:
        """The placement measured that ``places`` are a rotation of; none where none was."""
        rotated = _rotated(places)
        return rotated if rotated in self.placements else ()

    def _parts(
        self, nodes: int, replicas: int, places: Places
    ) -> Iterator[tuple[float, StepTimes]]:
        """Weights, which sum to 1, and the measurements they are for; nothing beyond those."""
        if replicas < 1:
            return
        if known := self.measured(places):
            yield 1.0, self.placements[known]
            return
        nodes = min(max(nodes, ceil(replicas / _GPUS_PER_NODE)), replicas, _MOST_NODES)
        for node_weight, count in _between(nodes, sorted({n for n, _ in self.sizes})):
            measured = sorted(r for n, r in self.sizes if n == count)
            for weight, near in _between(replicas / nodes * count, measured):
                yield node_weight * weight, self.sizes[count, near]


def _rotated(places: Places) -> Places:
    return min((places[at:] + places[:at] for at in range(len(places))), default=())


def _averaged(by_batch: _Points) -> StepTimes:
    batches = np.array(sorted(by_batch))
    step, sync = np.array([np.mean(by_batch[batch], axis=0) for batch in batches]).T
    return StepTimes(batches, step, sync)


def _between(value: float, measured: Sequence[int]) -> Iterator[tuple[float, int]]:
    """``value`` as a weighted mean of its neighbours in ``measured``; nothing when outside."""
    if not measured[0] <= value <= measured[-1]:
        return
    high = next(near for near in measured if near >= value)
    if high == value:
        yield 1.0, high
        return
    low = max(near for near in measured if near < value)
    share = (value - low) / (high - low)
    yield 1 - share, low
    yield share, high
