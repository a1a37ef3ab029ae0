"""Encoders of A2cScheduler: ``a2c-jobs/1`` for the scorer, ``a2c-image/1`` for the paper's CNN.

Both see a cluster in the units of DeepRM's world, the environment of their training. Amounts are
shares of the whole cluster in the two most requested resources. Times are in steps of half the
median estimate, because the median job of that world runs two steps. A gang without an estimate
counts as the median. So the size and the time scale of a cluster have no effect. Training shares
the formulas (``job_features``, ``context_features``, ``paint``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.gangs import Gang
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.onnx.sessions import Array, Shape
from bireme.rl.encoders import run_seconds

HORIZON_STEPS: Final = (1, 2, 4, 8)
"""Steps ahead at which the scorer sees the capacity freed by running gangs."""

RESOURCES: Final = 2
JOB_FEATURES: Final = 9
CONTEXT_FEATURES: Final = RESOURCES * (1 + len(HORIZON_STEPS)) + 1

_MIDDLE_STEPS: Final = 2.0
_LONG_STEPS: Final = 15.0
_MANY_JOBS: Final = 50.0


# --- the scorer's features --------------------------------------------------------------------


def job_features(
    demands: FloatArray, free: FloatArray, durations: FloatArray, waits: FloatArray
) -> Array:
    """Return features of jobs, shape (..., jobs, JOB_FEATURES).

    Args:
        demands: Shares of the whole, shape (..., jobs, 2).
        free: Free shares, shape (..., 2).
        durations, waits: Steps, shape (..., jobs).
    """
    remaining = free[..., None, :] - demands
    work = durations * demands.max(axis=-1)
    columns = (
        _squash(durations, _LONG_STEPS),
        1.0 / (1.0 + durations),
        _squash(work, _LONG_STEPS),
        _squash(waits, _LONG_STEPS),
        (remaining >= 0).all(axis=-1),
    )
    features = np.concatenate([demands, remaining, np.stack(columns, axis=-1)], axis=-1)
    return features.astype(np.float32)


def context_features(free: FloatArray, later: FloatArray, waiting: IntArray | int) -> Array:
    """Return the common features of all jobs, shape (..., CONTEXT_FEATURES).

    Args:
        free: Free shares, shape (..., 2).
        later: Free shares after HORIZON_STEPS if no job starts, (..., steps, 2).
        waiting: Number of waiting jobs, shape (...).
    """
    many = _squash(np.asarray(waiting, dtype=np.float64), _MANY_JOBS)
    flat = later.reshape(*later.shape[:-2], -1)
    return np.concatenate([free, flat, many[..., None]], axis=-1).astype(np.float32)


def _squash(values: FloatArray, one: float) -> FloatArray:
    """Return the logarithm of 1 + ``values``, scaled to be 1 at ``one``."""
    return np.asarray(np.log1p(values) / np.log1p(one))


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Gangs and their cluster in the units of DeepRM's world.

    Attributes:
        demands: Shares of the whole in two resources, shape (gangs, 2).
        durations, waits: Steps, shape (gangs,).
        free: Free shares now, shape (2,).
        later: Free shares at later steps if no gang starts, shape (horizon, 2).
    """

    demands: FloatArray
    durations: FloatArray
    waits: FloatArray
    free: FloatArray
    later: FloatArray


def scale_gangs(gangs: Sequence[Gang], snapshot: ClusterSnapshot, horizon: Sequence[int]) -> Scaled:
    """Scale at least one gang; ``later`` is for the steps of ``horizon``."""
    seconds = np.maximum(run_seconds(gangs), 1.0)
    step_seconds = float(np.median(seconds)) / _MIDDLE_STEPS  # hides the time scale
    total = snapshot.nodes.allocatable.sum(axis=0)
    shares = _shares(np.array([snapshot.nodes.axis.usage(gang.demand) for gang in gangs]), total)
    # the two most requested resources
    resources = np.argsort(-shares.sum(axis=0), kind="stable")[:RESOURCES]
    free = total - snapshot.used.sum(axis=0)
    later = free + _future_free(snapshot, step_seconds * np.array(horizon))
    waits = np.array([snapshot.wait_seconds(gang) for gang in gangs])
    return Scaled(
        demands=shares[:, resources],
        durations=seconds / step_seconds,
        waits=waits / step_seconds,
        free=_shares(free, total)[resources],
        later=_shares(later, total)[:, resources],
    )


