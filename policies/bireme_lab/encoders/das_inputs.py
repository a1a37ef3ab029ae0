"""Inputs of DAS' networks, shared by training and serving.

Leading dimensions (...) are those of a batch in training; a cluster has none.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.gpus import gpu_model
from bireme.core.resources import BoolArray, FloatArray, IntArray

TRAINED_MODELS: Final = tuple(map(gpu_model, ("T4", "P100", "V100", "A100")))
"""GPU models of the clusters that DAS is trained on, slowest and cheapest first."""
_SLOWEST, _, _V100, _FASTEST = TRAINED_MODELS


def within_training(
    speed: FloatArray, dollars_per_hour: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Map speed and rent of a cluster's GPU models into the ranges of TRAINED_MODELS.

    Networks extrapolate badly. If a model is outside the range, all move together on a logarithmic
    scale. Their order stays. Their ratios stay too, unless they span more than the range. Both have
    shape (models,).
    """
    return (
        _move_into(speed, _SLOWEST.speed, _FASTEST.speed),
        _move_into(dollars_per_hour, _SLOWEST.dollars_per_hour, _FASTEST.dollars_per_hour),
    )


def _move_into(values: FloatArray, minimum: float, maximum: float) -> FloatArray:
    low, high = float(values.min()), float(values.max())
    if minimum <= low and high <= maximum:
        return values
    span = math.log(high / low)
    # ratios shrink only if the cluster spans more than the range
    new_span = min(span, math.log(maximum / minimum))
    top = maximum if high > maximum else max(high, minimum * math.exp(new_span))
    ratio = new_span / span if span else 1.0
    return np.clip(top * (values / high) ** ratio, minimum, maximum)


# --- 1. features of jobs and machines ---------------------------------------------------------
#
# The features use only facts that the operator knows. They are of the order of one on clusters of
# any size, so the same weights serve eight machines and five hundred.

RAW_JOB_FEATURES: Final = 6
MACHINE_FEATURES: Final = 8
"""Features of a machine for the ordering agent."""

ACROSS_RACKS: Final = 0.5
"""Adjacency of machines in different racks; 1 within one."""
_MINUTE: Final = 60.0


def job_features(
    gpus: IntArray,
    estimated_seconds: FloatArray,
    waited_seconds: FloatArray,
    free_gpus: IntArray,
    all_gpus: IntArray,
) -> FloatArray:
    """Return features of waiting jobs, float64 of the broadcast shape (..., 6).

    Size, estimate, wait, service, share of the cluster, and multiples of it in the free GPUs.
    """
    size = np.maximum(gpus, 1)
    minutes = estimated_seconds / _MINUTE
    return np.stack(
        np.broadcast_arrays(
            gpus / 16,
            np.log1p(minutes) / 8,
            np.log1p(waited_seconds / _MINUTE) / 8,
            np.log1p(gpus * minutes) / 12,
            gpus / np.maximum(all_gpus, 1),
            np.minimum(free_gpus / size, 4) / 4,
        ),
        axis=-1,
    )


def machine_features(
    machines: "Machines", rack_free: FloatArray, rack_capacity: FloatArray, alike_free: FloatArray
) -> FloatArray:
    """Return features of machines as places for one GPU, float64 of shape (..., machines, 8).

    Args:
        machines: Shape (..., machines), as all arguments.
        rack_free, rack_capacity: Free and all GPUs of the rack.
        alike_free: Free GPUs of the rack's machines with the same GPU model.
    """
    free, capacity = machines.room, machines.capacity
    return np.stack(
        [
            free / 8,
            free / np.maximum(capacity, 1),
            machines.speed,
            machines.dollars / 4,
            rack_free / np.maximum(rack_capacity, 1),
            np.minimum(rack_free / 16, 1),
            np.minimum(alike_free / 16, 1),
            (free == capacity) & (capacity > 0),
        ],
        axis=-1,
    )


def share_of_rack(racks: IntArray) -> BoolArray:
    """Return whether machines share a rack, shape (..., machines, machines); negative: no rack."""
    same = (racks[..., :, None] == racks[..., None, :]) & (racks[..., :, None] >= 0)
    return np.asarray(same | np.eye(racks.shape[-1], dtype=np.bool_))


