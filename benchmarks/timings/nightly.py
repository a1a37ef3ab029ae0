"""The nightly job: processor time and memory of ``bireme forecast-pools``, with every model.

The pools have eight weeks of generated demand, other series of the families that the shipped
network has learned.
"""

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from benchmarks.report import Result, Row, Sample, Table, at_most
from benchmarks.timings.cases import Run
from bireme.core.pool_history import HISTORY_DAYS, PoolHistory
from bireme.core.times import DAY, HOUR
from bireme.kube.api.node_pool_scaler import history_manifest
from bireme.training.gru.recipe import demand
from tests.support.fakeapi import FakeApi
from tests.support.operator_term.nightly import put

_AIM_SECONDS: Final = 120.0
_AIM_MIB: Final = 500.0
_HOURS: Final = HISTORY_DAYS * DAY // HOUR
_CHOSEN: Final = re.compile(r", by ([a-z-]+);")
_KIB_PER_MIB: Final = 1024


_PROGRAM: Final = """
import sys
from bireme.cli import main
status = main(["forecast-pools"])
sys.stdout.write(open("/proc/self/status").read())
sys.exit(status)
"""
"""The program, and at its end its own most memory. What ``wait4`` tells of a child's starts with
that of the process it was forked from."""

_PEAK: Final = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class Night(NamedTuple):
    cpu_seconds: float
    peak_mib: float
    output: str


async def measure_nightly(run: Run) -> Result:
    """Forecast 20 pools, eight weeks of hours each."""
    pools = run.pick(20, 2)
    async with FakeApi() as api:
        _add_pools(api, pools)
        kubeconfig = api.kubeconfig(run.workdir)
        nights = []
        for _ in range(run.repetitions):
            nights.append(await asyncio.to_thread(_night, kubeconfig))
            run.say(f"{nights[-1].cpu_seconds:.1f} s, {nights[-1].peak_mib:.0f} MiB")
    chosen = _CHOSEN.findall(nights[0].output)
    counts = tuple((name, str(chosen.count(name))) for name in sorted(set(chosen)))
    cpu = Sample.of(night.cpu_seconds for night in nights)
    peak = Sample.of(night.peak_mib for night in nights)
    return Result(
        rows=(
            Row(what=f"{pools} pools", unit="CPU s", bireme=cpu, aim=at_most(_AIM_SECONDS)),
            Row(what="most memory", unit="MiB", bireme=peak, aim=at_most(_AIM_MIB)),
        ),
        tables=(Table(title="The models chosen", columns=("model", "pools"), rows=counts),),
        notes=("One thread; with the program's start, and with writing the forecasts.",),
    )


def _add_pools(api: FakeApi, pools: int) -> None:
    today = time.time() // DAY * DAY  # noqa: TID251  # the program goes by the clock
    begin = today - HISTORY_DAYS * DAY
    for number, nodes in enumerate(demand(np.random.default_rng(2026), pools, _HOURS)):
        history = PoolHistory(begin, nodes, np.full(_HOURS, np.nan))
        put(api, f"pool-{number:02d}", {"history": history_manifest(history)})


def _night(kubeconfig: Path) -> Night:
    command = [sys.executable, "-c", _PROGRAM]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as program:
        assert program.stdout is not None  # noqa: S101  # a pipe was asked for
        output = program.stdout.read()
        _, status, used = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
    if program.returncode:
        raise RuntimeError(f"bireme forecast-pools failed:\n{output[-2000:]}")
    peak = int(_PEAK.findall(output)[-1])
    return Night(used.ru_utime + used.ru_stime, peak / _KIB_PER_MIB, output)
