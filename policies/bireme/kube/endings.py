"""Say why a pod ended, or last restarted, in one line of words.

A kubelet writes it in four places: the reason and message of the pod (Evicted, DeadlineExceeded,
NodeShutdown), the states of init containers, of sidecars, and of main containers. A user sees the
job and not its pods, which a restart deletes. So everything that says why a gang ended asks here.
"""

from collections.abc import Iterator
from signal import Signals
from typing import Final, NamedTuple

from bireme.kube import wire
from bireme.kube.conditions import printable
from bireme.kube.quantities import parse_timestamp

MAX_ENDING: Final = 600
"""Characters of the line, whatever containers write into it."""
UNEXPLAINED: Final = "the pod failed"
_MAX_MESSAGE: Final = 360
_HEAD: Final = 100
_UNKNOWN: Final = "ContainerStatusUnknown"
_MADE_UP_CODES: Final = frozenset({_UNKNOWN, "StartError", "ContainerCannotRun"})
"""Reasons with which a kubelet gives an exit code that no process returned."""
_FIRST_SIGNAL_CODE: Final = 128


def describe_ending(pod: wire.V1Pod) -> str:
    """Return why a failed pod ended: what the pod says, then the container that failed first."""
    of_pod = _joined(pod.status.reason, pod.status.message)
    failures = sorted(_failures(pod), key=_precedence)
    if of_pod and failures and failures[0].is_made_up:
        failures = []  # the kubelet says of the pod why it never saw the container
    parts = (of_pod, *(failure.words for failure in failures[:1]))
    return _shortened("; ".join(filter(None, parts)) or UNEXPLAINED)


def describe_last_ending(container: wire.V1ContainerStatus) -> str:
    """Return how a container ended before it was restarted; empty where it has not, or well."""
    ended = container.last_state.terminated if container.last_state else None
    return _outcome(ended) if ended is not None and _has_failed(ended) else ""


class _Failure(NamedTuple):
    """One container that failed, in words."""

    is_sidecar: bool
    ended: float
    is_out_of_memory: bool
    is_made_up: bool
    words: str


def _precedence(failure: _Failure) -> tuple[bool, float, bool]:
    # The exit code of a sidecar, which is stopped after the others, does not count for its pod.
    # Times have whole seconds, and a container that is killed for memory takes others with it.
    return failure.is_sidecar, failure.ended, not failure.is_out_of_memory


def _failures(pod: wire.V1Pod) -> Iterator[_Failure]:
    sidecars = {c.name for c in pod.spec.init_containers or () if c.restart_policy == "Always"}
    for container in pod.status.init_container_statuses or ():
        is_sidecar = container.name in sidecars
        yield from _failure(container, "sidecar" if is_sidecar else "init container", is_sidecar)
    for container in pod.status.container_statuses or ():
        yield from _failure(container, "container", is_sidecar=False)


def _failure(container: wire.V1ContainerStatus, kind: str, is_sidecar: bool) -> Iterator[_Failure]:
    # A pod that is stopped by its deadline leaves containers waiting for their next restart.
    for state in (container.state, container.last_state):
        ended = state.terminated if state is not None else None
        if ended is None:
            continue
        if _has_failed(ended):
            when = parse_timestamp(ended.finished_at)
            yield _Failure(
                is_sidecar,
                float("inf") if when is None else when,
                ended.reason == "OOMKilled",
                ended.reason == _UNKNOWN,
                f"{kind} {printable(container.name)} {_outcome(ended)}",
            )
        return  # one that ended well in the end did not fail the pod


def _has_failed(ended: wire.V1ContainerStateTerminated) -> bool:
    # With a code of 0 some runtimes tell of containers that were killed for memory.
    return ended.exit_code != 0 or bool(ended.signal) or ended.reason == "OOMKilled"


def _outcome(ended: wire.V1ContainerStateTerminated) -> str:
    """Return exit code, reason, signal and message."""
    notes = ", ".join(filter(None, (printable(ended.reason or ""), _signal(ended))))
    words = f"exited with {ended.exit_code}" + (f" ({notes})" if notes else "")
    message = " ".join(printable(ended.message or "").split())
    return f"{words}: {_middle_cut(message, _MAX_MESSAGE)}" if message else words


def _signal(ended: wire.V1ContainerStateTerminated) -> str:
    number = ended.signal or 0
    if not number and ended.exit_code > _FIRST_SIGNAL_CODE and ended.reason not in _MADE_UP_CODES:
        number = ended.exit_code - _FIRST_SIGNAL_CODE
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}" if ended.signal else ""


def _joined(reason: str | None, message: str | None) -> str:
    words = " ".join(printable(message or "").split())
    named = printable(reason or "")
    if named and words.startswith(named):
        return words
    return ": ".join(filter(None, (named, words)))


def _middle_cut(text: str, length: int) -> str:
    """Return ``text`` within ``length``: the tail of a log, where the error is, stays whole."""
    if len(text) <= length:
        return text
    return f"{text[:_HEAD]} … {text[_HEAD + 3 - length :]}"


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_ENDING else text[: MAX_ENDING - 1] + "…"
