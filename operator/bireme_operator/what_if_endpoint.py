"""``POST /what-if``: when a job would start, from the leader's latest snapshot.

The body is a question as plain data (:class:`bireme.replay.what_if.Asked`). Who asks must be
allowed to list TrainingJobs in the namespaces asked about, and to create them there where the
question is about new ones. Gangs are named where the reader may list, and counted elsewhere.

It costs many seconds of processor time. So one question is answered at a time, by the process that
renews the outlook as well, and few may wait.
"""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from bireme.core.snapshot import ClusterSnapshot
from bireme.core.what_if import MAX_TRIES, PriorityClass
from bireme.kube.tenancy import Tenancy
from bireme.replay.record import RecordError
from bireme.replay.what_if import (
    MAX_JOBS,
    Asked,
    Known,
    Told,
    WhatIfAnswer,
    WhatIfQuestion,
)
from bireme_operator.outlooks import Decided, Outlooks
from bireme_operator.progress_auth import RequestRefused
from bireme_operator.questions import QuestionFailed
from bireme_operator.readers import MAX_NAMESPACES, Reader, Readers, refusal

PATH: Final = "/what-if"
VERSION: Final = "what-if.bireme.dev/v1"
MAX_BYTES: Final = 262_144
MAX_WAITING: Final = 4
"""Questions that are answered or wait; of one user, or of the ServiceAccounts of one namespace, it
is one."""
MAX_OF_NAMESPACE: Final = 2
"""Of these, questions about one namespace, whoever asks."""
MAX_SECONDS: Final = 60.0
_MAX_NAME: Final = 253
_RETRY_SECONDS: Final = 10.0
_PART: Final = 0.5
"""Of the limit of the process, what alternatives may take: the start itself comes first."""
_log = structlog.get_logger(__name__)


