"""All placers on openb's pods and nodes, under the default order: what is left in fragments."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.report import Page, Table
from benchmarks.simulations import windows
from benchmarks.simulations.contests import minutes
from benchmarks.simulations.store import Key, Run, Store
from benchmarks.simulations.windows import LOADS
from bireme import registry
from bireme.core.estimates import RuntimeHistory
from bireme.core.settings import SchedulingSettings
from bireme.simulator.comparison import Comparison, compare
from bireme.simulator.loads import Window
from bireme.simulator.outcome import Outcome
from bireme.simulator.reports.terminal import number
from bireme.simulator.simulation import simulate

DEFAULT: Final = SchedulingSettings().placer
_PODS: Final = 120
_COLUMNS: Final = (
    *("placer", "free GPUs on partly used nodes", "mean wait, min", "p99 wait, min"),
    *("mean JCT, min", "GPUs in use"),
)


def carry_out(window: Window, load: float, placer: str) -> Outcome:
    settings = SchedulingSettings(placer=placer)
    policy = registry.make_policy(settings)
    nodes = window.nodes(load)
    return simulate(
        window.at(load),
        nodes,
        policy,
        settings,
        estimator=RuntimeHistory(),
        config=windows.HOURLY,
    )


def build(data: Path, store: Store) -> Page:
    chosen = [window.first(_PODS) for window in windows.openb(data)]
    names = [DEFAULT, *(name for name in registry.PLACERS if name != DEFAULT)]
    tables, findings, revisions = [], [], set[str]()
    for load in LOADS:
        runs = {
            name: [
                store.run(
                    Key("placers", f"{name}-{load}", window.number),
                    name,
                    partial(carry_out, window, load, name),
                )
                for window in chosen
            ]
            for name in names
        }
        compared = compare([run.metrics for found in runs.values() for run in found])
        tables.append(_table(load, compared, runs))
        findings.append(_finding(load, compared, runs))
        revisions |= {run.revision for found in runs.values() for run in found}
    return Page(
        name="placers",
        title="Placers on openb: fragmentation",
        summary=findings[1],
        findings=tuple(findings),
        tables=tuple(tables),
        revisions=tuple(sorted(revisions)),
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
