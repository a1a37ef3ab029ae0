"""``/v1/outlook``: the leader's word on the gangs that wait, and on jobs with changes.

A GET lists the gangs that wait, with forecast starts and reserved places; each ``?namespace=NAME``
selects a namespace. A POST asks when a job would start (:class:`bireme.replay.what_if.Inquiry`).
The caller needs permission to list TrainingJobs in the namespaces of the request. A question about
new jobs also needs permission to create them there. The reply names gangs in namespaces where the
caller may list jobs, and an answer counts the others (:mod:`bireme_operator.http_callers`).

An answer costs many seconds of processor time. So the process that also renews the start forecast
answers one question at a time, and few may wait.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from bireme.core.decision import Hold, Reservation
from bireme.core.eta import StartRange
from bireme.core.nodes import NodeTable
from bireme.core.outlook import Prospect, prospects_of
from bireme.core.placement import usage_of
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import clock_time
from bireme.core.what_if import MAX_TRIES, PriorityClass
from bireme.kube import quantities
from bireme.kube.tenancy import Tenancy
from bireme.replay.outlook_reply import (
    PATH,
    VERSION,
    Foresight,
    GangOutlook,
    OutlookReply,
    OutlookRequest,
    ReplyStart,
)
from bireme.replay.record import RecordError
from bireme.replay.what_if import MAX_JOBS, Inquiry, Known, WhatIfAnswer, WhatIfQuestion
from bireme_operator.http_callers import MAX_NAMESPACES, HttpCallers, Reader
from bireme_operator.http_server import RequestRefused, refusal
from bireme_operator.outlooks import Decided, Outlooks, StartForecast
from bireme_operator.questions import QuestionFailed

MAX_BYTES: Final = 262_144
MAX_WAITING: Final = 4
"""Limit of questions in progress or waiting; one user has at most one, and so have the
ServiceAccounts of one namespace together."""
MAX_OF_NAMESPACE: Final = 2
"""Limit of these questions about one namespace, over all callers."""
MAX_SECONDS: Final = 60.0
_MAX_NAME: Final = 253
_RETRY_SECONDS: Final = 10.0
_PART: Final = 0.5
"""Share of the process's time limit for alternatives; the start itself is computed first."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Leading:
    """Sources of a leader's answers."""

    outlooks: Outlooks
    tenancy: Tenancy


