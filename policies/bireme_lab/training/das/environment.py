"""DAS' environment: an ordering agent and a placement agent start one job per step on a cluster.

A step happens when a visible job fits. The fitting job with the highest score starts, on the
machines of the highest affinity with room. If another job still fits, the next step is at the same
moment. Otherwise time passes until the next event at which a job fits. So an episode has one step
per job in every environment, and the placement agent always sees the free capacity. The function
:func:`bireme_lab.training.das.evaluation.start_now` does the same in the simulator. So both give
the same starts, completion times and fees (tests/parity).

Shapes: environments W, jobs J in order of arrival (or slots for waiting jobs), machines M, stored
runs T.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bireme.core.errors import SettingError
from bireme.core.finished_runs import log_speed
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.nodes import Node
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.core.times import HOUR
from bireme_lab.encoders import das_inputs
from bireme_lab.encoders.das_inputs import TRAINED_MODELS, Machines
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.physics.model import (
    OVER_NODES,
    OVER_RACKS,
    PER_NEIGHBOUR,
    MachineLaw,
    Physics,
)
from bireme_lab.simulator.traces.generators import draw_durations, draw_sizes, parse_sizes
from bireme_lab.simulator.traces.tables import tasks_of_gpus
from bireme_lab.simulator.workload import Trace, TraceJob
from bireme_lab.training.vec_env import Actions, Array, EnvStep, Observation

# --- jobs and machines of a seed ----------------------------------------------------------------
#
# The environment reads a sample as arrays, the simulator as a trace, nodes and physics. The slides
# describe the setting only in part; each constant notes its fill-ins. Jobs are gangs of one-GPU
# workers: a job fits if enough GPUs are free, and its place decides its speed and cost.

GPUS_PER_MACHINE: Final = 4


@dataclass(frozen=True, slots=True)
class DasEnvConfig:
    """One size of cluster; ``load`` is the arriving work over the work that first fit completes."""

    machines: int
    racks: int
    load: float


SETTINGS: Final[Mapping[str, DasEnvConfig]] = {
    "small": DasEnvConfig(8, 2, 1.3),
    "medium": DasEnvConfig(32, 4, 0.8),
    "large": DasEnvConfig(64, 8, 0.5),
}
"""Small has 8 machines of 4 GPUs (DAS slides, figure 3). Filled in: all else."""
SIZES: Final = "1:0.15,2:0.15,4:0.25,8:0.25,16:0.20"
RUN_SECONDS: Final = 60 * 60.0
"""Mean run time on V100s: with it a job costs 51 $ under first fit, as in the slides' table 1."""
RUN_SPREAD: Final = 1.0
"""Standard deviation of the logarithm of run times."""
ESTIMATE_SPREAD: Final = 0.3
"""Standard deviation of the logarithm of stated over true run time."""
SICKNESS_MEDIAN: Final = 0.1
SICKNESS_SPREAD: Final = 0.8
"""Health is 1 / (1 + x), x lognormal: a tenth of all are below 0.78. The law of PAI's stragglers
(:mod:`bireme_lab.simulator.physics.model`) with a shorter tail."""
OBLIVIOUS_PACE: Final = 0.25
"""Speed of a GPU under first fit relative to a V100, measured over all settings: gangs over several
models, racks and sick machines wait for the slowest. Loads are relative to it."""
_USERS: Final = 10
_SPEEDS: Final = np.array([model.speed for model in TRAINED_MODELS])
_DOLLARS: Final = np.array([model.dollars_per_hour for model in TRAINED_MODELS])


@dataclass(frozen=True, slots=True, eq=False)
class DasSample:
    """Jobs of shape (jobs,), in order of arrival, and machines of shape (machines,).

    Attributes:
        health: Factor on the speed of a machine's GPUs, above 0, below 1; no agent sees it.
        model: Index into :data:`~bireme_lab.encoders.das_inputs.TRAINED_MODELS`.
    """

    setting: str
    submitted: FloatArray
    gpus: IntArray
    run_seconds: FloatArray
    estimated_seconds: FloatArray
    user: IntArray
    capacity: IntArray
    model: IntArray
    rack: IntArray
    health: FloatArray

    @property
    def speed(self) -> FloatArray:
        """Speed of a replica alone on each machine relative to a V100, shape (machines,)."""
        return _SPEEDS[self.model] * self.health


