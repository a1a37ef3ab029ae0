"""Records of cycles, written in a worker thread; the loop never waits for them or fails with them.

If the disk is too slow or fails, cycles are lost and counted, and recording resumes after a pause.
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
# Limit of cycles that wait to be written; each holds a snapshot.
_MAX_PENDING = 16
# Size of one file of a record, and their number: together they fill a volume of a
# gigabyte, and a single file is small enough to copy.
_FILE_BYTES = 64 * 2**20
_MAX_FILES = 16
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
    _lost_count: int = 0
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
        """Return the recording of the term ``run``; None if ``settings`` disable it."""
        if not settings.record_directory:
            return None
        writer = RecordWriter(
            Path(settings.record_directory),
            run,
            scheduling,
            file_bytes=_FILE_BYTES,
            most_files=_MAX_FILES,
        )
        return cls(writer, metrics, clock)

    def submit(self, snapshot: ClusterSnapshot, decision: Decision, source: PolicySource) -> None:
        """Queue this cycle, decided by ``source``, for writing.

        The cycle is lost if too many wait, or in the pause after an error.
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
            self.writer.lost += self._lost_count
            self._lost_count = 0
            try:
                if await asyncio.to_thread(self.writer.write, *cycle):
                    self.metrics.recorded.labels("written").inc()
            except Exception as error:  # noqa: BLE001  # a recording error must not stop decisions
                self._pause(error)

    def _pause(self, error: Exception) -> None:
        _log.error("recording pauses", seconds=_PAUSE_SECONDS, error=str(error) or repr(error))
        self._paused_until = self.clock() + _PAUSE_SECONDS
        self._lose(1 + len(self._pending))
        self._pending.clear()

    def _lose(self, cycles: int = 1) -> None:
        self._lost_count += cycles
        self.metrics.recorded.labels("lost").inc(cycles)

    async def close(self) -> None:
        """Write the waiting cycles, for at most two seconds, and end the file."""
        if self._task is not None:
            # A stuck disk must not keep the process from ending.
            await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
        if self._task is None or self._task.done():
            await asyncio.to_thread(self.writer.close)
