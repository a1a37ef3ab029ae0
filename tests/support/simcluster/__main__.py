"""``python -m tests.support.simcluster --seeds 0:1000``: simulate, and print every seed that
breaks a promise."""

import argparse
import sys
import time

from tests.support.simcluster.simulation import Outcome, run, story

_PROGRESS = 100
"""A line after every so many seeds."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="clustersim", description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="FROM:TO (TO left out), or one seed")
    parser.add_argument("--story", action="store_true", help="tell everything that happened")
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    began, failed = time.process_time(), 0
    for seed in seeds:
        outcome = run(seed)
        if given.story:
            print("\n".join(story(outcome)))
        if outcome.violations:
            failed += 1
            _show(outcome)
        if seed % _PROGRESS == _PROGRESS - 1:
            print(f"{seed + 1 - seeds.start} of {len(seeds)} seeds, {failed} failed", flush=True)
    spent = time.process_time() - began
    print(f"{len(seeds)} seeds, {failed} failed, {spent:.1f} s of processor time")
    return 1 if failed else 0


def _show(outcome: Outcome) -> None:
    print(f"seed {outcome.seed} fails after {outcome.seconds:.0f} virtual seconds:")
    for violation in outcome.violations[:8]:
        print(f"  {violation}")
    print(f"  python -m tests.support.simcluster --seeds {outcome.seed} --story", flush=True)


if __name__ == "__main__":
    sys.exit(main())