class _Body(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    question: Asked


@dataclass(frozen=True, slots=True)
class Leading:
    """What a process that leads answers from."""

    outlooks: Outlooks
    tenancy: Tenancy


@dataclass(slots=True)
class WhatIfEndpoint:
    """Serves answers; ``leading`` gives what they are from, None where this process does not lead.

    Attributes:
        clock: Monotonic seconds.
    """

    readers: Readers
    leading: Callable[[], Leading | None]
    clock: Callable[[], float] = time.monotonic
    _asking: dict[str, frozenset[str]] = field(default_factory=dict)
    """Of each user whose question is answered or waits, the namespaces that it is about."""

    def add_to(self, app: web.Application) -> None:
        app.router.add_post(PATH, self._serve)

    async def _serve(self, request: web.Request) -> web.Response:
        began, told = self.clock(), dict[str, Any]()
        status = 500
        try:
            reader = await self.readers.who_sent(request)
            told["user"] = reader.name
            if (leading := self.leading()) is None:
                raise RequestRefused(503, "this replica does not lead; ask another one")
            asked = _decoded(await _body_of(request))
            told |= {"namespaces": sorted(asked.namespaces), "job": asked.name}
            told["manifests"] = len(asked.manifests)
            body = await self._answer(reader, asked, leading)
            status = 200
        except RequestRefused as refused:
            status = refused.status
            return refusal(refused)
        finally:
            seconds = round(self.clock() - began, 3)
            _log.info("what-if asked", status=status, seconds=seconds, **told)
        return web.Response(body=body, content_type="application/json")

    async def _answer(self, reader: Reader, asked: Asked, leading: Leading) -> bytes:
        for namespace in sorted(asked.namespaces):
            await self.readers.require(reader, "list", namespace)
            if asked.manifests:
                await self.readers.require(reader, "create", namespace)
        current = leading.outlooks.current
        if current is None:
            raise RequestRefused(503, "nothing has been decided yet; try again", _RETRY_SECONDS)
        readable = await self._readable(reader, asked, current.snapshot)
        self._enter(reader.user.tenant, frozenset(asked.namespaces))
        try:
            answer = await self._asked(asked, readable, leading, current)
        finally:
            self._asking.pop(reader.user.tenant, None)
        if answer.refusal:
            raise RequestRefused(422, answer.refusal)
        return _encoded(answer.told, current.source.name)

    def _enter(self, tenant: str, namespaces: frozenset[str]) -> None:
        """Take a place among those that wait; RequestRefused where there is none."""
        if tenant in self._asking:
            message = "your last question is not answered yet; wait for that"
            raise RequestRefused(429, message, _RETRY_SECONDS)
        for name in sorted(namespaces):
            if sum(name in each for each in self._asking.values()) >= MAX_OF_NAMESPACE:
                message = f"{MAX_OF_NAMESPACE} questions about namespace {name!r} wait; try again"
                raise RequestRefused(429, message, _RETRY_SECONDS)
        if len(self._asking) >= MAX_WAITING:
            raise RequestRefused(429, "too many questions wait; try again", _RETRY_SECONDS)
        self._asking[tenant] = namespaces

    async def _readable(
        self, reader: Reader, asked: Asked, snapshot: ClusterSnapshot
    ) -> frozenset[str] | None:
        """Return the namespaces whose gangs may be named, None for all.

        Of more than :data:`MAX_NAMESPACES` the gangs of the rest are counted.
        """
        if await self.readers.may(reader, "list", ""):
            return None
        present = {gang.namespace for gang in snapshot.waiting}
        present |= {held.gang.namespace for held in snapshot.running}
        others = sorted(present - asked.namespaces)
        return await self.readers.readable(
            reader, [*sorted(asked.namespaces), *others][:MAX_NAMESPACES]
        )

    async def _asked(
        self,
        asked: Asked,
        readable: frozenset[str] | None,
        leading: Leading,
        current: Decided,
    ) -> WhatIfAnswer:
        outlooks = leading.outlooks
        limit = outlooks.questions.limit_seconds
        seconds = max(0.0, min(asked.seconds, MAX_SECONDS, _PART * limit))
        known = _known(leading, asked, readable)
        question = WhatIfQuestion(msgspec.structs.replace(asked, seconds=seconds), known)
        try:
            async with asyncio.timeout(2 * limit):  # those in front included
                return await outlooks.ask(question, current, WhatIfAnswer)
        except TimeoutError:
            message = "no answer in time, as others are answered first; try again"
            raise RequestRefused(503, message, _RETRY_SECONDS) from None
        except (QuestionFailed, RecordError) as error:
            _log.error("what-if not answered", error=str(error))
            message = f"no answer could be made within {limit:g} s; the operator's log says why"
            raise RequestRefused(503, message) from error


def _known(leading: Leading, asked: Asked, readable: frozenset[str] | None) -> Known:
    tenancy = leading.tenancy
    by_name = {name: _class(tenancy, name) for name in tenancy.priority_classes()}
    return Known(
        classes=by_name,
        default_class=_class(tenancy, None),
        default_queues={name: tenancy.default_queue(name) for name in asked.namespaces},
        topology_levels=tuple(leading.outlooks.scheduling.topology_levels),
        readable=readable,
    )


def _class(tenancy: Tenancy, name: str | None) -> PriorityClass:
    value, _ = tenancy.priority(name)
    return PriorityClass(name or "", value, tenancy.may_preempt(name))


async def _body_of(request: web.Request) -> bytes:
    found = b""
    async for part in request.content.iter_any():
        found += part
        if len(found) > MAX_BYTES:
            raise RequestRefused(413, f"the question is longer than {MAX_BYTES} bytes; shorten it")
    return found


def _decoded(body: bytes) -> Asked:
    """Return the question in ``body``; RequestRefused where it is none."""
    try:
        found = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestRefused(400, f"the body is no question: {error}") from error
    if found.api_version != VERSION:
        raise RequestRefused(
            400, f"apiVersion: {found.api_version[:80]!r} is not known; send {VERSION}"
        )
    asked = found.question
    if len(asked.manifests) > MAX_JOBS:
        raise RequestRefused(
            422, f"manifests: {len(asked.manifests)} are too many; send up to {MAX_JOBS}"
        )
    if len(asked.tries) > MAX_TRIES:
        raise RequestRefused(422, f"tries: {len(asked.tries)} are too many; send up to {MAX_TRIES}")
    if not asked.manifests and not (asked.name and asked.namespace):
        raise RequestRefused(422, "name, namespace: are missing; name a job, or send manifests")
    # They are logged, and remembered with what the API server says of them.
    if len(asked.name) > _MAX_NAME or any(map(_is_no_namespace, asked.namespaces)):
        raise RequestRefused(422, "name, namespace: are no names; write those of Kubernetes")
    return asked


def _is_no_namespace(name: str) -> bool:
    return not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", name)


def _encoded(told: list[Told], policy: str) -> bytes:
    body: dict[str, Any] = {"apiVersion": VERSION, "kind": "WhatIfAnswers", "policy": policy}
    return msgspec.json.encode({**body, "answers": told})