def adjacency(same_rack: BoolArray) -> FloatArray:
    """Return 1 within a rack and :data:`ACROSS_RACKS` across racks, in the same shape."""
    return np.where(same_rack, 1.0, ACROSS_RACKS)


# --- 2. health of machines: the random-walk Gaussian process ----------------------------------
#
# The similarity of two machines for a job is the likelihood of walks between them. The slides sum
# walks on the product of two cluster graphs by transition matrices, which gives
# |V1| |V2| / (1 - lambda) for any two graphs. S is the similarity of the machines of one cluster,
# normalised symmetrically. The kernel ``K = s^2 (I - lambda S)^-1`` sums all walks and is positive
# definite for lambda below 1. A finished run was spread over machines by the shares x. The
# similarity of two runs is ``x K x'``, the walks from the machines of one to the machines of the
# other: the random-walk kernel with start and stop weights. The posterior (equations 13 and 14 of
# the slides),
#
#     mu = K X' (X K X' + sigma^2 I)^-1 Y,   Sigma = K - K X' (X K X' + sigma^2 I)^-1 X K,
#
# is computed from the inverse of K, which is cheaper than K itself:
# ``Sigma^-1 = (I - lambda S) / s^2 + X' X / sigma^2``. No parameter here is learned.
#
# Y is the logarithm of a run's speed, relative to its estimate and the model of its devices.

DECAY: Final = 0.8
"""lambda: weight of one step of a walk."""
LENGTH_SCALE: Final = 0.5
VARIANCE: Final = 0.008
"""s^2: variance of log speed between equal machines; about 10 %, as PAI's stragglers have."""
NOISE_VARIANCE: Final = 0.1
"""sigma^2: variance of one run; owners' estimates are wrong by a factor of exp(0.3)."""
EXPECTED: Final = -0.15
"""Y of a run on ordinary machines, which are sometimes shared and never quite equal."""
IN_RACK: Final = 0.74
IN_CLUSTER: Final = 0.55
"""Speed of a gang on several machines of a rack, and of several racks, relative to one machine: the
values of the simulator's physics, measured by Gavel (Narayanan et al., OSDI 2020)."""
_ROUNDING: Final = 1e-5


@dataclass(frozen=True, slots=True)
class Posterior:
    """A Gaussian over machines: ``mean`` (..., machines), ``precision`` of one axis more."""

    mean: FloatArray
    precision: FloatArray

    @property
    def factor(self) -> FloatArray:
        """The lower Cholesky factor of the covariance, the shape of ``precision``."""
        return np.asarray(np.linalg.cholesky(np.linalg.inv(self.precision)))


def similarity(features: FloatArray, adjacency: FloatArray) -> FloatArray:
    """Return ``D^-1/2 (R * A) D^-1/2``, shape (..., machines, machines), eigenvalues in [-1, 1].

    R is the squared exponential of the distance of ``features``, shape (..., machines, features),
    in length scales. A is the ``adjacency`` of the topology, symmetric, from 0 to 1. D has the sums
    of the rows. A machine with a row of zeros is similar to no other.
    """
    squares = np.square(features).sum(-1)
    products = features @ np.swapaxes(features, -1, -2)
    distances = squares[..., :, None] + squares[..., None, :] - 2 * products
    weights = np.exp(-0.5 * np.maximum(distances, 0.0)) * adjacency
    sums = weights.sum(-1)
    scale = np.divide(1.0, np.sqrt(sums), out=np.zeros_like(sums), where=sums > 0)
    return np.asarray(scale[..., :, None] * weights * scale[..., None, :])


def walk_precision(similar: FloatArray, decay: float = DECAY) -> FloatArray:
    """Return ``I - lambda S``, the inverse of the walks' kernel; ValueError for a bad decay."""
    if not 0 <= decay < 1:
        raise ValueError(f"decay is {decay}; walks are summed for decays from 0 to below 1")
    return np.asarray(np.eye(similar.shape[-1], dtype=similar.dtype) - decay * similar)


def posterior(
    walks: FloatArray,
    shares: FloatArray,
    observed: FloatArray,
    *,
    variance: float = VARIANCE,
    noise_variance: float = NOISE_VARIANCE,
) -> Posterior:
    """Return the posterior of machines given finished runs.

    Args:
        walks: The result of :func:`walk_precision`, shape (..., machines, machines).
        shares: X, the part of each run on each machine, (..., runs, machines); a row of zeros is
            no run.
        observed: Y minus its expectation, shape (..., runs).
    """
    turned = np.swapaxes(shares, -1, -2)
    precision = walks / variance + turned @ shares / noise_variance
    evidence = turned @ observed[..., None] / noise_variance
    mean = np.linalg.solve(precision, evidence)[..., 0]
    return Posterior(np.asarray(mean, dtype=np.float64), precision)


