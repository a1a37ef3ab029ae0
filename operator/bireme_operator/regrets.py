"""The regret of shadows: moments played forward by the active policy and by a shadow.

Now and then, where a decision of both could differ, the snapshot of a cycle goes to a process that
plays it forward by both (:mod:`bireme.core.regret`), never in this one: niced, bounded in time and
memory, on one core that it yields to everybody (:mod:`bireme_operator.questions`). Shadows take
turns. What fails costs a sample, and is counted.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from bireme.core.decision import Decision
from bireme.core.regret import Sample
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.replay.questions import RegretAnswer, RegretQuestion
from bireme.replay.record import RecordError
from bireme.replay.writer import encode_record
from bireme.rl.lookup import PolicySource
from bireme.tasks import Tasks
from bireme_operator.metrics import PolicyMetrics
from bireme_operator.questions import QuestionFailed, Questions
from bireme_operator.settings import OperatorSettings

# Of the time for an answer, the share in which moments are played; what was played until then
# counts, and an answer that comes later is none.
_PLAYED: Final = 0.8
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Contestant:
    """A loaded policy.

    Attributes:
        uid: Of its SchedulingPolicy.
        source: What a process of its own makes it from.
        on_sample: Called with what became of a moment, and the active policy it was beside.
    """

    uid: str
    source: PolicySource
    on_sample: Callable[[Sample, PolicySource], None]


@dataclass(slots=True)
class Regrets:
    """Takes one sample of each shadow per interval; ``clock`` gives monotonic seconds.

    Attributes:
        run: Names the term.
        interval_seconds: Moments that follow each other share most of their gangs, and so say
            nearly the same; those further apart are worth their cost.
        core_share: The most of one processor core that playing takes in the long run.
    """

    run: str
    scheduling: SchedulingSettings
    questions: Questions
    interval_seconds: float
    core_share: float
    metrics: PolicyMetrics
    clock: Callable[[], float]
    _taken: dict[str, float] = field(default_factory=dict)
    _rest_until: float = float("-inf")
    _tasks: Tasks = field(default_factory=Tasks)

    @classmethod
    def begin(
        cls,
        run: str,
        settings: OperatorSettings,
        scheduling: SchedulingSettings,
        metrics: PolicyMetrics,
        clock: Callable[[], float],
    ) -> "Regrets | None":
        """Return those of the term ``run``; None where ``settings`` ask for none."""
        if not settings.shadow_interval_seconds:
            return None
        limits = settings.shadow_limit_seconds, settings.shadow_memory_bytes
        questions = Questions(*limits, settings.checkpoint_directory)
        pace = settings.shadow_interval_seconds, settings.shadow_core_share
        return cls(run, scheduling, questions, *pace, metrics, clock)

    def submit(
        self,
        snapshot: ClusterSnapshot,
        decision: Decision,
        active: PolicySource,
        shadows: Sequence[Contestant],
    ) -> None:
        """Take a sample at this moment, if one is due and two policies could differ here."""
        self._taken = {s.uid: self._taken[s.uid] for s in shadows if s.uid in self._taken}
        if not (snapshot.waiting or any(each.gang.is_elastic for each in snapshot.running)):
            return
        now, never = self.clock(), float("-inf")
        due = [
            each
            for each in shadows
            if now - self._taken.get(each.uid, never) >= self.interval_seconds
        ]
        if not due:
            return
        if self._tasks or now < self._rest_until:
            self.metrics.shadow_samples.labels("skipped").inc()
            return
        chosen = min(due, key=lambda each: self._taken.get(each.uid, never))
        self._taken[chosen.uid] = now
        self._tasks.start(self._sample(snapshot, decision, active, chosen))

    async def close(self) -> None:
        """End the process that plays, if there is one."""
        await self._tasks.close()

    async def _sample(
        self,
        snapshot: ClusterSnapshot,
        decision: Decision,
        active: PolicySource,
        shadow: Contestant,
    ) -> None:
        began, seconds = self.clock(), _PLAYED * self.questions.limit_seconds
        outcome: str
        try:
            # In a thread: it takes a twentieth of a second in a large cluster.
            record = await asyncio.to_thread(
                encode_record, self.run, self.scheduling, snapshot, decision, active
            )
            question = RegretQuestion(shadow.source, seconds)
            found = await self.questions.ask(question, record, RegretAnswer)
        except (QuestionFailed, RecordError) as error:
            outcome = error.outcome if isinstance(error, QuestionFailed) else "unrecorded"
            _log.error(
                "shadow not sampled", policy=shadow.source.name, outcome=outcome, error=str(error)
            )
        except Exception:  # noqa: BLE001  # whatever it is, deciding goes on
            _log.exception("shadow not sampled", policy=shadow.source.name)
            outcome = "failed"
        else:
            outcome = "taken" if found.gangs else "empty"
            if found.gangs:
                sample = Sample(found.active_seconds, found.shadow_seconds, found.gangs)
                shadow.on_sample(sample, active)
        took = self.clock() - began
        self.metrics.shadow_samples.labels(outcome).inc()
        self.metrics.shadow_sample_seconds.observe(took)
        self._rest_until = self.clock() + took * (1 - self.core_share) / self.core_share
