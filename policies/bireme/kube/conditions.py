"""Conditions of a status: words that are safe to show, and since when something is so."""

from typing import Any

from bireme.core.reasons import Reason
from bireme.kube import quantities

_MESSAGE_LENGTH = 1000


def cleaned(text: str) -> str:
    """``text`` without control characters, cut to what a condition may hold."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown if len(shown) <= _MESSAGE_LENGTH else shown[: _MESSAGE_LENGTH - 1] + "…"


def with_condition(
    status: dict[str, Any], kind: str, is_true: bool, reason: Reason, message: str, now: float
) -> None:
    """Set one condition; its transition time changes only when its truth does."""
    value = "True" if is_true else "False"
    old = {c["type"]: c for c in status.get("conditions") or ()}
    before = old.get(kind)
    same = before is not None and before["status"] == value
    old[kind] = {
        "type": kind,
        "status": value,
        "reason": str(reason),
        "message": message,
        "lastTransitionTime": before["lastTransitionTime"]
        if before is not None and same
        else quantities.format_timestamp(now),
    }
    status["conditions"] = [old[name] for name in sorted(old)]
