"""Command line: build the images; ``--sizes`` prints how large they are."""

import argparse
import sys

from testbed.controlplane.errors import ControlPlaneError
from tools.images import sizes
from tools.images.archives import build, obstacle


def main(arguments: list[str] | None = None) -> int:
    """Build what the cache lacks, print where the archives are and return the exit status."""
    parser = argparse.ArgumentParser(prog="images", description="Bireme's container images.")
    parser.add_argument("--sizes", action="store_true", help="tables of layers and packages")
    parser.add_argument(
        "--where-possible", action="store_true", help="no error where images cannot be built"
    )
    options = parser.parse_args(arguments)
    if options.where_possible and (reason := obstacle()):
        print(f"no images: {reason}")
        return 0
    try:
        images = build()
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.sizes:
        print(sizes.tables(images))
        return 0
    for image in images.all:
        print(f"{image.name}  {image.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
