"""Write conditions of a status: safe messages, and transition times that mean something."""

from typing import Any

from bireme.core.reasons import Reason
from bireme.kube import quantities

_MESSAGE_LENGTH = 1000


def cleaned(text: str) -> str:
    """Return ``text`` without control characters, cut to the length of a condition message."""
    shown = printable(text)
    return shown if len(shown) <= _MESSAGE_LENGTH else shown[: _MESSAGE_LENGTH - 1] + "…"


def printable(text: str) -> str:
    """Return ``text`` with a space for each newline and other control character."""
    return "".join(c if c.isprintable() else " " for c in text)


def disruption_target(reason: str, message: str, now: float) -> dict[str, str]:
    """Return the condition of a pod that is deleted without asking its budgets."""
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
    known = {c["type"]: c for c in status.get("conditions") or ()}
    before = known.get(kind)
    changed = quantities.format_timestamp(now)
    if before is not None and before["status"] == value:
        changed = before["lastTransitionTime"]
    known[kind] = {
        "type": kind,
        "status": value,
        "reason": str(reason),
        "message": message,
        "lastTransitionTime": changed,
    }
    status["conditions"] = [known[name] for name in sorted(known)]
