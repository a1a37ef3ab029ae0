"""Dashboards and tables: ``--write`` writes them, ``--check`` compares, ``--picture`` draws.

The picture is of five minutes of a real control plane, and needs its binaries and a Prometheus.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.docs.monitoring.node_pools import NODE_POOLS
from tools.docs.monitoring.overview import OVERVIEW
from tools.docs.monitoring.page import with_tables
from tools.docs.monitoring.rehearsal import rehearse

ROOT: Final = Path(__file__).parents[3]
PICTURE: Final = ROOT / "docs" / "pictures" / "overview.png"
DASHBOARDS: Final = {"node-pools.json": NODE_POOLS, "overview.json": OVERVIEW}


def files() -> Iterator[tuple[Path, str]]:
    """Yield every generated file and what it should hold."""
    for name, dashboard in DASHBOARDS.items():
        text = json.dumps(dashboard.to_json(), indent=2)
        yield ROOT / "charts" / "bireme" / "dashboards" / name, f"{text}\n"
    page = ROOT / "docs" / "metrics.md"
    yield page, with_tables(page.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(prog="monitoring", description=__doc__)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--write", action="store_true", help="write the files")
    todo.add_argument("--check", action="store_true", help="fail if they are not up to date")
    todo.add_argument("--picture", action="store_true", help="run Bireme and draw its overview")
    options = parser.parse_args()
    if options.picture:
        rehearse(PICTURE)
        return
    for path, text in files():
        if options.write:
            path.write_text(text)
        elif not path.is_file() or path.read_text() != text:
            sys.exit(f"{path.name} is not what tools/docs/monitoring says; run make monitoring")


if __name__ == "__main__":
    main()
