"""Evaluation of RLPTO: its paper's tables and priority mixes, and elastic jobs in Bireme's cycle.

The paper's experiments (``table-*``, ``mix-*``, ``arrivals``) are accuracy and time of twelve tasks
in :mod:`~bireme_lab.training.rlpto.environment`. All policies have the same tasks, drawn by the
seed. Policies with beta appear in the results once per beta, such as ``name-0.0003``. The
checkpoint also appears under its own name, at 3e-4, the beta of the mixes. A finished task gives
points: ten times its priority at submission, and 80 for the highest priority. The result is the
mean of the points every 1000 s in two hours, up to 7000 s (figures 10 and 11 of the paper).

``elastic`` is not in the paper: RLPTO as a sizer of the scheduling cycle, on a simulated cluster.
Jobs train like the tasks: same speed law, loss and accuracy. More workers cost no accuracy here,
because the simulator has no such law. They arrive by a Poisson process, and report once per
iteration at their requested size. All sizers have the same order (first come first served),
placement and guardrails. A start or a resize costs 30 s. So only the numbers of workers differ. The
second metric is the time to 98 % of the final accuracy, for users who take a model before its last
iteration.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from bireme import registry
from bireme.core.decision import Decision
from bireme.core.errors import SettingError
from bireme.core.gangs import Role, Task
from bireme.core.gpus import GPU
from bireme.core.policy import Policy, Sizer
from bireme.core.resources import FloatArray, IntArray, request_of
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.simple_sizers import FairSharing
from bireme.onnx.sessions import Session
from bireme.rl.checkpoint import Checkpoint
from bireme.rl.components import LearnedSizer
from bireme_lab.heuristics.rlpto_queues import URGENT
from bireme_lab.simulator import metrics
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.simulation import CYCLE, SimulationConfig, simulate
from bireme_lab.simulator.traces.papers import RLPTO_IMAGES
from bireme_lab.simulator.workload import ProgressReporting, Trace, TraceJob
from bireme_lab.training.evaluation import check_finished
from bireme_lab.training.networks import ActorCritic, predict
from bireme_lab.training.rlpto import environment
from bireme_lab.training.rlpto.baselines import (
    BASELINES,
    RlptoBaseline,
    loss_curve,
    run_baseline,
    share_among_gaining,
)
from bireme_lab.training.rlpto.environment import RlptoClusters, RlptoEnv, RlptoEnvConfig
from bireme_lab.training.rollouts import play
from bireme_lab.training.vec_env import Actions, Observation

SETTINGS: Final[Mapping[str, str]] = {
    "table-2": "12 tasks on 12 nodes, 3 servers among them",
    "table-3": "12 tasks on 16 nodes, 4 servers among them",
    "mix-1": "12 nodes, tasks of priorities 1 to 3",
    "mix-2": "12 nodes, two of 12 tasks have priority 4",
    "mix-3": "12 nodes, six of 12 tasks have priority 4",
    "mix-4": "12 nodes, four of 12 tasks have priority 4, two are urgent",
    "arrivals": "the same in the course of an hour; owners ask for other priorities",
    "elastic": "40 elastic jobs that report, on 32 GPUs, in Bireme's own cycle",
}
PRIMARY: Final = ("total_seconds", True)
EVALUATED_BETAS: Final = (*environment.BETAS[:-1], 7e-4, environment.BETAS[-1])
"""The betas of the tables, and one between the last two, near TRADL's time."""
_READ_SECONDS: Final = np.arange(1000.0, 7200.0, 1000.0)
_HIGHEST_POINTS: Final = 80.0
_LIMIT_SECONDS: Final = 5.0
Choose: TypeAlias = Callable[[Observation], IntArray]
"""The move of every environment, shape (envs,), from its observation."""


def evaluate(
    name: str,
    seed: int,
    policies: Mapping[str, Choose],
    evaluated_betas: Sequence[float] = EVALUATED_BETAS,
) -> dict[str, dict[str, float]]:
    """Return the metrics of all policies in one of the paper's experiments.

    ``policies`` are learned policies by name; ``evaluated_betas`` are the betas of the tables.
    """
    if name not in environment.CONFIGS:
        names = ", ".join(environment.CONFIGS)
        raise SettingError(f"setting is {name!r}; write one of {names}")
    config = environment.CONFIGS[name]
    betas = (environment.MIX_BETA,) if config.priorities else evaluated_betas
    ends = {baseline: run_baseline(how, config, seed) for baseline, how in BASELINES.items()}
    for beta in betas:
        stop = RlptoBaseline(FairSharing(), least_gain=beta, iterations=environment.MAX_ITERATIONS)
        ends[f"fair-stop-{beta}"] = run_baseline(stop, config, seed)
        for policy, choose in {"simple-rule": share_among_gaining, **policies}.items():
            ends[f"{policy}-{beta}"] = play_episode(choose, config, beta, seed)
    for policy in policies:
        ends[policy] = ends[f"{policy}-{environment.MIX_BETA}"]
    return {policy: metrics_of(clusters, config) for policy, clusters in ends.items()}


