"""``python -m benchmarks.simulations [NAME...] [--fresh]``: build pages, all by default."""

import argparse
import datetime
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import DATA, RESULTS, SCRATCH, machine, report
from benchmarks.simulations import (
    contests,
    estimates,
    guardrails,
    misreporting,
    node_pools,
    placers,
    pollux,
    sustained,
    windows,
)
from benchmarks.simulations.store import Store

PAGES: Final = RESULTS / "simulations"
KEPT: Final = SCRATCH / "evidence"

BUILDERS: Final[Mapping[str, Callable[[Path, Store], report.Page]]] = {
    "pollux": pollux.build,
    "philly": partial(contests.build, "philly", "Orderers on Philly", windows.philly),
    "muri": partial(contests.build, "muri", "Orderers on Muri's trace", windows.muri),
    "openb": partial(contests.build, "openb", "Orderers on openb's pods", windows.openb),
    "placers": placers.build,
    "guardrails": guardrails.build,
    "sustained": sustained.build,
    "misreporting": misreporting.build,
    "estimates": estimates.build,
    "node-pools": node_pools.build,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)

    for name in options.names or BUILDERS:
        if options.fresh:
            shutil.rmtree(KEPT / name, ignore_errors=True)
        store = Store(KEPT, say)
        page = BUILDERS[name](options.data, store)
        now = datetime.datetime.now(datetime.UTC)  # noqa: TID251  # the date of the run
        command = f"python -m benchmarks.simulations {name}"
        page = msgspec.structs.replace(
            page,
            command=command,
            date=f"{now:%Y-%m-%d}",
            revisions=tuple(sorted(store.revisions or {machine.revision()})),
        )
        report.write_page(options.out, page)
        say(f"{name}: {page.summary}")
    print(f"pages in {options.out}")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="evidence", description="Simulate; write the tables.")
    known = ", ".join(BUILDERS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"pages: {known}")
    parser.add_argument("--fresh", action="store_true", help="forget the runs that are kept")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the public traces")
    parser.add_argument("--out", type=Path, default=PAGES, help="folder for the pages")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in BUILDERS:
            parser.error(f"no page {name!r}; there are {known}")
    if not options.data.is_dir():
        parser.error(f"--data {options.data}: there is no such folder; name the one of the traces")
    return options


if __name__ == "__main__":
    sys.exit(main())
