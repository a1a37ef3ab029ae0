"""``python -m learning NAME RESULTS.json...``: write a page from results."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bireme.training.judgement import Judgement
from learning.bars import BARS
from learning.page import page

FOLDER: Final = Path(__file__).parents[2] / "docs" / "results" / "learning"


def main(arguments: Sequence[str]) -> None:
    """Write the page; exits with a message where an argument cannot be used."""
    if len(arguments) < 2 or arguments[0] not in BARS:
        sys.exit(
            f"usage: python -m learning NAME RESULTS.json...; NAME is one of {', '.join(BARS)}"
        )
    name, *files = arguments
    told = [json.loads(Path(file).read_text(encoding="utf-8")) for file in files]
    judgements = [Judgement.from_json(found) for each in told for found in each["settings"]]
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = page(name, judgements, [each["command"] for each in told])
    (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
