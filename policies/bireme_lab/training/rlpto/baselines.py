"""RLPTO's baselines in its environment: the paper's rivals, and the simple rule.

Each baseline decides by a sizer of Bireme. Before every period the sizer sees the running tasks as
elastic gangs of one server and at least one worker, with the environment's speed law, loss curve
and length. It sets the number of workers of each. Tasks start by arrival, and end after an equal
number of iterations, as in the paper; 50 of them give FS its published time. Beta ends RLPTO's own
tasks: its published accuracies, above those of every baseline at the same speed and workers, need
more iterations. ``fair-stop``, which is not in the paper, shows the effect of beta alone: equal
shares like FS, and a task ends when its gain falls below beta.

* FS: equal shares. FCFS: one task at a time has all workers. SLAQ: predicted fall of the loss.
* Dolphin: the fastest split of an equal share. With one server it differs from FS only in uneven
  shares.
* TRADL: workers for tasks before their target. A task ends at its target, so TRADL is fastest in
  the paper. The target is 96 % of the fall of the loss (calibrated: 5388 s, 86.82 %). The paper
  gives its rivals no order of tasks; ``tradl-nearest`` also takes the nearest to its target first.

Lu et al., "RLPTO", IEEE TPDS 2023, section VII.B.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Final

import numpy as np

from bireme.core.gangs import Gang, Role, Task
from bireme.core.nodes import Node, NodeTable
from bireme.core.policy import Ranked, Sizer
from bireme.core.resources import PODS, BoolArray, FloatArray, IntArray, request_of
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import InverseQuadratic
from bireme.heuristics.simple_sizers import FairSharing, Maximum
from bireme_lab.heuristics.measured_sizers import Dolphin, Slaq
from bireme_lab.heuristics.tradl import TradlOrder, TradlSizer, steps_to_target
from bireme_lab.simulator.physics.laws import OptimusLaw
from bireme_lab.training.rlpto import environment
from bireme_lab.training.rlpto.environment import RlptoClusters, RlptoEnvConfig
from bireme_lab.training.vec_env import Observation

ITERATIONS: Final = 50.0
"""The iterations after which baselines end a task (calibrated)."""
TARGET: Final = 0.96
"""TRADL's target, a share of the whole fall of the loss (calibrated)."""
_WORKER: Final = "bireme.dev/worker"
_SERVER: Final = "bireme.dev/server"
_PLENTY: Final = 10_000
"""The environment assigns servers; rules must not count them as scarce."""
_EVERYWHERE: Final[BoolArray] = np.array([True])


@dataclass(frozen=True, slots=True)
class RlptoBaseline:
    """A rule in the environment.

    Attributes:
        sizer: Sets the workers of each task.
        one_by_one: Whether a single task runs at a time.
        target: Share of the fall of the loss that ends a task.
        is_nearest_first: Whether tasks start by distance from the target, not by arrival.
        least_gain: Gain of accuracy per iteration below which a task ends.
        iterations: The maximum iterations of a task.
    """

    sizer: Sizer
    one_by_one: bool = False
    target: float | None = None
    is_nearest_first: bool = False
    least_gain: float = 0.0
    iterations: float = ITERATIONS


_TRADL: Final = RlptoBaseline(TradlSizer(TARGET), target=TARGET)
BASELINES: Final[Mapping[str, RlptoBaseline]] = MappingProxyType(
    {
        "fs": RlptoBaseline(FairSharing()),
        "fcfs": RlptoBaseline(Maximum(), one_by_one=True),
        "slaq": RlptoBaseline(Slaq()),
        "dolphin": RlptoBaseline(Dolphin()),
        "tradl": _TRADL,
        "tradl-nearest": replace(_TRADL, is_nearest_first=True),
    }
)
"""The paper's baselines by name, and TRADL with its order in Bireme's registry."""


def run_baseline(baseline: RlptoBaseline, config: RlptoEnvConfig, seed: int) -> RlptoClusters:
    """Let ``baseline`` decide until all tasks are done; return the only cluster's last state."""
    config = replace(config, servers=1) if baseline.one_by_one else config
    gangs = Gangs(config, baseline.iterations)
    next_task: environment.NextTask = environment.by_arrival
    if baseline.target is not None and baseline.is_nearest_first:
        next_task = partial(gangs.nearest_first, baseline.target)
    clusters = RlptoClusters([config], [seed], baseline.iterations, next_task)
    while not clusters.is_over.all():
        gangs.resize(clusters, baseline.sizer)
        clusters.advance(_EVERYWHERE)
        reached = clusters.running & (clusters.gain < baseline.least_gain)
        if baseline.target is not None:
            reached |= clusters.running & (gangs.steps_to_target_of(baseline.target, clusters) <= 0)
        clusters.end(reached)
        clusters.start()
    return clusters