def health_posterior(
    machines: "Machines",
    need: IntArray,
    adjacency: FloatArray,
    shares: FloatArray,
    speeds: FloatArray,
) -> Posterior:
    """Return the posterior of the health of machines, in logarithms of speed, for one job.

    Two machines are similar for a job if their speed, rent and possible part of the job are.

    Args:
        machines: Places for its replicas.
        need: Its replicas, shape (...).
        adjacency: Shape (..., machines, machines): 1 within a rack, less across, 0 for padding.
        shares: Part of each run on each machine, (..., runs, machines); a row of zeros is no run.
        speeds: log(estimate / time taken / speed of the slowest model), shape (..., runs).
    """
    replicas = np.maximum(need, 1)[..., None]
    part = np.minimum(machines.room, replicas) / replicas
    features = np.stack([machines.speed, machines.dollars / 2, part], axis=-1)
    observed = _residuals(shares, ((shares @ adjacency) * shares).sum(-1), speeds)
    walks = walk_precision(similarity(features / LENGTH_SCALE, adjacency))
    return posterior(walks, shares, observed)


def _residuals(shares: FloatArray, nearness: FloatArray, speeds: FloatArray) -> FloatArray:
    """Return ``speeds`` minus the speeds on ordinary machines; nearness is 1 on one rack."""
    is_spread, is_apart = (shares > 0).sum(-1) > 1, nearness < 1 - _ROUNDING
    spread = np.where(is_apart, IN_CLUSTER, np.where(is_spread, IN_RACK, 1.0))
    return np.where(shares.any(-1), speeds - np.log(spread) - EXPECTED, 0.0)


OFFSET_VARIANCE: Final = 1.0
"""Variance of the common offset of a group of runs: its owner is wrong by a factor of e, or states
times for another GPU than a V100."""
_CG_TOLERANCE: Final = 1e-10
_CG_STEPS: Final = 300


def health(
    machines: "Machines", need: IntArray, shares: FloatArray, speeds: FloatArray, group: IntArray
) -> FloatArray:
    """Return the posterior mean of machines in service, shape (machines,), for one job.

    It differs from the mean of :func:`health_posterior` in one point. Runs of one ``group``, shape
    (runs,), have an unknown common offset, with prior variance :data:`OFFSET_VARIANCE`. In training
    estimates are right on average; in service the GPU of an estimate is unknown. Runs of a negative
    group have no offset. With B the covariance of offsets the function solves, by conjugate
    gradients,

        ((I - lambda S) / s^2 + X' (B + sigma^2 I)^-1 X) mu = X' (B + sigma^2 I)^-1 Y.

    Machines of one kind (equal features in one rack) have equal rows in S, so S is stored by kind.
    Then a thousand machines take milliseconds, because the placer runs many times in a cycle.
    """
    replicas = np.maximum(need, 1)
    part = np.minimum(machines.room, replicas) / replicas
    rack = np.where(machines.rack < 0, -1 - np.arange(len(machines.rack)), machines.rack)
    features = np.stack([machines.speed, machines.dollars / 2, part], axis=-1) / LENGTH_SCALE
    kinds, kind = _kinds(features, rack)
    similar = _of_kinds(features[kinds], rack[kinds], np.bincount(kind))

    run_machines = np.flatnonzero(shares.any(axis=0))  # few machines of a large cluster
    on = shares[:, run_machines]
    racks, rack_of = np.unique(rack[run_machines], return_inverse=True)
    by_rack = on @ np.eye(len(racks))[rack_of.reshape(-1)]
    within, whole = np.square(by_rack).sum(-1), np.square(on.sum(-1))
    observed = _residuals(on, within + ACROSS_RACKS * (whole - within), speeds)

    runs_of, is_grouped = np.maximum(group, 0), group >= 0
    members = np.bincount(runs_of, is_grouped)[runs_of]
    common = is_grouped / (NOISE_VARIANCE / OFFSET_VARIANCE + members)

    def apply_noise_inverse(values: FloatArray) -> FloatArray:
        """Multiply by the inverse of ``B + sigma^2 I``."""
        sums = np.bincount(runs_of, is_grouped * values)
        return np.asarray((values - common * sums[runs_of]) / NOISE_VARIANCE)

    def precision(mean: FloatArray) -> FloatArray:
        walked = (similar @ np.bincount(kind, mean))[kind]
        product = (mean - DECAY * walked) / VARIANCE
        product[run_machines] += on.T @ apply_noise_inverse(on @ mean[run_machines])
        return np.asarray(product)

    evidence = np.zeros(len(rack))
    evidence[run_machines] = on.T @ apply_noise_inverse(observed)
    return _solve(precision, evidence)


