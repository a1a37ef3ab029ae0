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
from bireme.core.resources import FloatArray, IntArray
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
