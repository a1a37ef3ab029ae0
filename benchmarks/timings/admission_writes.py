"""API writes per admitted gang, as the API server and the operator count them.

Bireme's are those of the operator plus the binds made for it; the rest of
``apiserver_request_total`` is pod statuses of kubelets and events of kube-scheduler.
"""

import asyncio
import re
from collections import Counter
from typing import Final

from benchmarks.report import Result, Row, Table, at_most
from benchmarks.timings.arena import JOBS, Arena, arena
from benchmarks.timings.cases import Run, metrics_of
from benchmarks.timings.workloads import training_job

_REPLICAS: Final = 8
_LINE: Final = re.compile(r"(\w+)\{(.*)\} (\S+)")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_BIND: Final = ("create", "pods/binding")
_NOT_PER_GANG: Final = ("leases", "clusterclaims", "queues/status")
"""Written by the clock, whether gangs come or not."""

Writes = Counter[tuple[str, str]]
"""By verb and resource, as in ("update", "trainingjobs/status")."""


def writes_of_api_server(metrics: str) -> Writes:
    """Count writes, refused ones included."""
    counts: Writes = Counter()
    for labels, number in _samples(metrics, "apiserver_request_total"):
        if labels["verb"] in _VERBS:
            part = f"/{labels['subresource']}" if labels["subresource"] else ""
            counts[_VERBS[labels["verb"]], labels["resource"] + part] += number
    return counts


def writes_of_operator(metrics: str) -> Writes:
    counts: Writes = Counter()
    for labels, number in _samples(metrics, "bireme_api_writes_total"):
        counts[labels["verb"], labels["resource"]] += number
    return counts


def _samples(metrics: str, name: str) -> list[tuple[dict[str, str], int]]:
    found = [_LINE.match(line) for line in metrics.splitlines()]
    return [
        (dict(_LABEL.findall(one[2])), int(float(one[3])))
        for one in found
        if one is not None and one[1] == name
    ]


async def measure_writes(run: Run) -> Result:
    """Run gangs that are submitted one after another."""
    gangs = run.pick(20, 4)
    rows, tables = [], []
    async with arena(run.pick(40, 8), run.workdir) as place:
        await place.prepare("bireme")
        for rendezvous, services in (("none", 0), ("torch", 1)):
            before = await _counts(place)
            await _submit(place, gangs, rendezvous)
            after = await _counts(place)
            everything, own = after[0] - before[0], after[1] - before[1]
            # Binds are for Bireme's gangs alone, but kube-scheduler writes them.
            own[_BIND] = everything[_BIND]
            per_gang = sum(n for (_, what), n in own.items() if what not in _NOT_PER_GANG) / gangs
            what = f"writes per gang of {_REPLICAS}, rendezvous {rendezvous}"
            rows.append(Row.alone(what, "", per_gang, aim=at_most(2 * _REPLICAS + services + 2)))
            tables.append(_table(own, everything - own, gangs, rendezvous))
            run.say(f"{what}: {per_gang:.2f}")
            await place.clear()
    note = (
        "The aim is n creates, n binds, a Service where replicas must find each other, and two "
        "statuses: Starting, with the plan, and Running. Leases and queue statuses are written by "
        "the clock and do not count."
    )
    return Result(rows=tuple(rows), tables=tuple(tables), notes=(note,))


async def _submit(place: Arena, gangs: int, rendezvous: str) -> None:
    for number in range(gangs):
        job = training_job(f"{rendezvous}-{number}", _REPLICAS, 1, rendezvous=rendezvous)
        await place.create(JOBS, [job])
        await place.have_bound((number + 1) * _REPLICAS, 60)
    await asyncio.sleep(5)  # longer than the operator gathers what it reports
    await place.rest()


async def _counts(place: Arena) -> tuple[Writes, Writes]:
    """Count all writes so far, and the operator's."""
    port = place.stack.operator().port
    page = await asyncio.to_thread(metrics_of, port)
    everything = writes_of_api_server((await place.client.get("/metrics")).decode())
    return everything, writes_of_operator(page)


def _table(own: Writes, others: Writes, gangs: int, rendezvous: str) -> Table:
    rows: list[tuple[str | float, ...]] = [
        (f"{verb} {what}", by, count / gangs)
        for by, counts in (("Bireme", own), ("others", others))
        for (verb, what), count in counts.most_common()
    ]
    title = f"Writes per gang by resource, rendezvous {rendezvous}"
    return Table(title=title, columns=("write", "by", "per gang"), rows=tuple(rows))