@dataclass(slots=True)
class OutlookEndpoint:
    """Serves the outlook; ``leading`` returns its sources, or None if this process does not lead.

    Attributes:
        clock: Monotonic seconds.
        now: POSIX seconds.
    """

    readers: HttpCallers
    leading: Callable[[], Leading | None]
    now: Callable[[], float]
    clock: Callable[[], float] = time.monotonic
    _asking: dict[str, frozenset[str]] = field(default_factory=dict)
    """Namespaces of each question in progress or waiting, by user."""

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(PATH, self._serve)
        app.router.add_post(PATH, self._serve)

    async def _serve(self, request: web.Request) -> web.Response:
        began, log_fields = self.clock(), dict[str, Any]()
        status = 500
        try:
            reader = await self.readers.who_sent(request)
            log_fields["user"] = reader.name
            if (leading := self.leading()) is None:
                raise RequestRefused(503, "this replica does not lead; ask another one")
            if request.method == "POST":
                question = _decode(await _body_of(request))
                log_fields |= {"namespaces": sorted(question.namespaces), "job": question.name}
                log_fields["manifests"] = len(question.manifests)
                body = await self._answer(reader, question, leading)
            else:
                namespaces = sorted(set(request.query.getall("namespace", ())))
                log_fields["namespaces"] = namespaces
                body = await self._list(reader, namespaces, leading)
            status = 200
        except RequestRefused as refused:
            status = refused.status
            return refusal(refused)
        finally:
            seconds = round(self.clock() - began, 3)
            _log.info("outlook asked", status=status, seconds=seconds, **log_fields)
        return web.Response(body=body, content_type="application/json")

    # --- the gangs that wait ---

    async def _list(self, reader: Reader, namespaces: list[str], leading: Leading) -> bytes:
        current, latest = _current(leading), leading.outlooks.latest
        present = {hold.gang.namespace for hold in current.decision.held}
        present |= {gang.namespace for gang in current.decision.unreached}
        may_read = await self.readers.scope(reader, namespaces, present)
        return await asyncio.to_thread(_encode_gangs, current, latest, may_read, self.now())

    # --- questions ---

    async def _answer(self, reader: Reader, question: Inquiry, leading: Leading) -> bytes:
        for namespace in sorted(question.namespaces):
            await self.readers.require(reader, "list", namespace)
            if question.manifests:
                await self.readers.require(reader, "create", namespace)
        current = _current(leading)
        readable = await self._readable(reader, question, current.snapshot)
        self._enter(reader.user.tenant, frozenset(question.namespaces))
        try:
            answer = await self._ask(question, readable, leading, current)
        finally:
            self._asking.pop(reader.user.tenant, None)
        if answer.refusal:
            raise RequestRefused(422, answer.refusal)
        time_text = clock_time(current.snapshot.now)
        reply = OutlookReply(time_text, current.source.name, answers=answer.told)
        return msgspec.json.encode(reply)

    def _enter(self, tenant: str, namespaces: frozenset[str]) -> None:
        """Take a place among the waiting questions; raise RequestRefused if there is none."""
        if tenant in self._asking:
            message = "your last question is not answered yet; wait for its answer"
            raise RequestRefused(429, message, _RETRY_SECONDS)
        for name in sorted(namespaces):
            if sum(name in pending for pending in self._asking.values()) >= MAX_OF_NAMESPACE:
                message = f"{MAX_OF_NAMESPACE} questions about namespace {name!r} wait; try again"
                raise RequestRefused(429, message, _RETRY_SECONDS)
        if len(self._asking) >= MAX_WAITING:
            raise RequestRefused(429, "too many questions wait; try again", _RETRY_SECONDS)
        self._asking[tenant] = namespaces

    async def _readable(
        self, reader: Reader, question: Inquiry, snapshot: ClusterSnapshot
    ) -> frozenset[str] | None:
        """Return the namespaces whose gangs the answer may name, None for all.

        It checks at most :data:`MAX_NAMESPACES`; the answer counts the gangs of the rest.
        """
        if await self.readers.may(reader, "list", ""):
            return None
        present = {gang.namespace for gang in snapshot.waiting}
        present |= {running.gang.namespace for running in snapshot.running}
        other_namespaces = sorted(present - question.namespaces)
        return await self.readers.readable(
            reader, [*sorted(question.namespaces), *other_namespaces][:MAX_NAMESPACES]
        )

    async def _ask(
        self,
        question: Inquiry,
        readable: frozenset[str] | None,
        leading: Leading,
        current: Decided,
    ) -> WhatIfAnswer:
        outlooks = leading.outlooks
        limit = outlooks.questions.limit_seconds
        seconds = max(0.0, min(question.seconds, MAX_SECONDS, _PART * limit))
        context = _context(leading, question, readable)
        full_question = WhatIfQuestion(msgspec.structs.replace(question, seconds=seconds), context)
        try:
            async with asyncio.timeout(2 * limit):  # includes the questions ahead
                return await outlooks.ask(full_question, current, WhatIfAnswer)
        except TimeoutError:
            message = "no answer in time, because other questions came first; try again"
            raise RequestRefused(503, message, _RETRY_SECONDS) from None
        except (QuestionFailed, RecordError) as error:
            _log.error("question not answered", error=str(error))
            message = f"no answer could be made within {limit:g} s; the operator's log says why"
            raise RequestRefused(503, message) from error


def _current(leading: Leading) -> Decided:
    """Return the last cycle; raise RequestRefused before the first."""
    if (current := leading.outlooks.current) is None:
        raise RequestRefused(503, "nothing has been decided yet; try again", _RETRY_SECONDS)
    return current


def _encode_gangs(
    current: Decided, latest: StartForecast | None, may_read: frozenset[str] | None, now: float
) -> bytes:
    prospects = () if latest is None else latest.outlook.prospects
    starts = {each.gang.uid: each.start for each in prospects if each.start is not None}
    ranges = {} if latest is None else latest.ranges
    holds = {hold.gang.uid: hold for hold in current.decision.held}
    reply = OutlookReply(
        time=clock_time(current.snapshot.now),
        policy=current.source.name,
        namespaces=None if may_read is None else sorted(may_read),
        foresight=_foresight(latest, now),
        gangs=[
            _gang(each, holds.get(each.gang.uid), ranges, current.snapshot.nodes)
            for each in prospects_of(current.decision, starts)
            if may_read is None or each.gang.namespace in may_read
        ],
    )
    return msgspec.json.encode(reply)


def _foresight(latest: StartForecast | None, now: float) -> Foresight | None:
    if latest is None:
        return None
    outlook = latest.outlook
    return Foresight(
        time=clock_time(outlook.now),
        age_seconds=round(max(0.0, now - outlook.now)),
        until=clock_time(outlook.until),
        cut=outlook.cut,
        policy=latest.policy,
    )