def play_episode(choose: Choose, config: RlptoEnvConfig, beta: float, seed: int) -> RlptoClusters:
    """Let ``choose`` move workers until all tasks are done; return the cluster's last state."""
    env = RlptoEnv(1, [config], [beta])
    play(env, [seed], choose)
    return env.clusters


def served_choice(session: Session, observation: Observation) -> IntArray:
    """Return the best move of the served network in a single environment, shape (1,)."""
    slots = np.flatnonzero(observation["present"][0])
    moves = np.array([0, *(1 + slots), *(1 + environment.SLOTS + slots)])
    inputs = {"tasks": observation["tasks"][0, slots], "context": observation["context"][0]}
    logits = session.answer(inputs, len(moves), _LIMIT_SECONDS)
    best = np.where(observation["mask"][0, moves], logits, -np.inf).argmax()
    return moves[[best]]


def metrics_of(clusters: RlptoClusters, config: RlptoEnvConfig) -> dict[str, float]:
    """Return mean accuracy (percent), the end (s) and, with priorities, the mean points."""
    numbers = {
        "mean_accuracy": 100 * float(clusters.accuracy.mean()),
        "total_seconds": float(clusters.clock[0]),
    }
    if config.priorities:
        numbers["mean_reward"] = float(points(clusters.finished[0], config.priorities).mean())
    return numbers


def points(finished: FloatArray, priorities: Sequence[int]) -> FloatArray:
    """Return the points at every reading, shape (readings,), of tasks ``finished`` in seconds."""
    priority = np.array(priorities, dtype=np.float64)
    worth = np.where(priority >= URGENT, _HIGHEST_POINTS, 10 * priority)
    return np.asarray((worth * (finished <= _READ_SECONDS[:, None])).sum(axis=1))


# --- validation while learning -------------------------------------------------------------------

TABLES: Final = ("table-2", "table-3")
"""The experiments of the training, with every beta of the paper."""
_FIRST_SEED: Final = 1_000_000
"""A multiple of all configurations and betas, far from the seeds of evaluations, from 0 on."""


class RlptoValidation:
    """Scores a policy against the simple rule on fixed environments: both tables, all betas."""

    def __init__(
        self,
        policy: ActorCritic,
        count: int,
        note: Callable[[str, float], None],
        betas: Sequence[float] = environment.BETAS,
        pays: environment.Pays = "priced",
    ) -> None:
        """Make ``count`` environments of each table and beta.

        ``note`` gets accuracy, time and training reward, each relative to the rule's.
        """
        self._policy, self._note = policy, note
        configs = [environment.CONFIGS[name] for name in TABLES]
        envs = count * len(configs) * len(betas)
        self._env = RlptoEnv(envs, configs, betas, pays)
        self._rule = _play(self._env, share_among_gaining)

    def __call__(self) -> float:
        """Return the training reward above the rule's, per minute of the rule's run."""
        numbers = _play(self._env, partial(predict, self._policy))
        earned, accuracy, minutes = (
            np.subtract(policy_values, rule)
            for policy_values, rule in zip(numbers, self._rule, strict=True)
        )
        rule_minutes = self._rule[2]
        self._note("points_above_the_rule", 100 * float(accuracy.mean()))
        self._note("time_ratio", 1 + float((minutes / rule_minutes).mean()))
        self._note("reward", float(numbers[0].mean()))
        self._note("reward_of_the_rule", float(self._rule[0].mean()))
        return float((earned / rule_minutes).mean())