def draw(setting: str, jobs: int, seed: int) -> DasSample:
    """Return the sample of ``seed``; SettingError for an unknown setting or too few jobs."""
    if setting not in SETTINGS or jobs < 1:
        raise SettingError(
            f"setting is {setting!r}, jobs {jobs}; write one of {', '.join(SETTINGS)} and 1 or more"
        )
    size = SETTINGS[setting]
    rng = np.random.default_rng([seed, size.machines])
    model = rng.permutation(np.arange(size.machines) % len(TRAINED_MODELS))
    sickness = rng.lognormal(np.log(SICKNESS_MEDIAN), SICKNESS_SPREAD, size.machines)
    pace = GPUS_PER_MACHINE * size.machines * OBLIVIOUS_PACE
    sizes, shares = parse_sizes(SIZES)
    gap_seconds = float(sizes @ shares) * RUN_SECONDS / (pace * size.load)
    runs = draw_durations(rng, "lognormal", RUN_SECONDS, RUN_SPREAD, jobs)
    return DasSample(
        setting=setting,
        submitted=np.cumsum(rng.exponential(gap_seconds, jobs)),
        gpus=draw_sizes(rng, SIZES, jobs),
        run_seconds=runs,
        estimated_seconds=runs * rng.lognormal(0.0, ESTIMATE_SPREAD, jobs),
        user=rng.integers(_USERS, size=jobs),
        capacity=np.full(size.machines, GPUS_PER_MACHINE),
        model=model,
        rack=np.arange(size.machines) * size.racks // size.machines,
        health=1 / (1 + sickness),
    )


def nodes_of(sample: DasSample) -> list[Node]:
    """Return the machines in order of their names; they differ only in the label of the GPU."""
    size = SETTINGS[sample.setting]
    plain = parse_nodes(f"{size.machines}x{GPUS_PER_MACHINE}", size.racks)
    return [
        replace(node, labels={**node.labels, GPU_MODEL_LABEL: TRAINED_MODELS[index].name})
        for node, index in zip(plain, sample.model.tolist(), strict=True)
    ]


def trace_of(sample: DasSample) -> Trace:
    """Return the jobs, named in the order of their arrival."""
    columns = (sample.submitted, sample.gpus, sample.run_seconds, sample.estimated_seconds)
    rows = zip(*(column.tolist() for column in (*columns, sample.user)), strict=True)
    jobs = tuple(
        TraceJob(
            name=f"job-{index:05d}",
            submitted=submitted,
            tasks=tasks_of_gpus(gpus, 1),
            duration_seconds=run_seconds,
            user=f"user-{user + 1}",
            estimated_seconds=estimated_seconds,
        )
        for index, (submitted, gpus, run_seconds, estimated_seconds, user) in enumerate(rows)
    )
    return Trace(f"das-{sample.setting}", jobs, nodes=tuple(nodes_of(sample)))


def physics_of(sample: DasSample) -> Physics:
    """Return the simulator's spread, speeds by machine, and 0.94 per neighbour on each."""
    names = (node.name for node in nodes_of(sample))
    speeds = dict(zip(names, sample.speed.tolist(), strict=True))
    return Physics(over_nodes=OVER_NODES, over_racks=OVER_RACKS, machines=MachineLaw(speeds))


# --- clusters -----------------------------------------------------------------------------------

_CROWDS: Final = np.array([1.0, *(PER_NEIGHBOUR**count for count in range(GPUS_PER_MACHINE))])
"""Factor on speed by the number of gangs on a machine, the job's own included."""
_Number = TypeVar("_Number", np.int64, np.float64)