def _kinds(features: FloatArray, rack: IntArray) -> tuple[IntArray, IntArray]:
    """Return one machine of every kind, shape (kinds,), and the kind of each, (machines,)."""
    number = rack
    for column in features.T:  # several times as fast as sorting whole rows
        codes = np.unique(column, return_inverse=True)[1].reshape(-1)
        number = number * (int(codes.max(initial=0)) + 1) + codes
    _, one, kind = np.unique(number, return_index=True, return_inverse=True)
    return one, kind.reshape(-1)


def _of_kinds(features: FloatArray, rack: IntArray, count: IntArray) -> FloatArray:
    """Return :func:`similarity` by kind, (kinds, kinds); each kind has ``count`` machines."""
    squares = np.square(features).sum(-1)
    distances = squares[:, None] + squares - 2 * features @ features.T
    weights = np.exp(-0.5 * np.maximum(distances, 0.0)) * adjacency(rack[:, None] == rack)
    scale = 1 / np.sqrt(weights @ count)
    return np.asarray(scale[:, None] * weights * scale)


def _solve(matrix: Callable[[FloatArray], FloatArray], right: FloatArray) -> FloatArray:
    """Solve a positive definite system by conjugate gradients (Hestenes and Stiefel, 1952)."""
    solution, rest = np.zeros_like(right), right.copy()
    direction, squares = rest.copy(), float(rest @ rest)
    tolerance = squares * _CG_TOLERANCE**2
    for _ in range(_CG_STEPS):
        if squares <= tolerance:
            break
        along = matrix(direction)
        step = squares / float(direction @ along)
        solution += step * direction
        rest -= step * along
        previous, squares = squares, float(rest @ rest)
        direction = rest + (squares / previous) * direction
    return solution


# --- 3. sites ---------------------------------------------------------------------------------
#
# A job on several machines is as fast as the slowest of them, and slower across machines and racks
# than on one. So a site is a domain (the machine itself, its rack, the cluster) without machines
# below a speed. Every machine represents the best site in which it is the slowest. The worth of a
# site is its speed over ``1 + weight * dollars per GPU-hour``, relative to a single V100: by speed
# alone, by both, or by cost alone.

FEE_WEIGHTS: Final = (0.0, 0.5, 1e6)
"""Weights of dollars per GPU-hour against speed."""
SITE_FEATURES: Final = 7 + 2 * len(FEE_WEIGHTS)

_FACTORS: Final = (1.0, IN_RACK, IN_CLUSTER)
_SHARED: Final = 0.94
"""Speed of a gang that shares a machine, also measured by Gavel."""
_EPSILON: Final = 1e-9
_MACHINE, _RACK, _CLUSTER = range(len(_FACTORS))


