"""Plots as SVG in a frame of HTML labels, without a plotting library.

The drawing, a field of 1000 by 1000, is stretched to the width of the screen. Lines keep their
width. Labels are text beside the drawing and keep their size. Colours are classes that the page's
style defines for light and dark.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import ceil, floor, log10
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme_lab.simulator import metrics
from bireme_lab.simulator.outcome import JobRecord, Outcome, RunSegment
from bireme_lab.simulator.reports import terminal

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_SECONDS_STEPS: Final = tuple(
    [n * 1.0 for n in (1, 2, 5, 10, 15, 30)]
    + [n * _MINUTE for n in (1, 2, 5, 10, 15, 30)]
    + [n * _HOUR for n in (1, 2, 3, 6, 12)]
    + [n * _DAY for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)]
)
_LINEAR_STEPS: Final = 4
_SECONDS_TICKS: Final = 6
"""The maximum number of ticks on an axis."""
_LOG_SECONDS: Final = {
    **{n * unit: n == 1 for unit in (1.0, _MINUTE, _HOUR) for n in (1, 10)},
    **{n * _DAY: True for n in (1, 10, 100, 1000)},
}
"""Ticks, and whether they have room for a label."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from ``low`` to ``high`` as places from 0 to 1; ``ticks`` are (value, label)."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    is_log: bool = False

    def share(self, values: FloatArray) -> FloatArray:
        """Return the places of ``values``, clipped to the ends of the axis."""
        low, high = self.low, self.high
        if self.is_log:
            low, high = log10(low), log10(high)
            values = np.log10(np.maximum(values, self.low))
        return np.clip((values - low) / (high - low), 0.0, 1.0)

    @property
    def tick_places(self) -> FloatArray:
        """Return the places of the ticks."""
        return self.share(np.array([value for value, _ in self.ticks], dtype=float))


def linear(high: float, label: Callable[[float], str]) -> Axis:
    """Make an axis that ends on a tick, from 0 to at least ``high``."""
    min_step = max(high, 1e-9) / _LINEAR_STEPS
    power = 10.0 ** floor(log10(min_step))
    # The tolerance accepts a step that is too small by rounding only.
    step = next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= min_step * (1 - 1e-9))
    steps = max(1, ceil(high / step - 1e-9))
    ticks = tuple((n * step, label(n * step)) for n in range(steps + 1))
    return Axis(0.0, steps * step, ticks)


def seconds(high: float) -> Axis:
    """Make an axis of time from 0 to ``high`` seconds, above 0, ticked at round times."""
    fitting = (step for step in _SECONDS_STEPS if high / step <= _SECONDS_TICKS)
    step = next(fitting, _SECONDS_STEPS[-1])
    ticks = tuple((n * step, clock(n * step)) for n in range(floor(high / step + 1e-12) + 1))
    return Axis(0.0, high, ticks)


def log_seconds(high: float) -> Axis:
    """Make an axis of durations from one second to at least ``high``."""
    return _logarithmic(high, [(v, clock(v) if named else "") for v, named in _LOG_SECONDS.items()])


def log_factor(high: float) -> Axis:
    """Make an axis of ratios from 1 to at least ``high``, a tick per power of ten."""
    labels = [f"{10 ** (n % 3)} {' kMGTPE'[n // 3]}".strip() for n in range(21)]
    return _logarithmic(high, [(10.0**n, label) for n, label in enumerate(labels)])


def _logarithmic(high: float, ticks: Sequence[tuple[float, str]]) -> Axis:
    """Make an axis from 1, the first of ``ticks``, to the tick at or above ``high``."""
    # The tolerance keeps rounding from adding a tick.
    end = next((value for value, _ in ticks[1:] if value >= high * (1 - 1e-9)), ticks[-1][0])
    return Axis(1.0, end, tuple(tick for tick in ticks if tick[0] <= end), is_log=True)


def clock(value: float) -> str:
    """Return a round duration in its largest exact unit: ``0``, ``90 s``, ``36 h``, ``2 d``."""
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if value >= size and value % size == 0:
            return f"{value / size:,.0f} {unit}"
    return f"{value:g} s" if value else "0"


def largest(arrays: Sequence[FloatArray]) -> float:
    """Return the largest value in any of ``arrays``; 0 when all are empty."""
    return max((float(one.max()) for one in arrays if len(one)), default=0.0)


SIDE: Final = 1000


