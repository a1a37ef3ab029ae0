"""The debug dump: the operator's last snapshot and decisions, at ``GET /debug/dump``.

A caller presents a ticket that identifies them (:mod:`bireme_operator.tickets`). The API server
decides whether that user may ``get`` this path (SubjectAccessReview of a nonResourceURL). The
snapshot is a whole record of one cycle, for ``bireme replay``. It contains requests and rules of
pods, but no templates, environments or Secrets, which the operator does not keep.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from bireme.core.cycle_trace import CycleTrace
from bireme.core.decision import Decision, Hold
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import clock_time
from bireme.replay.record import RecordError
from bireme.replay.writer import encode_record
from bireme.rl.lookup import PolicySource
from bireme_operator.http_callers import AccessReviews
from bireme_operator.http_server import RequestRefused, refusal
from bireme_operator.rate_limiter import RateLimiter
from bireme_operator.tickets import TICKET_HEADER, Tickets

PATH: Final = "/debug/dump"
MAX_BYTES: Final = 64 * 2**20
"""Size limit of the snapshot in a dump, which omits a larger one."""
_MAX_ACTIONS: Final = 1000
_MAX_CYCLES: Final = 20
_SECONDS_EACH: Final = 5.0
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class LastCycles:
    """The decisions of the last cycles, with the snapshot of the latest."""

    run: str
    settings: SchedulingSettings
    _last: tuple[ClusterSnapshot, Decision, PolicySource] | None = None
    _cycles: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_MAX_CYCLES))

    def keep(
        self,
        snapshot: ClusterSnapshot,
        decision: Decision,
        source: PolicySource,
        seconds: float,
        trace: CycleTrace,
    ) -> None:
        """Keep one cycle that took ``seconds``, decided by ``source``, with its ``trace``."""
        self._last = (snapshot, decision, source)
        self._cycles.append(
            {
                "cycle": trace.cycle,
                "time": clock_time(snapshot.now),
                "seconds": round(seconds, 6),
                "waiting": len(snapshot.waiting),
                "running": len(snapshot.running),
                "nodes": len(snapshot.nodes),
                "policy": source.name,
                "fallback": decision.fallback,
                "actions": Counter(action.reason.value for action in decision.actions),
                "steps": [
                    {"step": step.name, "gangs": step.gangs, "seconds": round(step.seconds, 6)}
                    for step in trace.steps
                ],
            }
        )

    def dump(self) -> dict[str, Any]:
        """Return all of it as JSON-compatible data; takes a second in a large cluster."""
        dump: dict[str, Any] = {"run": self.run, "cycles": list(self._cycles), "decisions": []}
        if self._last is None:
            return dump
        snapshot, decision, source = self._last
        dump["decisions"] = [
            {
                "do": type(action).__name__.lower(),
                "gang": f"{action.gang.namespace}/{action.gang.name}",
                "reason": action.reason.value,
                "message": action.message,
                **({"position": action.position} if isinstance(action, Hold) else {}),
            }
            for action in decision.actions[:_MAX_ACTIONS]
        ]
        dump["decisionsLeftOut"] = max(0, len(decision.actions) - _MAX_ACTIONS)
        try:
            record = encode_record(self.run, self.settings, snapshot, decision, source)
        except RecordError as error:
            dump["recordLeftOut"] = str(error)
        else:
            if len(record) > MAX_BYTES:
                dump["recordLeftOut"] = f"the record has {len(record)} bytes, more than {MAX_BYTES}"
            else:
                dump["record"] = record.decode()
        return dump


@dataclass(slots=True)
class DebugDump:
    """Serves the dump; ``last`` gives the cycles of this process, None if it does not lead."""

    tickets: Tickets
    reviews: AccessReviews
    last: Callable[[], LastCycles | None]
    facts: Callable[[], Mapping[str, Any]]
    per_user: RateLimiter

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(PATH, self._serve)

    async def _serve(self, request: web.Request) -> web.Response:
        try:
            user = await self._admit(request.headers.get(TICKET_HEADER, ""))
            last = self.last()
            if last is None:
                raise RequestRefused(503, "this replica does not lead; ask another one")
        except RequestRefused as refused:
            return refusal(refused)
        _log.info("dump sent", user=user)
        # In a thread, because the event loop also renews the lease.
        body = await asyncio.to_thread(self._encode, last)
        return web.Response(body=body, content_type="application/json")

    def _encode(self, last: LastCycles) -> bytes:
        header = {"version": version("bireme"), **self.facts()}
        return msgspec.json.encode({**header, **last.dump()})

    async def _admit(self, ticket: str) -> str:
        """Return the caller's name; raise RequestRefused if they have no permission."""
        user = await self.tickets.user(ticket)
        if wait := self.per_user.take(user.tenant):
            raise RequestRefused(
                429, f"you may get one dump in {_SECONDS_EACH:g} s; try again", wait
            )
        if not await self.reviews.may(user, nonResourceAttributes={"path": PATH, "verb": "get"}):
            raise RequestRefused(
                403, f"{user.name} may not get {PATH}: ask for that nonResourceURL"
            )
        return user.name


def make(
    tickets: Tickets,
    last: Callable[[], LastCycles | None],
    facts: Callable[[], Mapping[str, Any]],
    clock: Callable[[], float],
) -> DebugDump:
    """Return the endpoint; ``clock`` gives monotonic seconds."""
    per_user = RateLimiter(1 / _SECONDS_EACH, 5, clock)
    return DebugDump(tickets, AccessReviews(tickets.client), last, facts, per_user)
