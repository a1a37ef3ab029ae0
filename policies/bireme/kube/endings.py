"""Describe in one line why a pod ended or last restarted.

A kubelet writes the cause in four places: the reason and message of the pod (Evicted,
DeadlineExceeded, NodeShutdown), and the states of init containers, sidecars and main containers. A
user sees the job but not its pods, which a restart deletes. So all messages about the end of a gang
come from here.
"""

from collections.abc import Iterator
from signal import Signals
from typing import Final, NamedTuple

from bireme.kube import wire
from bireme.kube.conditions import printable
from bireme.kube.quantities import parse_timestamp

MAX_ENDING: Final = 600
"""Maximum length of the line in characters: containers write text of any length."""
UNEXPLAINED: Final = "the pod failed"
_MAX_MESSAGE: Final = 360
_HEAD: Final = 100
_UNKNOWN: Final = "ContainerStatusUnknown"
_MADE_UP_CODES: Final = frozenset({_UNKNOWN, "StartError", "ContainerCannotRun"})
"""Reasons of exit codes that the kubelet made up, without a process that returned them."""
_FIRST_SIGNAL_CODE: Final = 128


def describe_ending(pod: wire.V1Pod) -> str:
    """Return the cause of a failed pod: its reason, then the first failed container."""
    of_pod = _join_text(pod.status.reason, pod.status.message)
    failures = sorted(_failures(pod), key=_precedence)
    if of_pod and failures and failures[0].is_made_up:
        failures = []  # the reason of the pod explains why the kubelet never saw the container
    parts = (of_pod, *(failure.message for failure in failures[:1]))
    return _truncate("; ".join(filter(None, parts)) or UNEXPLAINED)


def describe_last_ending(container: wire.V1ContainerStatus) -> str:
    """Return the failure of a container before its restart; empty without one."""
    terminated = container.last_state.terminated if container.last_state else None
    return _outcome(terminated) if terminated is not None and _has_failed(terminated) else ""


class _Failure(NamedTuple):
    """One failed container, with its message."""

    is_sidecar: bool
    ended_at: float
    is_out_of_memory: bool
    is_made_up: bool
    message: str


def _precedence(failure: _Failure) -> tuple[bool, float, bool]:
    # A sidecar is stopped after the main containers, and its exit code does not count for the pod.
    # A container that is killed for memory takes others with it in the same second.
    return failure.is_sidecar, failure.ended_at, not failure.is_out_of_memory


def _failures(pod: wire.V1Pod) -> Iterator[_Failure]:
    sidecars = {c.name for c in pod.spec.init_containers or () if c.restart_policy == "Always"}
    for container in pod.status.init_container_statuses or ():
        is_sidecar = container.name in sidecars
        yield from _failure(container, "sidecar" if is_sidecar else "init container", is_sidecar)
    for container in pod.status.container_statuses or ():
        yield from _failure(container, "container", is_sidecar=False)


def _failure(container: wire.V1ContainerStatus, kind: str, is_sidecar: bool) -> Iterator[_Failure]:
    # After a deadline of the pod a container may be waiting for its next restart.
    for state in (container.state, container.last_state):
        terminated = state.terminated if state is not None else None
        if terminated is None:
            continue
        if _has_failed(terminated):
            when = parse_timestamp(terminated.finished_at)
            yield _Failure(
                is_sidecar,
                float("inf") if when is None else when,
                terminated.reason == "OOMKilled",
                terminated.reason == _UNKNOWN,
                f"{kind} {printable(container.name)} {_outcome(terminated)}",
            )
        return  # a container that succeeded in its last run did not fail the pod


def _has_failed(terminated: wire.V1ContainerStateTerminated) -> bool:
    # Some runtimes report containers that were killed for memory with exit code 0.
    return terminated.exit_code != 0 or bool(terminated.signal) or terminated.reason == "OOMKilled"


def _outcome(terminated: wire.V1ContainerStateTerminated) -> str:
    """Return exit code, reason, signal and message."""
    notes = ", ".join(filter(None, (printable(terminated.reason or ""), _signal(terminated))))
    summary = f"exited with {terminated.exit_code}" + (f" ({notes})" if notes else "")
    message = " ".join(printable(terminated.message or "").split())
    return f"{summary}: {_cut_middle(message, _MAX_MESSAGE)}" if message else summary


def _signal(terminated: wire.V1ContainerStateTerminated) -> str:
    number = terminated.signal or 0
    if (
        not number
        and terminated.exit_code > _FIRST_SIGNAL_CODE
        and terminated.reason not in _MADE_UP_CODES
    ):
        number = terminated.exit_code - _FIRST_SIGNAL_CODE
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}" if terminated.signal else ""


def _join_text(reason: str | None, message: str | None) -> str:
    text = " ".join(printable(message or "").split())
    prefix = printable(reason or "")
    if prefix and text.startswith(prefix):
        return text
    return ": ".join(filter(None, (prefix, text)))


def _cut_middle(text: str, length: int) -> str:
    """Cut the middle of ``text`` to ``length``: the tail of a log has the error and stays whole."""
    if len(text) <= length:
        return text
    return f"{text[:_HEAD]} … {text[_HEAD + 3 - length :]}"


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_ENDING else text[: MAX_ENDING - 1] + "…"
