"""Plots as SVG in a frame of HTML labels, without a plotting library.

The drawing is stretched to whatever width the reader's screen has, while lines keep their width
and labels, which are text beside the drawing, their size: the same plot serves a phone and a wide
screen. Everything is drawn on a field of 1000 by 1000; colours are classes that the page's style
defines for light and dark.
"""

from collections.abc import Iterable
from html import escape
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme.simulator.reports.axes import Axis

SIDE: Final = 1000


def plot(across: Axis, up: Axis, layers: Iterable[str], *, height: int, says: str) -> str:
    """A framed plot ``height`` pixels high; ``says`` tells in words what it shows."""
    ys, xs = 1 - up.share(_places(up)), across.share(_places(across))
    grid = "".join(f'<path class="grid" d="M0 {SIDE * y:.0f}H{SIDE}"/>' for y in ys)
    if across.is_log:
        grid += "".join(f'<path class="grid" d="M{SIDE * x:.0f} 0V{SIDE}"/>' for x in xs)
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
    """The ticks of an axis as text along ``side``, "left" or "bottom"."""
    return "".join(
        f'<span style="{side}:{100 * place:.2f}%">{escape(label)}</span>'
        for place, (_, label) in zip(axis.share(_places(axis)), axis.ticks, strict=True)
        if label
    )


def _places(axis: Axis) -> FloatArray:
    return np.array([value for value, _ in axis.ticks], dtype=float)


def step_line(edges: FloatArray, values: FloatArray, across: Axis, up: Axis, classes: str) -> str:
    """A step function: ``values[i]`` from ``edges[i]`` to ``edges[i + 1]``, one edge more."""
    return f'<path class="{classes}" d="M{_steps(edges, values, across, up)}"/>'


def step_area(edges: FloatArray, values: FloatArray, across: Axis, up: Axis, classes: str) -> str:
    """The area under a step function."""
    left, right = SIDE * across.share(edges[[0, -1]])
    outline = _steps(edges, values, across, up)
    return f'<path class="{classes}" d="M{left:.0f} {SIDE}L{outline}L{right:.0f} {SIDE}Z"/>'


def curve(xs: FloatArray, ys: FloatArray, across: Axis, up: Axis, classes: str) -> str:
    """A line through points."""
    points = zip(SIDE * across.share(xs), SIDE * (1 - up.share(ys)), strict=True)
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{classes}" d="M{path}"/>'


def level(value: float, up: Axis, classes: str) -> str:
    """A horizontal line over the whole width."""
    y = SIDE * (1 - up.share(np.array([value]))[0])
    return f'<path class="{classes}" d="M0 {y:.0f}H{SIDE}"/>'


def box(left: float, top: float, width: float, height: float, classes: str = "") -> str:
    """A rectangle in the drawing's own units."""
    named = f' class="{classes}"' if classes else ""
    return f'<rect{named} x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _steps(edges: FloatArray, values: FloatArray, across: Axis, up: Axis) -> str:
    xs = np.rint(SIDE * across.share(edges)).astype(int)
    ys = np.rint(SIDE * (1 - up.share(values))).astype(int)
    rises = [f"V{y}H{x}" for x, y in zip(xs[2:], ys[1:], strict=True)]
    return f"{xs[0]} {ys[0]}H{xs[1]}" + "".join(rises)
