"""Tables of metrics: ``--write`` writes them, ``--check`` compares; ``--picture`` is a dashboard.

It is the overview of five minutes of a real cluster, and needs its binaries and a Prometheus.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from tools.docs.monitoring.metrics import with_tables
from tools.docs.monitoring.picture import picture

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "metrics.md"
OVERVIEW: Final = ROOT / "charts" / "bireme" / "dashboards" / "overview.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="monitoring", description=__doc__)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--write", action="store_true", help="write the tables")
    todo.add_argument("--check", action="store_true", help="fail if they are not up to date")
    todo.add_argument("--picture", action="store_true", help="run Bireme and draw its overview")
    options = parser.parse_args()
    if options.picture:
        picture(json.loads(OVERVIEW.read_text()), ROOT / "docs" / "pictures" / "overview.png")
        return
    text = with_tables(PAGE.read_text())
    if options.write:
        PAGE.write_text(text)
    elif PAGE.read_text() != text:
        sys.exit(f"{PAGE.name} is not what the programs serve; run make monitoring")


if __name__ == "__main__":
    main()
