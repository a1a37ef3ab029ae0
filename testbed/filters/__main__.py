"""``python -m testbed.filters --seeds 0:5000``: compare, and print every disagreement."""

import argparse
import sys

from testbed.filters.comparison import compared
from testbed.filters.judge import Judge


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="filters", description=__doc__)
    parser.add_argument("--seeds", default="0:500", help="FROM:TO (TO left out), or one seed")
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition(":")
    with Judge() as judge:
        counts = compared(range(int(first), int(last) if last else int(first) + 1), judge)
    for found in counts.disagreements:
        print(found)
    print(counts)
    return 1 if counts.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
