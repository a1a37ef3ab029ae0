"""Questions about a snapshot that take long, answered by a process of their own.

``python -m bireme.replay.questions`` reads from standard input one line, a :class:`Call`, and then
a record of one cycle (:func:`bireme.replay.writer.encode_record`). It writes one line, the answer,
to standard output. If it cannot answer, it writes the reason to standard error and ends with
status 1.

It yields to everything else on the machine (nice 19), and is the first process to be killed when
memory runs out. It keeps within the bounds of the call, and ends with the process that started it.
In a pod the memory of both counts together, and past the pod's limit the kubelet may kill all of
its processes. So the limit must hold the operator and the memory that it grants to others.

Each kind of question is a class of :data:`Question`, with an answer and a case in :func:`answer`.
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
from bireme.core.play import Cut
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
    """When should every waiting gang start? Answered by an :class:`OutlookAnswer`."""


class RegretQuestion(msgspec.Struct, frozen=True, tag_field="kind", tag="regret"):
    """How would a shadow decide it? Answered by a :class:`RegretAnswer`.

    Attributes:
        shadow: The source of the shadow's policy.
        seconds: Time limit; afterwards the answer covers the part that was simulated.
    """

    shadow: PolicySource
    seconds: float


Question: TypeAlias = OutlookQuestion | RegretQuestion | WhatIfQuestion


class OutlookAnswer(msgspec.Struct, frozen=True):
    """A :class:`bireme.core.outlook.Outlook`; ``starts`` are the foreseen starts, by uid."""

    now: float
    until: float
    starts: dict[str, float]
    cycles: int
    cut: Cut


class RegretAnswer(msgspec.Struct, frozen=True):
    """A :class:`bireme.core.regret.Sample`; without gangs if none had ended."""

    active_seconds: float = 0.0
    shadow_seconds: float = 0.0
    gangs: int = 0


class Call(msgspec.Struct, frozen=True):
    """A question, and the bounds on its answer.

    Attributes:
        checkpoints: Folder that is searched first for a SchedulingPolicy's checkpoint.
        parent: Process that asks; its end makes the answer useless.
        seconds: Maximum processor time.
        memory_bytes: Maximum memory of its own; 0 for no bound.
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
    """Return the answer on ``snapshot`` under ``policy``; ``make`` makes other policies."""
    match question:
        case OutlookQuestion():
            # With explanations: only then does the first reservation state its expected time.
            outlook = look_ahead(snapshot, run_cycle(snapshot, policy), policy)
            starts = {
                each.gang.uid: each.start for each in outlook.prospects if each.start is not None
            }
            return OutlookAnswer(outlook.now, outlook.until, starts, outlook.cycles, outlook.cut)
        case RegretQuestion(shadow, seconds):
            until = time.monotonic() + seconds
            sample = regret(
                snapshot, policy, make(shadow), is_time_left=lambda: time.monotonic() < until
            )
            if sample is None:
                return RegretAnswer()
            return RegretAnswer(sample.active_seconds, sample.shadow_seconds, sample.gangs)
        case WhatIfQuestion(request, facts):
            try:
                results = answers(request, facts, snapshot, policy, time.monotonic)
            except WhatIfError as error:
                return WhatIfAnswer(refusal=str(error))
            return WhatIfAnswer(results)


def main() -> int:
    """Answer one question; return the exit status."""
    os.nice(_NICE)
    try:
        sys.stdout.buffer.write(_answer_call(sys.stdin.buffer) + b"\n")
    except (BiremeError, msgspec.DecodeError, MemoryError) as error:
        sys.stderr.write(f"{error_text(error)}\n")
        return 1
    return 0


def _answer_call(stream: IO[bytes]) -> bytes:
    call = msgspec.json.decode(stream.readline(), type=Call)
    _apply_bounds(call)
    header = msgspec.json.decode(stream.readline(), type=Header)
    cycle = Decoder(header.settings).decode(stream.readline())
    settings_policy = make_policy(header.settings)
    policies = RecordedPolicies(settings_policy, header.settings, call.checkpoints)

    def policy_of_source(source: PolicySource) -> Policy:
        policy = policies.policy(source)
        if policy is None:
            raise RecordError(f"its policy cannot be made: {policies.faults[source]}")
        return policy

    reply = answer(call.question, cycle.snapshot, policy_of_source(cycle.source), policy_of_source)
    return msgspec.json.encode(reply)


def _apply_bounds(call: Call) -> None:
    """Apply the bounds of ``call``, and end with its parent."""
    resource.setrlimit(resource.RLIMIT_CPU, (call.seconds, call.seconds))
    if call.memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (call.memory_bytes, call.memory_bytes))
    with suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text("1000")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != call.parent:  # the parent had ended before
        raise RecordError("the process that asked has ended")


if __name__ == "__main__":
    sys.exit(main())
