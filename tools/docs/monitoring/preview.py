"""A dashboard as a picture, from the answers of a Prometheus to the dashboard's own queries.

It has Grafana's panels, places, titles, legends and units, without a Grafana to run.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator
from PIL import Image

from bireme.core.resources import FloatArray
from bireme.simulator.reports.page import LIGHT, LIGHT_POLICIES
from tools.docs.monitoring.grafana import Dashboard, Json, Panel, laid_out

_WIDTH_INCHES: Final = 16.0
_COLUMN_INCHES: Final = _WIDTH_INCHES / 24
_ROW_INCHES: Final = 0.28
_DPI: Final = 80
_STEPS: Final = 240
_PALETTE: Final = 192
_ROUND: Final = ([1, 2, 5, 10], [1, 1.5, 3, 6, 10])
"""Steps of an axis; those of one in seconds are round in minutes and hours as well."""
_COLOURS: Final = {"green": "#0b7d5a", "yellow": "#8a6a00", "red": "#c2181f"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A Prometheus, and the time to be shown in POSIX seconds."""

    url: str
    start: float
    end: float

    @property
    def times(self) -> FloatArray:
        return np.linspace(0, self.end - self.start, _STEPS + 1)

    def answers(self, query: str) -> list[tuple[dict[str, str], FloatArray]]:
        """Return every series that the query finds: its labels, its values at ``times`` or NaN."""
        step = (self.end - self.start) / _STEPS
        asked = {"query": query, "start": self.start, "end": self.end, "step": step}
        with urlopen(f"{self.url}/api/v1/query_range?{urlencode(asked)}") as answer:  # noqa: S310  # loopback
            found = json.load(answer)["data"]["result"]
        return [(series["metric"], self._values(series["values"], step)) for series in found]

    def _values(self, points: Sequence[tuple[float, str]], step: float) -> FloatArray:
        values = np.full(_STEPS + 1, np.nan)
        for at, value in points:
            values[round((at - self.start) / step)] = float(value)
        return values


def draw(dashboard: Dashboard, asked: Asked, target: Path) -> None:
    placed = list(laid_out(dashboard.panels))
    rows = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in placed)
    height = rows * _ROW_INCHES
    figure = Figure(figsize=(_WIDTH_INCHES, height), facecolor=LIGHT["paper"])
    for panel, each in zip(dashboard.panels, placed, strict=True):
        grid = each["gridPos"]
        left, top = grid["x"] * _COLUMN_INCHES, height - grid["y"] * _ROW_INCHES
        box = (left, top, grid["w"] * _COLUMN_INCHES, grid["h"] * _ROW_INCHES)
        if isinstance(panel, str):
            _write(figure, (left + 0.12, top - 0.2), panel, size=11, weight="bold")
        elif panel.kind == "stat":
            _number(figure, box, panel, asked)
        else:
            _curves(figure, box, panel, asked)
    _save(figure, target)


def _save(figure: Figure, target: Path) -> None:
    """Write with few colours: half the bytes."""
    drawn = BytesIO()
    figure.savefig(drawn, dpi=_DPI, format="png")
    Image.open(drawn).convert("RGB").quantize(_PALETTE).save(target, optimize=True)


def _write(figure: Figure, place: tuple[float, float], text: str, **style: Any) -> None:
    width, height = figure.get_size_inches()
    figure.text(place[0] / width, place[1] / height, text, **{"color": LIGHT["ink"], **style})


def _axes(figure: Figure, box: tuple[float, ...], margins: tuple[float, ...]) -> Any:
    """Add axes inside ``box`` (left, top, width, height), inches, less ``margins`` (l, t, r, b)."""
    width, height = figure.get_size_inches()
    left, top, wide, tall = box
    before, above, after, below = margins
    return figure.add_axes(
        (
            (left + before) / width,
            (top - tall + below) / height,
            (wide - before - after) / width,
            (tall - above - below) / height,
        ),
        facecolor=LIGHT["card"],
    )


def _number(figure: Figure, box: tuple[float, ...], panel: Panel, asked: Asked) -> None:
    axes = _axes(figure, box, (0.06, 0.06, 0.06, 0.06))
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color(LIGHT["edge"])
    (query,) = panel.queries.values()
    found = asked.answers(query)
    value = found[0][1][-1] if found else None
    said = "no data" if value is None else worded(value, panel.unit)
    colour = _COLOURS[colour_of(value or 0.0, panel.defaults)]
    axes.text(0.5, 0.8, panel.title, ha="center", va="center", size=9, color=LIGHT["ink"])
    axes.text(0.5, 0.38, said, ha="center", va="center", size=17, color=colour)


def colour_of(value: float, defaults: Json) -> str:
    """Return the colour of the last threshold that the value reaches."""
    steps = defaults["thresholds"]["steps"]
    return str([s["color"] for s in steps if s["value"] is None or value >= s["value"]][-1])


def _curves(figure: Figure, box: tuple[float, ...], panel: Panel, asked: Asked) -> None:
    curves = {
        legend_of(legend, labels): values
        for legend, query in panel.queries.items()
        for labels, values in asked.answers(query)
    }
    axes = _axes(figure, box, (0.7, 0.3, 0.15, 0.3 + 0.17 * ((len(curves) + 2) // 3)))
    _dress(axes, panel)
    stacked = "stacking" in panel.defaults.get("custom", {})
    _draw(axes, asked.times, curves, is_stacked=stacked)
    if curves:
        legend = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.1), "ncols": 3}
        axes.legend(**legend, fontsize=7, frameon=False, labelcolor=LIGHT["soft"])
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color=LIGHT["soft"])
    axes.set_xlim(0, asked.end - asked.start)
    if "min" in panel.defaults:
        axes.set_ylim(bottom=0, top=None if axes.get_ylim()[1] > 0 else 1)


def _dress(axes: Any, panel: Panel) -> None:
    axes.set_title(panel.title, size=9, loc="left", color=LIGHT["ink"])
    axes.grid(color=LIGHT["grid"], lw=0.6)
    axes.spines[:].set_color(LIGHT["edge"])
    axes.tick_params(labelsize=7, colors=LIGHT["soft"], length=0)
    axes.xaxis.set_major_formatter(lambda at, _: f"{at / 60:g} min")
    axes.yaxis.set_major_formatter(lambda value, _: worded(value, panel.unit))
    axes.xaxis.set_major_locator(MultipleLocator(60))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_ROUND[panel.unit == "s"]))


def _draw(
    axes: Any, times: FloatArray, curves: Mapping[str, FloatArray], *, is_stacked: bool
) -> None:
    below = np.zeros(len(times))
    for number, (name, values) in enumerate(curves.items()):
        colour = LIGHT_POLICIES[number % len(LIGHT_POLICIES)]
        if is_stacked:
            top = below + np.nan_to_num(values)
            axes.fill_between(times, below, top, color=colour, alpha=0.45, lw=0, label=name)
            below = top
        else:
            axes.plot(times, values, color=colour, lw=1.2, label=name)


def legend_of(legend: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), legend)


def worded(value: float, unit: str) -> str:
    """Format a number as Grafana shows it in ``unit``, with three digits."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit != "s":
        return f"{value / 1000:.3g} K" if abs(value) >= 1000 else f"{value:.3g}"
    for size, name in ((3600, "h"), (60, "min"), (1, "s"), (0.001, "ms")):
        if abs(value) >= size:
            return f"{value / size:.3g} {name}"
    return f"{value * 1e6:.3g} µs" if value else "0 s"
