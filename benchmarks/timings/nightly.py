"""The nightly job: processor time and memory of ``bireme forecast pools``, with every model.

The pools have eight weeks of generated demand, other series of the families that the shipped
network has learned.
"""

import asyncio
import re
import time
from collections import Counter
from typing import Final

import numpy as np

from benchmarks.report import Result, Row, Table, at_most
from benchmarks.timings.cases import Run, python
from bireme.core.pool_history import HISTORY_DAYS, PoolHistory
from bireme.core.times import DAY, HOUR
from bireme.kube.api.node_pool_scaler import history_manifest
from bireme_lab.training.gru.recipe import demand
from testbed.fakeapi import FakeApi
from testbed.operator_term.nightly import put

_AIM_SECONDS: Final = 120.0
_AIM_MIB: Final = 500.0
_HOURS: Final = HISTORY_DAYS * DAY // HOUR
_CHOSEN: Final = re.compile(r", by ([a-z-]+);")
_SPENT: Final = re.compile(r"^VmHWM:\s+(\d+) kB$.*^CPU: (\S+)$", re.MULTILINE | re.DOTALL)
_LIMIT_SECONDS: Final = 1000.0
# The program itself reports its peak memory: what ``wait4`` reports of a child begins with that of
# the process it was forked from.
_PROGRAM: Final = """
import sys, time
from bireme.cli import main
status = main(["forecast", "pools"])
print(open("/proc/self/status").read(), f"CPU: {time.process_time()}", sep="")
sys.exit(status)
"""


async def measure_nightly(run: Run) -> Result:
    """Forecast 20 pools, eight weeks of hours each."""
    pools = run.pick(20, 2)
    async with FakeApi() as api:
        _add_pools(api, pools)
        kubeconfig = str(api.kubeconfig(run.workdir))
        cpu, peak = [], []
        for _ in range(run.repetitions):
            output = await asyncio.to_thread(
                python, ["-c", _PROGRAM], _LIMIT_SECONDS, KUBECONFIG=kubeconfig
            )
            ((peak_kib, seconds),) = _SPENT.findall(output)
            cpu.append(float(seconds))
            peak.append(int(peak_kib) / 1024)
            run.say(f"{cpu[-1]:.1f} s, {peak[-1]:.0f} MiB")
    # The models that a forecast chooses are the same in every repetition.
    counts = Counter(_CHOSEN.findall(output))
    models = tuple((name, str(count)) for name, count in sorted(counts.items()))
    return Result(
        rows=(
            Row.alone(f"{pools} pools", "CPU s", *cpu, aim=at_most(_AIM_SECONDS)),
            Row.alone("most memory", "MiB", *peak, aim=at_most(_AIM_MIB)),
        ),
        tables=(Table(title="The models chosen", columns=("model", "pools"), rows=models),),
        notes=("One thread; with the program's start, and with writing the forecasts.",),
    )


def _add_pools(api: FakeApi, pools: int) -> None:
    today = time.time() // DAY * DAY  # noqa: TID251  # the program goes by the clock
    begin = today - HISTORY_DAYS * DAY
    for number, nodes in enumerate(demand(np.random.default_rng(2026), pools, _HOURS)):
        history = PoolHistory(begin, nodes, np.full(_HOURS, np.nan))
        put(api, f"pool-{number:02d}", {"history": history_manifest(history)})
