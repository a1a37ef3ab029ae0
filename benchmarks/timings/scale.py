"""Growth with the cluster: decisions alone, and both programs on a real API server.

The cluster of :mod:`benchmarks.timings.large_cluster` is full: all its GPUs are in use, and every
waiting gang lacks room. What a program read is counted by the kernel (``rchar`` of /proc): lists,
watches and answers, after TLS.
"""

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import psutil

from benchmarks.machine import CpuMeter, resident_mib
from benchmarks.report import Result, Row, Table, at_most
from benchmarks.timings import scale_decisions
from benchmarks.timings.admission_writes import writes_of_operator
from benchmarks.timings.cases import Run, metrics_of, program, running
from benchmarks.timings.large_cluster import LargeCluster, Size, large_cluster, running_gang
from benchmarks.timings.workloads import NAMESPACE, training_job
from bireme.kube import envelopes, names
from bireme.kube.client import ApiClient, Params
from testbed.controlplane.process import Process

_JOBS: Final = names.path("trainingjobs", NAMESPACE)
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_READY_SECONDS: Final = 180.0
_QUIET_SECONDS: Final = 3.0
_QUIET_TRIES: Final = 60
_GANGS: Final = 50
"""Gangs of 16 that need no GPU, admitted while thousands wait for one."""
_SCENES: Final = {
    "empty": "empty cluster, 5000 gangs",
    "busy": "97 % of GPUs in use, 5000 gangs",
    "full": "100 % in use, 5000 gangs",
    "preemptors": "100 % in use, each of 5000 gangs stops others",
    "all-different": "100 % in use, no two of 5000 gangs ask the same",
    "rules": "100 % in use, each of 5000 gangs has rules by a label of its own",
}
_WIDE: Final = {
    "wide-starts": "one gang of 10,000 pods that fits",
    "wide-waits": "one gang of 10,000 pods that waits",
    "wide-stops-others": "one gang of 10,000 pods that stops 2500 gangs",
}


async def measure_scale(run: Run) -> Result:
    """Measure 10,000 nodes, 100,000 pods and 5000 waiting gangs, and smaller clusters beside it."""
    full = Size(nodes=10_000, running=5000, waiting=5000, others=20_000)
    if run.is_quick:
        full = Size(nodes=200, running=100, waiting=100, others=400)
    rows = [row for found in await _decisions(run, full) for row in found]
    grown = [await _grown(run, _part(full, part), part == 1) for part in (8, 4, 2, 1)]
    last = grown[-1]
    rows += [
        Row.alone("operator: start to the verdict on a new gang", "s", last.start, aim=at_most(20)),
        Row.alone("operator, resident", "MiB", last.operator_mib, aim=at_most(700)),
        Row.alone("extender, resident", "MiB", last.extender_mib),
        Row.alone("extender in score mode, resident", "MiB", last.scoring_mib),
        Row.alone("one gang of 10,000 pods: create to the plan", "s", last.wide_planned),
        Row.alone("one gang of 10,000 pods: create to the last pod", "s", last.wide_created),
        Row.alone("that gang, as the API server sends it", "kB", last.wide_kb),
    ]
    columns = ("", *(str(one.size) for one in grown))
    table = Table(title="Growth", columns=columns, rows=tuple(_growth(grown)))
    return Result(rows=tuple(rows), tables=(table,), notes=(_NOTE,))


_NOTE: Final = (
    "A full cluster of 8-GPU nodes: gangs of 16 one-GPU pods on two nodes each, and pods of no "
    "gang. etcd and the API server are real and run on the same two cores; nothing binds pods. "
    "Idle: a minute in which nothing changes. Admitted: 50 gangs of 16 pods without GPUs, while "
    "thousands wait; per gang, from the first create until all their pods exist."
)


