"""``python -m benchmarks.learning NAME RESULTS.json... [RUN/curves.csv...]``: write a page."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import RESULTS
from benchmarks.learning.bars import BARS
from benchmarks.learning.page import page
from bireme_lab.training.evaluation import EvaluationResult

FOLDER: Final = RESULTS / "learning"


def main(arguments: Sequence[str]) -> None:
    """Write the page; exits with a message where an argument cannot be used."""
    if len(arguments) < 2 or arguments[0] not in BARS:
        sys.exit(
            "usage: python -m benchmarks.learning NAME RESULTS.json... [RUN/curves.csv...]; "
            f"NAME is one of {', '.join(BARS)}"
        )
    name, *files = arguments
    curves = [file for file in files if file.endswith(".csv")]
    read = [json.loads(Path(file).read_text("utf-8")) for file in files if file not in curves]
    results = [EvaluationResult.from_json(found) for each in read for found in each["settings"]]
    drawings = _drawings([Path(file).parent for file in curves])
    for file, drawing in drawings.items():
        (FOLDER / file).write_text(drawing, encoding="utf-8")
    text = page(name, results, [each["command"] for each in read], list(drawings))
    (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")


def _drawings(runs: Sequence[Path]) -> dict[str, str]:
    """Draw the learning curves by file name: of DeepRM's env, or of TapFinger's designs."""
    if not runs:
        return {}
    from benchmarks.learning import figures  # imports torch and matplotlib

    recipes = [json.loads((run / "run.json").read_text(encoding="utf-8"))["recipe"] for run in runs]
    if all(recipe.startswith("tapfinger") for recipe in recipes):
        drawn = figures.designs_drawn(dict(zip(recipes, runs, strict=True)))
        return {"tapfinger-designs.svg": drawn}
    return {
        f"{recipe}-convergence.svg": figures.drawn(run / "curves.csv", recipe)
        for recipe, run in zip(recipes, runs, strict=True)
    }


if __name__ == "__main__":
    main(sys.argv[1:])
