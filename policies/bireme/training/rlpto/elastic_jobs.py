"""RLPTO as a sizer of Bireme's own cycle: elastic jobs that report, on a simulated cluster.

Jobs train as the tasks of the world do (same speed law, loss and accuracy, without the loss of
accuracy by workers, which the engine cannot express), come by a Poisson process, and report once
per iteration at the size they ask for. All sizers have the same order (first come first served),
placement and rails, and a start or a change of size costs 30 s. So what differs is only who has how
many workers when. The second measure is when 98 % of the final accuracy is reached, which is what
users wait for who take a model over before its last iteration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bireme import registry
from bireme.core.decision import Decision
from bireme.core.errors import SettingError
from bireme.core.gangs import Role, Task
from bireme.core.gpus import GPU
from bireme.core.policy import Policy, Sizer
from bireme.core.resources import request_of
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import InverseQuadratic
from bireme.rl.checkpoint import Checkpoint
from bireme.rl.components import LearnedSizer
from bireme.simulator import metrics
from bireme.simulator.machines import parse_nodes
from bireme.simulator.physics import Physics
from bireme.simulator.simulation import CYCLE, SimulationConfig, simulate
from bireme.simulator.traces.papers import RLPTO_IMAGES
from bireme.simulator.workload import ProgressReporting, Trace, TraceJob
from bireme.training.judgement import check_ended
from bireme.training.rlpto import settings

SUMMARY: Final = "40 elastic jobs that report, on 32 GPUs, in Bireme's own cycle"
NODES: Final = "4x8"
JOBS: Final = 40
GAP_SECONDS: Final = 250.0
"""Mean time between arrivals: three quarters of the GPUs, were all jobs as large as they ask."""
ITERATIONS: Final = (20, 60)
"""Drawn for each job, evenly."""
ASKED: Final = 4
MOST: Final = 12
"""Workers."""
TARGET: Final = 0.98
"""Share of the last accuracy."""
RIVALS: Final = ("slaq", "dolphin", "optimus", "goodput", "tradl", "fair-sharing", "min", "max")
_PHYSICS: Final = Physics(start_seconds=30.0, restart_seconds=30.0)
_GIB: Final = 2**30


def evaluate(checkpoint: Checkpoint, seed: int) -> dict[str, dict[str, float]]:
    """What :func:`judged` says, by sizer."""
    trace = drawn(seed)
    sizers: dict[str, Sizer] = {name: registry.make_sizer(name) for name in RIVALS}
    sizers[checkpoint.card.name] = LearnedSizer(checkpoint)
    return {name: judged(trace, sizer) for name, sizer in sizers.items()}


@dataclass(frozen=True, slots=True)
class AccuracyCurve:
    """Accuracy over steps, where nothing is lost by workers."""

    top: float
    pace: float
    steps_per_iteration: float

    def loss(self, steps: float) -> float:
        """Not a loss: the protocol is one of curves over steps."""
        return self.top - settings.SPAN / (1 + steps / self.steps_per_iteration / self.pace) ** 2


def drawn(seed: int, jobs: int = JOBS) -> Trace:
    """The jobs of ``seed``."""
    chance = np.random.default_rng((seed, 6))
    submitted = chance.exponential(GAP_SECONDS, jobs).cumsum()
    images = chance.choice(RLPTO_IMAGES, jobs)
    iterations = chance.integers(ITERATIONS[0], ITERATIONS[1] + 1, jobs)
    rows = zip(submitted.tolist(), images.tolist(), iterations.tolist(), strict=True)
    return Trace("rlpto", tuple(_job(f"job-{n:02d}", *each) for n, each in enumerate(rows)))


def _job(name: str, submitted: float, images: int, iterations: int) -> TraceJob:
    per_iteration = images / settings.BATCH
    pace = settings.PACES[images]
    speed = settings.LAW.steps_per_second({"ps": 1, "worker": ASKED}, 1)
    room = 1 / (settings.FIRST_LOSS - settings.LAST_LOSS)
    loss = InverseQuadratic(0, room / pace / per_iteration, room, settings.LAST_LOSS)
    accuracy = AccuracyCurve(settings.TOPS[images], pace, per_iteration)
    cpus = request_of({"cpu": 1000, "memory": _GIB, "pods": 1})
    gpus = request_of({"cpu": 1000, "memory": _GIB, "pods": 1, GPU: 1})
    return TraceJob(
        name=name,
        submitted=submitted,
        tasks=(
            Task("ps", 1, cpus, Role.PS, priority=90),
            Task("worker", ASKED, gpus, min_replicas=1, max_replicas=MOST),
        ),
        duration_seconds=per_iteration * iterations / speed,
        is_elastic=True,
        speed=settings.LAW,
        steps=per_iteration * iterations,
        reporting=ProgressReporting(loss, accuracy, every_seconds=per_iteration / speed),
    )


@dataclass(slots=True)
class _Watcher:
    """When each job first told that it is good enough, seconds."""

    targets: Mapping[str, float]
    reached: dict[str, float] = field(default_factory=dict)

    def __call__(self, snapshot: ClusterSnapshot, policy: Policy) -> Decision:
        for running in snapshot.running:
            gang = running.gang
            told = gang.progress.accuracy if gang.progress else None
            if told is not None and told >= self.targets[gang.name]:
                self.reached.setdefault(gang.name, snapshot.now)
        return CYCLE(snapshot, policy)


def judged(trace: Trace, sizer: Sizer) -> dict[str, float]:
    """Under ``sizer``: the end, mean completion time, mean time to 98 % of the accuracy.

    Raises:
        EvaluationError: a job did not finish, or a cycle fell back on the rules.
    """
    watcher = _Watcher({job.name: _target(job) for job in trace.jobs})
    config = SimulationConfig(round_seconds=60.0, decide=watcher, takes_shortcuts=False)
    policy = Policy(registry.make_orderer("fifo"), registry.make_placer("packing"), sizer)
    outcome = simulate(trace, parse_nodes(NODES), policy, physics=_PHYSICS, config=config)
    seconds = metrics.completion_seconds(outcome)
    unfinished = len(trace.jobs) - len(seconds)
    check_ended(type(sizer).__name__, unfinished, outcome.counts["fallbacks"])
    ends = {record.job.name: record.finished or 0.0 for record in outcome.jobs}
    good = [watcher.reached.get(j.name, ends[j.name]) - j.submitted for j in trace.jobs]
    return {
        "total_seconds": max(ends.values()),
        "mean_jct_minutes": float(seconds.mean()) / 60,
        "mean_minutes_to_accuracy": float(np.mean(good)) / 60,
    }


def _target(job: TraceJob) -> float:
    if job.reporting is None or job.reporting.accuracy is None or job.steps is None:
        raise SettingError(f"job {job.name!r} reports no accuracy over steps; give it both")
    return TARGET * job.reporting.accuracy.loss(job.steps)