class DasClusters:
    """The state of W clusters, without decisions.

    The physics of the simulator as arrays, in the same order of operations, so that both agree bit
    by bit (tests/parity). Smaller clusters are padded with machines without GPUs.

    Attributes:
        now: Seconds since the start, shape (W,).
        free, gangs: GPUs free and gangs present, int64, shape (W, M).
        waiting, running: Shape (W, J).
        started, finished: Seconds; NaN before, shape (W, J).
        dollars: Rent paid so far, shape (W,).
        job_seconds: Sum of the time of all jobs in the system so far, shape (W,).
        ended: Environment and job of each run that ended in the last :meth:`advance`, (runs,) each.
    """

    def __init__(self, samples: Sequence[DasSample]) -> None:
        machines = max(len(sample.capacity) for sample in samples)
        self.submitted = np.stack([sample.submitted for sample in samples])
        self.gpus = np.stack([sample.gpus for sample in samples])
        self.run_seconds = np.stack([sample.run_seconds for sample in samples])
        self.estimated_seconds = np.stack([sample.estimated_seconds for sample in samples])
        self.capacity = _pad([sample.capacity for sample in samples], machines, 0)
        self.rack = _pad([sample.rack for sample in samples], machines, -1)
        self.model = _pad([sample.model for sample in samples], machines, -1)
        self.model_speed = np.where(self.model < 0, 0.0, _SPEEDS[self.model])
        self.dollars_per_hour = np.where(self.model < 0, 0.0, _DOLLARS[self.model])
        self._speed = _pad([sample.speed for sample in samples], machines, 0.0)
        self.now = np.zeros(len(samples))
        self.free = self.capacity.copy()
        self.gangs = np.zeros_like(self.capacity)
        self.waiting = np.zeros(self.submitted.shape, dtype=np.bool_)
        self.running = self.waiting.copy()
        self.started = np.full(self.submitted.shape, np.nan)
        self.finished = self.started.copy()
        self.rent = np.zeros(self.submitted.shape)
        self.dollars = np.zeros(len(samples))
        self.job_seconds = np.zeros(len(samples))
        self.ended: tuple[IntArray, IntArray] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        # the largest array
        self.places = np.zeros((*self.submitted.shape, machines), dtype=np.int8)
        self.rate = np.zeros(self.submitted.shape)
        self._locality = np.ones(self.submitted.shape)
        self._left_seconds = self.run_seconds.copy()
        self._since = np.zeros(self.submitted.shape)
        self._finish = np.full(self.submitted.shape, np.inf)
        self._arrived = np.zeros(len(samples), dtype=np.int64)
        self._unfinished = np.full(len(samples), self.submitted.shape[1])

    def start(self, envs: IntArray, jobs: IntArray, counts: IntArray) -> None:
        """Start ``jobs[i]`` of ``envs[i]`` on ``counts[i]`` GPUs of each machine, shape (i, M)."""
        is_used = counts > 0
        self.free[envs] -= counts  # no environment occurs twice
        self.gangs[envs] += is_used
        self.places[envs, jobs] = counts
        self.waiting[envs, jobs] = False
        self.running[envs, jobs] = True
        self.started[envs, jobs] = self._since[envs, jobs] = self.now[envs]
        self.rent[envs, jobs] = (counts * self.dollars_per_hour[envs]).sum(axis=1)
        self._locality[envs, jobs] = _locality(is_used, self.rack[envs])
        self._set_pace(envs)

    def advance(self, envs: IntArray) -> None:
        """Advance each of ``envs`` (each once) to its next event: runs end, jobs arrive."""
        finish = self._finish[envs]
        arrived, jobs = self._arrived[envs], self.submitted.shape[1]
        coming = self.submitted[envs, np.minimum(arrived, jobs - 1)]
        comes = np.where(arrived < jobs, coming, np.inf)
        times = np.minimum(finish.min(axis=1), comes)
        self._count(envs, times - self.now[envs])
        self.now[envs] = times
        rows, ending = np.nonzero(finish <= times[:, None])
        self.ended = (envs[rows], ending)
        self._end(*self.ended)
        arrivals = (self.submitted[envs] <= times[:, None]).sum(axis=1)
        number = np.arange(jobs)
        fresh = (number >= arrived[:, None]) & (number < arrivals[:, None])
        self.waiting[envs] |= fresh
        self._arrived[envs] = arrivals
        self._set_pace(np.unique(self.ended[0]))

    @property
    def is_done(self) -> BoolArray:
        """Whether every job has finished, shape (W,)."""
        return np.asarray(self._unfinished == 0)

    @property
    def fees(self) -> FloatArray:
        """Dollars of each job, NaN before it has finished, shape (W, J)."""
        return np.asarray(self.rent * (self.finished - self.started) / HOUR)

    def _count(self, envs: IntArray, seconds: FloatArray) -> None:
        present = self.waiting[envs].sum(axis=1) + self.running[envs].sum(axis=1)
        rent = np.where(self.running[envs], self.rent[envs], 0.0).sum(axis=1)
        self.job_seconds[envs] += seconds * present
        self.dollars[envs] += seconds * rent / HOUR

    def _end(self, envs: IntArray, jobs: IntArray) -> None:
        places = self.places[envs, jobs].astype(np.int64)
        # several runs of an environment may end at once; fancy indexing would count one of them
        np.add.at(self.free, envs, places)
        np.subtract.at(self.gangs, envs, (places > 0).astype(np.int64))
        self.running[envs, jobs] = False
        self.finished[envs, jobs] = self.now[envs]
        self._finish[envs, jobs] = np.inf
        np.subtract.at(self._unfinished, envs, 1)

    def _set_pace(self, envs: IntArray) -> None:
        """Set the speed of the running jobs in ``envs`` from the slowest of their machines."""
        rows, jobs = np.nonzero(self.running[envs])
        of = envs[rows]
        machine = self._speed[envs] * _CROWDS[self.gangs[envs]]
        slowest = np.where(self.places[of, jobs] > 0, machine[rows], np.inf).min(axis=1)
        rate = self._locality[of, jobs] * slowest
        # only for a changed rate: the simulator too keeps the end of a run at constant speed
        is_new = rate != self.rate[of, jobs]
        of, jobs, rate = of[is_new], jobs[is_new], rate[is_new]
        done = (self.now[of] - self._since[of, jobs]) * self.rate[of, jobs]
        remaining = np.maximum(0.0, self._left_seconds[of, jobs] - done)
        self._left_seconds[of, jobs] = remaining
        self._since[of, jobs] = self.now[of]
        self.rate[of, jobs] = rate
        self._finish[of, jobs] = self.now[of] + remaining / rate


