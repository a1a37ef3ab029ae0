"""Command line of releases: version, notes, ready, distributions, chart, rehearse."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tools.release import readiness, versions
from tools.release.errors import ReleaseError
from tools.release.notes import notes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    match options.command:
        case "version":
            if options.new:
                for file in versions.write(options.new):
                    print(file.relative_to(versions.ROOT))
            else:
                versions.check()
                print(versions.current())
        case "notes":
            print(notes(options.version, versions.ROOT / "CHANGELOG.md"), end="")
        case "ready":
            missing = list(readiness.missing(options.tag))
            print("\n".join(missing) or "ready to be tagged")
            return 1 if missing else 0
        case "distributions":
            from tools.release import distributions

            for wheel in distributions.build(options.folder):
                print(wheel)
        case "chart":
            from tools.release import chart

            digests = dict(one.partition("=")[::2] for one in options.image)
            source = versions.ROOT / "charts" / "bireme"
            chart.write(source, options.folder, options.registry, digests)
        case "rehearse":
            return _rehearse()
    return 0


def _rehearse() -> int:
    from testbed.controlplane.errors import ControlPlaneError
    from tools.release.rehearsal import Rehearsal

    with tempfile.TemporaryDirectory(prefix="bireme-release-") as folder:
        try:
            Rehearsal(Path(folder), partial(print, flush=True)).run()
        except ControlPlaneError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="release", description="How a release is made.")
    commands = parser.add_subparsers(dest="command", required=True)
    version = commands.add_parser("version", help="print the version, once all places agree")
    version.add_argument("new", nargs="?", help="write this one into all places instead")
    told = commands.add_parser("notes", help="print the release notes of a version")
    told.add_argument("version", help="of a section of CHANGELOG.md")
    ready = commands.add_parser("ready", help="say what is left to do by hand before a tag")
    ready.add_argument("tag", nargs="?", help="such as v0.2.0: it has to be the version")
    made = commands.add_parser("distributions", help="build sdists and wheels")
    made.add_argument("folder", type=Path)
    charted = commands.add_parser("chart", help="write the chart with images by digest")
    charted.add_argument("folder", type=Path, help="where; it must not exist")
    charted.add_argument("--registry", required=True, help="such as registry.example.com/team")
    charted.add_argument(
        *("--image", "-i"), action="append", required=True, metavar="REPOSITORY=sha256:..."
    )
    commands.add_parser("rehearse", help="all of a release on this machine (Debian, as root)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
