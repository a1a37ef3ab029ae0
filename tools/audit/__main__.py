"""``python -m tools.audit``: fail if a pinned package has a known flaw; ``--daily``: look once a
day."""

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from tools.audit import Audit, Unavailable, audit, is_fresh

CONSTRAINTS: Final = Path(__file__).parents[2] / "constraints.txt"


def main() -> int:
    """The exit code: 1 for a vulnerability, 0 for none and where nobody can be asked."""
    parser = argparse.ArgumentParser(prog="audit", description=__doc__)
    parser.add_argument("--daily", action="store_true", help="not again within a day")
    parser.add_argument("--stamp", type=Path, default=Path(sys.prefix) / "audited")
    options = parser.parse_args()
    if options.daily and is_fresh(options.stamp, CONSTRAINTS, time.time_ns() / 1e9):
        return 0
    try:
        done = audit(CONSTRAINTS)
    except Unavailable as error:
        print(f"audit skipped: {error}")
        return 0
    say(done)
    if not done.found:
        options.stamp.touch()
    return 1 if done.found else 0


def say(done: Audit) -> None:
    """One line per vulnerability, and how much was looked at."""
    for line in done.found:
        print(line)
    print(f"audit: {len(done.found)} known vulnerabilities in {done.audited} packages")
    if done.unknown:
        print(f"not audited, for the index tells nothing of them: {', '.join(done.unknown)}")


if __name__ == "__main__":
    sys.exit(main())
