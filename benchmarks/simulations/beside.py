"""Completion times of ours beside those that were published, by workload and by application."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from benchmarks.report import Table
from benchmarks.simulations.store import Run

BOUND: Final = 0.05
"""Distance from what was published that counts as the same."""
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