def _locality(is_used: BoolArray, racks: IntArray) -> FloatArray:
    """Return the factor on speed of gangs by their machines ``is_used``, shape (gangs, M)."""
    last = np.where(is_used, racks, -1).max(axis=1)
    is_apart = (is_used & (racks != last[:, None])).any(axis=1)
    is_spread = is_used.sum(axis=1) > 1
    return np.where(is_apart, OVER_RACKS, np.where(is_spread, OVER_NODES, 1.0))


def _pad(rows: Sequence[NDArray[_Number]], width: int, value: float) -> NDArray[_Number]:
    """Stack rows of different lengths, filled up with ``value``; shape (W, width)."""
    table = np.full((len(rows), width), value, dtype=rows[0].dtype)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table


# --- past runs ----------------------------------------------------------------------------------


class Memory:
    """The last T finished runs of each of W clusters, in no particular order.

    X_t and Y_t of the paper's Gaussian process, from facts that the operator knows: the machines of
    each run, and its estimate over its elapsed time, over the speed of its slowest GPU model. Any
    other slowdown is noise or the machines' health.

    Attributes:
        shares: Part of each run on each machine, shape (W, T, M), float32; zeros are no run.
        speeds: Normalised speeds, shape (W, T), float32.
    """

    def __init__(self, clusters: DasClusters, runs: int) -> None:
        envs, machines = clusters.capacity.shape
        self._clusters = clusters
        self.shares = np.zeros((envs, runs, machines), dtype=np.float32)
        self.speeds = np.zeros((envs, runs), dtype=np.float32)
        self._count = np.zeros(envs, dtype=np.int64)

    def add(self, envs: IntArray, jobs: IntArray) -> None:
        """Add finished runs; ``envs`` ascend and may repeat."""
        while len(envs):  # one run per environment at a time: fancy indexing counts it once
            is_first = np.diff(envs, prepend=-1) > 0
            self._add(envs[is_first], jobs[is_first])
            envs, jobs = envs[~is_first], jobs[~is_first]

    def _add(self, envs: IntArray, jobs: IntArray) -> None:
        clusters = self._clusters
        places = clusters.places[envs, jobs]
        slowest = np.where(places > 0, clusters.model_speed[envs], np.inf).min(axis=1)
        elapsed = clusters.finished[envs, jobs] - clusters.started[envs, jobs]
        index = self._count[envs] % self.speeds.shape[1]
        self.shares[envs, index] = places / places.sum(axis=1, keepdims=True)
        self.speeds[envs, index] = log_speed(
            clusters.estimated_seconds[envs, jobs], elapsed, slowest
        )
        self._count[envs] += 1