class A2cJobs:
    """``a2c-jobs/1``: a row of features per gang, and the context."""

    inputs: Mapping[str, Shape] = {"jobs": ("gangs", JOB_FEATURES), "context": (CONTEXT_FEATURES,)}

    def encode(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> dict[str, Array]:
        state = scale_gangs(gangs, snapshot, HORIZON_STEPS)
        return {
            "jobs": job_features(state.demands, state.free, state.durations, state.waits),
            "context": context_features(state.free, state.later, len(gangs)),
        }


def _future_free(snapshot: ClusterSnapshot, seconds: FloatArray) -> IntArray:
    """Return the capacity that running gangs free within ``seconds``, (times, resources)."""
    table = snapshot.running_table
    ends = table.expected_ends(snapshot.now, snapshot.now)[table.owner]
    has_ended = ends <= snapshot.now + seconds[:, None]
    return np.asarray(has_ended.astype(np.int64) @ table.usage)


def _shares(amounts: IntArray, total: IntArray) -> FloatArray:
    """Return ``amounts``, shape (..., resources), over ``total``, in [0, 1]; 0 for total 0."""
    shares = np.divide(amounts, total, out=np.zeros(amounts.shape), where=total > 0)
    return np.clip(shares, 0.0, 1.0)


# --- the image of the paper -------------------------------------------------------------------
#
# Liang et al., PAKDD 2020, figure 2, and Mao et al., HotNets 2016, figure 2.
# Each of two resources has columns for the slots that running gangs hold in the coming steps, and a
# block of duration by demand for each job of the queue. Then follow a cell for each job behind the
# queue and the time since the last arrival. The queue has ten slots, so gangs are shown in tens, by
# arrival: each gang has the image of its ten and its slot there. Demands are rounded up to tenths
# of the cluster, so on a large cluster all small gangs look alike.

SLOTS: Final = 10
"""Slots of each resource."""
QUEUE_SLOTS: Final = 10
IMAGE_HORIZON_STEPS: Final = 20
BACKLOG_SLOTS: Final = 60


def columns(queue_slots: int) -> int:
    """Return the columns of an image: 124 for a queue of 5, 224 for 10, as in DeepRM."""
    return RESOURCES * SLOTS * (1 + queue_slots) + BACKLOG_SLOTS // IMAGE_HORIZON_STEPS + 1


def paint(
    occupied: IntArray, durations: IntArray, demands: IntArray, backlog: IntArray, since: FloatArray
) -> Array:
    """Return images, shape (images, 1, IMAGE_HORIZON_STEPS, columns).

    Args:
        occupied: Used slots in each coming step, (images, IMAGE_HORIZON_STEPS, resources).
        durations: Steps of each job of the queue, 0 for an empty slot, shape (images, queue).
        demands: Slots, shape (images, queue, resources).
        backlog: Number of jobs behind the queue, shape (images,).
        since: Steps since the last arrival, shape (images,).
    """
    parts: list[NDArray[np.generic]] = []
    for resource in range(RESOURCES):
        parts.append(np.arange(SLOTS) < occupied[:, :, resource, None])
        parts.append(_blocks(durations, demands[:, :, resource]))
    cells = np.arange(BACKLOG_SLOTS) < backlog[:, None]
    parts.append(cells.reshape(len(occupied), IMAGE_HORIZON_STEPS, -1))
    share = np.minimum(since / IMAGE_HORIZON_STEPS, 1.0)[:, None, None]
    parts.append(np.broadcast_to(share, (len(occupied), IMAGE_HORIZON_STEPS, 1)))
    return np.concatenate(parts, axis=2)[:, None].astype(np.float32)


def _blocks(durations: IntArray, demands: IntArray) -> BoolArray:
    """Return a block per job, with its duration down and its demand across."""
    down = np.arange(IMAGE_HORIZON_STEPS)[:, None, None] < durations[:, None, :, None]
    across = np.arange(SLOTS) < demands[:, None, :, None]
    return np.asarray((down & across).reshape(len(durations), IMAGE_HORIZON_STEPS, -1))


class A2cImages:
    """``a2c-image/1``: for each gang the image of its ten, and its slot there."""

    inputs: Mapping[str, Shape] = {
        "image": ("gangs", 1, IMAGE_HORIZON_STEPS, columns(QUEUE_SLOTS)),
        "slot": ("gangs", QUEUE_SLOTS),
    }

    def encode(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> dict[str, Array]:
        state = scale_gangs(gangs, snapshot, range(IMAGE_HORIZON_STEPS))
        order = np.argsort([gang.arrived for gang in gangs], kind="stable")
        images = -(-len(gangs) // QUEUE_SLOTS)  # rounded up
        place = np.empty(len(gangs), dtype=np.int64)
        place[order] = np.arange(len(gangs))
        durations = np.zeros(images * QUEUE_SLOTS, dtype=np.int64)
        demands = np.zeros((images * QUEUE_SLOTS, RESOURCES), dtype=np.int64)
        durations[place] = _whole(np.minimum(state.durations, IMAGE_HORIZON_STEPS))
        demands[place] = _whole(SLOTS * state.demands)
        occupied = _whole(SLOTS * (1.0 - state.later))
        image = paint(
            np.broadcast_to(occupied, (images, *occupied.shape)),
            durations.reshape(images, QUEUE_SLOTS),
            demands.reshape(images, QUEUE_SLOTS, RESOURCES),
            np.maximum(len(gangs) - QUEUE_SLOTS * np.arange(1, images + 1), 0),
            np.full(images, state.waits.min()),  # the last arrival has the shortest wait
        )
        return {
            "image": image[place // QUEUE_SLOTS],
            "slot": np.eye(QUEUE_SLOTS, dtype=np.float32)[place % QUEUE_SLOTS],
        }


def _whole(values: FloatArray) -> IntArray:
    """Round ``values`` up, with a tolerance for rounding errors."""
    return np.ceil(values - 1e-9).astype(np.int64)
