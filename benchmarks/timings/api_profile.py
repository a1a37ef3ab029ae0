"""Where the API server's processor time goes while gangs start, beside the stock scheduler's pods.

The API server serves profiles of itself (pprof). Samples are counted by what is on their stacks,
each once, by the first line that fits; a profile begins with the load and lasts until its last
writes are done.
"""

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.report import Result, Row, Sample, Table
from benchmarks.timings.arena import Arena, arena
from benchmarks.timings.cases import Run
from benchmarks.timings.gangs import Workload
from testbed.controlplane.binaries import cache_root, find_go

_SECONDS: Final = 30
_PARTS: Final = {
    "garbage collection": "gcBgMarkWorker|gcAssistAlloc|bgsweep|bgscavenge",
    "status writes of custom resources": (
        r"customresource\.\(\*StatusREST\)|crdHandler\)\.serveStatus"
    ),
    "other requests for custom resources": "crdHandler|customresource",
    "watches: from etcd, and to clients": (
        r"WatchServer|watchChan|cacheWatcher|cacher\.\(\*Cacher\)|scheduleEventProcessing"
    ),
    "bindings": "BindingREST",
    "status writes of pods": r"pod/storage\.\(\*StatusREST\)|patchResource|PatchResource",
    "creates of pods, events and all else": r"endpoints/handlers|registry/generic",
}
_ACCOUNTED: Final = re.compile(r"Showing nodes accounting for ([0-9.]+)(ms|s|mins)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "mins": 60.0}


async def measure_api_profile(run: Run) -> Result:
    """Profile the API server once on each side, under 500 gangs of 4."""
    work, go = Workload(run.pick(500, 50), 4, 2), find_go(cache_root())
    found: dict[str, dict[str, float]] = {}
    async with arena(run.pick(500, 50), run.workdir) as place:
        for side in ("bireme", "stock"):
            await place.prepare(side)
            profile = run.workdir / f"{side}.pb.gz"
            profiling = asyncio.create_task(_profiled(place, profile))
            await place.submit(side, work.names, work.replicas, work.gpus)
            await place.have_bound(work.pods)
            await profiling
            found[side] = await asyncio.to_thread(_parts, go, profile)
            run.say(f"{side}: {sum(found[side].values()):.1f} s")
            await place.clear()
    bireme, stock = found["bireme"], found["stock"]
    table = Table(
        title="Processor seconds of the API server by part",
        columns=("part", "stock scheduler", "Bireme"),
        rows=tuple((part, stock[part], bireme[part]) for part in stock),
    )
    whole, rival = sum(bireme.values()), sum(stock.values())
    row = Row(what="all parts", unit="s", bireme=Sample.of([whole]), baseline=Sample.of([rival]))
    return Result(baseline="stock scheduler", rows=(row,), tables=(table,))


async def _profiled(place: Arena, into: Path) -> None:
    seconds = {"seconds": str(_SECONDS)}
    path, limit = "/debug/pprof/profile", _SECONDS + 30.0
    answer = await place.client.request("GET", path, params=seconds, timeout_seconds=limit)
    into.write_bytes(answer)


def _parts(go: Path, profile: Path) -> dict[str, float]:
    """Return processor seconds by part of one profile."""
    found, ignored = {}, ""
    for part, fits in _PARTS.items():
        found[part] = _seconds(go, profile, fits, ignored)
        ignored = f"{ignored}|{fits}" if ignored else fits
    found["the rest: HTTP, TLS, authorisation, the runtime"] = _seconds(go, profile, "", ignored)
    return found


def _seconds(go: Path, profile: Path, focus: str, ignore: str) -> float:
    options = [f"-focus={focus}"] * bool(focus) + [f"-ignore={ignore}"] * bool(ignore)
    command = [str(go), "tool", "pprof", "-top", "-nodecount=100000", "-nodefraction=0", *options]
    done = subprocess.run(
        [*command, str(profile)], capture_output=True, text=True, check=True, timeout=120
    )
    accounted = _ACCOUNTED.search(done.stdout)
    return float(accounted[1]) * _UNITS[accounted[2]] if accounted else 0.0
