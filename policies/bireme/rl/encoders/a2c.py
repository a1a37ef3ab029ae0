"""What A2cScheduler's scorer sees of a queue: ``a2c-jobs/1``.

Training and serving share the two formulas below. Amounts are shares of what the whole cluster
has, in two resources; times are in steps of DeepRM's world, where the middle job runs two. A real
cluster has more of both: its two resources are those that the gangs ask most of, and a step is
half the middle estimate of the gangs. So neither the size of the cluster nor that of its time
scale matters, nor the order in which the gangs are listed.

A gang without an estimate counts as one of the middle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.gangs import Gang
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot

HORIZON_STEPS: Final = (1, 2, 4, 8)
"""How far ahead the scorer sees what running gangs will have freed."""

RESOURCES: Final = 2
JOB_FEATURES: Final = 9
CONTEXT_FEATURES: Final = RESOURCES * (1 + len(HORIZON_STEPS)) + 1

_MIDDLE_STEPS: Final = 2.0
_UNKNOWN_SECONDS: Final = 3600.0
"""The middle run time where nobody knows any."""

_LONG_STEPS: Final = 15.0
_MANY_JOBS: Final = 50.0


def job_features(
    demands: FloatArray, free: FloatArray, durations: FloatArray, waits: FloatArray
) -> NDArray[np.float32]:
    """One row per job, shape (..., jobs, JOB_FEATURES).

    Args:
        demands: Shares of the whole, shape (..., jobs, 2).
        free: Shares that are free, shape (..., 2).
        durations, waits: Steps, shape (..., jobs).
    """
    left = free[..., None, :] - demands
    work = durations * demands.max(axis=-1)
    columns = (
        _squashed(durations, _LONG_STEPS),
        1.0 / (1.0 + durations),
        _squashed(work, _LONG_STEPS),
        _squashed(waits, _LONG_STEPS),
        (left >= 0).all(axis=-1),
    )
    features = np.concatenate([demands, left, np.stack(columns, axis=-1)], axis=-1)
    return features.astype(np.float32)


def context_features(
    free: FloatArray, later: FloatArray, waiting: IntArray | int
) -> NDArray[np.float32]:
    """What is the same for all jobs, shape (..., CONTEXT_FEATURES).

    Args:
        free: Shares that are free, shape (..., 2).
        later: Those that will be, if nobody starts, after HORIZON_STEPS, shape (..., steps, 2).
        waiting: How many jobs wait, shape (...).
    """
    many = _squashed(np.asarray(waiting, dtype=np.float64), _MANY_JOBS)
    flat = later.reshape(*later.shape[:-2], -1)
    return np.concatenate([free, flat, many[..., None]], axis=-1).astype(np.float32)


def _squashed(values: FloatArray, one: float) -> FloatArray:
    """The logarithm of 1 + ``values``, 1 where they are ``one``."""
    return np.asarray(np.log1p(values) / np.log1p(one))


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Gangs and their cluster in the measures of DeepRM's world.

    Attributes:
        demands: Shares of the whole in two resources, shape (gangs, 2).
        durations, waits: Steps, shape (gangs,).
        free: Shares that are free now, shape (2,).
        later: Those that will be, if nobody starts, shape (horizon, 2).
    """

    demands: FloatArray
    durations: FloatArray
    waits: FloatArray
    free: FloatArray
    later: FloatArray


def scaled(gangs: Sequence[Gang], snapshot: ClusterSnapshot, horizon: Sequence[int]) -> Scaled:
    """At least one gang; ``later`` after so many steps each of ``horizon``."""
    seconds = _run_seconds(gangs)
    step_seconds = float(np.median(seconds)) / _MIDDLE_STEPS
    total = snapshot.nodes.allocatable.sum(axis=0)
    shares = _shares(np.array([snapshot.nodes.axis.usage(gang.demand) for gang in gangs]), total)
    chosen = np.argsort(-shares.sum(axis=0), kind="stable")[:RESOURCES]
    free = total - snapshot.used.sum(axis=0)
    later = free + _freed(snapshot, step_seconds * np.array(horizon))
    waits = np.array([snapshot.wait_seconds(gang) for gang in gangs])
    return Scaled(
        demands=shares[:, chosen],
        durations=seconds / step_seconds,
        waits=waits / step_seconds,
        free=_shares(free, total)[chosen],
        later=_shares(later, total)[:, chosen],
    )


class A2cJobs:
    """Gangs of a real cluster as jobs of DeepRM's world."""

    inputs: Mapping[str, tuple[int | str, ...]] = {
        "jobs": ("gangs", JOB_FEATURES),
        "context": (CONTEXT_FEATURES,),
    }

    def encode(
        self, gangs: Sequence[Gang], snapshot: ClusterSnapshot
    ) -> dict[str, NDArray[np.float32]]:
        """``gangs``, at least one, as float32 arrays of the shapes of ``inputs``."""
        seen = scaled(gangs, snapshot, HORIZON_STEPS)
        return {
            "jobs": job_features(seen.demands, seen.free, seen.durations, seen.waits),
            "context": context_features(seen.free, seen.later, len(gangs)),
        }


def _run_seconds(gangs: Sequence[Gang]) -> FloatArray:
    """How long each runs, above 0: by its estimate, or like the middle one that has one."""
    known = [gang.estimated_seconds for gang in gangs if gang.estimated_seconds is not None]
    middle = float(np.median(known)) if known else _UNKNOWN_SECONDS
    seconds = [middle if g.estimated_seconds is None else g.estimated_seconds for g in gangs]
    return np.maximum(np.array(seconds, dtype=np.float64), 1.0)


