"""What happens to DAS: jobs that arrive and machines they run on, one sample per seed.

A sample is drawn once and read twice: as arrays by the batched world, and as a trace, nodes and
physics by the simulator. The slides tell little of the setting; what is filled in is said at each
constant. Jobs are gangs of one-GPU workers, so that whether a job fits depends on the number of
free GPUs alone, and where it goes decides how fast it is and what it costs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from bireme.core.errors import SettingError
from bireme.core.nodes import Node
from bireme.core.resources import FloatArray, IntArray
from bireme.kube.gpu_models import GPU_MODEL_LABEL, GPU_MODELS
from bireme.simulator.machines import parse_nodes
from bireme.simulator.physics import Physics
from bireme.simulator.physics.disturbances import OVER_NODES, OVER_RACKS
from bireme.simulator.physics.machines import MachineLaw
from bireme.simulator.traces.generators import draw_durations, draw_sizes, parse_sizes
from bireme.simulator.traces.shapes import gang_of
from bireme.simulator.workload import Trace, TraceJob

GPUS_PER_MACHINE: Final = 4


@dataclass(frozen=True, slots=True)
class Setting:
    """One size of cluster.

    Attributes:
        load: GPU-seconds that arrive over those there are, as first fit uses them.
    """

    machines: int
    racks: int
    load: float


SETTINGS: Final[Mapping[str, Setting]] = {
    "small": Setting(8, 2, 1.3),
    "medium": Setting(32, 4, 0.8),
    "large": Setting(64, 8, 0.5),
}
"""Small has 8 machines of 4 GPUs (DAS slides, figure 3). Filled in: all else."""

SIZES: Final = "1:0.15,2:0.15,4:0.25,8:0.25,16:0.20"
RUN_SECONDS: Final = 60 * 60.0
"""Mean run time on V100s: with it a job costs 51 $ under first fit, as in the slides' table 1."""
RUN_SPREAD: Final = 1.0
"""Standard deviation of the logarithm of run times."""
ESTIMATE_SPREAD: Final = 0.3
"""The same of what owners state over what is true."""
SICKNESS_MEDIAN: Final = 0.1
SICKNESS_SPREAD: Final = 0.8
"""A machine makes of its GPUs 1 / (1 + x), x lognormal: a tenth of all are below 0.78. The law of
PAI's stragglers (:mod:`bireme.simulator.physics.disturbances`) with a shorter tail."""
OBLIVIOUS_PACE: Final = 0.25
"""What first fit makes of a GPU, V100 being 1, measured over all settings: gangs over several
models, racks and sick machines wait for the slowest. It is what the loads are relative to."""
_USERS: Final = 10


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Jobs of shape (jobs,), in order of arrival, and machines of shape (machines,).

    Attributes:
        health: What a machine makes of its GPUs, above 0, below 1; nobody is told.
        model: Index into :data:`~bireme.kube.gpu_models.GPU_MODELS`.
    """

    setting: str
    seed: int
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
        """What each machine makes of a replica on its own, V100 being 1, shape (machines,)."""
        return np.array([model.speed for model in GPU_MODELS])[self.model] * self.health


def draw(setting: str, jobs: int, seed: int) -> Sample:
    """The sample of ``seed``; SettingError for an unknown setting or too few jobs."""
    if setting not in SETTINGS or jobs < 1:
        raise SettingError(
            f"setting is {setting!r}, jobs {jobs}; write one of {', '.join(SETTINGS)} and 1 or more"
        )
    size = SETTINGS[setting]
    rng = np.random.default_rng([seed, size.machines])
    model = rng.permutation(np.arange(size.machines) % len(GPU_MODELS))
    sickness = rng.lognormal(np.log(SICKNESS_MEDIAN), SICKNESS_SPREAD, size.machines)
    pace = GPUS_PER_MACHINE * size.machines * OBLIVIOUS_PACE
    sizes, shares = parse_sizes(SIZES)
    gap_seconds = float(sizes @ shares) * RUN_SECONDS / (pace * size.load)
    runs = draw_durations(rng, "lognormal", RUN_SECONDS, RUN_SPREAD, jobs)
    return Sample(
        setting=setting,
        seed=seed,
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


def nodes_of(sample: Sample) -> list[Node]:
    """The machines, in order of their names; the label of the GPU is all that tells them apart."""
    size = SETTINGS[sample.setting]
    plain = parse_nodes(f"{size.machines}x{GPUS_PER_MACHINE}", size.racks)
    return [
        Node(node.name, node.allocatable, {**node.labels, GPU_MODEL_LABEL: GPU_MODELS[index].name})
        for node, index in zip(plain, sample.model.tolist(), strict=True)
    ]


def trace_of(sample: Sample) -> Trace:
    """The jobs, called so that the order of names is that of arrival."""
    columns = (sample.submitted, sample.gpus, sample.run_seconds, sample.estimated_seconds)
    rows = zip(*(column.tolist() for column in (*columns, sample.user)), strict=True)
    jobs = tuple(
        TraceJob(
            name=f"job-{index:05d}",
            submitted=submitted,
            tasks=gang_of(gpus, 1),
            duration_seconds=run_seconds,
            user=f"user-{user + 1}",
            estimated_seconds=estimated_seconds,
        )
        for index, (submitted, gpus, run_seconds, estimated_seconds, user) in enumerate(rows)
    )
    return Trace(f"das-{sample.setting}", jobs, nodes=tuple(nodes_of(sample)))


def physics_of(sample: Sample) -> Physics:
    """Spread as everywhere in the simulator, speed by machine, and 0.94 per neighbour on each."""
    names = (node.name for node in nodes_of(sample))
    speeds = dict(zip(names, sample.speed.tolist(), strict=True))
    return Physics(over_nodes=OVER_NODES, over_racks=OVER_RACKS, machines=MachineLaw(speeds))
