"""The load generator: creates gangs as a busy job controller would, the same for every side.

A gang's own object is created first, its pods once that is there. Requests go out in the order of
the gangs, as many at a time as Bireme's operator has in flight.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from benchmarks.peers.sides import Gang
from benchmarks.timings.arena import CONCURRENCY, PODS

Create = Callable[[str, bytes], Awaitable[object]]
"""Creates an object, given the path of its collection and its body."""

Request = tuple[str, bytes]
_encode: Final = msgspec.json.encode


async def feed(create: Create, gangs: Sequence[Gang]) -> dict[str, float]:
    """Create gangs; return when the first request of each was handed over, in monotonic seconds."""
    members: list[list[Request]] = [[(PODS, _encode(pod)) for pod in g.pods] for g in gangs]
    submitted: dict[str, float] = {}
    ready: asyncio.PriorityQueue[tuple[int, int, Request, bool]] = asyncio.PriorityQueue()
    order = itertools.count()  # of the requests of one gang

    def put(number: int, requests: Sequence[Request], *, is_group: bool = False) -> None:
        for request in requests:
            ready.put_nowait((number, next(order), request, is_group))

    for number, gang in enumerate(gangs):
        if gang.group:
            path, manifest = gang.group
            put(number, [(path, _encode(manifest))], is_group=True)
        else:
            put(number, members[number])

    async def worker() -> None:
        while True:
            number, _, request, is_group = await ready.get()
            submitted.setdefault(gangs[number].name, time.monotonic())
            await create(*request)
            if is_group:
                put(number, members[number])
            ready.task_done()

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(worker()) for _ in range(CONCURRENCY)]
        await ready.join()
        for each in workers:
            each.cancel()
    return submitted