def _gang(
    prospect: Prospect, hold: Hold | None, ranges: Mapping[str, StartRange], nodes: NodeTable
) -> GangOutlook:
    gang, start = prospect.gang, prospect.start
    ranked = hold.ranked if hold is not None else None
    reservation = hold.reservation if hold is not None else None
    return GangOutlook(
        kind=gang.kind,
        namespace=gang.namespace,
        name=gang.name,
        queue=gang.queue,
        gpus=nodes.accelerators.units(gang.demand),
        priority=ranked.score if ranked is not None else None,
        position=prospect.position,
        reason=prospect.reason.value if prospect.reason is not None else None,
        message=hold.message if hold is not None else "",
        arrived=quantities.format_timestamp(gang.arrived),
        start=quantities.format_timestamp(start) if start is not None else None,
        estimated_start=_estimated_start(ranges.get(gang.uid)),
        reserved=_devices(hold, reservation, nodes) if hold and reservation else {},
    )


def _estimated_start(ends: StartRange | None) -> ReplyStart | None:
    if ends is None:
        return None
    return ReplyStart(
        quantities.format_timestamp(ends.earliest),
        quantities.format_timestamp(ends.latest) if ends.latest is not None else None,
        round(100 * ends.coverage) if ends.coverage is not None else None,
    )


def _devices(hold: Hold, reservation: Reservation, nodes: NodeTable) -> dict[str, dict[str, int]]:
    """Return the reserved devices by node and resource."""
    names, is_accelerator = nodes.axis.names, nodes.accelerators.is_accelerator
    devices = [column for column, name in enumerate(names) if is_accelerator(name)]
    by_node: dict[str, Counter[str]] = {}
    rows, usage = usage_of(hold.gang, reservation.placement, nodes.axis)
    for row, used in zip(rows.tolist(), usage[:, devices].tolist(), strict=True):
        # A gang may have several tasks on a node.
        amounts = by_node.setdefault(nodes.names[row], Counter())
        amounts.update(
            {names[c]: amount for c, amount in zip(devices, used, strict=True) if amount}
        )
    return {node: dict(amounts) for node, amounts in by_node.items()}


def _context(leading: Leading, question: Inquiry, readable: frozenset[str] | None) -> Known:
    tenancy = leading.tenancy
    by_name = {name: _class(tenancy, name) for name in tenancy.priority_classes()}
    return Known(
        classes=by_name,
        default_class=_class(tenancy, None),
        default_queues={name: tenancy.default_queue(name) for name in question.namespaces},
        topology_levels=tuple(leading.outlooks.scheduling.topology_levels),
        readable=readable,
    )


def _class(tenancy: Tenancy, name: str | None) -> PriorityClass:
    value, _ = tenancy.priority(name)
    return PriorityClass(name or "", value, tenancy.may_preempt(name))


async def _body_of(request: web.Request) -> bytes:
    body = b""
    async for part in request.content.iter_any():
        body += part
        if len(body) > MAX_BYTES:
            raise RequestRefused(413, f"the question is longer than {MAX_BYTES} bytes; shorten it")
    return body


def _decode(body: bytes) -> Inquiry:
    """Return the question in ``body``; raise RequestRefused if it is none."""
    try:
        envelope = msgspec.json.decode(body, type=OutlookRequest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestRefused(400, f"the body is not a question: {error}") from error
    if envelope.api_version != VERSION:
        raise RequestRefused(
            400, f"apiVersion: {envelope.api_version[:80]!r} is not known; send {VERSION}"
        )
    question = envelope.question
    if len(question.manifests) > MAX_JOBS:
        raise RequestRefused(
            422, f"manifests: {len(question.manifests)} are too many; send at most {MAX_JOBS}"
        )
    if len(question.tries) > MAX_TRIES:
        raise RequestRefused(
            422, f"tries: {len(question.tries)} are too many; send at most {MAX_TRIES}"
        )
    if not question.manifests and not (question.name and question.namespace):
        raise RequestRefused(422, "name, namespace: are missing; name a job, or send manifests")
    # The names are logged and cached with the API server's answers, so their length is bounded.
    if len(question.name) > _MAX_NAME or any(map(_is_no_namespace, question.namespaces)):
        raise RequestRefused(422, "name, namespace: are no names; write those of Kubernetes")
    return question


def _is_no_namespace(name: str) -> bool:
    return not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", name)