def plot(across: Axis, up: Axis, layers: Iterable[str], *, height: int, says: str) -> str:
    """Draw a framed plot ``height`` pixels high; ``says`` describes it to screen readers."""
    ys, xs = 1 - up.tick_places, across.tick_places
    grid = "".join(f'<path class="grid" d="M0 {SIDE * y:.0f}H{SIDE}"/>' for y in ys)
    if across.is_log:
        grid += "".join(f'<path class="grid" d="M{SIDE * x:.0f} 0V{SIDE}"/>' for x in xs)
    # Without its aspect ratio the field fills any width; strokes keep theirs by vector-effect.
    drawing = (
        f'<svg viewBox="0 0 {SIDE} {SIDE}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(says)}">{grid}{"".join(layers)}</svg>'
    )
    return (
        f'<div class="plot" style="--height:{height}px">'
        f'<div class="up">{labels(up, "bottom")}</div>{drawing}'
        f'<div class="across">{labels(across, "left")}</div></div>'
    )


def labels(axis: Axis, side: str) -> str:
    """Write the ticks of an axis as text along ``side``, "left" or "bottom"."""
    return "".join(
        f'<span style="{side}:{100 * place:.2f}%">{escape(label)}</span>'
        for place, (_, label) in zip(axis.tick_places, axis.ticks, strict=True)
        if label
    )


def curve(xs: FloatArray, ys: FloatArray, across: Axis, up: Axis, classes: str) -> str:
    """Draw a line through points."""
    points = zip(SIDE * across.share(xs), SIDE * (1 - up.share(ys)), strict=True)
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{classes}" d="M{path}"/>'


