"""Worlds: a workload on a cluster at a load, with its history and its disturbances.

All candidates of a contest play the same worlds, so that a comparison is paired. Worlds of one
block share their difficulty, as the loads of one day do: verdicts draw blocks, not worlds.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from bireme.core.estimates import RuntimeHistory
from bireme.core.nodes import Node
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme_lab.simulator.loads import Window
from bireme_lab.simulator.metrics import SimulationMetrics, Statistics, measure
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.simulation import ProgressCallback, SimulationConfig, simulate
from bireme_lab.simulator.workload import Trace, with_true_estimates

Part: TypeAlias = Literal["training", "validation", "test"]
"""Purpose of a world: to choose constants, to stop a training in time, or to judge."""

CHARGED: Final = Physics(restart_seconds=30.0, checkpoint_interval_seconds=1800.0)
"""A stop costs half a minute to restart, and the work since the last checkpoint, one every half
hour."""
_CONFIG: Final = SimulationConfig(heartbeat_seconds=3600.0)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class World:
    """One simulation except for the policy.

    Attributes:
        name: Unique in a contest.
        block: Name of the group of similar worlds; a verdict draws blocks.
        part: Purpose of the world.
        trace: The jobs, at the pace of the load.
        physics: By default a stop costs time.
        settings: Those of the cluster; a candidate adds its own names and constants.
        history: The run times known before the first job; None if no run times are learned.
        load: Offered load; None if it follows from the cluster, as in a record.
        seed: Seed of the physics.
    """

    name: str
    block: str
    part: Part
    trace: Trace
    nodes: Sequence[Node]
    physics: Physics = CHARGED
    settings: SchedulingSettings = field(default_factory=SchedulingSettings)
    history: RuntimeHistory | None = field(default_factory=RuntimeHistory)
    load: float | None = None
    seed: int = 0

    def play(
        self,
        policy: Policy,
        settings: SchedulingSettings | None = None,
        *,
        knows_run_times: bool = False,
        on_progress: ProgressCallback | None = None,
    ) -> SimulationMetrics:
        """Return the metrics of ``policy`` under all guardrails of ``settings``.

        Waits are those of jobs that did not run when the trace starts. The settings are the
        world's unless others are given.

        With ``knows_run_times`` every job states its true run time: an oracle, not a policy.
        """
        outcome = simulate(
            with_true_estimates(self.trace) if knows_run_times else self.trace,
            self.nodes,
            policy,
            settings or self.settings,
            physics=self.physics,
            seed=self.seed,
            on_progress=on_progress,
            # A copy, as it learns: the next policy starts from the same history.
            estimator=copy.deepcopy(self.history),
            config=_CONFIG,
        )
        # Processor seconds are left out, so that equal runs are equal.
        metrics = replace(measure(outcome), trace=self.name, decision_seconds=0.0)
        if not self.trace.underway:
            return metrics
        # A job that ran already would count as one that waited for nothing.
        ran = {start.job for start in self.trace.underway}
        came = tuple(record for record in outcome.jobs if record.job.name not in ran)
        waits = measure(replace(outcome, jobs=came)).wait_seconds if came else Statistics()
        return replace(metrics, wait_seconds=waits)


def world_of(
    window: Window,
    load: float,
    *,
    name: str,
    block: str,
    part: Part,
    physics: Physics = CHARGED,
    history: RuntimeHistory | None = None,
    seed: int = 0,
) -> World:
    """Return the world of ``window`` on the cluster that it loads to ``load``."""
    return World(
        name=name,
        block=block,
        part=part,
        trace=window.at(load),
        nodes=window.nodes(load),
        physics=physics,
        history=RuntimeHistory() if history is None else history,
        load=load,
        seed=seed,
    )
