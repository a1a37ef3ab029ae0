"""How TapFinger and its ablations came to what they can (Li et al., figures 8, 13 and 14).

Mean completion times on the validation envs over the decisions taken, first while the rule was
copied, then while agents improved, from the ``curves.csv`` of a run of each.
"""

import csv
import io
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.learning.convergence import STYLE

_PANELS: Final = {
    "multi-3_jct_steps": "multi-3: completion time, steps",
    "pointer_jct_steps": "pointer: completion time, steps",
}
_COLOURS: Final = ("#2b5c9e", "#d08a2e", "#4c8c5c", "#9e2b4f")


def drawn(runs: Mapping[str, Path]) -> str:
    """Draw the curves of ``runs``, folders by recipe, as SVG."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 3.0), layout="constrained")
        for at, (column, label) in enumerate(_PANELS.items()):
            axes = figure.add_subplot(1, 2, at + 1)
            for (recipe, run), colour in zip(runs.items(), _COLOURS, strict=False):
                points = _points(run / "curves.csv", column)
                axes.plot(*points, color=colour, linewidth=1.5, marker=".", label=recipe)
            axes.set_ylabel(label)
            axes.set_xlabel("decisions")
            axes.set_yscale("log")
            axes.grid(color="#eeeeee")
            if at:
                axes.legend(frameon=False)
        held = io.StringIO()
        figure.savefig(held, format="svg", metadata={"Date": None})
    return held.getvalue()


def _points(curves: Path, column: str) -> tuple[list[float], list[float]]:
    """Return decisions over all stages, and the values where there are any."""
    rows = list(csv.DictReader(curves.read_text(encoding="utf-8").splitlines()))
    ends = {row["stage"]: float(row["step"]) for row in rows}
    before = dict(zip(ends, accumulate(ends.values(), initial=0.0), strict=False))
    told = [
        (before[r["stage"]] + float(r["step"]), float(r[column])) for r in rows if r.get(column)
    ]
    return [step for step, _ in told], [value for _, value in told]
