"""Weeks and months in one piece: what the wait bound does to waits, and what two tenants share.

Days that begin on an empty cluster hide what a bound does, because nobody is overdue in them. Here
whole traces are played, thinned and on fewer nodes, at the loads that a cluster is bought for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.report import Page, Table
from benchmarks.simulations import windows
from benchmarks.simulations.store import Run, Store
from benchmarks.simulations.tenants import Split, Tenants, play
from bireme.core.settings import SchedulingSettings
from bireme_lab.contest.families import HELD_OUT_CLUSTERS, PHILLY_DAYS
from bireme_lab.simulator.loads import GPUS_PER_NODE, Window, make_window, stretch
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.reports.terminal import number
from bireme_lab.simulator.traces.sources import read_trace

_HOUR: Final = 3600.0
_DEFAULT: Final = SchedulingSettings()
SETTINGS: Final[Mapping[str, SchedulingSettings]] = {
    # Scores age by the bound as well, so it stays, and lets nobody go first.
    "no bound": replace(_DEFAULT, overdue_share=0.0),
    "default": _DEFAULT,
}
_TENANTS: Final[Mapping[str, Tenants]] = {
    "25 h against half hours, two alive": Tenants(),
    "25 h against two hours, two alive": Tenants(short_minutes=120),
    "25 h against half hours, eight alive": Tenants(alive=8),
    "10 h against ten minutes, two alive": Tenants(10, 10),
    "100 h against half hours, two alive": Tenants(100),
}
_CHARGES: Final[Mapping[str, SchedulingSettings]] = {
    "to namespaces as well (default)": _DEFAULT,
    "to jobs alone": replace(_DEFAULT, service_half_life_seconds=0),
}


def muri(data: Path, trace: int, every: int) -> Window:
    """One of Muri's traces from beginning to end, every so many jobs."""
    whole = read_trace(f"muri:{data}/muri/trace{trace}.csv.gz", gpus_per_node=GPUS_PER_NODE)
    return make_window(trace, replace(whole, jobs=whole.jobs[::every]))


def philly(data: Path, every: int) -> Window:
    """The days of Philly that constants may be chosen on, in one piece, every so many jobs."""
    whole = read_trace(f"philly:{data / windows.PHILLY}", gpus_per_node=GPUS_PER_NODE)
    jobs = tuple(job for job in whole.jobs if job.queue not in HELD_OUT_CLUSTERS)
    days = PHILLY_DAYS["training"]
    known = replace(whole, jobs=jobs)
    return stretch(known, 0, float(days.start), float(len(days)), slice(0, None, every))


TRACES: Final[Mapping[str, tuple[Callable[[Path], Window], Sequence[float]]]] = {
    "Muri 1": (partial(muri, trace=1, every=3), (0.8, 0.9, 1.0, 1.1)),
    "Muri 2": (partial(muri, trace=2, every=8), (0.8, 0.9, 1.0, 1.1)),
    "Philly": (partial(philly, every=4), (0.8, 0.9, 1.0, 1.1)),
}


def carry_out(window: Window, load: float, settings: SchedulingSettings, *, knows: bool) -> Outcome:
    return windows.simulated(window, load, settings, knows_run_times=knows)


def build(data: Path, store: Store) -> Page:
    rows, ratios, longest, multiples = [], [], [], []
    for trace, (read, loads) in TRACES.items():
        window = read(data)
        knows = "Muri" in trace
        for load in loads:
            runs = {
                name: store.runs(
                    "sustained",
                    f"{trace.replace(' ', '')}-{load}-{name.replace(' ', '-')}",
                    name,
                    {window.number: window},
                    partial(carry_out, load=load, settings=settings, knows=knows),
                )[0]
                for name, settings in SETTINGS.items()
            }
            nodes = str(len(window.nodes(load)))
            bounds = _bounds(window, knows=knows)
            rows += [
                (trace, number(load), nodes, name, *_cells(run, bounds))
                for name, run in runs.items()
            ]
            bare, bound = runs["no bound"], runs["default"]
            multiples.append(_multiple(bound, bounds))
            ratios.append(_mean_hours(bound) / _mean_hours(bare))
            longest.append((max(bound.waits.values()), max(bare.waits.values())))
    no_longer = sum(bound <= bare for bound, bare in longest)
    columns = ("trace", "load", "nodes", "settings", "jobs", "mean JCT, h", "median", "p99 JCT")
    waits = Table(
        title="Whole traces, with the default bound and without any",
        columns=(*columns, "mean wait", "p99 wait", "longest wait", "of its bound", "stops"),
        rows=tuple(rows),
    )
    splits = {
        (name, charge): play(tenants, settings)
        for name, tenants in _TENANTS.items()
        for charge, settings in _CHARGES.items()
    }
    first = splits[next(iter(splits))]
    findings = (
        (
            f"Mean completion time with the bound over that without: {number(min(ratios))} to "
            f"{number(max(ratios))}."
        ),
        f"The longest wait is no longer with the bound in {no_longer} of {len(longest)} cases.",
        f"No gang waited longer than {number(max(multiples))} times its bound.",
        (
            f"A job of 25 h beside half hours of another tenant has {100 * first.long_share:.0f} % "
            f"of the node, and ends after {number(first.ended_hours)} h."
        ),
    )
    return Page(
        name="sustained",
        title="Whole traces in one piece, and two tenants",
        summary=" ".join(findings),
        findings=findings,
        tables=(waits, _split_table(splits)),
    )


def _mean_hours(run: Run) -> float:
    return float(np.mean(list(run.completions.values()))) / _HOUR


def _bounds(window: Window, *, knows: bool) -> dict[str, float]:
    """Return the wait bound of each job before its first start, seconds."""
    own = _DEFAULT.wait_bound_run_factor if knows else 0.0
    return {
        job.name: max(float(_DEFAULT.wait_bound_seconds), own * job.duration_seconds)
        for job in window.trace.jobs
    }


def _multiple(run: Run, bounds: Mapping[str, float]) -> float:
    """Return the longest wait as a multiple of the bound of its job."""
    return max(wait / bounds[name] for name, wait in run.waits.items())


def _cells(run: Run, bounds: Mapping[str, float]) -> tuple[str, ...]:
    waits = np.array(list(run.waits.values())) / _HOUR
    completions = np.array(list(run.completions.values())) / _HOUR
    hours = (
        completions.mean(),
        np.median(completions),
        np.percentile(completions, 99),
        waits.mean(),
        np.percentile(waits, 99),
        waits.max(),
    )
    shown = (number(float(each)) for each in hours)
    multiple = number(_multiple(run, bounds))
    return (str(len(waits)), *shown, multiple, str(run.metrics.preemptions))


def _split_table(splits: Mapping[tuple[str, str], Split]) -> Table:
    return Table(
        title="Two tenants on one node: service charged to namespaces, and to jobs alone",
        columns=("tenants", "charged", "long job ends, h", "its share", "its stops"),
        rows=tuple(
            (
                name,
                charge,
                number(split.ended_hours),
                f"{100 * split.long_share:.0f} %",
                str(split.stops),
            )
            for (name, charge), split in splits.items()
        ),
    )