def _steps(edges: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the corners of a step function: ``values[i]`` from ``edges[i]`` to the next edge."""
    return np.repeat(edges, 2)[1:-1], np.repeat(values, 2)


def box(x: float, top: float, width: float, height: float, classes: str = "") -> str:
    """Draw a rectangle in the drawing's own units."""
    named = f' class="{classes}"' if classes else ""
    return f'<rect{named} x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


# --- GPUs in use and gangs waiting over time, and the distribution of waits ----------------------
#
# One outcome per policy, all of one seed and trace, so that curves share their axes.

BINS: Final = 400
_CURVE_POINTS: Final = 160
Quantity = Callable[[Outcome], FloatArray]


def usage(outcomes: Sequence[Outcome], names: Sequence[str]) -> str:
    """Draw the GPUs in use over time, a strip per policy, all on one time axis."""
    began, edges, across = _time(outcomes)
    total = max(one.total_gpus for one in outcomes)
    up = Axis(0.0, max(total, 1), ((0.0, "0"), (total, terminal.count(total))))
    strips = []
    for number, (outcome, name) in enumerate(zip(outcomes, names, strict=True)):
        used = metrics.bin_means(outcome.series.times - began, outcome.series.used_gpus, edges)
        corners = _steps(edges, used)
        # Down to the axis at both ends: the area is filled.
        area = np.pad(corners[0], 1, mode="edge"), np.pad(corners[1], 1)
        limit = np.repeat(float(outcome.total_gpus), 2)
        layers = (
            curve(*area, across, up, f"area p{number}"),
            curve(edges[[0, -1]], limit, across, up, "limit"),
        )
        says = f"GPUs in use over time under {name}, {np.mean(used):.0f} of {outcome.total_gpus}"
        is_last = number == len(outcomes) - 1
        axis = across if is_last else replace(across, ticks=())
        drawing = plot(axis, up, layers, height=72, says=says)
        strips.append(f'<div class="strip"><h4>{escape(name)}</h4>{drawing}</div>')
    return "".join(strips)


def waiting(outcomes: Sequence[Outcome]) -> str:
    """Draw the gangs waiting over time, a line per policy."""
    began, edges, across = _time(outcomes)
    queues = [
        metrics.bin_means(one.series.times - began, one.series.waiting, edges) for one in outcomes
    ]
    up = linear(largest(queues), terminal.count)
    lines = [
        curve(*_steps(edges, queue), across, up, f"line p{number}")
        for number, queue in enumerate(queues)
    ]
    return plot(across, up, lines, height=220, says="Gangs waiting over time, by policy")


def distributions(outcomes: Sequence[Outcome]) -> str:
    """Draw the cumulative distributions of wait, completion time and slowdown over jobs."""
    quantities: tuple[tuple[str, Quantity, Callable[[float], Axis]], ...] = (
        ("Wait until the first start", metrics.wait_seconds, log_seconds),
        ("Job completion time", metrics.completion_seconds, log_seconds),
        ("Slowdown", metrics.slowdowns, log_factor),
    )
    cards = (_distribution(title, quantity, axis, outcomes) for title, quantity, axis in quantities)
    return "".join(cards)


def _distribution(
    title: str, quantity: Quantity, axis: Callable[[float], Axis], outcomes: Sequence[Outcome]
) -> str:
    values = [np.sort(quantity(outcome)) for outcome in outcomes]
    across = axis(largest(values))
    up = Axis(0.0, 1.0, tuple((n / 4, f"{25 * n} %") for n in range(5)))
    lines = [
        curve(*_cumulative(one), across, up, f"line p{number}")
        for number, one in enumerate(values)
        if len(one)
    ]
    says = f"{title}: cumulative share of jobs, by policy"
    drawing = plot(across, up, lines, height=220, says=says)
    return f'<div class="card"><h4>{escape(title)}</h4>{drawing}</div>'


def _cumulative(ascending: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return points of the empirical distribution of ascending values, the tails included."""
    ranks = np.unique(np.linspace(0, len(ascending) - 1, _CURVE_POINTS).astype(int))
    return ascending[ranks], (ranks + 1) / len(ascending)


def _time(outcomes: Sequence[Outcome]) -> tuple[float, FloatArray, Axis]:
    """Return the first submission; edges of the bins and their axis, in seconds after it."""
    began = earliest(outcomes)
    lasted = max(max(metrics.last_end(one) for one in outcomes) - began, 1.0)
    return began, np.linspace(0.0, lasted, BINS + 1), seconds(lasted)


# --- The map: gangs on GPUs in the busiest hours, node by node, a panel per policy ----------------
#
# All policies are drawn in the same hours and on the same nodes. The hours are the period in which
# most gangs waited under the first policy, limited by the number of bars that a reader or a browser
# can handle. The nodes are those with most GPU-seconds. A row is a node and has a lane per GPU. The
# simulation does not assign GPUs to replicas, so bars take the lowest free lanes.

MAX_NODES: Final = 24
MAX_SPANS_PER_NODE: Final = 40
MAX_SECONDS: Final = 86_400.0
MIN_SECONDS: Final = 600.0
_MAP_PIXELS: Final = 520
_ROW_PIXELS: Final = (18, 44)
_GAP_PIXELS: Final = 4
_MAX_NAME: Final = 16
_COLOURS: Final = 8
_SHADES: Final = 3


@dataclass(frozen=True, slots=True)
class GanttWindow:
    """The part drawn: seconds after the start of the trace, and GPUs by node, in order."""

    began: float
    ended: float
    gpus_by_node: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Stay:
    """One segment on one node."""

    job: int
    record: JobRecord
    segment: RunSegment
    gpus: int


def choose(outcomes: Sequence[Outcome], gpus_by_node: Mapping[str, int]) -> GanttWindow:
    """Choose the busiest hours and the nodes with most GPU-seconds in them."""
    whole = GanttWindow(
        earliest(outcomes),
        max(metrics.last_end(one) for one in outcomes),
        {name: gpus for name, gpus in gpus_by_node.items() if gpus},
    )
    seconds = min(max(whole.ended - whole.began, 1.0), MAX_SECONDS)
    # Halve the window until the bars are distinct.
    window = _busiest(outcomes[0], whole, seconds)
    while seconds / 2 >= MIN_SECONDS and _is_crowded(outcomes, window):
        seconds /= 2
        window = _busiest(outcomes[0], whole, seconds)
    return window


def earliest(outcomes: Sequence[Outcome]) -> float:
    """Return the first submission, seconds after the start of the trace."""
    return min(metrics.first_submission(one) for one in outcomes)


def _busiest(outcome: Outcome, whole: GanttWindow, seconds: float) -> GanttWindow:
    starts = np.linspace(whole.began, max(whole.began, whole.ended - seconds), 500)
    series = outcome.series
    busy = series.waiting if series.waiting.any() else series.used_gpus
    area = metrics.integral(series.times, busy, starts + seconds)
    began = float(starts[np.argmax(area - metrics.integral(series.times, busy, starts))])
    window = GanttWindow(began, began + seconds, whole.gpus_by_node)
    return GanttWindow(began, began + seconds, _hardest_working(outcome, window))


def _hardest_working(outcome: Outcome, window: GanttWindow) -> dict[str, int]:
    gpu_seconds = dict.fromkeys(window.gpus_by_node, 0.0)
    for node, stays in _stays(outcome, window).items():
        for stay in stays:
            duration_seconds = min(stay.segment.ended, window.ended) - max(
                stay.segment.began, window.began
            )
            gpu_seconds[node] += duration_seconds * stay.gpus
    busiest = sorted(gpu_seconds, key=lambda node: -gpu_seconds[node])[:MAX_NODES]
    return {node: gpus for node, gpus in window.gpus_by_node.items() if node in busiest}


def _is_crowded(outcomes: Sequence[Outcome], window: GanttWindow) -> bool:
    bars = max(sum(map(len, _stays(one, window).values())) for one in outcomes)
    return bars > MAX_SPANS_PER_NODE * len(window.gpus_by_node)


def _stays(outcome: Outcome, window: GanttWindow) -> dict[str, list[_Stay]]:
    """Return the stays with GPUs on each node of the window, in order of begin."""
    stays_by_node: dict[str, list[_Stay]] = {node: [] for node in window.gpus_by_node}
    for job, record in enumerate(outcome.jobs):
        for segment in record.segments:
            if segment.began < window.ended and segment.ended > window.began:
                for node, gpus in metrics.gpus_by_node(record, segment).items():
                    if gpus and node in stays_by_node:
                        stays_by_node[node].append(_Stay(job, record, segment, gpus))
    for stays in stays_by_node.values():
        stays.sort(key=lambda stay: (stay.segment.began, stay.job))
    return stays_by_node


def panel(outcome: Outcome, window: GanttWindow, name: str) -> str:
    """Draw the map of one policy."""
    rows = len(window.gpus_by_node)
    min_pixels, max_pixels = _ROW_PIXELS
    high = min(max(_MAP_PIXELS // max(rows, 1) - _GAP_PIXELS, min_pixels), max_pixels)
    pixels = rows * (high + _GAP_PIXELS)
    drawing, node_labels = [], []
    stays = _stays(outcome, window)
    for row, (node, gpus) in enumerate(window.gpus_by_node.items()):
        top = row * (high + _GAP_PIXELS)
        drawing.append(box(0, top, SIDE, high, "idle"))
        node_labels.append(f'<span style="top:{top + high / 2:.0f}px">{escape(node)}</span>')
        for stay, lanes in _in_lanes(stays[node], gpus):
            drawing.append(_bar(stay, lanes, top, high / gpus, window))
    across = seconds(window.ended - window.began)
    name_length = min(max(map(len, stays), default=0), _MAX_NAME)
    says = f"GPUs held by each job on {terminal.plural(rows, 'node')} under {name}"
    return (
        f'<div class="map" style="--height:{pixels}px;--longest:{name_length}">'
        f'<div class="up">{"".join(node_labels)}</div>'
        f'<svg viewBox="0 0 {SIDE} {pixels}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(says)}">{"".join(drawing)}</svg>'
        f'<div class="across">{labels(across, "left")}</div></div>'
    )


def _in_lanes(stays: Sequence[_Stay], gpus: int) -> Iterator[tuple[_Stay, list[int]]]:
    """Yield each stay with its lanes, the lowest free ones at its begin."""
    free_from = [-np.inf] * gpus
    for stay in stays:
        free = [lane for lane in range(gpus) if free_from[lane] <= stay.segment.began]
        lanes = free[: stay.gpus]
        for lane in lanes:
            free_from[lane] = stay.segment.ended
        yield stay, lanes


def _bar(stay: _Stay, lanes: Sequence[int], top: float, lane: float, window: GanttWindow) -> str:
    across = Axis(window.began, window.ended, ())
    x, x_end = SIDE * across.share(np.array([stay.segment.began, stay.segment.ended]))
    rows = [(top + first * lane, count * lane) for first, count in _neighbours(lanes)]
    runs = [box(x, y, x_end - x, high) for y, high in rows]
    if stay.segment.ended_by in ("preempted", "node lost") and stay.segment.ended <= window.ended:
        runs += [box(x_end - 2, y, 2, high, "cut") for y, high in rows]
    gpus_by_node = metrics.gpus_by_node(stay.record, stay.segment)
    kind = (
        f"gang g{stay.job % _COLOURS}" if len(gpus_by_node) > 1 else f"solo s{stay.job % _SHADES}"
    )
    return (
        f'<g class="{kind}"><title>{escape(_title(stay, gpus_by_node))}</title>{"".join(runs)}</g>'
    )


def _neighbours(lanes: Sequence[int]) -> list[tuple[int, int]]:
    """Return runs of adjacent lanes as (first, number)."""
    runs: list[tuple[int, int]] = []
    for lane in lanes:
        if runs and lane == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((lane, 1))
    return runs


def _title(stay: _Stay, gpus_by_node: Mapping[str, int]) -> str:
    segment, job = stay.segment, stay.record.job
    gpus, nodes = sum(gpus_by_node.values()), len(gpus_by_node)
    return (
        f"{job.name}: {terminal.plural(gpus, 'GPU')} on {terminal.plural(nodes, 'node')}, "
        f"{terminal.duration(segment.ended - segment.began)}, {segment.ended_by}; "
        f"began {terminal.duration(segment.began - job.submitted)} after submission"
    )
