"""Completion times of ours beside those that were published: by workload, application and load."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from benchmarks.report import Table
from benchmarks.simulations.intervals import mean_of, paired_ratio, shown
from benchmarks.simulations.store import Run
from bireme.core.resources import FloatArray
from bireme_lab.simulator.comparison import Estimate

BOUND: Final = 0.05
"""Distance from what was published that counts as the same."""
STRETCH: Final = 1.15
"""The most of what Pollux' authors published that elastic sizes aim at."""
_APPLICATIONS: Final = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")


def ratio(ours: Mapping[int, Run], theirs: Mapping[int, Mapping[str, float]]) -> float:
    """Return the mean over workloads of our mean completion time over the published one."""
    return float(np.mean([mean(ours[n].completions) / mean(theirs[n]) for n in ours]))


def mean(by_job: Mapping[str, float]) -> float:
    return float(np.mean(list(by_job.values())))


def by_workload(
    title: str,
    ours: Mapping[int, Run],
    theirs: Mapping[int, Mapping[str, float]],
    submitted: Mapping[int, Mapping[str, float]],
) -> Table:
    """Compare by workload; ``submitted`` are seconds of submission by workload and job."""
    rows = []
    for number, run in ours.items():
        mine, known = mean(run.completions), mean(theirs[number])
        began = submitted[number]
        end = max(began[name] + seconds for name, seconds in theirs[number].items())
        makespan = end - min(began.values())
        near = [abs(run.completions[n] / s - 1) <= BOUND for n, s in theirs[number].items()]
        rows.append(
            (
                f"workload-{number}",
                *(f"{known:.0f}", f"{mine:.0f}", f"{mine / known:.3f}"),
                *(f"{makespan:.0f}", f"{run.metrics.makespan_seconds:.0f}"),
                f"{run.metrics.makespan_seconds / makespan:.3f}",
                *(f"{100 * np.mean(near):.0f} %", f"{run.metrics.preemptions}"),
            )
        )
    columns = (
        *("workload", "mean JCT published, s", "ours, s", "ratio"),
        *("makespan published, s", "ours, s", "ratio", "jobs within 5 %", "preemptions"),
    )
    return Table(title=title, columns=columns, rows=tuple(rows))


def by_application(ours: Mapping[int, Run], theirs: Mapping[int, Mapping[str, float]]) -> Table:
    """Compare single jobs under the authors' rule at half load, where few of them meet."""
    rows = []
    for application in _APPLICATIONS:
        ratios = np.array(
            [
                run.completions[job] / theirs[number][job]
                for number, run in ours.items()
                for job in run.completions
                if job.startswith(f"{application}-")
            ]
        )
        low, middle, high = np.percentile(ratios, (10, 50, 90))
        near = 100 * float((abs(ratios - 1) <= 0.02).mean())
        rows.append(
            (
                application,
                *(f"{len(ratios)}", f"{middle:.3f}", f"{low:.3f}", f"{high:.3f}", f"{near:.0f} %"),
            )
        )
    columns = ("application", "jobs", "median ratio", "10 %", "90 %", "within 2 %")
    title = "Single jobs: our completion time over the published one, authors' rule, load 0.5"
    return Table(title=title, columns=columns, rows=tuple(rows))


Means = Mapping[str, Mapping[str, FloatArray]]
"""By row and load, the mean completion seconds of each workload, shape (workloads,)."""


def overview(rows: Means, loads: Sequence[str]) -> Table:
    body = {name: [mean_of(by_load[load]) for load in loads] for name, by_load in rows.items()}
    return _by_load("Elastic: mean JCT over eight workloads, s", loads, body, ".0f")


def against(ours: str, rows: Means, loads: Sequence[str]) -> Table:
    """Return ratios of the mean seconds of ``ours`` to those of every other row, by load."""
    body = {
        name: [paired_ratio(rows[ours][load], rows[name][load]) for load in loads]
        for name in rows
        if name != ours
    }
    return _by_load(f"Elastic: mean JCT of {ours} over that of others", loads, body, ".3f")


def _by_load(
    title: str, loads: Sequence[str], body: Mapping[str, Sequence[Estimate]], form: str
) -> Table:
    columns = ("", *(f"load {load}" for load in loads))
    if any(estimate.low is None for estimates in body.values() for estimate in estimates):
        raise ValueError("an interval needs at least two workloads; simulate all eight")
    rows = (
        (name, *(shown(estimate, lambda value: format(value, form)) for estimate in estimates))
        for name, estimates in body.items()
    )
    return Table(title=title, columns=columns, rows=tuple(rows))


def finding(ours: str, rivals: Sequence[str], goal: str, rows: Means, loads: Sequence[str]) -> str:
    """Count the loads at which ``ours`` is below all ``rivals`` and near ``goal``."""
    below = [
        load
        for load in loads
        if all(rows[ours][load].mean() < rows[rival][load].mean() for rival in rivals)
    ]
    far = {load: float(np.mean(rows[ours][load]) / np.mean(rows[goal][load])) for load in loads}
    within = [load for load in loads if far[load] <= STRETCH]
    return (
        f"Elastic: `{ours}` finishes jobs sooner than our {' and '.join(rivals)} at "
        f"{len(below)} of {len(loads)} loads, and within {STRETCH - 1:.0%} of what Pollux' authors "
        f"published at {len(within)} ("
        + ", ".join(f"{value:.3f} of it at load {load}" for load, value in far.items())
        + ")."
    )
