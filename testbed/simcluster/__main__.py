"""``python -m testbed.simcluster --seeds 0:1000``: simulate, and print every seed that
breaks a promise."""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from testbed.simcluster.simulation import run, story

_PROGRESS = 100
"""A line after every so many seeds."""
_AT_ONCE = 10
"""Seeds that a process takes at a time."""


class Told(NamedTuple):
    """What is printed of a seed. ``story`` is empty where it was not asked for."""

    seed: int
    seconds: float
    violations: tuple[str, ...]
    story: tuple[str, ...]
    processor_seconds: float


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="clustersim", description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="FROM:TO (TO left out), or one seed")
    parser.add_argument("--processes", type=int, default=1, help="that share the seeds")
    parser.add_argument("--story", action="store_true", help="tell everything that happened")
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    began, spent, failed = time.monotonic(), 0.0, 0
    for done, told in enumerate(_all_told(seeds, given.story, given.processes), 1):
        spent += told.processor_seconds
        for line in told.story:
            print(line)
        if told.violations:
            failed += 1
            _show(told)
        if done % _PROGRESS == 0:
            print(f"{done} of {len(seeds)} seeds, {failed} failed", flush=True)
    each = f"{spent / max(len(seeds), 1):.2f} s of processor time each"
    lasted = f"{time.monotonic() - began:.0f} s in {given.processes} processes"
    print(f"{len(seeds)} seeds, {failed} failed, {each}, {lasted}")
    return 1 if failed else 0


def _all_told(seeds: Sequence[int], is_told: bool, processes: int) -> Iterator[Told]:
    if processes <= 1:
        yield from (_told(seed, is_told) for seed in seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        stories: Iterable[bool] = [is_told] * len(seeds)
        yield from pool.map(_told, seeds, stories, chunksize=_AT_ONCE)


def _told(seed: int, is_told: bool) -> Told:
    began = time.process_time()
    outcome = run(seed)
    lines = tuple(story(outcome)) if is_told else ()
    spent = time.process_time() - began
    return Told(seed, outcome.seconds, outcome.violations, lines, spent)


def _show(told: Told) -> None:
    print(f"seed {told.seed} fails after {told.seconds:.0f} virtual seconds:")
    for violation in told.violations[:8]:
        print(f"  {violation}")
    print(f"  python -m testbed.simcluster --seeds {told.seed} --story", flush=True)


if __name__ == "__main__":
    sys.exit(main())
