"""The regret of shadows: snapshots simulated with the active policy and with a shadow.

At intervals, if both policies could decide differently, a separate process gets the snapshot of a
cycle and simulates its future with both (:mod:`bireme.core.regret`). The process has a low priority
and limits of time and memory (:mod:`bireme_operator.questions`). Shadows take turns. A failure
costs a sample, and is counted.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from bireme.core.decision import Decision
from bireme.core.regret import RegretSample
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.replay.questions import RegretAnswer, RegretQuestion
from bireme.replay.record import RecordError
from bireme.replay.writer import encode_record
from bireme.rl.lookup import PolicySource
from bireme.tasks import Tasks
from bireme_operator.metrics import PolicyMetrics
from bireme_operator.questions import QuestionFailed, WorkerProcess
from bireme_operator.settings import OperatorSettings

# Share of the time limit for the simulation. The part simulated until then counts; an answer after
# the limit does not.
_PLAY_SHARE: Final = 0.8
# Time between two samples of a shadow: closer ones share most of their gangs.
_INTERVAL_SECONDS: Final = 600.0
# Limits of one sample. The memory comes on top of the operator's own, and the limit of the
# container holds both.
_LIMIT_SECONDS: Final = 60.0
MEMORY_BYTES: Final = 256 * 2**20
"""Maximum memory of the process that computes samples."""
# Share of one processor core for samples in the long run: shadows decide nothing. After each sample
# the process rests 19 times as long as it took.
_CORE_SHARE: Final = 0.05
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Contestant:
    """A loaded policy.

    Attributes:
        uid: Uid of its SchedulingPolicy.
        source: Source from which another process loads it.
        on_sample: Called with a sample, and the active policy with which it was compared.
    """

    uid: str
    source: PolicySource
    on_sample: Callable[[RegretSample, PolicySource], None]


@dataclass(slots=True)
class ShadowEvaluator:
    """Takes one sample of each shadow per interval; ``clock`` gives monotonic seconds.

    Attributes:
        run: Name of the term.
        interval_seconds: Interval between two samples of a shadow. Snapshots close in time share
            most of their gangs, so their samples say nearly the same.
        core_share: Limit of the share of one processor core for simulations in the long run.
    """

    run: str
    scheduling: SchedulingSettings
    questions: WorkerProcess
    interval_seconds: float
    core_share: float
    metrics: PolicyMetrics
    clock: Callable[[], float]
    _sample_times: dict[str, float] = field(default_factory=dict)
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
    ) -> "ShadowEvaluator":
        """Return the regrets of the term ``run``."""
        limits = _LIMIT_SECONDS, MEMORY_BYTES
        questions = WorkerProcess(*limits, settings.checkpoint_directory)
        pace = _INTERVAL_SECONDS, _CORE_SHARE
        return cls(run, scheduling, questions, *pace, metrics, clock)

    def submit(
        self,
        snapshot: ClusterSnapshot,
        decision: Decision,
        active: PolicySource,
        shadows: Sequence[Contestant],
    ) -> None:
        """Take a sample of this snapshot, if one is due and two policies could differ on it."""
        self._sample_times = {
            s.uid: self._sample_times[s.uid] for s in shadows if s.uid in self._sample_times
        }
        if not (snapshot.waiting or any(running.gang.is_elastic for running in snapshot.running)):
            return
        now, never = self.clock(), float("-inf")
        due = [
            shadow
            for shadow in shadows
            if now - self._sample_times.get(shadow.uid, never) >= self.interval_seconds
        ]
        if not due:
            return
        if self._tasks or now < self._rest_until:
            self.metrics.shadow_samples.labels("skipped").inc()
            return
        contestant = min(due, key=lambda shadow: self._sample_times.get(shadow.uid, never))
        self._sample_times[contestant.uid] = now
        self._tasks.start(self._sample(snapshot, decision, active, contestant))

    async def close(self) -> None:
        """End the simulating process, if there is one."""
        await self._tasks.close()

    async def _sample(
        self,
        snapshot: ClusterSnapshot,
        decision: Decision,
        active: PolicySource,
        shadow: Contestant,
    ) -> None:
        began, seconds = self.clock(), _PLAY_SHARE * self.questions.limit_seconds
        outcome: str
        try:
            # In a thread: it takes a twentieth of a second in a large cluster.
            record = await asyncio.to_thread(
                encode_record, self.run, self.scheduling, snapshot, decision, active
            )
            question = RegretQuestion(shadow.source, seconds)
            answer = await self.questions.ask(question, record, RegretAnswer)
        except (QuestionFailed, RecordError) as error:
            outcome = error.outcome if isinstance(error, QuestionFailed) else "unrecorded"
            _log.error(
                "shadow not sampled", policy=shadow.source.name, outcome=outcome, error=str(error)
            )
        except Exception:  # noqa: BLE001  # a sample's error must not stop decisions
            _log.exception("shadow not sampled", policy=shadow.source.name)
            outcome = "failed"
        else:
            outcome = "taken" if answer.gangs else "empty"
            if answer.gangs:
                sample = RegretSample(answer.active_seconds, answer.shadow_seconds, answer.gangs)
                shadow.on_sample(sample, active)
        took = self.clock() - began
        self.metrics.shadow_samples.labels(outcome).inc()
        self.metrics.shadow_sample_seconds.observe(took)
        self._rest_until = self.clock() + took * (1 - self.core_share) / self.core_share
