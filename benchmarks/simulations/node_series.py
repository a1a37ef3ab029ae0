"""Shortage of one pool whose demand is the nodes that Philly had in use, minute by minute.

Nodes asked for come after three minutes, empty ones go after their cool-down, and
:func:`bireme.core.node_floor.floor` is asked every minute as the operator does. A forecast learns
from hourly means.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.report import Table
from benchmarks.simulations.weekly import Weekly
from bireme.core.node_floor import HourForecast, PoolBounds, PoolState, Raised, floor, with_step
from bireme.core.pool_history import PoolHistory
from bireme.core.resources import FloatArray, IntArray
from bireme.core.times import DAY, HOUR
from bireme.forecasting.forecasters import make
from bireme.forecasting.gru import Gru
from bireme.forecasting.networks import DataRange
from bireme.forecasting.pool_forecast import HORIZON_HOURS
from bireme_lab.simulator.node_floors import nightly_forecast
from bireme_lab.simulator.node_pools import Forecast, NodePool
from bireme_lab.simulator.reports.terminal import number
from bireme_lab.simulator.traces.tables import read_table

SERIES: Final = "helios/philly_node_sequence_1min.csv.gz"
NETWORK: Final = Path(__file__).parent / "gru-generated"
"""Trained by ``bireme train gru`` on generated demand alone: it has seen no day of a cluster."""
MOST: Final = 552
"""The most nodes that Philly had in these weeks."""
QUANTILES: Final = (0.75, 0.9, 0.99)
_MINUTE: Final = 60
_START: Final = 1_506_988_800.0
"""Start of the series, POSIX seconds: 2017-10-03."""
_DELAY_MINUTES: Final = 3
_NIGHT: Final = 30
_DAY_MINUTES: Final = 24 * 60
_WARM_DAYS: Final = 28
"""Days in which demand is only recorded, before anything is counted."""
_BAR: Final = 0.005


@dataclass(slots=True)
class _Nodes:
    """Nodes of one pool, the busy ones first; times in POSIX seconds."""

    pool: NodePool
    replicas: int
    there: int
    idle_since: FloatArray
    coming: list[tuple[int, int]] = field(default_factory=list)
    forecast: Sequence[HourForecast] = ()
    made: float | None = None
    raised: Raised = ()

    def scale(self, asked: int, minute: int) -> None:
        """Scale as the core says, with ``asked`` nodes in use or waited for."""
        now = float(minute * _MINUTE)
        used = min(asked, self.there)
        empty = tuple(self.idle_since[used : self.there].tolist())
        wanted = max(asked, self.replicas) if asked > self.there else 0
        nodes = (self.replicas, used, wanted, self.replicas - self.there, empty)
        state = PoolState(*nodes, tuple(self.forecast), self.made, self.raised)
        decided = floor(self.pool.bounds, state, now)
        self.raised = with_step(self.raised, decided.step, now)
        more, self.replicas = decided.replicas - self.replicas, decided.replicas
        if more > 0:
            self.coming.append((minute + _DELAY_MINUTES, more))
        else:
            self.there += more

    def pass_minute(self, asked: int, minute: int) -> None:
        while self.coming and self.coming[0][0] <= minute:
            self.there += self.coming.pop(0)[1]
        self.idle_since[: min(asked, self.there)] = (minute + 1) * _MINUTE


def follow(demand: IntArray, pool: NodePool) -> tuple[IntArray, IntArray]:
    """Return nodes there, and there or on their way, by minute; shape of ``demand``."""
    nodes = _Nodes(pool, int(demand[0]), int(demand[0]), np.zeros(pool.bounds.maximum))
    lead = pool.bounds.lead_seconds // _MINUTE
    hourly = demand[: len(demand) // 60 * 60].reshape(-1, 60).mean(axis=1)
    there, asked = np.zeros_like(demand), np.zeros_like(demand)
    for minute, now in enumerate(demand.tolist()):
        nodes.pass_minute(now, minute)
        if pool.forecast is not None and minute % _DAY_MINUTES == _NIGHT:
            known = hourly[: minute // 60]
            history = PoolHistory(0.0, known, np.full(len(known), np.nan))
            nodes.forecast = pool.forecast(minute * _MINUTE, history)
            nodes.made = float(minute * _MINUTE)
        cool = minute * _MINUTE - pool.bounds.cool_down_seconds
        is_cool = nodes.there > now and nodes.idle_since[nodes.there - 1] <= cool
        # Asked only when the answer may differ: to ask in each of 64800 minutes takes long.
        if now > nodes.replicas or is_cool or minute % 60 in (0, _NIGHT, 61 - lead):
            nodes.scale(now, minute)
        there[minute], asked[minute] = nodes.there, nodes.replicas
    return there, asked


def perfect(demand: IntArray) -> Forecast:
    """Forecast the most nodes that will be in use in every hour."""
    peaks = demand[: len(demand) // 60 * 60].reshape(-1, 60).max(axis=1).astype(float)

    def forecast(now: float, _: PoolHistory) -> Sequence[HourForecast]:
        first = int(now // HOUR)
        ahead = peaks[first : first + 48].tolist()
        return [HourForecast(HOUR * (first + at), peak, peak) for at, peak in enumerate(ahead)]

    return forecast


def read(data: Path) -> IntArray:
    return np.array(read_table(data / SERIES, ("active",)).counts("active"), dtype=np.int64)


def pools(demand: IntArray) -> dict[str, NodePool]:
    bounds = PoolBounds(0, MOST, max_step=MOST, scale_in=True)
    plain = NodePool(name="philly", bounds=bounds)
    end = _START + len(demand) * _MINUTE
    gru = Gru(NETWORK, evaluated_on=(DataRange("Philly", _START + _WARM_DAYS * DAY, end),))
    made = make(("seasonal-naive", "lsp"), steps=HORIZON_HOURS, gru=gru)
    forecasters = [Weekly(forecaster) for forecaster in made]
    return {
        "reactive only": plain,
        **{
            f"{name}, quantile {quantile:g}": replace(
                plain, forecast=nightly_forecast([forecaster], plain, quantile)
            )
            for name, forecaster in zip(("seasonal-naive", "LSP"), forecasters, strict=True)
            for quantile in QUANTILES
        },
        "oracle": replace(plain, forecast=perfect(demand)),
    }


def table(data: Path) -> tuple[Table, str]:
    """Return shortfall and node-hours over the days after the warm-up, and what was found."""
    demand = read(data)
    rows, short = [], {}
    for name, pool in pools(demand).items():
        node_hours, *shares = _measures(demand, *follow(demand, pool))
        short[name] = shares[0], shares[1]
        rows.append((name, number(node_hours), *(f"{100 * share:.2f} %" for share in shares)))
    columns = ("floor", "node-hours", "time short", "hours short on the mean", "hours ever short")
    title = "The nodes that Philly had in use"
    return Table(title=title, columns=columns, rows=tuple(rows)), _finding(short)


def _measures(demand: IntArray, there: IntArray, asked: IntArray) -> list[float]:
    """Return node-hours, and the shares of minutes and hours with fewer nodes than in use."""
    counted = slice(_WARM_DAYS * _DAY_MINUTES, len(demand) // 60 * 60)
    lack = (demand - there)[counted].reshape(-1, 60)
    shares = (lack > 0, lack.mean(axis=1) > 0, (lack > 0).any(axis=1))
    return [float(asked[counted].sum()) / 60, *(float(share.mean()) for share in shares)]


def _finding(short: Mapping[str, tuple[float, float]]) -> str:
    """Compare shares of minutes and of hours on the mean, by floor, with the aim."""
    by_minute, by_hour = (
        [name for name, shares in short.items() if shares[at] <= _BAR] for at in (0, 1)
    )
    minutes, hours = short["reactive only"]
    return (
        f"The nodes that Philly had in use: where nodes are asked for when they are missed, there "
        f"are too few in {100 * hours:.2f} % of the hours on the mean, and in "
        f"{100 * minutes:.2f} % of the minutes. The aim, {100 * _BAR:g} %, is kept by the hour "
        f"by {len(by_hour)} of {len(short)} ({', '.join(by_hour) or 'none'}), by the minute by "
        f"{', '.join(by_minute) or 'none'}."
    )
