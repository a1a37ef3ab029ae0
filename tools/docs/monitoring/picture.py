"""The overview dashboard as a picture, of five minutes of a real cluster and a real Prometheus.

Panels, places, titles, legends and units are those of Grafana, without a Grafana to run. Three
queues have more work than room, urgent gangs preempt others, and a shadow policy stands beside the
one that decides.
"""

import json
import random
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
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
from bireme_lab.simulator.reports.page import LIGHT, LIGHT_POLICIES
from testbed.controlplane.stack import BiremeStack
from testbed.prometheus import find_programs, serving
from testbed.scenario.manifests import scheduling_policy
from tools.demo import real_cluster
from tools.demo.cluster import RUN
from tools.demo.submission import Submitter
from tools.demo.workload import Manifest, Submission, Workload, single, torch

Json = dict[str, Any]
SECONDS: Final = 300
_NODES, _RACKS = 8, 2
_STEPS: Final = 240
_PALETTE: Final = 192
# Steps of an axis; those of one in seconds are round in minutes and hours as well.
_ROUND: Final = ([1, 2, 5, 10], [1, 1.5, 3, 6, 10])
_COLOURS: Final = {"green": "#0b7d5a", "yellow": "#8a6a00", "red": "#c2181f"}


def picture(dashboard: Json, target: Path) -> None:
    """Run Bireme for five minutes and draw its dashboard; Unavailable without Prometheus."""
    programs = find_programs()
    with (
        real_cluster.served(_NODES, _RACKS, print) as stack,
        tempfile.TemporaryDirectory() as folder,
    ):
        ports = (stack.operator().port, stack.extender_port)
        targets = [f"127.0.0.1:{port}" for port in ports]
        with serving(programs, Path(folder), targets=targets) as url:
            start = time.time()  # noqa: TID251  # Prometheus counts in POSIX seconds
            _load(stack)
            draw(dashboard, Asked(url, start, start + SECONDS), target)


def _load(stack: BiremeStack) -> None:
    shadow = scheduling_policy("shortest-first", orderer="sjf", stage="Shadow")
    stack.cluster.kubectl("apply", "-f", "-", input=json.dumps(shadow))
    ends = time.monotonic() + SECONDS
    workload = Workload(_NODES, _RACKS, tuple(submissions()))
    cluster = real_cluster.demo_cluster(stack.cluster)
    with Submitter(cluster, workload, RUN / "jobs", lambda _: 0) as submitter:
        while time.monotonic() < ends:
            if submitter.failure is not None:
                raise submitter.failure
            time.sleep(1)


def submissions() -> Iterator[Submission]:
    """Yield more than there is room for during the first three minutes, then less."""
    deal = random.Random(7)  # noqa: S311  # a demo's dice
    for number, at in enumerate(range(0, SECONDS - 30, 4)):
        yield Submission(float(at), _job(f"job-{number:02d}", at, deal))


def _job(name: str, at: int, deal: random.Random) -> Manifest:
    seconds = deal.choice((6, 12, 20, 35))
    if deal.random() < 0.25:
        return single(name, 1, seconds)
    workers = deal.choice((1, 3, 5, 7)) if at < 0.6 * SECONDS else 1
    urgent = deal.random() < 0.2
    queue = "production" if urgent else "research"
    priority = "training-urgent" if urgent else "training-standard"
    return torch(name, workers, 4, seconds, queue, priority, expected=seconds + 5)


@dataclass(frozen=True, slots=True)
class Asked:
    """A Prometheus, and the time to be shown in POSIX seconds."""

    url: str
    start: float
    end: float

    def answers(self, query: str) -> list[tuple[dict[str, str], FloatArray]]:
        """Return every series that the query finds: its labels, and a value or NaN per step."""
        step = (self.end - self.start) / _STEPS
        asked = {"query": query, "start": self.start, "end": self.end, "step": step}
        with urlopen(f"{self.url}/api/v1/query_range?{urlencode(asked)}") as answer:  # noqa: S310  # loopback
            found = json.load(answer)["data"]["result"]
        return [(series["metric"], self._values(series["values"], step)) for series in found]

    def _values(self, points: Sequence[tuple[float, str]], step: float) -> FloatArray:
        # Prometheus leaves out the steps at which a series has no value.
        values = np.full(_STEPS + 1, np.nan)
        for at, value in points:
            values[round((at - self.start) / step)] = float(value)
        return values


