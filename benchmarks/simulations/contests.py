"""All orderers on windows of public traces, at three loads: one page per trace.

Run times are estimated from finished jobs of the same user and template; some orderers also run
with every run time known. Those that search are slow, and get the first jobs of each window only,
beside the default on the same jobs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.report import Page, Table
from benchmarks.simulations import windows
from benchmarks.simulations.intervals import shown
from benchmarks.simulations.store import Run, Store
from benchmarks.simulations.windows import LOADS
from bireme import policy_names
from bireme.core.settings import SchedulingSettings
from bireme_lab.simulator.comparison import Comparison, Estimate, PolicyResult, compare
from bireme_lab.simulator.loads import DAY, Window
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.reports.terminal import number

DEFAULT: Final = SchedulingSettings().orderer
KNOWN: Final = ", run times known"
SEARCHING: Final = ("malo", "mosa", "rifling")
_BY_RUN_TIME: Final = ("sjf", "srtf", "srsf")
_ALIASES: Final = ("fcfs",)
_SEARCHED_JOBS: Final = 60
COLUMNS: Final = (
    *("orderer", "mean wait, min", "p99 wait, min", "mean JCT, min", "mean slowdown"),
    *("GPUs in use", "preemptions", "past the bound", "reservations kept"),
)


def contenders() -> list[str]:
    """Return the default first, then all that are quick, those that know run times last."""
    others = set(policy_names.class_paths("orderer")) - {DEFAULT, *SEARCHING, *_ALIASES}
    return [DEFAULT, *sorted(others), *(name + KNOWN for name in (DEFAULT, *_BY_RUN_TIME))]


def carry_out(window: Window, load: float, contender: str) -> Outcome:
    settings = SchedulingSettings(orderer=contender.removesuffix(KNOWN))
    return windows.simulated(window, load, settings, knows_run_times=contender.endswith(KNOWN))


def build(
    name: str, title: str, read: Callable[[Path], list[Window]], data: Path, store: Store
) -> Page:
    """Compare all orderers on the windows that ``read`` finds in the folder ``data``."""
    whole = read(data)
    short = [window.first(_SEARCHED_JOBS) for window in whole]
    tables, findings = [], []
    for chosen, names, what in (
        (whole, contenders(), "whole windows"),
        (short, [DEFAULT, "fifo", *SEARCHING], f"first {_SEARCHED_JOBS} jobs"),
    ):
        for load in LOADS:
            runs = {one: _runs(name, store, chosen, load, one, what) for one in names}
            compared = compare([run.metrics for found in runs.values() for run in found])
            tables.append(table(f"Load {load}, {what}", compared, runs))
            findings.append(finding(load, what, compared))
    return Page(
        name=name,
        title=title,
        summary=findings[1],
        findings=tuple(findings),
        tables=(_windows(whole), *tables),
    )


def _runs(
    name: str, store: Store, chosen: Sequence[Window], load: float, contender: str, what: str
) -> list[Run]:
    key = f"{contender}-{load}-{what}".replace(" ", "-").replace(",", "")
    cases = {window.number: window for window in chosen}
    return store.runs(
        name, key, contender, cases, partial(carry_out, load=load, contender=contender)
    )


def table(title: str, compared: Comparison, runs: dict[str, list[Run]]) -> Table:
    rows = tuple(_row(line, runs[line.policy]) for line in compared.results)
    return Table(title=title, columns=COLUMNS, rows=rows)


def _row(line: PolicyResult, runs: Sequence[Run]) -> tuple[str, ...]:
    means = line.means
    in_use = sum(run.gpus_in_use for run in runs) / len(runs)
    return (
        line.policy,
        minutes(means["mean_wait_seconds"]),
        number(means["p99_wait_seconds"].mean / 60),
        minutes(means["mean_jct_seconds"]),
        number(means["mean_slowdown"].mean),
        f"{100 * in_use:.0f} %",
        number(means["preemptions"].mean),
        number(means["wait_bound_violations"].mean),
        kept(runs),
    )


def kept(runs: Sequence[Run]) -> str:
    honoured = sum(run.metrics.reservations_honoured for run in runs)
    return f"{honoured} of {sum(run.metrics.reservations for run in runs)}"


def minutes(estimate: Estimate) -> str:
    return shown(estimate, lambda seconds: number(seconds / 60))


def finding(load: float, what: str, compared: Comparison) -> str:
    """Name the orderers with the least waits, and the place of the default."""
    honest = [line for line in compared.results if not line.policy.endswith(KNOWN)]
    by_wait, by_jct, by_tail = (
        sorted(honest, key=lambda line: line.means[key].mean)
        for key in ("mean_wait_seconds", "mean_jct_seconds", "p99_wait_seconds")
    )
    places = [
        f"{1 + [line.policy for line in ranked].index(DEFAULT)} by {name}"
        for ranked, name in ((by_wait, "mean wait"), (by_jct, "mean JCT"), (by_tail, "p99 wait"))
    ]
    least, tail = by_wait[0], by_tail[0]
    return (
        f"Load {load}, {what}: least mean wait {least.policy} "
        f"({_against(least, 'mean_wait_seconds')} the default's), least mean JCT "
        f"{by_jct[0].policy} ({_against(by_jct[0], 'mean_jct_seconds')}), least p99 wait "
        f"{tail.policy} ({_against(tail, 'p99_wait_seconds')}); of {len(honest)} that do not know "
        f"run times, {DEFAULT} is number {', '.join(places)}."
    )


def _against(line: PolicyResult, key: str) -> str:
    return f"{line.ratios[key].mean:.2f} times" if key in line.ratios else "0 as"


def _windows(chosen: Sequence[Window]) -> Table:
    rows = tuple(
        (
            str(window.number),
            str(len(window.trace.jobs)),
            number(window.trace.jobs[-1].submitted / DAY),
            number(window.offered_gpus),
            f"{100 * float(np.mean([job.gpus > 1 for job in window.trace.jobs])):.0f} %",
            ", ".join(str(len(window.nodes(load))) for load in LOADS),
        )
        for window in chosen
    )
    columns = ("window", "jobs", "days", "GPUs offered", "ask several GPUs", "nodes, by load")
    return Table(title="The windows", columns=columns, rows=rows)