@dataclass(frozen=True, slots=True, eq=False)
class Machines:
    """Machines as places for replicas of one kind; every array has shape (..., machines).

    Attributes:
        room: Replicas that still fit.
        capacity: Replicas that fit the empty machine.
        speed: Speed of a replica; 1 for a V100.
        dollars: Hourly rent of a replica.
        rack: Codes; negative for a machine without a rack.
        own_replicas: Replicas of the same job that are already on it.
    """

    room: IntArray
    capacity: IntArray
    speed: FloatArray
    dollars: FloatArray
    rack: IntArray
    own_replicas: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Sites:
    """The sites of a cluster: one per machine and domain, the narrowest domain first.

    Attributes:
        machines: The machines of all sites.
        pace: Speed of a replica on each machine beside its neighbours, shape (..., machines).
        reached: Replicas that fit each site, shape (domains, ..., machines).
        worth: Worth of each site, shape (weights, domains, ..., machines).
    """

    machines: Machines
    pace: FloatArray
    reached: FloatArray
    worth: FloatArray

    @classmethod
    def of(cls, machines: Machines) -> "Sites":
        """Return all sites; a site must contain all placed replicas of the job, else worth 0."""
        own_replicas, rack = machines.own_replicas, machines.rack
        pace = machines.speed * np.where(machines.room < machines.capacity, _SHARED, 1.0)
        room = machines.room + own_replicas
        # a machine without a rack is its own group
        group = np.where(rack < 0, -1 - np.arange(rack.shape[-1]), rack)
        amounts = np.stack([room, room * machines.dollars, own_replicas])
        sums = np.empty((len(amounts), len(_FACTORS), *pace.shape))
        sums[:, _MACHINE] = amounts
        paces = np.unique(pace)
        rank = len(paces) - 1 - np.searchsorted(paces, pace)  # 0 for the fastest
        sums[:, _RACK], sums[:, _CLUSTER] = reach(group, rank, amounts)
        reached, rent, own_reached = sums
        dollars = rent / np.maximum(reached, 1.0)
        factors = np.array(_FACTORS).reshape(-1, *[1] * pace.ndim)
        is_whole = (own_reached >= own_replicas.sum(axis=-1, keepdims=True)) & (reached > 0)
        speed = np.where(is_whole, factors * pace, 0.0)
        weights = np.array(FEE_WEIGHTS).reshape(-1, *[1] * speed.ndim)
        v100 = _V100.dollars_per_hour
        worth = speed * (1 + weights * v100) / (1 + weights * dollars)
        return cls(machines, pace, reached, worth)

    def best(self, need: IntArray) -> FloatArray:
        """Return the worth of the best site for ``need`` replicas; 0 if they fit no site.

        ``need`` has shape (..., jobs), the worth (..., jobs, weights).
        """
        sizes, which = np.unique(need, return_inverse=True)  # jobs have few different sizes
        holds = self.reached[..., None, :] >= sizes[:, None]
        worth = np.where(holds, self.worth[..., None, :], 0.0).max(axis=-1, initial=0.0).max(axis=1)
        return np.take_along_axis(
            np.moveaxis(worth, 0, -1), which.reshape(need.shape)[..., None], axis=-2
        )

    def features(self, need: IntArray) -> FloatArray:
        """Return features of machines for ``need`` replicas, (..., machines, SITE_FEATURES).

        The features are free share, share left after the job, speed, rent, and the part of the job
        that fits each of its sites. For each weight follow the worth of its best site relative to
        the best of all, and whether the machine belongs to that best site.
        """
        machines, replicas = self.machines, np.maximum(need, 1)[..., None]
        capacity = np.maximum(machines.capacity, 1)
        columns = np.empty((SITE_FEATURES, *self.pace.shape))
        np.divide(machines.room, capacity, out=columns[0])
        np.divide(np.maximum(machines.room - replicas, 0), capacity, out=columns[1])
        np.log(np.maximum(self.pace, 0.05), out=columns[2])
        np.divide(machines.dollars, 4, out=columns[3])
        np.minimum(self.reached / replicas, 1.0, out=columns[4:7])
        has_room = machines.room > 0
        worth = np.where(self.reached >= replicas, self.worth, 0.0)
        best_by_machine = worth.max(axis=1)
        best = best_by_machine.max(axis=-1, keepdims=True, initial=_EPSILON)
        np.multiply(best_by_machine / best, has_room, out=columns[7::2])
        columns[8::2] = self._in_best(worth, best_by_machine) & has_room & (best > _EPSILON)
        return np.moveaxis(columns, 0, -1)

    def _in_best(self, worth: FloatArray, best_by_machine: FloatArray) -> BoolArray:
        """Return the machines of the best site for each weight, shape (weights, ..., machines).

        If it is a single machine, all equal machines count; of equal racks only the first.
        ``best_by_machine`` is the best of ``worth`` over the domains of each machine.
        """
        keys = np.stack([self.machines.rack, self.pace])
        keys = np.broadcast_to(keys, (len(best_by_machine), *keys.shape))
        first = _at(np.concatenate([worth, keys], axis=1), best_by_machine.argmax(axis=-1)[:, None])
        sites, rack, pace = first[:, :-2], first[:, -2], first[:, -1]
        where = sites.argmax(axis=1)
        is_best_machine = worth[:, _MACHINE] == sites.max(axis=1)
        is_inside = (where != _RACK) | (self.machines.rack == rack)
        return np.asarray(
            np.where(where == _MACHINE, is_best_machine, is_inside & (self.pace >= pace))
        )