def _play(
    env: RlptoEnv, act: Callable[[Observation], Actions]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return sum of rewards, mean accuracy and minutes of every environment, shape (envs,)."""
    rewards = play(env, range(_FIRST_SEED, _FIRST_SEED + env.count), act)
    return rewards, env.clusters.accuracy.mean(axis=1), env.clusters.clock / 60


# --- RLPTO as a sizer of the scheduling cycle ----------------------------------------------------

SIZERS: Final = ("slaq", "dolphin", "optimus", "goodput", "tradl", "fair-sharing", "min", "max")
ELASTIC_JOBS: Final = 40
_NODES: Final = "4x8"
_GAP_SECONDS: Final = 250.0
"""Mean time between arrivals; at their requested sizes jobs load three quarters of the GPUs."""
_ITERATIONS: Final = (20, 60)
"""Bounds of each job's iterations, drawn uniformly."""
_ASKED_WORKERS: Final = 4
_MAX_WORKERS_OF_A_JOB: Final = 12
_TARGET: Final = 0.98
"""Share of the last accuracy."""
_PHYSICS: Final = Physics(start_seconds=30.0, restart_seconds=30.0)
_GIB: Final = 2**30


def evaluate_elastic(checkpoint: Checkpoint, seed: int) -> dict[str, dict[str, float]]:
    """Return the metrics of :func:`evaluate_sizer` for the checkpoint and all baselines."""
    trace = elastic_trace(seed)
    sizers: dict[str, Sizer] = {name: registry.make_sizer(name) for name in SIZERS}
    sizers[checkpoint.card.name] = LearnedSizer(checkpoint)
    return {name: evaluate_sizer(trace, sizer) for name, sizer in sizers.items()}


@dataclass(frozen=True, slots=True)
class AccuracyCurve:
    """Accuracy over steps; workers cost no accuracy."""

    top: float
    pace: float
    steps_per_iteration: float

    def loss(self, steps: float) -> float:
        """Return the accuracy after ``steps``; the protocol of curves calls it ``loss``."""
        return self.top - environment.SPAN / (1 + steps / self.steps_per_iteration / self.pace) ** 2


def elastic_trace(seed: int, jobs: int = ELASTIC_JOBS) -> Trace:
    """Draw the jobs of ``seed``."""
    chance = np.random.default_rng((seed, 6))
    submitted = chance.exponential(_GAP_SECONDS, jobs).cumsum()
    images = chance.choice(RLPTO_IMAGES, jobs)
    iterations = chance.integers(_ITERATIONS[0], _ITERATIONS[1] + 1, jobs)
    rows = zip(submitted.tolist(), images.tolist(), iterations.tolist(), strict=True)
    return Trace("rlpto", tuple(_job(f"job-{n:02d}", *row) for n, row in enumerate(rows)))


def _job(name: str, submitted: float, images: int, iterations: int) -> TraceJob:
    per_iteration = images / environment.BATCH
    pace = environment.PACES[images]
    speed = environment.LAW.steps_per_second({"ps": 1, "worker": _ASKED_WORKERS}, 1)
    loss = loss_curve(pace, per_iteration)
    accuracy = AccuracyCurve(environment.TOPS[images], pace, per_iteration)
    cpus = request_of({"cpu": 1000, "memory": _GIB, "pods": 1})
    gpus = request_of({"cpu": 1000, "memory": _GIB, "pods": 1, GPU: 1})
    return TraceJob(
        name=name,
        submitted=submitted,
        tasks=(
            Task("ps", 1, cpus, Role.PS, priority=90),
            Task(
                "worker", _ASKED_WORKERS, gpus, min_replicas=1, max_replicas=_MAX_WORKERS_OF_A_JOB
            ),
        ),
        duration_seconds=per_iteration * iterations / speed,
        is_elastic=True,
        speed=environment.LAW,
        steps=per_iteration * iterations,
        reporting=ProgressReporting(loss, accuracy, every_seconds=per_iteration / speed),
    )


def evaluate_sizer(trace: Trace, sizer: Sizer) -> dict[str, float]:
    """Return the end, mean completion time, and mean time to 98 % of the accuracy.

    Raises:
        EvaluationError: a job did not finish, or a cycle fell back on the rules.
    """
    targets = {job.name: _target(job) for job in trace.jobs}
    reached: dict[str, float] = {}

    def decide(snapshot: ClusterSnapshot, policy: Policy) -> Decision:
        """Run the cycle, and record the first report of each job's target accuracy."""
        for gang in (running.gang for running in snapshot.running):
            accuracy = gang.progress.accuracy if gang.progress else None
            if accuracy is not None and accuracy >= targets[gang.name]:
                reached.setdefault(gang.name, snapshot.now)
        return CYCLE(snapshot, policy)

    # Without shortcuts a cycle runs at every report.
    config = SimulationConfig(round_seconds=60.0, decide=decide, takes_shortcuts=False)
    policy = Policy(registry.make_orderer("fifo"), registry.make_placer("packing"), sizer)
    outcome = simulate(trace, parse_nodes(_NODES), policy, physics=_PHYSICS, config=config)
    seconds = metrics.completion_seconds(outcome)
    unfinished = len(trace.jobs) - len(seconds)
    check_finished(type(sizer).__name__, unfinished, outcome.counts["fallbacks"])
    ends = {record.job.name: record.finished or 0.0 for record in outcome.jobs}
    good = [reached.get(j.name, ends[j.name]) - j.submitted for j in trace.jobs]
    return {
        "total_seconds": max(ends.values()),
        "mean_jct_minutes": float(seconds.mean()) / 60,
        "mean_minutes_to_accuracy": float(np.mean(good)) / 60,
    }


def _target(job: TraceJob) -> float:
    if job.reporting is None or job.reporting.accuracy is None or job.steps is None:
        raise SettingError(f"job {job.name!r} reports no accuracy over steps; give it both")
    return _TARGET * job.reporting.accuracy.loss(job.steps)
