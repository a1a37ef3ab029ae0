"""Writes the statuses of objects that administrators made: of queues, policies, node pools.

A condition that changes is written at the next sweep, with an event; numbers alone once in a
while. What is not written now is offered again, fresher.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import structlog

from bireme.core.reasons import Reason
from bireme.kube.client import ApiError, NotLeader
from bireme.tasks import Tasks
from bireme_operator.events import Events
from bireme_operator.status import Status
from bireme_operator.writes import Writes

_log = structlog.get_logger(__name__)


class Facts(Protocol):
    """What is known of an object whose status is written."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...
    @property
    def status(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Reporting:
    """What all reports are written with; ``now`` gives POSIX seconds, ``clock`` monotonic ones."""

    writes: Writes
    events: Events
    refresh_seconds: float
    clock: Callable[[], float]
    now: Callable[[], float]


class StatusReports(ABC):
    """Those of one cluster-scoped kind.

    Attributes:
        kind: Its name.
        news: Fields of the status whose change is news, beside the conditions.
    """

    kind: ClassVar[str]
    news: ClassVar[tuple[str, ...]]

    def __init__(self, to: Reporting) -> None:
        self._to = to
        self._now = to.now
        self._written: dict[str, float] = {}
        self._tasks = Tasks()

    @abstractmethod
    def said(self) -> Iterator[tuple[Facts, Status]]:
        """Every object that has something to say, and what; asked for while others are written."""

    @abstractmethod
    def show(self) -> None:
        """Bring the metrics up to date."""

    def offer(self) -> None:
        """Report what is new, unless the last report is still being written."""
        self.show()
        if not self._tasks:
            self._tasks.start(self._write_all())

    async def close(self) -> None:
        """Stop the report under way."""
        await self._tasks.close()

    async def _write_all(self) -> None:
        met = set()
        for facts, status in self.said():
            met.add(facts.name)
            if not self._is_due(facts, status):
                continue
            try:
                await self.write(facts, status)
            except ApiError as error:
                if not (error.is_conflict or error.is_not_found):
                    _log.info(
                        "status not written", kind=self.kind, object=facts.name, error=str(error)
                    )
            except NotLeader:
                return
        self._written = {name: at for name, at in self._written.items() if name in met}

    def _is_due(self, facts: Facts, status: Status) -> bool:
        if is_news(facts.status, status, self.news):
            return True
        age = self._to.clock() - self._written.get(facts.name, float("-inf"))
        return status != facts.status and age >= self._to.refresh_seconds

    async def write(self, facts: Facts, status: Status) -> None:
        """Write one status, and an event for every reason in it that is new."""
        self._written[facts.name] = self._to.clock()
        await self._to.writes.write_status(self.kind, facts.name, facts.resource_version, status)
        before = {(c["type"], c["reason"]) for c in _conditions(facts.status)}
        for condition in _conditions(status):
            if (condition["type"], condition["reason"]) not in before:
                reason, words = Reason(condition["reason"]), condition["message"]
                await self._to.events.post(self.kind, ("", facts.name), facts.uid, reason, words)


def is_news(before: Status, said: Status, names: tuple[str, ...]) -> bool:
    """Whether ``said`` differs in a condition's truth or reason, or in a field of ``names``."""
    facts = [
        {c["type"]: (c["status"], c["reason"]) for c in _conditions(s)} for s in (before, said)
    ]
    return facts[0] != facts[1] or any(before.get(name) != said.get(name) for name in names)


def _conditions(status: Status) -> list[dict[str, Any]]:
    return list(status.get("conditions") or ())
