"""``python -m benchmarks.run_times [--fresh]``: play the traces, simulate, and write the page."""

import argparse
import datetime
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import DATA, RESULTS, SCRATCH, machine, report
from benchmarks.run_times import judging, ordering
from benchmarks.run_times.candidates import BOUND, FOREIGN, LATEST, MEDIAN, OWN
from benchmarks.run_times.playing import SOURCES, Played, play
from benchmarks.simulations.intervals import shown
from benchmarks.simulations.store import Store

_KEPT: Final = SCRATCH / "evidence"
_COMMAND: Final = "python -m benchmarks.run_times"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)

    if options.fresh:
        shutil.rmtree(_KEPT / ordering.KEPT, ignore_errors=True)
    page = _page(options.data, Store(_KEPT, say))
    report.write_page(options.out, page)
    for finding in page.findings:
        say(finding)
    return 0


def _page(data: Path, store: Store) -> report.Page:
    traces = [play(source, data) for source in SOURCES]
    typical, upper = (
        {trace.name: judging.foretold(trace, traces, quantile) for trace in traces}
        for quantile in (judging.TYPICAL, judging.UPPER)
    )
    orders = ordering.compare(data, store)
    findings = (
        _typical_finding(traces, typical),
        _regression_finding(traces, typical),
        _bound_finding(traces),
        *ordering.findings(orders),
    )
    now = datetime.datetime.now(datetime.UTC)  # noqa: TID251  # the date of the run
    return report.Page(
        name="run-times",
        title="Run times foretold",
        summary=findings[0],
        findings=findings,
        tables=(
            judging.typical_table(traces, typical),
            judging.bound_table(traces, upper),
            *judging.calibration_tables(traces),
            judging.remaining_table(traces),
            judging.outrun_table(traces),
            ordering.table(orders),
        ),
        command=_COMMAND,
        date=f"{now:%Y-%m-%d}",
        revisions=tuple(sorted({machine.revision(), *store.revisions})),
    )


_Every = dict[str, judging.Foretold]


def _typical_finding(traces: Sequence[Played], found: _Every) -> str:
    return (
        "A typical run is foretold best by the median of like runs: its loss is "
        f"{_ratios(traces, found, MEDIAN, BOUND)} times that of the 90 % quantile; the mean "
        f"logarithm of the latest eight loses {_ratios(traces, found, LATEST, MEDIAN)} times as "
        "much as the median."
    )


def _regression_finding(traces: Sequence[Played], found: _Every) -> str:
    return (
        "A quantile regression loses as much as the median of the history where it was fitted on "
        f"the same trace ({_ratios(traces, found, OWN, MEDIAN)} times), and more where on another "
        f"({_ratios(traces, found, FOREIGN, MEDIAN)} times)."
    )


def _bound_finding(traces: Sequence[Played]) -> str:
    shares = (
        f"{shown(share, '{:.0%}'.format)} of the jobs of {name}"
        for name, share in judging.each_coverage(traces)
    )
    return f"Within today's bound, meant for nine in ten, stayed {', '.join(shares)}."


def _ratios(traces: Sequence[Played], found: _Every, name: str, base: str) -> str:
    """Return the ratios of losses on the two largest traces, of different origins."""
    ratios = (
        f"{judging.loss_ratio(trace, found[trace.name], name, base, judging.TYPICAL).mean:.2f} "
        f"({trace.name})"
        for trace in traces[:2]
    )
    return " and ".join(ratios)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run_times", description="Foretell; write the page.")
    parser.add_argument("--fresh", action="store_true", help="forget the runs that are kept")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the public traces")
    parser.add_argument(
        "--out", type=Path, default=RESULTS / "simulations", help="folder for the page"
    )
    options = parser.parse_args(arguments)
    if not options.data.is_dir():
        parser.error(f"--data {options.data}: there is no such folder; name the one of the traces")
    return options


if __name__ == "__main__":
    sys.exit(main())