class Gangs:
    """The tasks of a single environment as gangs for registered rules."""

    def __init__(self, config: RlptoEnvConfig, iterations: float) -> None:
        self._config, self._iterations = config, iterations
        offers = {_WORKER: config.nodes, _SERVER: _PLENTY, PODS: _PLENTY}
        self._nodes = NodeTable([Node("all", offers)], ())
        theta = tuple(config.slowdown * coefficient for coefficient in environment.LAW.theta)
        self._law = OptimusLaw(theta, environment.BATCH)

    def resize(self, clusters: RlptoClusters, sizer: Sizer) -> None:
        """Give every running task the workers that ``sizer`` proposes."""
        running = np.flatnonzero(clusters.running[0]).tolist()
        first_started = sorted(running, key=lambda task: float(clusters.started[0, task]))
        ranked = [Ranked(self.of(clusters, task), 0.0) for task in first_started]
        sizes = sizer.sizes(ranked, self.snapshot(clusters))
        for task in running:
            clusters.nodes[0, task] = sizes[str(task)]["worker"]

    def nearest_first(self, target: float, clusters: RlptoClusters) -> FloatArray:
        """Return the rank of each task's nearness to its target by TRADL, shape (1, tasks)."""
        gangs = [self.of(clusters, task) for task in range(clusters.nodes.shape[1])]
        ranks = np.zeros(clusters.nodes.shape)
        for place, entry in enumerate(TradlOrder(target).order(gangs, self.snapshot(clusters))):
            ranks[0, int(entry.gang.uid)] = -place
        return ranks

    def steps_to_target_of(self, target: float, clusters: RlptoClusters) -> FloatArray:
        """Return the remaining steps of each task to its target, shape (1, tasks)."""
        snapshot, tasks = self.snapshot(clusters), range(clusters.nodes.shape[1])
        steps = [steps_to_target(self.of(clusters, task), target, snapshot) for task in tasks]
        return np.array([[inf if remaining is None else remaining for remaining in steps]])

    def snapshot(self, clusters: RlptoClusters) -> ClusterSnapshot:
        """Return a snapshot with all nodes free, because running tasks are sized again together."""
        used = np.zeros_like(self._nodes.allocatable)
        return ClusterSnapshot(float(clusters.clock[0]), self._nodes, used, (), {})

    def of(self, clusters: RlptoClusters, task: int) -> Gang:
        """Return a task as a gang; its unit of work is the step of the speed law."""
        config, steps = self._config, float(clusters.steps[0, task])
        done, pace = float(clusters.iterations[0, task]), clusters.tasks.pace[0, task]
        share = -(-config.nodes // max(1, int(clusters.running.sum())))
        workers = Task(
            "worker",
            share,
            request_of({_WORKER: 1, PODS: 1}),
            min_replicas=1,
            max_replicas=config.nodes,
        )
        server = Task("ps", 1, request_of({_SERVER: 1, PODS: 1}), Role.PS)
        return Gang(
            uid=str(task),
            name=f"task-{task:02}",
            namespace="rlpto",
            queue="default",
            tasks=(server, workers),
            arrived=float(clusters.tasks.arrived[0, task]),
            is_elastic=True,
            speed=self._law,
            remaining_steps=max(0.0, self._iterations - done) * steps,
            done_steps=done * steps,
            loss=loss_curve(float(pace), steps),
        )


def loss_curve(pace: float, steps: float) -> InverseQuadratic:
    """Return the training loss over steps; an iteration has ``steps`` of them."""
    return InverseQuadratic(
        0.0,
        float(environment.loss_rate(np.array(pace))) / steps,
        1 / (environment.FIRST_LOSS - environment.LAST_LOSS),
        environment.LAST_LOSS,
    )


# --- the simple rule -----------------------------------------------------------------------------

_LEAN: Final = 0.75
_MAX_ABOVE: Final = 1e4


def share_among_gaining(observation: Observation, lean: float = 0.0) -> IntArray:
    """Return the simple rule's move in every environment, shape (envs,).

    A task with a gain below beta gives up all workers but one, and ends with that one unless it
    gains again. A free worker goes to the gaining task with the fewest workers. A task counts
    ``lean`` more workers for every power of ten of its gain above beta, so that more go to tasks
    that are nearly done.
    """
    # Equal shares suit the speed law, in which every further worker helps less. Tried and rejected:
    # taking only the one worker that the environment takes (at beta 0.001 22 % slower, 0.3 points
    # more accurate), giving to the task with the longest iteration (2 % slower), and starting with
    # few workers, which cost a share of the early gains (1 % slower, 0.03 points more accurate).
    nodes, beta = observation["nodes"], observation["beta"][:, None]
    hardly = observation["gain"] < beta
    gains = observation["present"] & ~hardly
    takes = observation["present"] & hardly & (nodes > 1)
    gives = gains.any(axis=1) & (observation["free"] > 0)
    counted = nodes + lean * np.log10(np.clip(observation["gain"] / beta, 1.0, _MAX_ABOVE))
    give = np.where(gives, 1 + np.where(gains, counted, np.inf).argmin(axis=1), 0)
    return np.where(takes.any(axis=1), 1 + environment.SLOTS + takes.argmax(axis=1), give)


def expert(observation: Observation) -> IntArray:
    """Return the expert's move for cloning: the simple rule that prefers nearly done tasks.

    Over both tables it is 0.02 points more accurate than the simple rule in 0.3 % more time.
    """
    return share_among_gaining(observation, _LEAN)
