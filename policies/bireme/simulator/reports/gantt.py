"""Who held which GPU when: the busiest hours, node by node, a panel per policy.

Every policy is shown in the same hours and on the same nodes, chosen once: the stretch in which
most gangs waited under the first policy, as long as it can be without more bars than an eye or a
browser takes, on the nodes that worked most. A row is a node and has a lane per GPU. Which GPU of
its node a replica has is not simulated, so bars take the lowest free lanes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np

from bireme.simulator import quantities, steps
from bireme.simulator.outcome import JobRecord, Outcome, Span
from bireme.simulator.reports import axes, svg, words

MOST_NODES: Final = 24
MOST_SPANS_PER_NODE: Final = 40
LONGEST_SECONDS: Final = 86_400.0
SHORTEST_SECONDS: Final = 600.0
_MAP_PIXELS: Final = 520
_ROW_PIXELS: Final = (18, 44)
_GAP_PIXELS: Final = 4
_LONGEST_NAME: Final = 16
_COLOURS: Final = 8
_SHADES: Final = 3


@dataclass(frozen=True, slots=True)
class Window:
    """What is shown: seconds after the start of the trace, and GPUs by node, in order."""

    began: float
    ended: float
    gpus_by_node: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Stay:
    """One span on one node."""

    job: int
    record: JobRecord
    span: Span
    gpus: int


def choose(outcomes: Sequence[Outcome], gpus_by_node: Mapping[str, int]) -> Window:
    """The busiest hours and the nodes that worked most in them; all nodes when they are few."""
    whole = Window(
        earliest(outcomes),
        max(quantities.last_end(one) for one in outcomes),
        {name: gpus for name, gpus in gpus_by_node.items() if gpus},
    )
    seconds = min(max(whole.ended - whole.began, 1.0), LONGEST_SECONDS)
    window = _busiest(outcomes[0], whole, seconds)
    while seconds / 2 >= SHORTEST_SECONDS and _is_crowded(outcomes, window):
        seconds /= 2
        window = _busiest(outcomes[0], whole, seconds)
    return window


def earliest(outcomes: Sequence[Outcome]) -> float:
    """The first submission, seconds after the start of the trace."""
    return min(quantities.first_submission(one) for one in outcomes)


def _busiest(outcome: Outcome, whole: Window, seconds: float) -> Window:
    starts = np.linspace(whole.began, max(whole.began, whole.ended - seconds), 500)
    series = outcome.series
    busy = series.waiting if series.waiting.any() else series.used_gpus
    area = steps.integral(series.times, busy, starts + seconds)
    began = float(starts[np.argmax(area - steps.integral(series.times, busy, starts))])
    window = Window(began, began + seconds, whole.gpus_by_node)
    return Window(began, began + seconds, _hardest_working(outcome, window))


def _hardest_working(outcome: Outcome, window: Window) -> dict[str, int]:
    worked = dict.fromkeys(window.gpus_by_node, 0.0)
    for node, stays in _stays(outcome, window).items():
        for stay in stays:
            held = min(stay.span.ended, window.ended) - max(stay.span.began, window.began)
            worked[node] += held * stay.gpus
    most = sorted(worked, key=lambda node: -worked[node])[:MOST_NODES]
    return {node: gpus for node, gpus in window.gpus_by_node.items() if node in most}


def _is_crowded(outcomes: Sequence[Outcome], window: Window) -> bool:
    bars = max(sum(map(len, _stays(one, window).values())) for one in outcomes)
    return bars > MOST_SPANS_PER_NODE * len(window.gpus_by_node)


def _stays(outcome: Outcome, window: Window) -> dict[str, list[_Stay]]:
    """What is seen of each node of the window, in order of begin; stays without a GPU are not."""
    found: dict[str, list[_Stay]] = {node: [] for node in window.gpus_by_node}
    for job, record in enumerate(outcome.jobs):
        for span in record.spans:
            if span.began < window.ended and span.ended > window.began:
                for node, gpus in _gpus_by_node(record, span).items():
                    if gpus and node in found:
                        found[node].append(_Stay(job, record, span, gpus))
    for stays in found.values():
        stays.sort(key=lambda stay: (stay.span.began, stay.job))
    return found


def _gpus_by_node(record: JobRecord, span: Span) -> dict[str, int]:
    gpus = quantities.gpus_by_task(record.job)
    held: dict[str, int] = {}
    for task, node, count in span.places:
        held[node] = held.get(node, 0) + gpus[task] * count
    return held


def panel(outcome: Outcome, window: Window, name: str) -> str:
    """The map of one policy."""
    rows = len(window.gpus_by_node)
    least, most = _ROW_PIXELS
    high = min(max(_MAP_PIXELS // max(rows, 1) - _GAP_PIXELS, least), most)
    pixels = rows * (high + _GAP_PIXELS)
    drawing, labels = [], []
    stays = _stays(outcome, window)
    for row, (node, gpus) in enumerate(window.gpus_by_node.items()):
        top = row * (high + _GAP_PIXELS)
        drawing.append(svg.box(0, top, svg.SIDE, high, "idle"))
        labels.append(f'<span style="top:{top + high / 2:.0f}px">{escape(node)}</span>')
        for stay, lanes in _in_lanes(stays[node], gpus):
            drawing.append(_bar(stay, lanes, top, high / gpus, window))
    across = axes.seconds(0.0, window.ended - window.began)
    longest = min(max(map(len, stays), default=0), _LONGEST_NAME)
    says = f"GPUs held by each job on {words.plural(rows, 'node')} under {name}"
    return (
        f'<div class="map" style="--height:{pixels}px;--longest:{longest}">'
        f'<div class="up">{"".join(labels)}</div>'
        f'<svg viewBox="0 0 {svg.SIDE} {pixels}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(says)}">{"".join(drawing)}</svg>'
        f'<div class="across">{svg.labels(across, "left")}</div></div>'
    )


def _in_lanes(stays: Sequence[_Stay], gpus: int) -> Iterator[tuple[_Stay, list[int]]]:
    """Each stay with the lanes it takes, the lowest that are free at its begin."""
    free_from = [-np.inf] * gpus
    for stay in stays:
        free = [lane for lane in range(gpus) if free_from[lane] <= stay.span.began]
        lanes = free[: stay.gpus]
        for lane in lanes:
            free_from[lane] = stay.span.ended
        yield stay, lanes


def _bar(stay: _Stay, lanes: Sequence[int], top: float, lane: float, window: Window) -> str:
    across = axes.Axis(window.began, window.ended, ())
    left, right = svg.SIDE * across.share(np.array([stay.span.began, stay.span.ended]))
    runs = [
        svg.box(left, top + first * lane, right - left, count * lane)
        for first, count in _neighbours(lanes)
    ]
    if stay.span.ended_by in ("preempted", "node lost") and stay.span.ended <= window.ended:
        runs += [
            svg.box(right - 2, top + first * lane, 2, count * lane, "cut")
            for first, count in _neighbours(lanes)
        ]
    nodes = len(_gpus_by_node(stay.record, stay.span))
    kind = f"gang g{stay.job % _COLOURS}" if nodes > 1 else f"solo s{stay.job % _SHADES}"
    return f'<g class="{kind}"><title>{escape(_told(stay, nodes))}</title>{"".join(runs)}</g>'


def _neighbours(lanes: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of adjacent lanes as (first, how many)."""
    runs: list[tuple[int, int]] = []
    for lane in lanes:
        if runs and lane == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((lane, 1))
    return runs


def _told(stay: _Stay, nodes: int) -> str:
    span, job = stay.span, stay.record.job
    gpus = sum(_gpus_by_node(stay.record, span).values())
    return (
        f"{job.name}: {words.plural(gpus, 'GPU')} on {words.plural(nodes, 'node')}, "
        f"{words.duration(span.ended - span.began)}, {span.ended_by}; "
        f"began {words.duration(span.began - job.submitted)} after submission"
    )