def _freed(snapshot: ClusterSnapshot, seconds: FloatArray) -> IntArray:
    """What running gangs will have freed ``seconds`` on, shape (times, resources)."""
    table = snapshot.running_table
    ends = table.expected_ends(snapshot.now, snapshot.now)[table.owner]
    has_ended = ends <= snapshot.now + seconds[:, None]
    return np.asarray(has_ended.astype(np.int64) @ table.usage)


def _shares(amounts: IntArray, total: IntArray) -> FloatArray:
    """``amounts``, shape (..., resources), as parts of ``total``, 0 to 1; 0 where there is none."""
    shares = np.divide(amounts, total, out=np.zeros(amounts.shape), where=total > 0)
    return np.clip(shares, 0.0, 1.0)


# The image that A2cScheduler's paper shows its networks, of a real cluster: ``a2c-image/1``.
#
# Beside each other lie, for each of two resources, the slots that running gangs hold in the coming
# steps and what each job of the queue asks, as a block of its duration and demand; then a cell for
# each job behind the queue, and how long ago one came last (Liang et al., PAKDD 2020, figure 2; Mao
# et al., HotNets 2016, figure 2). An image has a queue of ten, so gangs are shown by tens, in order
# of arrival: of every gang the image that it is in, and its slot there.
#
# Demands are rounded up to tenths of the cluster: on a large one all small gangs look alike.

SLOTS: Final = 10
"""Of each resource."""
QUEUE_SLOTS: Final = 10
IMAGE_HORIZON_STEPS: Final = 20
BACKLOG_SLOTS: Final = 60


def columns(queue_slots: int) -> int:
    """Columns of the image: 124 with a queue of 5, 224 with one of 10, as in DeepRM."""
    return RESOURCES * SLOTS * (1 + queue_slots) + BACKLOG_SLOTS // IMAGE_HORIZON_STEPS + 1


def paint(
    held: IntArray, durations: IntArray, demands: IntArray, behind: IntArray, since: FloatArray
) -> NDArray[np.float32]:
    """Images, shape (images, 1, HORIZON_STEPS, columns).

    Args:
        held: Slots held in each coming step, shape (images, HORIZON_STEPS, resources).
        durations: Steps, of each job of the queue, 0 where there is none, shape (images, queue).
        demands: Slots, shape (images, queue, resources).
        behind: How many jobs wait behind the queue, shape (images,).
        since: Steps since a job came last, shape (images,).
    """
    parts: list[NDArray[np.generic]] = []
    for resource in range(RESOURCES):
        parts.append(np.arange(SLOTS) < held[:, :, resource, None])
        parts.append(_blocks(durations, demands[:, :, resource]))
    cells = np.arange(BACKLOG_SLOTS) < behind[:, None]
    parts.append(cells.reshape(len(held), IMAGE_HORIZON_STEPS, -1))
    share = np.minimum(since / IMAGE_HORIZON_STEPS, 1.0)[:, None, None]
    parts.append(np.broadcast_to(share, (len(held), IMAGE_HORIZON_STEPS, 1)))
    return np.concatenate(parts, axis=2)[:, None].astype(np.float32)


def _blocks(durations: IntArray, demands: IntArray) -> BoolArray:
    """A block per job, its duration down and its demand across."""
    down = np.arange(IMAGE_HORIZON_STEPS)[:, None, None] < durations[:, None, :, None]
    across = np.arange(SLOTS) < demands[:, None, :, None]
    return np.asarray((down & across).reshape(len(durations), IMAGE_HORIZON_STEPS, -1))


class A2cImages:
    """Gangs of a real cluster, each with the image of the ten it came with."""

    inputs: Mapping[str, tuple[int | str, ...]] = {
        "image": ("gangs", 1, IMAGE_HORIZON_STEPS, columns(QUEUE_SLOTS)),
        "slot": ("gangs", QUEUE_SLOTS),
    }

    def encode(
        self, gangs: Sequence[Gang], snapshot: ClusterSnapshot
    ) -> dict[str, NDArray[np.float32]]:
        """``gangs``, at least one: the image of each, and a one for its slot there."""
        seen = scaled(gangs, snapshot, range(IMAGE_HORIZON_STEPS))
        order = np.argsort([gang.arrived for gang in gangs], kind="stable")
        images = -(-len(gangs) // QUEUE_SLOTS)
        place = np.empty(len(gangs), dtype=np.int64)
        place[order] = np.arange(len(gangs))
        durations = np.zeros(images * QUEUE_SLOTS, dtype=np.int64)
        demands = np.zeros((images * QUEUE_SLOTS, RESOURCES), dtype=np.int64)
        durations[place] = _whole(np.minimum(seen.durations, IMAGE_HORIZON_STEPS))
        demands[place] = _whole(SLOTS * seen.demands)
        held = _whole(SLOTS * (1.0 - seen.later))
        painted = paint(
            np.broadcast_to(held, (images, *held.shape)),
            durations.reshape(images, QUEUE_SLOTS),
            demands.reshape(images, QUEUE_SLOTS, RESOURCES),
            np.maximum(len(gangs) - QUEUE_SLOTS * np.arange(1, images + 1), 0),
            np.full(images, seen.waits.min()),
        )
        return {
            "image": painted[place // QUEUE_SLOTS],
            "slot": np.eye(QUEUE_SLOTS, dtype=np.float32)[place % QUEUE_SLOTS],
        }


def _whole(values: FloatArray) -> IntArray:
    """``values`` rounded up, but for what is off in their last bits."""
    return np.ceil(values - 1e-9).astype(np.int64)