# --- placements ---------------------------------------------------------------------------------
#
# Affinities become places as in the simulator: machines by falling affinity, each filled up. Load
# balance equals :class:`bireme.heuristics.simple_placers.LoadBalance`.


def fill(gpus: IntArray, free: IntArray, affinity: FloatArray) -> IntArray:
    """Place ``gpus`` on machines by falling ``affinity``, shape (W, M), ties by index."""
    order = np.argsort(-affinity, axis=1, kind="stable")
    room = np.take_along_axis(free, order, axis=1)
    earlier_room = room.cumsum(axis=1) - room
    counts = np.zeros_like(free)
    np.put_along_axis(counts, order, np.clip(gpus[:, None] - earlier_room, 0, room), axis=1)
    return counts


def load_balance(gpus: IntArray, free: IntArray, used: IntArray) -> IntArray:
    """Place every GPU on the machine with the least load after it; ties to the least free."""
    order = np.argsort(free, axis=1, kind="stable")
    room = np.take_along_axis(free, order, axis=1)
    busy = np.take_along_axis(used, order, axis=1)
    counts_in_order = np.zeros_like(room)
    rows = np.arange(len(room))
    for count in range(int(gpus.max(initial=0))):
        load = (busy + counts_in_order + 1) / np.maximum(room + busy, 1)
        best = np.where(counts_in_order < room, load, np.inf).argmin(axis=1)
        counts_in_order[rows, best] += count < gpus
    counts = np.zeros_like(free)
    np.put_along_axis(counts, order, counts_in_order, axis=1)
    return counts


# --- the environment ----------------------------------------------------------------------------

ORDERING: Final = "ordering"
PLACEMENT: Final = "placement"
MEAN_FEE_DOLLARS: Final = 51.0
ALPHA: Final = 0.01
"""Price of a waiting GPU-hour, in the reward of the slides (assumed)."""
CEILING: Final = 10.0
"""The maximum gain of a start in the reward of the slides (assumed)."""
Pays: TypeAlias = Literal["direct", "slides"]
"""The kind of reward."""


