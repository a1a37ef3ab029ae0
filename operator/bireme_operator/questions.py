"""Answers long questions about a snapshot in a separate process, one at a time.

A computation of many seconds must not run in this process: its threads would take the interpreter
from the loop, which also renews the lease.
"""

import asyncio
import os
import sys
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from bireme.replay.questions import Call, Question

Outcome: TypeAlias = Literal["died", "late", "unreadable"]
_T = TypeVar("_T")
_PROGRAM: Final = (sys.executable, "-P", "-m", "bireme.replay.questions")
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_MAX_WORDS: Final = 500


class QuestionFailed(Exception):  # noqa: N818  # an outcome, not a malfunction
    """Failure of a question; ``outcome`` is its cause."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome


@dataclass(slots=True)
class WorkerProcess:
    """Asks questions, one after another.

    Attributes:
        limit_seconds: Limit of wall-clock time and of processor time for an answer.
        memory_bytes: Memory limit of the answering process; 0 for no limit.
        checkpoints: Folder that is searched first for a SchedulingPolicy's checkpoint.
    """

    limit_seconds: float
    memory_bytes: int
    checkpoints: str
    program: tuple[str, ...] = _PROGRAM
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, question: Question, record: bytes, kind: type[_T]) -> _T:
        """Return the answer, of type ``kind``, about the last cycle of ``record``.

        A cancellation ends the process.

        Raises:
            QuestionFailed: the process dies, takes too long or gives an unreadable answer.
        """
        seconds = max(1, int(self.limit_seconds))
        call = Call(question, os.getpid(), seconds, self.memory_bytes, self.checkpoints)
        async with self._one:
            text = await self._run(msgspec.json.encode(call) + b"\n" + record)
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.DecodeError as error:
            raise QuestionFailed("unreadable", f"its answer cannot be read: {error}") from error

    async def _run(self, call: bytes) -> bytes:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *self.program,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env={**os.environ, **_ONE_THREAD},
            )
        except OSError as error:
            raise QuestionFailed("died", f"the process cannot be started: {error}") from error
        try:
            async with asyncio.timeout(self.limit_seconds):
                text, stderr = await process.communicate(call)
        except TimeoutError:
            message = f"no answer within {self.limit_seconds:g} s; the process was killed"
            raise QuestionFailed("late", message) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            last_error = stderr.decode(errors="replace").strip()[-_MAX_WORDS:]
            raise QuestionFailed(
                "died", f"the process ended with status {process.returncode}: {last_error}"
            )
        return text
