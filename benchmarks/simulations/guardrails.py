"""Effect of the guardrails on the longest waits: the same orders with none of them, some, and all.

Muri's trace, with every fifth job of a higher PriorityClass. Run times are known, so that every
order and every reservation is as good as it can be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.report import Page, Table
from benchmarks.simulations import figures, plain, windows
from benchmarks.simulations.contests import kept
from benchmarks.simulations.store import Run, Store
from bireme import registry
from bireme.core.resources import FloatArray
from bireme.core.settings import SchedulingSettings
from bireme_lab.simulator.loads import DAY, Window
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.reports.terminal import number
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import Trace, with_true_estimates

ORDERERS: Final = ("combined-priority", "sjf", "smallest-first")
LOAD: Final = 1.0
_HOUR: Final = 3600.0
_FACTORS: Final = (0, 1, 2, 4, 8, 16, 32)
_WEEK_LOADS: Final = (0.9, 1.1, 1.3)
_URGENT: Final = 100
_UNREACHED: Final = 10**9


@dataclass(frozen=True, slots=True)
class Guardrails:
    """A set of guardrails; ``config.decide`` replaces the cycle where there are none."""

    says: str
    changes: Mapping[str, object] = field(default_factory=dict)
    config: SimulationConfig = windows.HOURLY

    @property
    def settings(self) -> SchedulingSettings:
        return replace(SchedulingSettings(), **self.changes)  # type: ignore[arg-type]


_NO_BOUND: Final[Mapping[str, object]] = {"wait_bound_seconds": _UNREACHED}
_NO_STOPS: Final[Mapping[str, object]] = {"preemption": False}
GUARDRAILS: Final[Mapping[str, Guardrails]] = {
    "strict": Guardrails(
        "none: nobody passes a blocked job",
        config=SimulationConfig(decide=plain.STRICT, takes_shortcuts=False),
    ),
    "greedy": Guardrails(
        "none: all that fit start",
        config=SimulationConfig(decide=plain.GREEDY, takes_shortcuts=False),
    ),
    "backfill": Guardrails("reservation and backfill", {**_NO_BOUND, **_NO_STOPS}),
    "bound": Guardrails("reservation, backfill, wait bound of a day", _NO_STOPS),
    "preemption": Guardrails("reservation, backfill, preemption", _NO_BOUND),
    "all": Guardrails("all, wait bound of a day (default)"),
    "all-alike": Guardrails("all, bound of a day whatever ran", {"wait_bound_run_factor": 0}),
    "all-week": Guardrails("all, wait bound of a week", {"wait_bound_seconds": 7 * int(DAY)}),
}


def carry_out(window: Window, orderer: str, guardrails: Guardrails) -> Outcome:
    settings = replace(guardrails.settings, orderer=orderer)
    return simulate(
        with_urgent_jobs(with_true_estimates(window.at(LOAD))),
        window.nodes(LOAD),
        registry.make_policy(settings),
        settings,
        config=guardrails.config,
    )


def with_urgent_jobs(trace: Trace) -> Trace:
    """Give every fifth job a PriorityClass of 100; the traces have no priorities."""
    jobs = (replace(job, priority=0 if at % 5 else _URGENT) for at, job in enumerate(trace.jobs))
    return replace(trace, jobs=tuple(jobs))


def build(data: Path, store: Store) -> Page:
    cases = {window.number: window for window in windows.muri(data)}
    tables, findings, drawings = [], [], {}
    for orderer in ORDERERS:
        runs = {
            name: store.runs(
                "guardrails",
                f"{orderer}-{LOAD}-{name}",
                name,
                cases,
                partial(carry_out, orderer=orderer, guardrails=guardrails),
            )
            for name, guardrails in GUARDRAILS.items()
        }
        tables.append(_table(orderer, runs))
        findings.append(_finding(orderer, runs))
        waits = {GUARDRAILS[name].says: pooled(found) for name, found in runs.items()}
        title = f"Waits under {orderer}, load {LOAD}"
        drawings[f"guardrails-{orderer}.svg"] = figures.tails(title, waits)
    tables.append(_factors(data, store))
    return Page(
        name="guardrails",
        title="The guardrails and the longest waits",
        summary=findings[0],
        findings=tuple(findings),
        tables=tuple(tables),
        figures=drawings,
    )


def _factors(data: Path, store: Store) -> Table:
    """The factor of the wait bound, on days that constants may be chosen on."""
    weeks = {week.number: week for week in windows.training_weeks(data)}
    settings = {
        "no bound": SchedulingSettings(wait_bound_seconds=_UNREACHED),
        **{f"{at}": SchedulingSettings(wait_bound_run_factor=at) for at in _FACTORS},
    }
    rows = []
    for load in _WEEK_LOADS:
        for name, made in settings.items():
            play = partial(windows.simulated, load=load, settings=made)
            found = store.runs("factors", f"{load}-{name}", name, weeks, play)
            waits = pooled(found) / _HOUR
            completions = [each / _HOUR for run in found for each in run.completions.values()]
            hours = (np.mean(completions), waits.mean(), np.percentile(waits, 99), waits.max())
            cells = (number(float(each)) for each in (*hours, max(completions)))
            stops = sum(run.metrics.preemptions for run in found)
            rows.append((number(load), name, *cells, str(stops)))
    return Table(
        title="Training weeks of Philly: wait bound of a day and factors of run time, hours",
        columns=(
            *("load", "factor", "mean JCT", "mean wait", "p99 wait", "max wait", "max JCT"),
            "preemptions",
        ),
        rows=tuple(rows),
    )


def pooled(runs: Sequence[Run]) -> FloatArray:
    """Return the waits of all jobs of all windows, seconds, ascending."""
    return np.sort([wait for run in runs for wait in run.waits.values()])


def _table(orderer: str, runs: Mapping[str, Sequence[Run]]) -> Table:
    rows = []
    for name, found in runs.items():
        waits = pooled(found)
        p99, p999 = np.percentile(waits, (99, 99.9))
        completions = [seconds for run in found for seconds in run.completions.values()]
        hours = (waits.mean(), p99, p999, waits.max(), float(np.mean(completions)))
        rows.append(
            (
                GUARDRAILS[name].says,
                *(number(float(seconds) / _HOUR) for seconds in hours),
                str(int((waits > DAY).sum())),
                f"{100 * sum(run.gpus_in_use for run in found) / len(found):.0f} %",
                str(sum(run.metrics.preemptions for run in found)),
                kept(found),
            )
        )
    columns = (
        *("guardrails", "mean wait, h", "p99", "p99.9", "max", "mean JCT, h", "jobs past one day"),
        *("GPUs in use", "preemptions", "reservations kept"),
    )
    return Table(title=f"{orderer}, load {LOAD}", columns=columns, rows=tuple(rows))


def _finding(orderer: str, runs: Mapping[str, Sequence[Run]]) -> str:
    def waits(name: str) -> str:
        found = pooled(runs[name]) / _HOUR
        return f"mean {number(float(found.mean()))} h, longest {number(float(found.max()))} h"

    return (
        f"{orderer}, load {LOAD}: where all that fit start, waits are {waits('greedy')}; with "
        f"reservation and backfill {waits('backfill')}; with all guardrails and a bound of a day "
        f"{waits('all')}, of a week {waits('all-week')}; with one of a day whatever ran "
        f"{waits('all-alike')}."
    )
