"""Command line: run for ``--minutes``, write samples as they come and the page at the end.

Samples, logs and what was seen lie in .run/soak; ``--page`` draws the page from them again. The
exit status is 1 when an aim is missed.
"""

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import RESULTS, SCRATCH, machine, report
from benchmarks.soak.course import Seen, soak
from benchmarks.soak.page import result
from benchmarks.soak.samples import read_cluster, read_programs

FOLDER: Final = SCRATCH / "soak"
QUESTION: Final = "Hours of faults: does anything grow?"
MINUTES: Final = 120.0
_SHORT_MINUTES: Final = 30.0
"""What is shorter says nothing about a day, and does not replace the page."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    # Leaves every block that has something to clear away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kept = FOLDER / "seen.json"
    began = time.monotonic()
    if not options.page:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)

        def say(line: str) -> None:
            print(f"  {time.monotonic() - began:6.0f} s  {line}", flush=True)

        seen = soak(60 * options.minutes, options.seed, FOLDER, say)
        found = machine.report_of(
            "soak",
            QUESTION,
            f"soak --minutes {options.minutes:g} --seed {options.seed}",
            began,
            None,
        )
        kept.write_bytes(msgspec.json.encode((found, seen)))
    found, seen = msgspec.json.decode(kept.read_bytes(), type=tuple[report.Report, Seen])
    measured = result(seen, read_programs(FOLDER), read_cluster(FOLDER))
    found = msgspec.structs.replace(found, result=measured)
    is_short = seen.asked_seconds < 60 * _SHORT_MINUTES
    folder = options.out or (FOLDER / "results" if is_short else RESULTS)
    report.write_case(folder, found)
    print("\n".join(report.summary(found)), f"results in {folder}", sep="\n")
    return int(any(row.is_reached is False for row in measured.rows))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description=QUESTION)
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"default {MINUTES:g}")
    parser.add_argument("--seed", type=int, default=0, help="of load and faults")
    parser.add_argument("--page", action="store_true", help="draw the page of the last run again")
    parser.add_argument("--out", type=Path, help="folder for the page")
    options = parser.parse_args(arguments)
    if options.minutes < 1:
        parser.error(f"--minutes {options.minutes:g}: give at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
