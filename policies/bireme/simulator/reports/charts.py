"""Which curves the page shows: GPUs in use and gangs waiting over time, and who waited how long.

One outcome per policy, all of one seed and trace, so that curves share their axes.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme.simulator import quantities, steps
from bireme.simulator.outcome import Outcome
from bireme.simulator.reports import axes, svg, words
from bireme.simulator.reports.axes import Axis

BINS: Final = 400
_CURVE_POINTS: Final = 160
Quantity = Callable[[Outcome], FloatArray]


def usage(outcomes: Sequence[Outcome], names: Sequence[str]) -> str:
    """GPUs in use over time, a strip per policy, all on one time axis."""
    began, edges, across = _time(outcomes)
    total = max(one.total_gpus for one in outcomes)
    up = Axis(0.0, max(total, 1), ((0.0, "0"), (total, words.count(total))))
    strips = []
    for number, (outcome, name) in enumerate(zip(outcomes, names, strict=True)):
        used = steps.binned(outcome.series.times - began, outcome.series.used_gpus, edges)
        layers = (
            svg.step_area(edges, used, across, up, f"area p{number}"),
            svg.level(outcome.total_gpus, up, "limit"),
        )
        says = f"GPUs in use over time under {name}, {np.mean(used):.0f} of {outcome.total_gpus}"
        is_last = number == len(outcomes) - 1
        below = across if is_last else replace(across, ticks=())
        drawing = svg.plot(below, up, layers, height=72, says=says)
        strips.append(f'<div class="strip"><h4>{escape(name)}</h4>{drawing}</div>')
    return "".join(strips)


def waiting(outcomes: Sequence[Outcome]) -> str:
    """Gangs waiting over time, a line per policy."""
    began, edges, across = _time(outcomes)
    queues = [steps.binned(one.series.times - began, one.series.waiting, edges) for one in outcomes]
    up = axes.linear(axes.largest(queues), words.count)
    lines = [
        svg.step_line(edges, queue, across, up, f"line p{number}")
        for number, queue in enumerate(queues)
    ]
    return svg.plot(across, up, lines, height=220, says="Gangs waiting over time, by policy")


def distributions(outcomes: Sequence[Outcome]) -> str:
    """Which share of the jobs had at most so long a wait, completion time and slowdown."""
    shown: tuple[tuple[str, Quantity, Callable[[float], Axis]], ...] = (
        ("Wait until the first start", quantities.waited_seconds, axes.log_seconds),
        ("Job completion time", quantities.completion_seconds, axes.log_seconds),
        ("Slowdown", quantities.slowdowns, axes.log_factor),
    )
    cards = (_distribution(title, quantity, axis, outcomes) for title, quantity, axis in shown)
    return "".join(cards)


def _distribution(
    title: str, quantity: Quantity, axis: Callable[[float], Axis], outcomes: Sequence[Outcome]
) -> str:
    values = [np.sort(quantity(outcome)) for outcome in outcomes]
    across = axis(axes.largest(values))
    up = Axis(0.0, 1.0, tuple((n / 4, f"{25 * n} %") for n in range(5)))
    lines = [
        svg.curve(*_cumulative(one), across, up, f"line p{number}")
        for number, one in enumerate(values)
        if len(one)
    ]
    says = f"{title}: cumulative share of jobs, by policy"
    drawing = svg.plot(across, up, lines, height=220, says=says)
    return f'<div class="card"><h4>{escape(title)}</h4>{drawing}</div>'


def _cumulative(ascending: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Points of the empirical distribution of values in ascending order, the tails included."""
    ranks = np.unique(np.linspace(0, len(ascending) - 1, _CURVE_POINTS).astype(int))
    return ascending[ranks], (ranks + 1) / len(ascending)


def _time(outcomes: Sequence[Outcome]) -> tuple[float, FloatArray, Axis]:
    """The first submission; edges of the bins and their axis, in seconds after it."""
    began = min(quantities.first_submission(one) for one in outcomes)
    lasted = max(max(quantities.last_end(one) for one in outcomes) - began, 1.0)
    return began, np.linspace(0.0, lasted, BINS + 1), axes.seconds(0.0, lasted)
