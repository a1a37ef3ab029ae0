"""The leader's start forecast for all waiting gangs ("outlook"), renewed in the background.

After a change of the queue the latest snapshot goes to a process that simulates its future
(:mod:`bireme_operator.questions`). A large cluster takes tens of seconds on one core, at the lowest
priority. If the process fails, the previous forecast stays, with its time. Actual starts teach the
errors of forecasts (:mod:`bireme.core.outlook_ranges`).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import structlog

from bireme.core.decision import Decision
from bireme.core.eta import StartRange
from bireme.core.outlook import Outlook, prospects_of
from bireme.core.outlook_ranges import OutlookRanges
from bireme.core.play import Cut
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.replay.questions import OutlookAnswer, OutlookQuestion, Question
from bireme.replay.record import RecordError
from bireme.replay.writer import encode_record
from bireme.rl.lookup import PolicySource
from bireme.tasks import Tasks
from bireme_operator.metrics import OutlookMetrics
from bireme_operator.questions import QuestionFailed, WorkerProcess
from bireme_operator.settings import OperatorSettings

# Time between two renewals, which only changes of the waiting gangs cause: each plays the future of
# the whole cluster.
_INTERVAL_SECONDS: Final = 30.0
# Limits of a renewal or question: after two minutes its snapshot is of the past. The memory comes
# on top of the operator's own, and the limit of the container holds both.
_LIMIT_SECONDS: Final = 120.0
MEMORY_BYTES: Final = 512 * 2**20
"""Maximum memory of the process that computes the outlook."""
# After a forecast of t seconds the next one comes after _REST * t at the earliest: forecasts get at
# most a fifth of a core.
_REST: Final = 4.0
_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StartForecast:
    """An outlook, the start ranges by gang uid, and the name of its SchedulingPolicy or ""."""

    outlook: Outlook
    ranges: Mapping[str, StartRange]
    policy: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A cycle: its snapshot, its decision, and the policy that decided."""

    snapshot: ClusterSnapshot
    decision: Decision
    source: PolicySource


@dataclass(slots=True)
class Outlooks:
    """Renews the outlook of one term, one at a time; ``clock`` gives monotonic seconds.

    Attributes:
        run: Name of the term.
        latest: The latest outlook; None before the first.
        current: The last cycle; None before the first.
    """

    run: str
    scheduling: SchedulingSettings
    questions: WorkerProcess
    interval_seconds: float
    metrics: OutlookMetrics
    clock: Callable[[], float]
    latest: StartForecast | None = None
    current: Decided | None = None
    _ranges: OutlookRanges = field(default_factory=OutlookRanges)
    _pending: Decided | None = None
    _line: object = None
    """Inputs of the latest outlook, or of the one in progress."""
    _latest_time: float = 0.0
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
        """Return the outlooks of the term ``run``; None if ``settings`` disable them."""
        if not settings.outlook:
            return None
        limits = _LIMIT_SECONDS, MEMORY_BYTES
        questions = WorkerProcess(*limits, settings.checkpoint_directory)
        return cls(run, scheduling, questions, _INTERVAL_SECONDS, metrics, clock)

    def submit(self, snapshot: ClusterSnapshot, decision: Decision, source: PolicySource) -> None:
        """Learn from a cycle decided by ``source``, and renew the outlook if the queue changed.

        Call it for every cycle of the term.
        """
        self._latest_time = snapshot.now
        self.current = Decided(snapshot, decision, source)
        self._ranges.see(snapshot.now, decision)
        line = _line_of(snapshot, source)
        if line == self._line:
            return
        self._line = line
        if not (decision.held or decision.unreached):
            self._pending = None  # no gang waits
            self._publish(Outlook(snapshot.now, snapshot.now, (), 0, Cut.ALL_STARTED), source)
            return
        self._pending = self.current
        if not self._tasks:
            self._tasks.start(self._renew())

    async def close(self) -> None:
        """End the forecasting process, if there is one."""
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
            except Exception:  # noqa: BLE001  # a forecast's error must not stop decisions
                _log.exception("outlook not renewed")
                self._fail("failed")
            took = self.clock() - began
            self._not_before = began + max(self.interval_seconds, (1 + _REST) * took)

    def _fail(self, outcome: str) -> None:
        self.metrics.renewals.labels(outcome).inc()
        self._line = None  # the next cycle asks again, even without a change

    async def ask(self, question: Question, decided: Decided, kind: type[_T]) -> _T:
        """Return the answer, of type ``kind``, to a question about a cycle; one at a time.

        Raises:
            QuestionFailed: the question has no answer.
            RecordError: the cycle cannot be recorded.
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
        prospects = prospects_of(decided.decision, answer.starts)
        outlook = Outlook(answer.now, answer.until, prospects, answer.cycles, answer.cut)
        self._publish(outlook, decided.source)
        self.metrics.renewals.labels("renewed").inc()

    def _publish(self, outlook: Outlook, source: PolicySource) -> None:
        ranges = self._ranges.update(outlook, max(outlook.now, self._latest_time))
        self.latest = StartForecast(outlook, ranges, source.name)
        self.metrics.made.set(outlook.now)


def _line_of(snapshot: ClusterSnapshot, source: PolicySource) -> object:
    """Return the inputs of the outlook: waiting and running gangs, nodes, policy."""
    waiting = [(g.uid, g.queue, g.priority, g.estimated_seconds) for g in snapshot.waiting]
    running = [
        (running_gang.gang.uid, running_gang.gang.estimated_seconds)
        for running_gang in snapshot.running
    ]
    return waiting, running, snapshot.nodes.names, source
