"""``python -m tools.docs.reference --write`` writes the reference pages; ``--check`` compares them.

``--write --chart`` also writes the golden renderings of the chart, by Helm, which it builds first
where it is not built. Tests in the tier ``cluster`` compare those.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from testbed.scenario import renderings
from testbed.scenario.helm import Helm
from tools.docs.reference import api, gpu_models, reasons, schema, settings, texts, values

ROOT: Final = Path(__file__).parents[3]
PAGES: Final = {
    ROOT / "docs" / "reference" / "api.md": api.page,
    ROOT / "docs" / "reference" / "gpu-models.md": gpu_models.page,
    ROOT / "docs" / "reference" / "reasons.md": reasons.page,
    ROOT / "docs" / "reference" / "settings.md": settings.page,
    ROOT / "tests" / "golden" / "messages.txt": texts.page,
    values.CHART / "README.md": values.page,
    schema.PATH: schema.page,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="reference", description=__doc__)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--write", action="store_true", help="write the pages")
    todo.add_argument("--check", action="store_true", help="fail if they are not up to date")
    parser.add_argument("--chart", action="store_true", help="also render the chart, with --write")
    options = parser.parse_args()
    if options.chart and not options.write:
        parser.error("--chart renders the chart to its golden files: give it with --write")
    if options.chart:
        with TemporaryDirectory() as home:
            for path, text in renderings.render(Helm(Path(home))).items():
                path.write_text(text)
    for path, page in PAGES.items():
        if options.write:
            path.parent.mkdir(exist_ok=True)
            path.write_text(page())
        elif not path.is_file() or path.read_text() != page():
            sys.exit(f"{path.name} is not what the code says; run make reference")


if __name__ == "__main__":
    main()