def draw(dashboard: Json, asked: Asked, target: Path) -> None:
    panels = dashboard["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = Figure(figsize=(16, 0.28 * rows), facecolor=LIGHT["paper"], layout="constrained")
    grid = figure.add_gridspec(rows, 24)
    for panel in panels:
        x, y, width, height = (panel["gridPos"][key] for key in "xywh")
        axes = figure.add_subplot(grid[y : y + height, x : x + width], facecolor=LIGHT["card"])
        axes.spines[:].set_color(LIGHT["edge"])
        {"row": _heading, "stat": _number}.get(panel["type"], _curves)(axes, panel, asked)
    drawn = BytesIO()
    figure.savefig(drawn, dpi=80, format="png")
    # Few colours are half the bytes, in a repository that keeps every version.
    Image.open(drawn).convert("RGB").quantize(_PALETTE).save(target, optimize=True)


def _heading(axes: Any, panel: Json, _: Asked) -> None:
    axes.axis("off")
    axes.text(0, 0.5, panel["title"], va="center", size=11, weight="bold", color=LIGHT["ink"])


def _number(axes: Any, panel: Json, asked: Asked) -> None:
    axes.set(xticks=[], yticks=[])
    defaults = panel["fieldConfig"]["defaults"]
    found = asked.answers(panel["targets"][0]["expr"])
    value = last_known(found[0][1]) if found else None
    text = "no data" if value is None else worded(value, defaults["unit"])
    colour = _COLOURS[colour_of(value or 0.0, defaults)]
    axes.text(0.5, 0.8, panel["title"], ha="center", va="center", size=9, color=LIGHT["ink"])
    axes.text(0.5, 0.38, text, ha="center", va="center", size=17, color=colour)


def last_known(values: FloatArray) -> float | None:
    """Return the last value that is not NaN, as Grafana does: a scrape may be missed."""
    known: list[float] = values[~np.isnan(values)].tolist()
    return known[-1] if known else None


def colour_of(value: float, defaults: Json) -> str:
    """Return the colour of the last threshold that the value reaches."""
    steps = defaults["thresholds"]["steps"]
    return str([s["color"] for s in steps if s["value"] is None or value >= s["value"]][-1])


def _curves(axes: Any, panel: Json, asked: Asked) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    axes.set_title(panel["title"], size=9, loc="left", color=LIGHT["ink"])
    axes.grid(color=LIGHT["grid"], lw=0.6)
    axes.tick_params(labelsize=7, colors=LIGHT["soft"], length=0)
    axes.xaxis.set_major_formatter(lambda at, _: f"{at / 60:g} min")
    axes.yaxis.set_major_formatter(lambda value, _: worded(value, defaults["unit"]))
    axes.xaxis.set_major_locator(MultipleLocator(60))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_ROUND[defaults["unit"] == "s"]))
    curves = {
        legend_of(query["legendFormat"], labels): values
        for query in panel["targets"]
        for labels, values in asked.answers(query["expr"])
    }
    times = np.linspace(0, asked.end - asked.start, _STEPS + 1)
    if not curves:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color=LIGHT["soft"])
    elif "stacking" in defaults.get("custom", {}):
        layers = [np.nan_to_num(values) for values in curves.values()]
        axes.stackplot(times, *layers, labels=curves, colors=LIGHT_POLICIES, alpha=0.45)
    else:
        axes.set_prop_cycle(color=LIGHT_POLICIES)
        for name, values in curves.items():
            axes.plot(times, values, lw=1.2, label=name)
    legend = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.1), "ncols": 3}
    axes.legend(**legend, fontsize=7, frameon=False, labelcolor=LIGHT["soft"])
    axes.set_xlim(0, asked.end - asked.start)
    if "min" in defaults:
        axes.set_ylim(bottom=0, top=None if axes.get_ylim()[1] > 0 else 1)


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
