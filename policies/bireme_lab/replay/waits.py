"""Waits of a recorded workload under its own policy and under others, by simulation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme_lab.replay.workload import Workload
from bireme_lab.simulator.comparison import Comparison, compare
from bireme_lab.simulator.metrics import SimulationMetrics, Statistics, measure
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.simulation import simulate

ReplayPolicy = tuple[Policy, SchedulingSettings]


@dataclass(frozen=True, slots=True)
class WaitChange:
    """A gang whose wait differs; seconds, None if it never starts."""

    gang: str
    recorded_seconds: float | None
    other_seconds: float | None

    @property
    def size(self) -> float:
        """Return the difference; infinite for a gang that starts under one policy alone."""
        if self.recorded_seconds is None or self.other_seconds is None:
            return float("inf")
        return abs(self.other_seconds - self.recorded_seconds)


@dataclass(frozen=True, slots=True)
class WaitComparison:
    """All policies on the workload of a record.

    Attributes:
        comparison: The policy of the record first.
        changes: By other policy, the gangs whose wait differs from that under the policy of the
            record, the most changed first.
        actual: The recorded waits of the counted gangs that started.
        actual_gangs: Number of those gangs.
    """

    comparison: Comparison
    changes: Mapping[str, Sequence[WaitChange]]
    actual: Statistics
    actual_gangs: int


def simulate_waits(
    workload: Workload,
    policies: Mapping[str, ReplayPolicy],
    on_progress: Callable[[str, int, int], None],
) -> WaitComparison | None:
    """Simulate ``workload`` under each policy, that of the record first; None without gangs."""
    if not workload.wait_uids:
        return None
    metrics: list[SimulationMetrics] = []
    waits: dict[str, dict[str, float | None]] = {}
    counted_names = workload.wait_uids
    for name, (policy, settings) in policies.items():
        outcome = simulate(
            workload.trace,
            workload.trace.nodes,
            policy,
            settings,
            physics=workload.physics,
            on_progress=partial(on_progress, name),
        )
        jobs = tuple(r for r in outcome.jobs if r.job.name in counted_names)
        counted = replace(outcome, policy=name, jobs=jobs)
        # A stop counts for the policy, even if the gang's wait is not counted.
        preemptions = sum(record.preemptions for record in outcome.jobs)
        metrics.append(replace(measure(counted), preemptions=preemptions))
        waits[name] = _waits(counted)
    first, *other_names = waits
    return WaitComparison(
        compare(metrics),
        {name: _changes(waits[first], waits[name], workload.names) for name in other_names},
        Statistics.of(np.array(list(workload.waits.values()), dtype=float)),
        len(workload.waits),
    )


def _waits(outcome: Outcome) -> dict[str, float | None]:
    return {
        record.job.name: None if record.started is None else record.started - record.job.submitted
        for record in outcome.jobs
    }


def _changes(
    recorded: Mapping[str, float | None],
    other: Mapping[str, float | None],
    names: Mapping[str, str],
) -> list[WaitChange]:
    changed = [
        WaitChange(names[uid], wait, other[uid])
        for uid, wait in recorded.items()
        if wait != other[uid]
    ]
    return sorted(changed, key=lambda change: (-change.size, change.gang))
