"""Savings and costs of a node pool that looks ahead: floors on Philly-like demand.

The same sixty days with nodes only when jobs wait for them, floors of nightly forecasts, headroom,
and the floor of an oracle; beside it the nodes that Philly had in use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.report import Page, Table
from benchmarks.simulations import figures, node_series
from benchmarks.simulations.intervals import paired_ratio, shown
from benchmarks.simulations.pool_workload import (
    BEFORE,
    DAYS,
    DRAWN_FROM,
    GPUS_PER_NODE,
    Demand,
    draw,
    philly,
)
from benchmarks.simulations.store import Run, Store
from benchmarks.simulations.weekly import Weekly
from bireme import registry
from bireme.core.estimates import RuntimeHistory
from bireme.core.node_floor import PoolBounds
from bireme.core.resources import FloatArray
from bireme.core.settings import SchedulingSettings
from bireme.forecasting.forecasters import make
from bireme.forecasting.gru import Gru
from bireme.forecasting.pool_forecast import HORIZON_HOURS
from bireme_lab.simulator.comparison import Estimate
from bireme_lab.simulator.loads import DAY
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.node_floors import ORACLE, REACTIVE, nightly_forecast, with_floor
from bireme_lab.simulator.node_pools import NodePool
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.reports.terminal import number
from bireme_lab.simulator.simulation import SimulationConfig, simulate

SEEDS: Final = 3
MOST: Final = 48
FLOORS: Final[Mapping[str, str]] = {
    REACTIVE: "reactive only",
    "lsp-0.5": "LSP, quantile 0.5",
    "lsp-0.75": "LSP, quantile 0.75",
    "lsp-0.9": "LSP, quantile 0.9",
    "headroom-0.5": "headroom of 0.5 nodes",
    "headroom-1": "headroom of 1 node",
    "headroom-1.5": "headroom of 1.5 nodes",
    "headroom-2": "headroom of 2 nodes",
    "headroom-3": "headroom of 3 nodes",
    ORACLE: "oracle",
}
_HEADROOM: Final = "headroom"
_CONFIG: Final = SimulationConfig(heartbeat_seconds=3600.0, until_seconds=DAYS * DAY)
_BARS: Final = (0.8, 1.10)
"""Aims for a floor, as shares of the reactive pool's p95 wait and node-hours."""


def carry_out(demand: Demand, floor: str) -> Outcome:
    """Simulate the sixty days with one floor; forecasters are fitted once a week."""
    bounds = PoolBounds(0, MOST, scale_in=True)
    pool = NodePool(name="pool-0", bounds=bounds, history=demand.history)
    run = partial(_simulated, demand)
    name, _, quantile = floor.rpartition("-")
    if not quantile.replace(".", "").isdigit():
        return run(with_floor(floor, [pool], run))
    if name == _HEADROOM:
        return run([replace(pool, bounds=replace(bounds, headroom=float(quantile)))])
    # Refused if its network has seen days that the demand is drawn from.
    gru = Gru(node_series.NETWORK, evaluated_on=(DRAWN_FROM,))
    candidates = [Weekly(forecaster) for forecaster in make([name], steps=HORIZON_HOURS, gru=gru)]
    return run([replace(pool, forecast=nightly_forecast(candidates, pool, float(quantile)))])


def _simulated(demand: Demand, pools: Sequence[NodePool]) -> Outcome:
    settings = SchedulingSettings()
    return simulate(
        demand.trace,
        parse_nodes(f"{MOST}x{GPUS_PER_NODE}"),
        registry.make_policy(settings),
        settings,
        estimator=RuntimeHistory(),
        config=_CONFIG,
        pools=pools,
    )


def build(data: Path, store: Store) -> Page:
    seeds = dict(enumerate(range(SEEDS)))
    runs = {
        floor: store.runs("node-pools", floor, floor, seeds, partial(_drawn, data, floor))
        for floor in FLOORS
    }
    waits = {FLOORS[floor]: pooled(found) for floor, found in runs.items()}
    series, short = node_series.table(data)
    return Page(
        name="node-pools",
        title="Node pools that look ahead",
        summary=finding("headroom-1", runs),
        findings=(*(finding(f, runs) for f in FLOORS if f != REACTIVE), short),
        tables=(_table(runs), series),
        figures={"node-pools.svg": figures.tails("Waits by floor", waits)},
    )


def _drawn(data: Path, floor: str, seed: int) -> Outcome:
    return carry_out(draw(philly(data), seed), floor)


def waits(run: Run) -> FloatArray:
    """Return the waits in seconds of jobs that came within the sixty days."""
    return np.array([wait for name, wait in run.waits.items() if not name.startswith(BEFORE)])


def pooled(runs: Sequence[Run]) -> FloatArray:
    return np.sort(np.concatenate([waits(run) for run in runs]))


def measures(runs: Sequence[Run]) -> FloatArray:
    """Return by seed: node-hours, mean, p50 and p95 wait in seconds, share of hours short."""
    return np.array(
        [
            (
                run.metrics.node_hours,
                waits(run).mean(),
                *np.percentile(waits(run), (50, 95)),
                (run.metrics.short_hours or 0.0) / (24 * DAYS),
            )
            for run in runs
        ]
    )


def ratios(floor: str, runs: Mapping[str, Sequence[Run]]) -> tuple[Estimate, Estimate]:
    """Return p95 wait and node-hours with ``floor``, over those of the reactive pool."""
    ours, reactive = measures(runs[floor]), measures(runs[REACTIVE])
    return paired_ratio(ours[:, 3], reactive[:, 3]), paired_ratio(ours[:, 0], reactive[:, 0])


def finding(floor: str, runs: Mapping[str, Sequence[Run]]) -> str:
    p95, hours = ratios(floor, runs)
    saved, more = (bar >= found.mean for bar, found in zip(_BARS, (p95, hours), strict=True))
    verdict = {
        (True, True): "which is the aim",
        (True, False): "which is dearer than the aim of 1.10",
        (False, True): "which saves less than the aim of 0.80",
        (False, False): "which misses the aim, 0.80 at 1.10, in both",
    }[saved, more]
    return (
        f"{FLOORS[floor]}: p95 wait {_shown(p95)} times the reactive pool's at {_shown(hours)} "
        f"times its node-hours, {verdict}."
    )


def _table(runs: Mapping[str, Sequence[Run]]) -> Table:
    rows = []
    for floor, found in runs.items():
        hours, mean, p50, p95, short = measures(found).mean(axis=0).tolist()
        against = ("1", "1") if floor == REACTIVE else map(_shown, reversed(ratios(floor, runs)))
        in_use = sum(run.metrics.gpu_utilisation or 0.0 for run in found) / len(found)
        rows.append(
            (
                *(FLOORS[floor], number(hours), *against),
                *(number(seconds) for seconds in (mean, p50, p95)),
                *(f"{100 * short:.2f} %", f"{100 * in_use:.0f} %"),
            )
        )
    columns = (
        *("floor", "node-hours", "over reactive", "p95 wait over reactive"),
        *("mean wait, s", "p50", "p95", "hours short", "GPUs in use"),
    )
    return Table(title=f"{DAYS} days, {SEEDS} seeds", columns=columns, rows=tuple(rows))


def _shown(estimate: Estimate) -> str:
    return shown(estimate, "{:.2f}".format)
