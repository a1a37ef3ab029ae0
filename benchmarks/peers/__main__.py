"""Command line: measure all sides in alternation and write the page; ``--quick`` is a smoke test.

A run that was broken off goes on where it was, as long as the revision is the same. A side that is
missing or fails is a failure of the whole.
"""

import argparse
import shutil
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from benchmarks import RESULTS, SCRATCH, machine, report
from benchmarks.peers.contest import FULL, QUICK, Load, Measured, measure
from benchmarks.peers.others import Coscheduling, Kueue, Volcano, volcano_folder
from benchmarks.peers.page import result
from benchmarks.peers.sides import Bireme, Native, Side, Stock
from testbed.controlplane.binaries import CONTROL_PLANE, COSCHEDULING, KUEUE, build
from testbed.controlplane.errors import ControlPlaneError

SIDES: Final[tuple[type[Side], ...]] = (Bireme, Stock, Native, Coscheduling, Volcano, Kueue)
FOLDER: Final = SCRATCH / "peers"
REPETITIONS: Final = 5


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    try:
        volcano_folder()
        for bundle in (CONTROL_PLANE, COSCHEDULING, KUEUE):
            build(bundle)
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    load = QUICK if options.quick else FULL
    repetitions = options.repetitions or (1 if options.quick else REPETITIONS)
    folder = options.out or (FOLDER / "results" if options.quick else RESULTS)
    kept = _kept(quick=options.quick, fresh=options.fresh)
    found, is_whole = _all(kept, load, repetitions)
    if not is_whole:
        print("a side is missing: no page is written; run it again to go on", file=sys.stderr)
        return 1
    began = time.monotonic() - sum(one.took_seconds for one in found)
    page = machine.report_of(
        "peers",
        "Bireme beside other gang schedulers",
        f"peers{' --quick' if options.quick else ''}",
        began,
        result(found, SIDES, load),
        repetitions=repetitions,
    )
    report.write_case(folder, page)
    print("\n".join(report.summary(page)), flush=True)
    print(f"results in {folder}")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="peers", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="40 nodes, one repetition")
    parser.add_argument("--repetitions", type=int, metavar="N", help=f"default {REPETITIONS}")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument("--out", type=Path, help="folder for the results")
    options = parser.parse_args(arguments)
    if options.repetitions is not None and options.repetitions < 1:
        parser.error(f"--repetitions {options.repetitions}: give at least 1")
    return options


def order(repetition: int) -> list[type[Side]]:
    """Return the sides, each repetition beginning with another, every second one backwards."""
    turned = [*SIDES[repetition % len(SIDES) :], *SIDES[: repetition % len(SIDES)]]
    return turned[::-1] if repetition % 2 else turned


def _kept(*, quick: bool, fresh: bool) -> Path:
    """Return the file of what was measured at this revision, one line each."""
    revision = machine.revision()
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / f"{revision.partition(' ')[0]}{'-quick' if quick else ''}.jsonl"
    if fresh or revision.endswith("-dirty"):  # that names no state to go on with
        kept.unlink(missing_ok=True)
    return kept


def _all(kept: Path, load: Load, repetitions: int) -> tuple[list[Measured], bool]:
    """Measure what ``kept`` lacks; return all, and whether there is nothing missing."""
    lines = kept.read_bytes().splitlines() if kept.exists() else []
    found = [msgspec.json.decode(line, type=Measured) for line in lines]
    done = {(one.side, one.repetition) for one in found}
    is_whole = True
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"  {time.monotonic() - began:5.0f} s  {line}", flush=True)

    for repetition in range(repetitions):
        for side in order(repetition):
            if (side.name, repetition) in done:
                continue
            say(f"{repetition + 1}/{repetitions} {side.name}")
            workdir = FOLDER / "logs" / f"{side.__name__.lower()}-{repetition}"
            shutil.rmtree(workdir, ignore_errors=True)
            try:
                one = uvloop.run(measure(side, repetition, load, workdir, say))
            except Exception:  # noqa: BLE001  # any failure: the other sides go on
                traceback.print_exc()
                is_whole = False
                continue
            found.append(one)
            with kept.open("ab") as file:
                file.write(msgspec.json.encode(one) + b"\n")
    wanted = [one for one in found if one.repetition < repetitions]
    return wanted, is_whole


if __name__ == "__main__":
    sys.exit(main())
