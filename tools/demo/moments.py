"""The turns of the story in the words of the objects, as ``kubectl describe`` shows them."""

import re
from dataclasses import dataclass, field
from typing import Any, Final

from testbed.history.records import Key, Record

_COMMON: Final = ("reserved", "held back", "backfilled")
_KEPT: Final = re.compile(r"kept for it: [^;]*")
_AHEAD: Final = re.compile(r"ahead of \S+/(\S+) without delaying it")
_LEAVING: Final = re.compile(r"make room have stopped: \S+/\S+")
_BEHIND: Final = re.compile(r"places kept for [^\s/]+/([^\s;]+)")


@dataclass(frozen=True, slots=True)
class Moment:
    """A decision about a job, in the words of its object."""

    seconds: float
    kind: str
    """reserved, held back, backfilled, waits for room, preempted, grown or shrunk."""
    job: str
    text: str


@dataclass(slots=True)
class Moments:
    """All moments so far; ``take`` it every record once."""

    found: list[Moment] = field(default_factory=list)
    _seen: set[tuple[Any, ...]] = field(default_factory=set)

    @property
    def turns(self) -> list[Moment]:
        """The moments of the story; of reservations and what they lead to, the first of a kind."""
        firsts = {moment.kind: moment for moment in reversed(self.found)}
        return [m for m in self.found if m.kind not in _COMMON or firsts[m.kind] is m]

    def take(self, record: Record) -> None:
        if record.change == "DELETED":
            return
        if record.kind == "Event":
            self._event(record)
        elif record.kind == "TrainingJob":
            self._job(record)

    def _event(self, record: Record) -> None:
        event = record.manifest
        if event["reason"] in ("Grown", "Shrunk"):
            job = (event["metadata"]["namespace"], event["involvedObject"]["name"])
            self._tell(record, event["reason"].lower(), job, event["message"])

    def _job(self, record: Record) -> None:
        status = record.manifest.get("status", {})
        message, reason = str(status.get("message") or ""), status.get("reason")
        # Places alone promise nothing; with a time they do.
        if "estimatedStart" in status and (kept := _KEPT.search(message)):
            self._tell(record, "reserved", record.key, kept[0], record.key)
        if reason == "WaitingBehind" and (behind := _BEHIND.search(message)):
            self._tell(record, "held back", record.key, message, behind[1])
        if reason == "WaitingForPreemption" and _LEAVING.search(message):
            self._tell(record, "waits for room", record.key, message, record.key)
        if reason == "Preempted":
            self._tell(record, "preempted", record.key, message, record.key, status["attempt"])
        if ahead := _AHEAD.search(admission(status)):
            self._tell(record, "backfilled", record.key, ahead[0], record.key, status["attempt"])

    def _tell(self, record: Record, kind: str, job: Key, text: str, *once: Any) -> None:
        """Keep a moment once for each ``once``, without it once for its text."""
        key = (kind, *(once or (job, text)))
        if key not in self._seen:
            self._seen.add(key)
            self.found.append(Moment(record.seconds, kind, job[1], text))


def admission(status: dict[str, Any]) -> str:
    """Return the message of the condition Admitted of a job that has its places."""
    for condition in status.get("conditions") or ():
        if condition["type"] == "Admitted" and condition["status"] == "True":
            return str(condition["message"])
    return ""
