"""Questions about a snapshot that take long, answered by a process of their own.

``python -m bireme.replay.questions`` reads from standard input one line, a :class:`Call`, and then
a record of one cycle (:func:`bireme.replay.writer.stated`). It writes one line, the answer, to
standard output. Where it cannot answer it says why on standard error and ends with status 1.

It yields to everything else on the machine (nice 19), is the first to be killed where the memory of
the machine runs out, keeps within the bounds of the call, and ends with the process that started
it. In a pod the memory of both counts together, and past the pod's limit the kubelet lets all of
its processes be killed: the limit must hold the operator and what it lets others take.

A kind of question is a class of :data:`Question`, with its answer, and a case in :func:`answer`.
"""

import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, TypeAlias

import msgspec

from bireme.core.cycle import run_cycle
from bireme.core.errors import BiremeError, error_text
from bireme.core.outlook import look_ahead
from bireme.core.policy import Policy
from bireme.core.regret import regret
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.what_if import WhatIfError
from bireme.registry import make_policy
from bireme.replay.decisions import RecordedPolicies
from bireme.replay.reader import Decoder
from bireme.replay.record import Header, RecordError
from bireme.replay.what_if import WhatIfAnswer, WhatIfQuestion, answers
from bireme.rl.lookup import PolicySource

_NICE: Final = 19
_PR_SET_PDEATHSIG: Final = 1


class OutlookQuestion(msgspec.Struct, frozen=True, tag_field="kind", tag="outlook"):
    """When should everybody who waits start? Answered by an :class:`OutlookAnswer`."""


class RegretQuestion(msgspec.Struct, frozen=True, tag_field="kind", tag="regret"):
    """What would a shadow make of it? Answered by a :class:`RegretAnswer`.

    Attributes:
        shadow: Where its policy comes from.
        seconds: After so long it is answered by what was played until then.
    """

    shadow: PolicySource
    seconds: float


Question: TypeAlias = OutlookQuestion | RegretQuestion | WhatIfQuestion


class ProspectAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A :class:`bireme.core.outlook.Prospect`, its gang by uid."""

    uid: str
    position: int | None
    reason: str | None
    start: float | None


class OutlookAnswer(msgspec.Struct, frozen=True):
    """A :class:`bireme.core.outlook.Outlook`."""

    now: float
    until: float
    prospects: list[ProspectAnswer]
    cycles: int
    cut: str


class RegretAnswer(msgspec.Struct, frozen=True):
    """A :class:`bireme.core.regret.Sample`; of no gangs where none had ended."""

    active_seconds: float = 0.0
    shadow_seconds: float = 0.0
    gangs: int = 0


class Call(msgspec.Struct, frozen=True):
    """A question, and how it is to be answered.

    Attributes:
        checkpoints: Folder in which a SchedulingPolicy's checkpoint is looked for first.
        parent: Process that asks: the answer is nobody's once it has ended.
        seconds: The most processor time.
        memory_bytes: The most memory of its own; 0 for no bound.
    """

    question: Question
    parent: int
    seconds: int
    memory_bytes: int
    checkpoints: str = ""


def answer(
    question: Question,
    snapshot: ClusterSnapshot,
    policy: Policy,
    make: Callable[[PolicySource], Policy],
) -> OutlookAnswer | RegretAnswer | WhatIfAnswer:
    """Return the answer on ``snapshot`` where ``policy`` decides; ``make`` makes others."""
    match question:
        case OutlookQuestion():
            # Explained: only then the first reservation says when it should come true.
            found = look_ahead(snapshot, run_cycle(snapshot, policy), policy)
            prospects = [
                ProspectAnswer(each.gang.uid, each.position, each.reason, each.start)
                for each in found.prospects
            ]
            return OutlookAnswer(found.now, found.until, prospects, found.cycles, found.cut)
        case RegretQuestion(shadow, seconds):
            until = time.monotonic() + seconds
            sample = regret(
                snapshot, policy, make(shadow), is_time_left=lambda: time.monotonic() < until
            )
            if sample is None:
                return RegretAnswer()
            return RegretAnswer(sample.active_seconds, sample.shadow_seconds, sample.gangs)
        case WhatIfQuestion(asked, known):
            try:
                told = answers(asked, known, snapshot, policy, time.monotonic)
            except WhatIfError as error:
                return WhatIfAnswer(refusal=str(error))
            return WhatIfAnswer(told)


def main() -> int:
    """Answer one question; return the exit status."""
    os.nice(_NICE)
    try:
        sys.stdout.buffer.write(_answered(sys.stdin.buffer) + b"\n")
    except (BiremeError, msgspec.DecodeError, MemoryError) as error:
        sys.stderr.write(f"{error_text(error)}\n")
        return 1
    return 0


def _answered(given: IO[bytes]) -> bytes:
    call = msgspec.json.decode(given.readline(), type=Call)
    _bound(call)
    header = msgspec.json.decode(given.readline(), type=Header)
    cycle = Decoder(header.settings).decode(given.readline())
    made = make_policy(header.settings)
    policies = RecordedPolicies(made, header.settings, call.checkpoints)

    def made_of(source: PolicySource) -> Policy:
        policy = policies.policy(source)
        if policy is None:
            raise RecordError(f"its policy cannot be made: {policies.faults[source]}")
        return policy

    found = answer(call.question, cycle.snapshot, made_of(cycle.source), made_of)
    return msgspec.json.encode(found)


def _bound(call: Call) -> None:
    """Keep within the bounds of ``call``, and end with its parent."""
    resource.setrlimit(resource.RLIMIT_CPU, (call.seconds, call.seconds))
    if call.memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (call.memory_bytes, call.memory_bytes))
    with suppress(OSError):  # there is none but on Linux
        Path("/proc/self/oom_score_adj").write_text("1000")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != call.parent:  # it had ended before that
        raise RecordError("the process that asked has ended")


if __name__ == "__main__":
    sys.exit(main())
