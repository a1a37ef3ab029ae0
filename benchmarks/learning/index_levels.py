"""The learned index as a picture: scores over service, beside the two queues of Tiresias.

``python -m benchmarks.learning.index_levels`` writes ``docs/results/learning/learned-index.svg``
from the
checkpoint that is shipped. The x axis is how long a gang has run; a line per number of GPUs, for
gangs of unknown run time and for those expected to run an hour.
"""

from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.simulations.figures import as_svg
from bireme.core.resources import FloatArray
from bireme.rl.builtin import checkpoint
from bireme.rl.checkpoint import OrderPart
from bireme.rl.encoders.index import ATTAINED, DEVICES, FEATURES, IS_KNOWN, WHOLE

FILE: Final = Path(__file__).parents[2] / "docs" / "results" / "learning" / "learned-index.svg"
_GPUS: Final = (1, 8, 64)
_SECONDS: Final = np.geomspace(10.0, 1e6, 400)
_HOUR: Final = 3600.0
_THRESHOLD: Final = 3250.0
"""Device-seconds between the queues of ``tiresias-las``."""
_LIMIT_SECONDS: Final = 10.0


def draw(part: OrderPart) -> Figure:
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, title, whole in (
        (panels[0], "learned-index, nothing known", None),
        (panels[1], "learned-index, an hour expected", _HOUR),
        (panels[2], "tiresias-las", None),
    ):
        for gpus in _GPUS:
            is_rule = axes is panels[2]
            scores = (
                -(gpus * _SECONDS >= _THRESHOLD).astype(float)
                if is_rule
                else _scores(part, gpus, whole)
            )
            axes.step(_SECONDS, scores, where="post", label=f"{gpus} GPUs" if gpus > 1 else "1 GPU")
        _finish(axes, title)
    panels[0].set_ylabel("index (higher goes first)")
    panels[2].legend(frameon=False)
    return figure


def _scores(part: OrderPart, gpus: int, whole: float | None) -> FloatArray:
    rows = np.zeros((len(_SECONDS), FEATURES), dtype=np.float32)
    rows[:, ATTAINED] = np.log2(_SECONDS)
    rows[:, WHOLE] = 0.0 if whole is None else np.log2(whole)
    rows[:, IS_KNOWN] = whole is not None
    rows[:, DEVICES] = np.log2(gpus)
    return part.session.answer({"gangs": rows}, len(rows), _LIMIT_SECONDS)


def _finish(axes: Axes, title: str) -> None:
    axes.set_xscale("log")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("seconds it has run")
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    part = checkpoint("learned-index").orderer
    if part is None:
        raise SystemExit("the shipped learned-index has no orderer; train it again")
    FILE.write_text(as_svg(draw(part)), encoding="utf-8")


if __name__ == "__main__":
    main()
