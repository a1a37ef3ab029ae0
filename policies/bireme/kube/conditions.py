"""Write conditions of a status, with printable messages and correct transition times."""

from typing import Any

from bireme.core.reasons import Reason
from bireme.kube import quantities

_MESSAGE_LENGTH = 1000


def cleaned(text: str) -> str:
    """Return ``text`` without control characters, cut to the length of a condition message."""
    one_line = printable(text)
    return one_line if len(one_line) <= _MESSAGE_LENGTH else one_line[: _MESSAGE_LENGTH - 1] + "…"


def printable(text: str) -> str:
    """Return ``text`` with a space in place of each newline or other control character."""
    return "".join(c if c.isprintable() else " " for c in text)


def disruption_target(reason: str, message: str, now: float) -> dict[str, str]:
    """Return the condition of a pod that is deleted without a check of its budgets."""
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": cleaned(message),
        "lastTransitionTime": quantities.format_timestamp(now),
    }


def with_condition(
    status: dict[str, Any], kind: str, is_true: bool, reason: Reason, message: str, now: float
) -> None:
    """Set the condition of type ``kind`` in ``status``, in place.

    Its transition time changes only when ``is_true`` does.
    """
    value = "True" if is_true else "False"
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    previous = conditions.get(kind)
    transition_time = quantities.format_timestamp(now)
    if previous is not None and previous["status"] == value:
        transition_time = previous["lastTransitionTime"]
    conditions[kind] = {
        "type": kind,
        "status": value,
        "reason": str(reason),
        "message": message,
        "lastTransitionTime": transition_time,
    }
    status["conditions"] = [conditions[name] for name in sorted(conditions)]
