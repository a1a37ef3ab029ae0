"""Records of cycles, written in a worker thread; the loop never waits for them or fails by them.

Where the disk does not keep up or refuses, cycles are lost and counted, and recording begins again
after a pause.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from bireme.core.decision import Decision
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.replay.writer import RecordWriter
from bireme.rl.lookup import PolicySource
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.settings import OperatorSettings

_log = structlog.get_logger(__name__)
# Cycles that wait to be written; each holds a snapshot.
_MAX_PENDING = 16
_PAUSE_SECONDS = 30.0
_CLOSE_SECONDS = 2.0


@dataclass(slots=True)
class Recording:
    """Writes submitted cycles; ``clock`` gives monotonic seconds."""

    writer: RecordWriter
    metrics: OperatorMetrics
    clock: Callable[[], float]
    _pending: deque[tuple[ClusterSnapshot, Decision, PolicySource]] = field(default_factory=deque)
    _task: asyncio.Task[None] | None = None
    _missed: int = 0
    _paused_until: float = float("-inf")

    @classmethod
    def begin(
        cls,
        run: str,
        settings: OperatorSettings,
        scheduling: SchedulingSettings,
        metrics: OperatorMetrics,
        clock: Callable[[], float],
    ) -> "Recording | None":
        """Return the recording of the term ``run``; None where ``settings`` ask for none."""
        if not settings.record_directory:
            return None
        writer = RecordWriter(
            Path(settings.record_directory),
            run,
            scheduling,
            file_bytes=settings.record_file_bytes,
            most_files=settings.record_files,
        )
        return cls(writer, metrics, clock)

    def submit(self, snapshot: ClusterSnapshot, decision: Decision, source: PolicySource) -> None:
        """Have this cycle, which ``source`` decided, written soon.

        It is lost where too many wait, or in the pause after an error.
        """
        if len(self._pending) >= _MAX_PENDING or self.clock() < self._paused_until:
            self._lose()
            return
        self._pending.append((snapshot, decision, source))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        while self._pending:
            cycle = self._pending.popleft()
            self.writer.lost += self._missed
            self._missed = 0
            try:
                if await asyncio.to_thread(self.writer.write, *cycle):
                    self.metrics.recorded.labels("written").inc()
            except Exception as error:  # noqa: BLE001  # whatever it is, deciding goes on
                self._pause(error)

    def _pause(self, error: Exception) -> None:
        _log.error("recording pauses", seconds=_PAUSE_SECONDS, error=str(error) or repr(error))
        self._paused_until = self.clock() + _PAUSE_SECONDS
        self._lose(1 + len(self._pending))
        self._pending.clear()

    def _lose(self, cycles: int = 1) -> None:
        self._missed += cycles
        self.metrics.recorded.labels("lost").inc(cycles)

    async def close(self) -> None:
        """Write what waits, if that takes at most two seconds, and end the file."""
        if self._task is not None:
            # A disk that hangs must not keep the process from ending.
            await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
        if self._task is None or self._task.done():
            await asyncio.to_thread(self.writer.close)
