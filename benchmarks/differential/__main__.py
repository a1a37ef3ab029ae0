"""Command line: seed after seed, a line for each, and the results page.

``--seeds A:B`` (0:50, results in docs/results) or one seed; histories lie in .run/differential. The
exit status is 1 when a seed differs.
"""

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks import RESULTS, SCRATCH, machine, report
from benchmarks.differential.drawing import scenario_of
from benchmarks.differential.runner import carry_out, ground
from benchmarks.differential.verdicts import Verdict, line_of, result_of, verdict_on

LOGS: Final = SCRATCH / "differential"
QUESTION: Final = "The simulator against the real control plane"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the seeds that were asked for and return the exit status."""
    options = _options(arguments)
    # Leaves every block that has something to clear away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    LOGS.mkdir(parents=True, exist_ok=True)
    folder = options.out or (RESULTS if len(options.seeds) > 1 else LOGS)
    began = time.monotonic()
    verdicts: list[Verdict] = []
    for verdict in _verdicts(options.seeds):
        verdicts.append(verdict)
        command = f"differential --seeds {verdicts[0].seed}:{verdict.seed + 1}"
        page = machine.report_of("differential", QUESTION, command, began, result_of(verdicts))
        # Written after each seed, so that an interrupted run keeps what it has found.
        report.write_case(folder, page)
        print(line_of(verdict), flush=True)
    print("\n".join(report.summary(page)), f"results in {folder}", sep="\n")
    return int(any(verdict.word == "differs" for verdict in verdicts))


def _verdicts(seeds: range) -> Iterator[Verdict]:
    """Yield one verdict after another, all from one cluster; processes draw scenarios ahead."""
    with multiprocessing.Pool(2, os.nice, (2,)) as drawer, ground(LOGS) as stack:
        for scenario in drawer.imap(scenario_of, seeds):
            yield verdict_on(scenario, carry_out(scenario, stack, LOGS))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="differential", description=QUESTION)
    parser.add_argument(
        "--seeds", type=_seeds, default=range(50), metavar="A:B", help="from A, without B; or one"
    )
    parser.add_argument("--out", type=Path, help="folder for the results")
    return parser.parse_args(arguments)


def _seeds(text: str) -> range:
    first, colon, end = text.partition(":")
    try:
        seeds = range(int(first), int(end)) if colon else range(int(first), int(first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds; write 0:50, or 7")
    return seeds


if __name__ == "__main__":
    sys.exit(main())
