"""A drawing of its own for a page: which share of the jobs waited longer than so long."""

from collections.abc import Mapping
from html import escape
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme.simulator.reports import page, svg
from bireme.simulator.reports.svg import Axis

_WIDTH: Final = 860
_HEIGHT: Final = 460
_LEFT, _TOP, _RIGHT, _BOTTOM = 60, 40, 270, 40
_POINTS: Final = 200


def tails(title: str, waits: Mapping[str, FloatArray]) -> str:
    """Draw one line per name over its ascending waits in seconds; both axes logarithmic."""
    across = svg.log_seconds(svg.largest(list(waits.values())))
    least = 1 / max(len(one) for one in waits.values())
    shares = [(10.0**-n, f"{100 * 10.0**-n:g} %") for n in range(5) if 10.0**-n >= least]
    up = Axis(least, 1.0, tuple(shares), is_log=True)
    lines = "".join(
        svg.curve(*_tail(one), across, up, f"p{at}") for at, one in enumerate(waits.values())
    )
    names = "".join(
        f'<text class="t{at}" x="{_WIDTH - _RIGHT + 14}" y="{_TOP + 16 + 22 * at}">'
        f"{escape(name)}</text>"
        for at, name in enumerate(waits)
    )
    inside = (
        f'<svg x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" '
        f'height="{_HEIGHT - _TOP - _BOTTOM}" viewBox="0 0 {svg.SIDE} {svg.SIDE}" '
        f'preserveAspectRatio="none">{svg.box(0, 0, svg.SIDE, svg.SIDE, "field")}{lines}</svg>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="13"><style>{_style(len(waits))}</style>'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="{page.LIGHT["card"]}"/>'
        f'<text x="{_LEFT}" y="24">{escape(title)}: share of jobs that waited longer</text>'
        f"{_labels(across, up)}{inside}{names}</svg>\n"
    )


def _tail(ascending: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return waits, and the share of jobs that waited at least so long."""
    count = len(ascending)
    ranks = np.unique(count - np.geomspace(1, count, _POINTS).astype(int))
    return np.maximum(ascending[ranks], 1.0), (count - ranks) / count


def _style(lines: int) -> str:
    own = [page.LIGHT_POLICIES[at % page.COLOURS] for at in range(lines)]
    rules = "".join(f".p{at}{{stroke:{c}}}.t{at}{{fill:{c}}}" for at, c in enumerate(own))
    return (
        f"path{{fill:none;stroke-width:2;vector-effect:non-scaling-stroke}}"
        f".field{{fill:none;stroke:{page.LIGHT['edge']};vector-effect:non-scaling-stroke}}"
        f"text{{fill:{page.LIGHT['ink']}}}{rules}"
    )


def _labels(across: Axis, up: Axis) -> str:
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    below = "".join(
        f'<text x="{_LEFT + wide * place:.0f}" y="{_HEIGHT - 16}" text-anchor="middle">'
        f"{escape(label)}</text>"
        for place, label in _placed(across)
    )
    beside = "".join(
        f'<text x="{_LEFT - 8}" y="{_TOP + high * (1 - place) + 4:.0f}" text-anchor="end">'
        f"{escape(label)}</text>"
        for place, label in _placed(up)
    )
    return below + beside


def _placed(axis: Axis) -> list[tuple[float, str]]:
    values = np.array([value for value, _ in axis.ticks])
    labels = [label for _, label in axis.ticks]
    return [
        (float(at), label) for at, label in zip(axis.share(values), labels, strict=True) if label
    ]
