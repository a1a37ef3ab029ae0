"""Gains of jobs that lie about their progress, and the costs of the others.

Every job reports, once all of them honestly, and once for every lie that a fifth of them reports.
Owners state run times up to half again as long as true, as the bound on reports hangs on them.
Compared are the completion times of the very same jobs.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final
from unittest import mock

import numpy as np

from benchmarks.report import Page, Table
from benchmarks.simulations.intervals import paired_ratio, shown
from benchmarks.simulations.store import Run, Store
from bireme.core import estimates
from bireme.core.gangs import Task
from bireme.core.nodes import Node
from bireme.core.resources import FloatArray
from bireme.core.settings import SchedulingSettings
from bireme.core.speed import InverseQuadratic, LinearSpeed
from bireme.registry import make_policy
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.simulation import simulate
from bireme_lab.simulator.traces.generators import poisson
from bireme_lab.simulator.workload import ProgressReporting, Trace, TraceJob

SEEDS: Final = 20
JOBS: Final = 50
_EVERY_SECONDS: Final = 60.0
_SHARE: Final = 0.2
_RESTART: Final = Physics(restart_seconds=30.0)
_NODES: Final[Sequence[Node]] = parse_nodes("2x8")
_FALLING: Final = InverseQuadratic(0.0, 1e-3, 1.0)
_STEEP: Final = InverseQuadratic(0.0, 1e-6, 1e-2)
"""A loss that still falls by a lot in every step, whatever has been done."""

HONEST: Final = ProgressReporting(loss=_FALLING, every_seconds=_EVERY_SECONDS)
LIES: Final[Mapping[str, ProgressReporting]] = {
    "nearly done": replace(HONEST, honesty=1e-3),
    "hardly begun": replace(HONEST, honesty=1e3),
    "loss still falls": replace(HONEST, loss=_STEEP),
}


@dataclass(frozen=True, slots=True)
class Contest:
    """A policy, the lies it hears, how far it believes them, and whether its jobs are elastic."""

    orderer: str
    sizer: str = ""
    lies: tuple[str, ...] = ("nearly done", "hardly begun")
    most_shift: float = estimates.MAX_SHIFT

    @property
    def settings(self) -> SchedulingSettings:
        return replace(SchedulingSettings(), orderer=self.orderer, sizer=self.sizer)


CONTESTS: Final[Mapping[str, Contest]] = {
    "combined-priority": Contest("combined-priority"),
    "sjf": Contest("sjf"),
    "srtf": Contest("srtf"),
    "srtf, reports without a bound": Contest("srtf", lies=("nearly done",), most_shift=1e9),
    "combined-priority, optimus": Contest("combined-priority", "optimus"),
    "combined-priority, slaq": Contest("combined-priority", "slaq", ("loss still falls",)),
}

STATEMENTS: Final[Mapping[str, float]] = {"a tenth": 0.1, "a hundredth": 0.01}
"""Share of the run time they would state that misreporting users do state."""
STATED_TO: Final = ("combined-priority", "sjf")


def workload(seed: int, *, is_elastic: bool) -> Trace:
    """Draw honest jobs of 1 to 8 GPUs, more than the cluster can run at once."""
    sizes = "1:0.5,2:0.25,4:0.15,8:0.1"
    trace = poisson(jobs=JOBS, rate=22.0, mean_seconds=1800.0, spread=1.0, sizes=sizes, seed=seed)
    margins = np.random.default_rng(seed).uniform(1.0, 1.5, JOBS)
    jobs = (
        replace(job, estimated_seconds=job.duration_seconds * more, reporting=HONEST)
        for job, more in zip(trace.jobs, margins.tolist(), strict=True)
    )
    return replace(trace, jobs=tuple(map(_elastic, jobs) if is_elastic else jobs))


def _elastic(job: TraceJob) -> TraceJob:
    """Make the job elastic, from half to twice its replicas, a tenth of every step serial."""
    (task,) = job.tasks
    law = LinearSpeed(1.0, 0.1)
    most = Task(
        *(task.name, task.replicas, task.request),
        min_replicas=max(1, task.replicas // 2),
        max_replicas=2 * task.replicas,
    )
    steps = job.duration_seconds * law.steps_per_second({task.name: task.replicas}, 1)
    return replace(job, tasks=(most,), is_elastic=True, speed=law, steps=steps)


def misreporting(seed: int) -> frozenset[str]:
    """Return the names of the fifth of the jobs that would lie."""
    # Another stream than the workload's, so that the choice does not follow run times.
    chosen = np.random.default_rng([seed, 1]).random(JOBS) < _SHARE
    return frozenset(f"job-{at + 1}" for at in np.flatnonzero(chosen).tolist())


def carry_out(
    contest: Contest, seed: int, lie: ProgressReporting | None, stated: float = 1.0
) -> Outcome:
    """Simulate one workload; a fifth report ``lie`` and state ``stated`` of their run time.

    Without a lie no job reports.
    """
    trace, chosen = workload(seed, is_elastic=bool(contest.sizer)), misreporting(seed)
    jobs = (
        replace(job, reporting=lie, estimated_seconds=(job.estimated_seconds or 0.0) * stated)
        if job.name in chosen
        else replace(job, reporting=lie and HONEST)
        for job in trace.jobs
    )
    trace, settings = replace(trace, jobs=tuple(jobs)), contest.settings
    # The bound on reports is a constant of the core: no setting loosens it.
    with mock.patch.object(estimates, "MAX_SHIFT", contest.most_shift):
        policy = make_policy(settings)
        return simulate(trace, _NODES, policy, settings, physics=_RESTART, seed=seed)


def changes(honest: Sequence[Run], false: Sequence[Run]) -> tuple[FloatArray, FloatArray]:
    """Return mean completion seconds of those who lie and of the others, shape (seeds, 2).

    The first column is with all of them honest, the second with the lie.
    """
    theirs: list[list[float]] = []
    others: list[list[float]] = []
    for runs in zip(honest, false, strict=True):
        chosen = misreporting(runs[0].metrics.seed)
        for rows, names in ((theirs, chosen), (others, runs[0].completions.keys() - chosen)):
            rows.append([_mean(run, names) for run in runs])
    return np.array(theirs), np.array(others)


def _mean(run: Run, names: Set[str]) -> float:
    return float(np.mean([run.completions[job] for job in sorted(names)]))


def build(_: Path, store: Store) -> Page:
    reported, stated = [], []
    for name, contest in CONTESTS.items():
        one = partial(carry_out, contest)
        honest = _runs(store, name, "honest", partial(one, lie=HONEST))
        for lie in contest.lies:
            found = _runs(store, name, lie, partial(one, lie=LIES[lie]))
            reported.append((name, lie, *map(_shown, changes(honest, found))))
    for name in STATED_TO:
        one = partial(carry_out, CONTESTS[name], lie=None)
        honest = _runs(store, name, "states all", one)
        for lie, share in STATEMENTS.items():
            found = _runs(store, name, f"states {lie}", partial(one, stated=share))
            stated.append((name, lie, *map(_shown, changes(honest, found))))
    return Page(
        name="misreporting",
        title="False reports of progress, and false estimates",
        summary=_summary(reported),
        findings=(_summary(reported), _summary_of_statements(stated)),
        tables=(
            _table("Reports: mean JCT over that with everybody honest", "lie", reported),
            _table("Stated run times: the same", "statement", stated),
        ),
    )


def _table(title: str, what: str, rows: Sequence[tuple[str, ...]]) -> Table:
    columns = ("policy", f"{what} of a fifth of the jobs", "their mean JCT", "that of the honest")
    return Table(title=title, columns=columns, rows=tuple(rows))


def _runs(store: Store, contest: str, lie: str, one: Callable[..., Outcome]) -> list[Run]:
    label = f"{contest}-{lie}".replace(" ", "_").replace(",", "")
    return store.runs(
        "misreporting", label, lie, dict(enumerate(range(SEEDS))), lambda s: one(seed=s)
    )


def _shown(means: FloatArray) -> str:
    return shown(paired_ratio(means[:, 1], means[:, 0]), "{:.3f}".format)


def _summary(rows: Sequence[tuple[str, ...]]) -> str:
    bounded = [row for row in rows if CONTESTS[row[0]].most_shift == estimates.MAX_SHIFT]
    best = min(bounded, key=lambda row: float(row[2].split()[0]))
    worst = max(bounded, key=lambda row: float(row[3].split()[0]))
    return (
        f"The lie that pays most is {best[1]!r} under {best[0]}: {best[2].split()[0]} of the "
        f"misreporting users' honest JCT; the one that costs the honest most {worst[1]!r} under "
        f"{worst[0]}: {worst[3].split()[0]} of theirs."
    )


def _summary_of_statements(rows: Sequence[tuple[str, ...]]) -> str:
    ratios = (
        f"{row[2].split()[0]} of their honest JCT under {row[0]} (others {row[3].split()[0]})"
        for row in rows
        if row[1] == "a hundredth"
    )
    return f"Who states a hundredth of the run time has {' and '.join(ratios)}."