def _part(full: Size, part: int) -> Size:
    return Size(full.nodes // part, full.running // part, full.waiting // part, full.others // part)


async def _decisions(run: Run, size: Size) -> list[list[Row]]:
    found = []
    waiting = size.waiting
    for scenes, gangs in ((_SCENES, waiting), (_WIDE, run.pick(10_000, 200))):
        for scene, what in scenes.items():
            made = await asyncio.to_thread(scale_decisions.measured, scene, size.nodes, gangs)
            run.say(f"decision, {what}: cold {made.cold:.2f} s")
            what = f"decision, {what}"
            cold = Row.alone(f"{what}: cold", "s", made.cold, aim=at_most(2.0))
            warm = Row.alone(f"{what}: warm", "s", *made.warm, aim=at_most(1.0))
            found.append([cold, warm])
    return found


@dataclass(frozen=True, slots=True)
class _Grown:
    """What one size costs: seconds, MiB, MB read, processor seconds."""

    size: Size
    start: float
    start_cpu: float
    start_mb: float
    operator_mib: float
    extender_mib: float
    scoring_mib: float
    idle_cpu: float
    idle_writes: int
    idle_mb: float
    gang_seconds: float
    gang_cpu: float
    gang_kb: float
    gang_writes: float
    wide_planned: float = 0.0
    wide_created: float = 0.0
    wide_kb: float = 0.0


def _growth(grown: list[_Grown]) -> list[tuple[str | float, ...]]:
    lines = {
        "start to the verdict on a new gang, s": "start",
        "processor seconds of the operator by then": "start_cpu",
        "MB that it read by then": "start_mb",
        "operator, MiB": "operator_mib",
        "extender, MiB": "extender_mib",
        "extender in score mode, MiB": "scoring_mib",
        "operator, processor seconds in an idle minute": "idle_cpu",
        "its writes in that minute, leases apart": "idle_writes",
        "MB that it read in that minute": "idle_mb",
        "per gang admitted: seconds": "gang_seconds",
        "processor seconds of the operator": "gang_cpu",
        "kB that it read": "gang_kb",
        "writes of the operator": "gang_writes",
    }
    return [(what, *(getattr(one, name) for one in grown)) for what, name in lines.items()]


async def _grown(run: Run, size: Size, is_last: bool) -> _Grown:
    with large_cluster(size) as big:
        run.say(f"{size}: cluster made")
        folder = run.workdir / f"nodes-{size.nodes}"
        folder.mkdir()
        client = await ApiClient.connect(big.cluster.kubeconfig)
        try:
            # At its first start it says to each gang why it waits; later starts find that said.
            await _first_start(big, folder)
            return await _measured(run, big, client, folder, size, is_last)
        finally:
            await client.close()


async def _first_start(big: LargeCluster, folder: Path) -> None:
    process = program("operator", folder, big.cluster.kubeconfig, "operator-first")
    async with running(process, ready_seconds=_READY_SECONDS):
        await _synced(process)
        await _quiet(process)


async def _measured(
    run: Run, big: LargeCluster, client: ApiClient, folder: Path, size: Size, is_last: bool
) -> _Grown:
    kubeconfig = big.cluster.kubeconfig
    extender_mib, scoring_mib = await _extender(big, folder)
    await client.create(_JOBS, training_job("probe", 1, 8))
    process = program("operator", folder, kubeconfig)
    began = time.monotonic()
    async with running(process, ready_seconds=_READY_SECONDS):
        await _until_reason(client, "probe")
        start = time.monotonic() - began
        spent = _Spent.of(process)
        run.say(f"{size}: started in {start:.1f} s")
        await _quiet(process)
        # An idle minute.
        before = _Spent.of(process)
        await asyncio.sleep(run.pick(60, 3))
        idle, operator_mib = _Spent.of(process) - before, resident_mib(_pid(process))
        # Gangs that fit.
        version, before = await _version(client), _Spent.of(process)
        began = time.monotonic()
        jobs = [training_job(f"fits-{number}", 16, 0) for number in range(_GANGS)]
        await asyncio.gather(*(client.create(_JOBS, job) for job in jobs))
        await _until_pods(client, version, 16 * _GANGS)
        seconds, admitted = time.monotonic() - began, _Spent.of(process) - before
        run.say(f"{size}: idle {idle.cpu:.2f} s of a minute, {operator_mib:.0f} MiB")
        wide = await _wide(run, client) if is_last else (0.0, 0.0, 0.0)
    return _Grown(
        size=size,
        start=start,
        start_cpu=spent.cpu,
        start_mb=spent.mb,
        operator_mib=operator_mib,
        extender_mib=extender_mib,
        scoring_mib=scoring_mib,
        idle_cpu=idle.cpu,
        idle_writes=idle.writes,
        idle_mb=idle.mb,
        gang_seconds=seconds / _GANGS,
        gang_cpu=admitted.cpu / _GANGS,
        gang_kb=1000 * admitted.mb / _GANGS,
        gang_writes=admitted.writes / _GANGS,
        wide_planned=wide[0],
        wide_created=wide[1],
        wide_kb=wide[2],
    )


async def _wide(run: Run, client: ApiClient) -> tuple[float, float, float]:
    """Admit one gang of 10,000 pods; return seconds to its plan and to its last pod, and its kB."""
    pods, version = run.pick(10_000, 200), await _version(client)
    began = time.monotonic()
    await client.create(_JOBS, training_job("wide", pods, 0))
    await _until_reason(client, "wide")
    planned = time.monotonic() - began
    size = len(await client.get(f"{_JOBS}/wide")) / 1000
    await _until_pods(client, version, pods)
    created = time.monotonic() - began
    run.say(f"one gang of {pods} pods: planned in {planned:.1f} s, created in {created:.1f} s")
    return planned, created, size


async def _extender(big: LargeCluster, folder: Path) -> tuple[float, float]:
    """Return the extender's memory, without and with a gang in score mode."""
    found = []
    for name in ("pinned", "scored"):
        process = program("extender", folder, big.cluster.kubeconfig, f"extender-{name}")
        async with running(process, ready_seconds=_READY_SECONDS):
            await _quiet(process, at_least_seconds=6.0 if name == "scored" else 0.0)
            found.append(resident_mib(_pid(process)))
        if name == "pinned":
            big.add(running_gang("scored", big.nodes[:1], mode="Score"))
    return found[0], found[1]


# --- what is asked of a program -------------------------------------------------------------------


def _pid(process: Process) -> int:
    assert process.pid is not None  # noqa: S101  # it runs
    return process.pid


@dataclass(frozen=True, slots=True)
class _Spent:
    """Processor seconds of an operator, MB that it read, and its writes but those of leases."""

    cpu: float
    mb: float
    writes: int

    @classmethod
    def of(cls, process: Process) -> "_Spent":
        """Return what an operator has spent since it started."""
        times, counters = psutil.Process(_pid(process)).cpu_times(), _counters(_pid(process))
        counts = writes_of_operator(_metrics(process))
        writes = sum(
            n for (_, what), n in counts.items() if what not in ("leases", "clusterclaims")
        )
        return cls(times.user + times.system, counters["rchar"] / 1e6, writes)

    def __sub__(self, other: "_Spent") -> "_Spent":
        return _Spent(self.cpu - other.cpu, self.mb - other.mb, self.writes - other.writes)


def _counters(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return {name: int(count) for name, count in (line.split(": ") for line in lines)}


def _metrics(process: Process) -> str:
    return metrics_of(process.port)


async def _synced(process: Process) -> None:
    """Return once the operator has decided."""
    async with asyncio.timeout(_READY_SECONDS):
        while "bireme_cycle_seconds_count 0" in (page := _metrics(process)) or (
            "bireme_cycle_seconds_count" not in page
        ):
            await asyncio.sleep(0.5)


async def _quiet(process: Process, at_least_seconds: float = 0.0) -> None:
    """Return when the program does next to nothing for a few seconds."""
    await asyncio.sleep(at_least_seconds)
    for _ in range(_QUIET_TRIES):
        meter = CpuMeter({"program": _pid(process)})
        await asyncio.sleep(_QUIET_SECONDS)
        if meter.spent()["program"] < 0.1 * _QUIET_SECONDS:
            return


async def _until_reason(client: ApiClient, job: str) -> None:
    """Return once a TrainingJob has a reason in its status."""
    path = f"{_JOBS}/{job}"
    async with asyncio.timeout(_READY_SECONDS):
        while not msgspec.json.decode(await client.get(path)).get("status", {}).get("reason"):
            await asyncio.sleep(0.05)


async def _version(client: ApiClient) -> int:
    """Return the newest version of pods, to watch from."""
    page = await client.get(_PODS, params={"limit": 1})
    return envelopes.page(page).metadata.resource_version


async def _until_pods(client: ApiClient, version: int, count: int) -> None:
    """Return once so many pods were created after ``version``."""
    params: Params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": 300}
    seen = set()
    async with asyncio.timeout(_READY_SECONDS):
        async with aclosing(client.stream(_PODS, params, read_timeout_seconds=120)) as lines:
            async for line in lines:
                seen.add(envelopes.stub(envelopes.event(line).object).key)
                if len(seen) >= count:
                    return
