"""All placers on openb's pods and nodes, under the default order: what is left in fragments."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.report import Page, Table
from benchmarks.simulations import windows
from benchmarks.simulations.contests import minutes
from benchmarks.simulations.store import Run, Store
from benchmarks.simulations.windows import LOADS
from bireme import policy_names
from bireme.core.settings import SchedulingSettings
from bireme_lab.simulator.comparison import Comparison, compare
from bireme_lab.simulator.reports.terminal import number

DEFAULT: Final = SchedulingSettings().placer
_PODS: Final = 120
_COLUMNS: Final = (
    *("placer", "free GPUs on partly used nodes", "mean wait, min", "p99 wait, min"),
    *("mean JCT, min", "GPUs in use"),
)


def build(data: Path, store: Store) -> Page:
    chosen = [window.first(_PODS) for window in windows.openb(data)]
    names = [DEFAULT, *(name for name in policy_names.class_paths("placer") if name != DEFAULT)]
    cases = {window.number: window for window in chosen}
    tables, findings = [], []
    for load in LOADS:
        runs = {}
        for name in names:
            settings = SchedulingSettings(placer=name)
            one = partial(windows.simulated, load=load, settings=settings)
            runs[name] = store.runs("placers", f"{name}-{load}", name, cases, one)
        compared = compare([run.metrics for found in runs.values() for run in found])
        tables.append(_table(load, compared, runs))
        findings.append(_finding(load, compared, runs))
    return Page(
        name="placers",
        title="Placers on openb: fragmentation",
        summary=findings[1],
        findings=tuple(findings),
        tables=tuple(tables),
    )


def _table(load: float, compared: Comparison, runs: dict[str, list[Run]]) -> Table:
    rows = []
    for line in compared.results:
        means = line.means
        in_use = sum(run.gpus_in_use for run in runs[line.policy]) / len(line.runs)
        rows.append(
            (
                line.policy,
                f"{100 * fragmentation(runs[line.policy]):.1f} %",
                minutes(means["mean_wait_seconds"]),
                number(means["p99_wait_seconds"].mean / 60),
                number(means["mean_jct_seconds"].mean / 60),
                f"{100 * in_use:.0f} %",
            )
        )
    return Table(title=f"Load {load}", columns=_COLUMNS, rows=tuple(rows))


def fragmentation(runs: Sequence[Run]) -> float:
    """Return free GPUs on partly used nodes as a share of all, until the last submission."""
    return sum(run.fragmentation or 0.0 for run in runs) / len(runs)


def _finding(load: float, compared: Comparison, runs: dict[str, list[Run]]) -> str:
    waits = {line.policy: line.means["mean_wait_seconds"].mean for line in compared.results}
    split = {name: fragmentation(found) for name, found in runs.items()}
    parts = []
    for values, what in ((split, "fragmentation"), (waits, "mean wait")):
        ranked = sorted(values, key=values.__getitem__)
        against = values[ranked[0]] / max(values[DEFAULT], 1e-9)
        parts.append(
            f"least {what} {ranked[0]} ({against:.2f} times {DEFAULT}'s, which is number "
            f"{1 + ranked.index(DEFAULT)} of {len(ranked)})"
        )
    return f"Load {load}: {'; '.join(parts)}."
