"""Command line: ``up`` makes a kind cluster with Bireme and fake GPU nodes, ``down`` removes it."""

import argparse
import functools
import sys
from pathlib import Path

from testbed.controlplane.errors import ControlPlaneError
from tools.kind.installation import Installation
from tools.kind.programs import find, find_all


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return the exit status."""
    parser = argparse.ArgumentParser(prog="kind", description="Bireme on a kind cluster.")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="cluster, chart, helm test, then 16 fake nodes of 8 GPUs")
    up.add_argument("--image", default="", help="of the node, in place of kind-config.yaml's")
    up.add_argument(
        "--archive",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="an image for the node; given once for each, in place of building Bireme's",
    )
    commands.add_parser("down", help="remove the cluster and the image that `up` built")
    options = parser.parse_args(arguments)
    report = functools.partial(print, flush=True)
    try:
        if options.command == "up":
            made = Installation(find("kind", "helm", "kubectl"), report)
            made.up(options.image, options.archive)
        else:
            # `up` may have had another environment, and with it another engine.
            for programs in find_all("kind"):
                Installation(programs, report).down()
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