class DasEnv:
    """A :class:`~bireme_lab.training.vec_env.VecEnv` of clusters.

    Actions are a mapping: "ordering", shape (W, J), scores of the slots, highest first; and
    "placement", shape (W, M), affinities of the machines for the job that starts. Or they are
    only the slots, int64 of shape (W,): then load balance places the jobs.

    The sum of an episode's rewards is -(mean completion hours + mean fee / 51 $), with ``pays``
    "direct"; with "slides" a start earns :meth:`_slides_reward`.

    Observations: "jobs" (W, J, JOB_FEATURES), "job_mask" and "fits" bool (W, J), "machines" (W, M,
    MACHINE_FEATURES) and "machine_mask" bool (W, M); padding is 0.

    Attributes:
        clusters, memory: The state, for rules and metrics; agents see only the observation.
        slot_jobs: The job in each slot, shape (W, J); any job in an empty slot.
    """

    def __init__(
        self,
        count: int,
        settings: Sequence[str] = ("small",),
        *,
        jobs: int = 200,
        slots: int = 64,
        history: int = 256,
        pays: Pays = "direct",
    ) -> None:
        """Make ``count`` environments; that of seed ``s`` is ``settings[s % len(settings)]``.

        Args:
            jobs: Jobs per episode.
            slots: Visible waiting jobs, oldest first.
            history: Stored finished runs.
        """
        self.count = count
        self._settings = tuple(settings)
        self._jobs, self._slots, self._history, self._pays = jobs, slots, history, pays
        self._every = np.arange(count)

    def reset(self, seeds: Sequence[int]) -> Observation:
        if len(seeds) != self.count:
            raise SettingError(f"{len(seeds)} seeds for {self.count} envs; give one for each")
        names = [self._settings[seed % len(self._settings)] for seed in seeds]
        # replicas share one sample
        samples = {key: draw(key[0], self._jobs, key[1]) for key in zip(names, seeds, strict=True)}
        self.clusters = DasClusters([samples[key] for key in zip(names, seeds, strict=True)])
        self.memory = Memory(self.clusters, self._history)
        self._same_rack = das_inputs.share_of_rack(self.clusters.rack)
        model = self.clusters.model
        self._same_model = self._same_rack & (model[:, :, None] == model[:, None, :])
        self._pass_time()
        return self._observe()

    def step(self, actions: Actions) -> EnvStep:
        """Start one job in every environment that is not over."""
        clusters = self.clusters
        job_seconds, dollars = clusters.job_seconds.copy(), clusters.dollars.copy()
        slots = self.best_slots(actions[ORDERING]) if isinstance(actions, Mapping) else actions
        jobs = self.slot_jobs[self._every, slots]
        gpus = clusters.gpus[self._every, jobs]
        if isinstance(actions, Mapping):
            counts = fill(gpus, clusters.free, np.asarray(actions[PLACEMENT]))
        else:
            counts = load_balance(gpus, clusters.free, clusters.capacity - clusters.free)
        envs = np.flatnonzero(self._fits.any(axis=1))
        in_line = clusters.waiting.sum(axis=1)
        clusters.start(envs, jobs[envs], counts[envs])
        rewards = np.zeros(self.count)
        if self._pays == "slides":
            rewards[envs] = self._slides_reward(envs, jobs[envs], in_line[envs])
        self._pass_time()
        if self._pays == "direct":
            hours = (clusters.job_seconds - job_seconds) / HOUR
            fees = (clusters.dollars - dollars) / MEAN_FEE_DOLLARS
            rewards = -(hours + fees) / clusters.gpus.shape[1]
        return EnvStep(self._observe(), rewards, clusters.is_done, clusters.now.copy())

    def _slides_reward(self, envs: IntArray, jobs: IntArray, in_line: IntArray) -> FloatArray:
        """Return the reward of the slides for ``jobs`` that have just started, (envs,).

            r_t = sum_i (zeta_i / (fee_i jct_i) - (1 - zeta_i) alpha C_i n_i) / N'

        Read: the sum is over the N' waiting jobs; zeta_i is 1 for the job that starts; its fee and
        completion time are those at its present speed; C_i is the wait of another job, n_i its
        GPUs. Filled in: times in hours, fees in the mean fee, alpha, and a ceiling, because
        1 / (fee jct) is unbounded for tiny jobs.
        """
        # This reward is no potential of the two metrics, so ``das`` does not train with it.
        clusters = self.clusters
        waited = (clusters.now[envs, None] - clusters.submitted[envs]) / HOUR
        run = clusters.run_seconds[envs, jobs] / clusters.rate[envs, jobs] / HOUR
        fee = clusters.rent[envs, jobs] * run / MEAN_FEE_DOLLARS
        cost = fee * (waited[np.arange(len(envs)), jobs] + run)
        waiting_cost = np.where(clusters.waiting[envs], waited * clusters.gpus[envs], 0.0).sum(
            axis=1
        )
        gain = np.minimum(1 / np.maximum(cost, 1e-9), CEILING)
        return np.asarray((gain - ALPHA * waiting_cost) / np.maximum(in_line, 1))

    def best_slots(self, ordering: Array) -> IntArray:
        """Return the slot of the job that starts by these scores, shape (W,); 0 if none fits."""
        scores = np.where(self._fits, ordering, -np.inf)  # ties to the oldest
        return np.asarray(scores.argmax(axis=1))

    def summary(self) -> dict[str, FloatArray]:
        """Return means over the jobs of finished envs, shape (W,) each."""
        clusters = self.clusters
        return {
            "mean_jct_minutes": (clusters.finished - clusters.submitted).mean(axis=1) / 60,
            "mean_fee_dollars": clusters.fees.mean(axis=1),
            "mean_wait_minutes": (clusters.started - clusters.submitted).mean(axis=1) / 60,
        }

    def _pass_time(self) -> None:
        """Let time pass until a visible job fits or all jobs are done."""
        clusters, idle = self.clusters, self._every
        while len(idle := idle[~(self._may_start(idle) | clusters.is_done[idle])]):
            clusters.advance(idle)
            self.memory.add(*clusters.ended)
        self._update_queue()

    def _may_start(self, envs: IntArray) -> BoolArray:
        """Return whether a visible job fits, shape of ``envs``."""
        waiting, free = self.clusters.waiting[envs], self.clusters.free[envs].sum(axis=1)
        in_sight = waiting & (waiting.cumsum(axis=1) <= self._slots)
        return np.asarray((in_sight & (self.clusters.gpus[envs] <= free[:, None])).any(axis=1))

    def _update_queue(self) -> None:
        """Set the visible jobs, oldest first, and which of them fit; shapes (W, J)."""
        waiting = self.clusters.waiting
        order = np.argsort(~waiting, axis=1, kind="stable")[:, : self._slots]
        self.slot_jobs = np.pad(order, ((0, 0), (0, self._slots - order.shape[1])))
        has_job = np.arange(self._slots) < waiting.sum(axis=1)[:, None]
        self._there: BoolArray = has_job
        gpus = self.clusters.gpus[self._every[:, None], self.slot_jobs]
        self._fits: BoolArray = has_job & (gpus <= self.clusters.free.sum(axis=1)[:, None])

    def _observe(self) -> dict[str, Array]:
        clusters = self.clusters
        rows = self._every[:, None], self.slot_jobs
        gpus, has_job = clusters.gpus[rows], self._there
        features = das_inputs.job_features(
            gpus,
            clusters.estimated_seconds[rows],
            np.maximum(clusters.now[:, None] - clusters.submitted[rows], 0.0),
            clusters.free.sum(axis=1)[:, None],
            clusters.capacity.sum(axis=1)[:, None],
        )
        places = self.machines()
        jobs = das_inputs.job_inputs(features, places, np.where(has_job, gpus, 0))
        machines = das_inputs.machine_features(
            places,
            _sums(self._same_rack, clusters.free),
            _sums(self._same_rack, clusters.capacity),
            _sums(self._same_model, clusters.free),
        )
        mask = clusters.capacity > 0
        return {
            "jobs": np.where(has_job[:, :, None], jobs, np.float32(0.0)),
            "job_mask": has_job,
            "fits": self._fits,
            "machines": np.where(mask[:, :, None], machines, 0.0).astype(np.float32),
            "machine_mask": mask,
        }

    def machines(self) -> Machines:
        """Return the machines as places for replicas of one GPU."""
        clusters = self.clusters
        return Machines(
            room=clusters.free,
            capacity=clusters.capacity,
            speed=clusters.model_speed,
            dollars=clusters.dollars_per_hour,
            rack=clusters.rack,
            own_replicas=np.zeros_like(clusters.free),
        )

    def nearness(self) -> FloatArray:
        """Return the adjacency of machines, 0 for padding; shape (W, M, M)."""
        mask = self.clusters.capacity > 0
        return das_inputs.adjacency(self._same_rack) * (mask[:, :, None] & mask[:, None, :])