def reach(
    group: IntArray, rank: IntArray, amounts: IntArray | FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Sum ``amounts`` over machines of the same or lower rank: of the group, and of all.

    ``group`` and ``rank`` have shape (..., machines), ``amounts`` and both sums (kinds, ...,
    machines).
    """
    first, paces = int(group.min(initial=0)), int(rank.max(initial=0)) + 1
    groups = int(group.max(initial=0)) - first + 1
    clusters = math.prod(rank.shape[:-1])
    cluster = np.arange(clusters).reshape(*group.shape[:-1], 1)
    # one bin per cluster, group and rank: a bincount is far cheaper than all pairs
    cell = ((cluster * groups + group - first) * paces + rank).ravel()
    column = (cluster * paces + rank).ravel()
    within, over_all = np.empty((2, len(amounts), cell.size))
    for kind, amount in enumerate(amounts):
        counts = np.bincount(cell, weights=amount.ravel(), minlength=clusters * groups * paces)
        sums = counts.reshape(clusters, groups, paces).cumsum(axis=2)
        within[kind] = sums.ravel()[cell]
        over_all[kind] = sums.sum(axis=1).ravel()[column]
    return within.reshape(amounts.shape), over_all.reshape(amounts.shape)


def _at(values: NDArray[Any], index: IntArray) -> NDArray[Any]:
    """Take along the last axis: ``np.take_along_axis`` in a fraction of its time."""
    index = np.broadcast_to(index, values.shape[:-1])
    rows = values.reshape(-1, values.shape[-1])
    return rows[np.arange(len(rows)), index.ravel()].reshape(*index.shape, 1)


# --- 4. inputs of both agents -----------------------------------------------------------------

JOB_FEATURES: Final = RAW_JOB_FEATURES + len(FEE_WEIGHTS)
"""Features of a job in the queue."""
PLACED_FEATURES: Final = 4
"""Features of the job to be placed."""
PLACE_FEATURES: Final = SITE_FEATURES + 1
"""Features of a machine for the job to be placed."""
_MIN_WORTH: Final = 0.05


def job_inputs(features: FloatArray, machines: Machines, need: IntArray) -> NDArray[np.float32]:
    """Return features of jobs and of their best sites, shape (..., jobs, JOB_FEATURES)."""
    worth = np.log(np.maximum(Sites.of(machines).best(need), _MIN_WORTH))
    return np.concatenate([features, worth], axis=-1, dtype=np.float32, casting="same_kind")


def placed_inputs(machines: Machines, need: IntArray, seconds: FloatArray) -> NDArray[np.float32]:
    """Return features of the job to be placed, shape (..., PLACED_FEATURES).

    Its size, its estimate, the free share of the cluster, and how often the job fits into that.
    """
    room, capacity = machines.room.sum(axis=-1), machines.capacity.sum(axis=-1)
    columns = (
        np.log2(np.maximum(need, 1)) / 4,
        np.log1p(seconds / _MINUTE) / 8,
        room / np.maximum(capacity, 1),
        np.minimum(room / np.maximum(need, 1), 4) / 4,
    )
    return np.stack(columns, axis=-1).astype(np.float32)


def place_inputs(
    machines: Machines, need: IntArray, mean_health: FloatArray | None
) -> NDArray[np.float32]:
    """Return features of machines for the job to be placed, (..., machines, PLACE_FEATURES).

    ``mean_health`` is the posterior mean of their health, (..., machines), or None. It changes
    their speed and is also a feature.
    """
    inputs = np.zeros((*machines.speed.shape, PLACE_FEATURES), dtype=np.float32)
    if mean_health is not None:
        # Round, so that machines without runs are equal and not sorted by rounding noise.
        health = mean_health.round(3)
        machines = replace(machines, speed=machines.speed * np.exp(health))
        inputs[..., -1] = health
    inputs[..., :-1] = Sites.of(machines).features(need)
    return inputs
