"""The extender's round trip, beside a bare server that returns the same bytes.

The extender is the real program with a full cache. Servers run on one core, the client on the
other, and they are asked in turn over kept connections.
"""

import asyncio
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import ROOT
from benchmarks.report import Pairs, Result, Row, Sample, at_most
from benchmarks.timings import round_trips
from benchmarks.timings.bare_servers import UVICORN, UVLOOP
from benchmarks.timings.cases import Run, program, running
from benchmarks.timings.populated_api import PopulatedApi
from testbed.controlplane.process import Process, free_ports
from testbed.fakeapi import FakeApi
from testbed.scenario.manifests import Manifest

_MODES: Final = {"Pinned": "planned pod", "Score": "pod in score mode"}
_VERBS: Final = ("filter", "prioritize")
_ORDERS: Final = 10
_SERVER_CORE: Final = 0
_CLIENT_CORE: Final = 1
_FASTEST: Final = "against uvloop and httptools alone"


async def measure_extender(run: Run) -> Result:
    """Measure filter and prioritize at 1, 500 and 5000 names."""
    nodes, gangs = run.pick(5000, 100), run.pick(500, 10)
    sizes = [1, run.pick(500, 10), nodes]
    async with FakeApi() as api:
        cluster = PopulatedApi(api, nodes)
        for number in range(gangs):
            cluster.add_gang(f"gang-{number}", cluster.nodes[number::gangs][:8], 2)
        pods = {
            mode: cluster.plan_gang(mode.lower(), [cluster.nodes[0]], 1, mode)[0] for mode in _MODES
        }
        extender = program("extender", run.workdir, api.kubeconfig(run.workdir))
        async with running(extender):
            rows = [
                row
                for mode, verb, size in product(_MODES, _VERBS, sizes)
                for turned in ((False, True) if mode == "Score" and size > 1 else (False,))
                for row in await _ask(
                    run, extender, verb, mode, pods[mode], cluster.nodes[:size], turned=turned
                )
            ]
    note = (
        "The bare server is uvicorn, on which the extender runs, with a fixed answer; rows marked "
        f"{_FASTEST!r} compare with uvloop and httptools alone, the least a Python server can do. "
        "A pod in score mode is decided on against all nodes, a planned one is looked up. 'Turned' "
        "are names in another order in every call; otherwise they are the same, as prioritize is "
        "asked about what filter has passed."
    )
    return Result(baseline="bare uvicorn", rows=tuple(rows), notes=(note,))


async def _ask(
    run: Run,
    extender: Process,
    verb: str,
    mode: str,
    pod: Manifest,
    nodes: Sequence[str],
    *,
    turned: bool,
) -> list[Row]:
    question = f"{verb}, {_MODES[mode]}, {len(nodes)} names{' turned' if turned else ''}"
    sent = []
    for start in range(0, len(nodes), len(nodes) // _ORDERS) if turned else (0,):
        body = {"Pod": pod, "Nodes": None, "NodeNames": [*nodes[start:], *nodes[:start]]}
        sent.append(round_trips.request(f"/{verb}", msgspec.json.encode(body)))
    reply = await asyncio.to_thread(round_trips.reply_of, extender.port, sent[0])
    uvicorn, fastest = Pairs(), Pairs()
    rivals = [_bare_server(run.workdir, kind, reply) for kind in (UVICORN, UVLOOP)]
    async with running(*rivals):
        for _ in range(run.repetitions):
            ours, *theirs = await asyncio.to_thread(timed, run, [extender, *rivals], sent)
            for pairs, seconds in zip((uvicorn, fastest), theirs, strict=True):
                pairs.add("bireme", percentiles(ours))
                pairs.add("bare server", percentiles(seconds))
    middle = uvicorn.row("p50", "ms", at_most(1.3, "ratio"), f"{question}: p50")
    run.say(f"{middle.what}: {middle.bireme.median:.3f} ms, ratio {middle.ratio:.2f}")
    return [
        middle,
        fastest.row("p50", "ms", what=f"{middle.what}, {_FASTEST}"),
        uvicorn.row("p99", "ms", at_most(2.0, "ratio"), f"{question}: p99"),
    ]


def _bare_server(workdir: Path, kind: str, reply: bytes) -> Process:
    (port,) = free_ports(1)
    path = workdir / "reply.json"
    path.write_bytes(reply)
    return Process(
        kind,
        [sys.executable, "-m", "benchmarks.timings.bare_servers", kind, str(port), str(path)],
        log_path=workdir / f"{kind}.log",
        ready_url=f"http://127.0.0.1:{port}/",
        env={"PYTHONPATH": str(ROOT)},
    )


def timed(run: Run, servers: Sequence[Process], sent: Sequence[bytes]) -> list[list[float]]:
    """Time round trips by server; servers share a core, and the client has another one."""
    for process in servers:
        round_trips.pin(process.pid, _SERVER_CORE)
    round_trips.pin(0, _CLIENT_CORE)
    try:
        return round_trips.timed([server.port for server in servers], sent, rounds=run.pick(100, 5))
    finally:
        round_trips.pin(0, None)


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return p50 and p99 in milliseconds."""
    sample = Sample.of(1000 * value for value in seconds)
    return {"p50": sample.percentile(50), "p99": sample.percentile(99)}
