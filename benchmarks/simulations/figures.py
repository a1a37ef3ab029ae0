"""Figures of pages as SVG, equal for equal numbers."""

import io
from collections.abc import Mapping
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from bireme.core.resources import FloatArray

_POINTS: Final = 200


def as_svg(figure: Figure) -> str:
    """Return the figure with its text as text."""
    held = io.StringIO()
    # Ids of elements are random without a salt, and text would be drawn as paths.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "bireme"}):
        figure.savefig(held, format="svg", metadata={"Date": None})
    return held.getvalue()


def tails(title: str, waits: Mapping[str, FloatArray]) -> str:
    """Draw one line per name over its ascending waits in seconds; both axes logarithmic."""
    figure = Figure(figsize=(8.6, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for name, one in waits.items():
        axes.plot(*_tail(one), label=name)
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="share of jobs")
    axes.set_title(f"{title}: share of jobs that waited longer", loc="left")
    axes.grid(color="#eeeeee")
    axes.legend(frameon=False)
    return as_svg(figure)


def _tail(ascending: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return waits, and the share of jobs that waited at least so long."""
    count = len(ascending)
    ranks = np.unique(count - np.geomspace(1, count, _POINTS).astype(int))
    # A logarithmic axis has no place for jobs that did not wait.
    return np.maximum(ascending[ranks], 1.0), (count - ranks) / count
