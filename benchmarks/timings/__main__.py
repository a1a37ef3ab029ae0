"""Command line: run all cases, or those named, and write results; ``--quick`` is a smoke test.

The exit status is 1 when a case failed to measure; a missed aim is a result, no failure.
"""

import argparse
import asyncio
import shutil
import sys
import time
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from benchmarks import RESULTS, SCRATCH, machine, report
from benchmarks.timings.admission_writes import measure_writes
from benchmarks.timings.api_profile import measure_api_profile
from benchmarks.timings.bystanders import measure_bystanders
from benchmarks.timings.cases import Case, Run, Skipped
from benchmarks.timings.decision import measure_decision
from benchmarks.timings.extender_calls import measure_extender
from benchmarks.timings.footprint import measure_memory, measure_shadow
from benchmarks.timings.gangs import measure_gang512, measure_gangs500x4, measure_throughput
from benchmarks.timings.learned import measure_learned
from benchmarks.timings.nightly import measure_nightly
from benchmarks.timings.scale import measure_scale
from benchmarks.timings.simulation import measure_simulation
from benchmarks.timings.training import measure_training
from benchmarks.timings.waits import measure_freed, measure_verdict

LOGS: Final = SCRATCH / "bench"
CASE_LIMIT_SECONDS: Final = 1200.0

CASES: Final = (
    Case("gang512", "One gang of 512 one-GPU pods on 500 nodes", measure_gang512),
    Case("gangs500x4", "500 gangs of 4 two-GPU pods on 500 nodes", measure_gangs500x4),
    Case(
        "gangs500x4-apf",
        "500 gangs of 4 two-GPU pods on 500 nodes, with API Priority and Fairness",
        partial(measure_gangs500x4, fairness=True),
    ),
    Case(
        "gangs500x4-webhook",
        "500 gangs of 4 two-GPU pods, each of another template, with an admission webhook of 20 ms",
        partial(measure_gangs500x4, webhook_seconds=0.02),
    ),
    Case("throughput", "3000 one-GPU pods on 1000 and 5000 nodes", measure_throughput),
    Case("verdict", "Full cluster: time to the first reason on the object", measure_verdict),
    Case("freed", "Freed capacity: time to the next gang", measure_freed),
    Case("bystanders", "Pods of the default scheduler beside Bireme", measure_bystanders),
    Case("api-profile", "Processor time of the API server by part", measure_api_profile),
    Case("writes", "API writes per admitted gang", measure_writes),
    Case("decision", "One decision over 1000 waiting gangs on 5000 nodes", measure_decision),
    Case("simulation", "64483 jobs of the Philly trace through the simulator", measure_simulation),
    Case("extender", "Round trip of the extender", measure_extender),
    Case("learned", "Learned policies beside the rules, 256 gangs on 500 nodes", measure_learned),
    Case("training", "Training in two processes beside one", measure_training),
    Case("nightly", "Forecasts of 20 node pools, eight weeks of hours each", measure_nightly),
    Case("memory", "Memory at 5000 nodes and 50000 pods", measure_memory),
    Case("shadow", "A leader with the learned shadow at 5000 nodes", measure_shadow),
    Case("scale", "10,000 nodes, 100,000 pods, 5000 gangs that wait", measure_scale),
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    chosen = [case for case in CASES if not options.names or case.name in options.names]
    folder = options.out or (LOGS / "results" if options.quick else RESULTS)
    repetitions = options.repetitions or (1 if options.quick else 5)
    failed = [case.name for case in chosen if not _run(case, options.quick, repetitions, folder)]
    print(f"results in {folder}")
    if failed:
        print(f"could not be measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measure, and write the tables.")
    known = [case.name for case in CASES]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"cases: {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, one repetition")
    parser.add_argument("--repetitions", type=int, metavar="N", help="of each side (default 5)")
    parser.add_argument("--out", type=Path, help="folder for the results")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in known:
            parser.error(f"no case {name!r}; there are {', '.join(known)}")
    if options.repetitions is not None and options.repetitions < 1:
        parser.error(f"--repetitions {options.repetitions}: give at least 1")
    return options


def _run(case: Case, is_quick: bool, repetitions: int, folder: Path) -> bool:
    """Measure one case; False when it failed, which stops no other."""
    print(f"{case.name}: {case.question}", flush=True)
    workdir = LOGS / case.name
    shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir(parents=True)
    began, result, failure = time.monotonic(), None, ""

    def say(line: str) -> None:
        print(f"  {time.monotonic() - began:5.0f} s  {line}", flush=True)

    run = Run(workdir, is_quick, repetitions, say)
    try:
        result = uvloop.run(asyncio.wait_for(case.measure(run), CASE_LIMIT_SECONDS))
    except Skipped as skipped:
        print(f"  skipped: {skipped}", flush=True)
        return True
    except Exception as error:  # noqa: BLE001  # any failure: the other cases go on
        traceback.print_exc()
        failure = "".join(traceback.format_exception_only(error))
    command = f"timings {case.name}{' --quick' if is_quick else ''}"
    found = machine.report_of(
        case.name, case.question, command, began, result, repetitions=repetitions, failure=failure
    )
    report.write_case(folder, found)
    print("\n".join(report.summary(found)), flush=True)
    return result is not None


if __name__ == "__main__":
    sys.exit(main())