def _sums(same: BoolArray, amounts: IntArray) -> FloatArray:
    """Return the sum of ``amounts`` over the ``same`` machines of every machine; shape (W, M)."""
    return np.asarray((same @ amounts[:, :, None])[:, :, 0], dtype=np.float64)


# --- the environment with agents that take turns ------------------------------------------------


class DasTurnEnv(DasEnv):
    """The same environment in turns: first the ordering agent acts, then the placement agent.

    Every start takes two steps. In the first the ordering agent chooses a job, and no time passes.
    In the second the placement agent sees that job and places it, and time passes. So the joint
    density is the product of both. Every other pair of seeds reports no finished runs: a policy for
    clusters with and without reports must see both.

    Observations, beside those of DasEnv: "is_placing" bool (W,); and, zero in the first step,
    "placed" (W, PLACED_FEATURES), "places" (W, M, PLACE_FEATURES), "has_room" bool (W, M) and
    "walks" (W, M, M), the Cholesky factor of the machines' posterior in deviations of the prior.

    Actions are those of DasEnv; only the entry of the acting agent counts.
    """

    def __init__(
        self,
        count: int,
        settings: Sequence[str],
        *,
        reports: bool | None = None,
        pays: Pays = "direct",
        **sizes: int,
    ) -> None:
        """Make the environments.

        ``reports`` is whether finished runs are reported; None for every other pair of seeds.
        ``sizes`` are ``jobs``, ``slots`` and ``history`` of DasEnv.
        """
        super().__init__(count, settings, pays=pays, **sizes)
        self._reports = reports

    def reset(self, seeds: Sequence[int]) -> Observation:
        every_other = np.array(seeds) // 2 % 2 == 0
        self._has_reports = (
            every_other if self._reports is None else np.full_like(every_other, self._reports)
        )
        self._is_over: BoolArray = np.zeros(self.count, dtype=np.bool_)
        self._scores: FloatArray | None = None
        return self._choosing(super().reset(seeds))

    def step(self, actions: Actions) -> EnvStep:
        """Take the turn of one agent, the same in every environment."""
        assert isinstance(actions, Mapping)  # noqa: S101  # one entry per agent
        if self._scores is None:
            self._scores = np.asarray(actions[ORDERING], dtype=np.float64)
            placing, none = self._placing(self.best_slots(self._scores)), np.zeros(self.count)
            return EnvStep(placing, none, self._is_over, self.clusters.now.copy())
        scores, self._scores = self._scores, None
        step = super().step({ORDERING: scores, PLACEMENT: actions[PLACEMENT]})
        self._is_over = step.is_over  # choosing a job ends no episode
        return replace(step, observation=self._choosing(step.observation))

    def _choosing(self, observation: Observation) -> dict[str, Array]:
        count, machines = observation["machine_mask"].shape
        self._seen = dict(observation)
        return self._seen | {
            "is_placing": np.zeros(count, np.bool_),
            "placed": np.zeros((count, das_inputs.PLACED_FEATURES), np.float32),
            "places": np.zeros((count, machines, das_inputs.PLACE_FEATURES), np.float32),
            "has_room": np.zeros((count, machines), np.bool_),
            "walks": np.zeros((count, machines, machines), np.float32),
        }

    def _placing(self, slots: IntArray) -> dict[str, Array]:
        observation, machines = self._seen, self.machines()
        need = self.clusters.gpus[self._every, self.slot_jobs[self._every, slots]]
        # Use the float32 feature, as in the training of the shipped checkpoint: last bits count.
        seconds = np.expm1(observation["jobs"][self._every, slots, 1] * 8.0) * 60.0
        shares = np.where(self._has_reports[:, None, None], self.memory.shares, np.float32(0.0))
        speeds = self.memory.speeds.astype(np.float64)
        belief = das_inputs.health_posterior(machines, need, self.nearness(), shares, speeds)
        places = das_inputs.place_inputs(machines, need, belief.mean)
        return observation | {
            "is_placing": np.ones(self.count, np.bool_),
            "placed": das_inputs.placed_inputs(machines, need, seconds),
            "places": np.where(observation["machine_mask"][:, :, None], places, np.float32(0.0)),
            "has_room": machines.room > 0,
            "walks": (belief.factor / np.sqrt(das_inputs.VARIANCE)).astype(np.float32),
        }
