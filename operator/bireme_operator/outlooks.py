"""The outlook of the leader: when everybody who waits should start, renewed in the background.

After a change of the line the latest snapshot goes to a process that plays it forward
(:mod:`bireme_operator.questions`); a large cluster takes it tens of seconds, on one core that it
yields to everybody. Where it fails, the outlook before stays, with the moment it is of. What starts
teaches how outlooks err (:mod:`bireme.core.outlook_ranges`).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import structlog

from bireme.core.accelerators import DEFAULT, Accelerators
from bireme.core.decision import Decision
from bireme.core.eta import StartRange
from bireme.core.outlook import Outlook, Prospect
from bireme.core.outlook_ranges import OutlookRanges
from bireme.core.play import Cut
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.replay.questions import OutlookAnswer, OutlookQuestion, Question
from bireme.replay.record import RecordError
from bireme.replay.writer import encode_record
from bireme.rl.lookup import PolicySource
from bireme.tasks import Tasks
from bireme_operator.metrics import OutlookMetrics
from bireme_operator.questions import QuestionFailed, Questions
from bireme_operator.settings import OperatorSettings

# After an outlook of t seconds the next one comes in _REST * t at the earliest: they get a fifth of
# a core at most.
_REST: Final = 4.0
_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """An outlook, the ranges of gangs by uid, and the SchedulingPolicy it goes by; "" for none."""

    outlook: Outlook
    ranges: Mapping[str, StartRange]
    policy: str
    accelerators: Accelerators = DEFAULT


@dataclass(frozen=True, slots=True)
class Decided:
    """A cycle: what was known, what was decided, and what decided it."""

    snapshot: ClusterSnapshot
    decision: Decision
    source: PolicySource


@dataclass(slots=True)
class Outlooks:
    """Renews the outlook of one term, one at a time; ``clock`` gives monotonic seconds.

    Attributes:
        run: Names the term.
        latest: The latest outlook; None before the first.
        current: The last cycle; None before the first.
    """

    run: str
    scheduling: SchedulingSettings
    questions: Questions
    interval_seconds: float
    metrics: OutlookMetrics
    clock: Callable[[], float]
    latest: Foreseen | None = None
    current: Decided | None = None
    _ranges: OutlookRanges = field(default_factory=OutlookRanges)
    _pending: Decided | None = None
    _line: object = None
    """What the latest outlook, or the one that is being made, depends on."""
    _seen: float = 0.0
    _not_before: float = float("-inf")
    _tasks: Tasks = field(default_factory=Tasks)

    @classmethod
    def begin(
        cls,
        run: str,
        settings: OperatorSettings,
        scheduling: SchedulingSettings,
        metrics: OutlookMetrics,
        clock: Callable[[], float],
    ) -> "Outlooks | None":
        """Return the outlooks of the term ``run``; None where ``settings`` ask for none."""
        if not settings.outlook:
            return None
        limits = settings.outlook_limit_seconds, settings.outlook_memory_bytes
        questions = Questions(*limits, settings.checkpoint_directory)
        interval = settings.outlook_interval_seconds
        return cls(run, scheduling, questions, interval, metrics, clock)

    def submit(self, snapshot: ClusterSnapshot, decision: Decision, source: PolicySource) -> None:
        """Learn from a cycle, which ``source`` decided, and renew the outlook if the line changed.

        Must see every cycle of the term.
        """
        self._seen = snapshot.now
        self.current = Decided(snapshot, decision, source)
        self._ranges.see(snapshot.now, decision)
        line = _line_of(snapshot, source)
        if line == self._line:
            return
        self._line = line
        if not (decision.held or decision.unreached):
            self._pending = None  # there is nothing to ask
            self._tell(Outlook(snapshot.now, snapshot.now, (), 0, Cut.ALL_STARTED), source, DEFAULT)
            return
        self._pending = self.current
        if not self._tasks:
            self._tasks.start(self._renew())

    async def close(self) -> None:
        """End the process that looks ahead, if there is one."""
        await self._tasks.close()

    async def _renew(self) -> None:
        while self._pending is not None:
            await asyncio.sleep(max(0.0, self._not_before - self.clock()))
            if (pending := self._pending) is None:
                return
            self._pending, began = None, self.clock()
            try:
                await self._look_ahead(pending)
            except (QuestionFailed, RecordError) as error:
                outcome = error.outcome if isinstance(error, QuestionFailed) else "unrecorded"
                _log.error("outlook not renewed", outcome=outcome, error=str(error))
                self._fail(outcome)
            except Exception:  # noqa: BLE001  # whatever it is, deciding goes on
                _log.exception("outlook not renewed")
                self._fail("failed")
            took = self.clock() - began
            self._not_before = began + max(self.interval_seconds, (1 + _REST) * took)

    def _fail(self, outcome: str) -> None:
        self.metrics.renewals.labels(outcome).inc()
        self._line = None  # the next cycle asks again, changed or not

    async def ask(self, question: Question, decided: Decided, kind: type[_T]) -> _T:
        """Return the answer, of type ``kind``, about a cycle; one question is answered at a time.

        Raises QuestionFailed, and RecordError where the cycle cannot be stated.
        """
        # In a thread: it takes a twentieth of a second in a large cluster.
        record = await asyncio.to_thread(
            encode_record,
            self.run,
            self.scheduling,
            decided.snapshot,
            decided.decision,
            decided.source,
        )
        return await self.questions.ask(question, record, kind)

    async def _look_ahead(self, decided: Decided) -> None:
        with self.metrics.seconds.time():
            answer = await self.ask(OutlookQuestion(), decided, OutlookAnswer)
        known = decided.snapshot.nodes.accelerators
        self._tell(_outlook_of(answer, decided.snapshot), decided.source, known)
        self.metrics.renewals.labels("renewed").inc()

    def _tell(self, outlook: Outlook, source: PolicySource, known: Accelerators) -> None:
        ranges = self._ranges.update(outlook, max(outlook.now, self._seen))
        self.latest = Foreseen(outlook, ranges, source.name, known)
        self.metrics.made.set(outlook.now)


def _line_of(snapshot: ClusterSnapshot, source: PolicySource) -> object:
    """Return what changes where the outlook may: who waits and runs, on what, and who decides."""
    waiting = [(g.uid, g.queue, g.priority, g.estimated_seconds) for g in snapshot.waiting]
    running = [(each.gang.uid, each.gang.estimated_seconds) for each in snapshot.running]
    return waiting, running, snapshot.nodes.names, source


def _outlook_of(answer: OutlookAnswer, snapshot: ClusterSnapshot) -> Outlook:
    """Return the outlook on ``snapshot``; QuestionFailed where it is none of that."""
    gangs = {gang.uid: gang for gang in snapshot.waiting}
    try:
        prospects = tuple(
            Prospect(
                gangs[each.uid],
                each.position,
                None if each.reason is None else Reason(each.reason),
                each.start,
            )
            for each in answer.prospects
        )
        return Outlook(answer.now, answer.until, prospects, answer.cycles, Cut(answer.cut))
    except (KeyError, ValueError) as error:
        raise QuestionFailed("unreadable", f"its answer is of other gangs: {error!r}") from error
