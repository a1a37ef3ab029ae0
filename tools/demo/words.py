"""A job's state in a few words, for a column and for a log line."""

import re
from typing import Final

from tools.demo.timeline import JobStory

_KEPT: Final = "kept for it: "
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)Z")
_DOMAIN: Final = re.compile(r"\b(?:rack|block) ((?:rack|block)-)")
_SHORTER: Final = (
    ("nvidia.com/gpu", "GPU"),
    (" on nodes it may use", ""),
    (" GPU missing", " missing"),
    ("; 0 ahead", "; next in line"),
    ("the empty cluster", "the cluster"),
    (", expected free at ", ", free about "),
    (" start when the gangs that make room have stopped", " start once these have left"),
    (" beside the job's other tasks", ""),
)


def about(story: JobStory, now: float) -> str:
    """Describe what the job does, or why it waits; ``now`` in seconds of the recorder's clock."""
    status = story.status
    message = str(status.get("message") or "")
    match story.phase:
        case "Starting" | "Running" if story.runs:
            again = f", attempt {story.runs[-1].attempt}" if story.runs[-1].attempt else ""
            return f"{now - story.runs[-1].began:.0f} s on {_where(story)}{again}"
        case "Succeeded" if story.finished is not None:
            again = f", started {n} times" if (n := len(story.runs)) > 1 else ""
            took = story.finished - story.submitted
            return f"done after {took:.0f} s, waited {story.waited_seconds(now):.0f} s{again}"
        case "Pending" if not message:
            return "just submitted"
        case _:
            words = shortened(message)
            return words if words.startswith(_KEPT) else f"{status.get('reason')}: {words}"


def shortened(message: str) -> str:
    """Shorten an operator's message by what other columns show."""
    text = _TIME.sub(r"\1 UTC", _DOMAIN.sub(r"\1", message))
    for long, short in _SHORTER:
        text = text.replace(long, short)
    parts = text.split("; ")
    # Its GPUs and its queue have columns of their own.
    if len(parts) > 1 and parts[0].startswith("asks "):
        parts = parts[1:]
    if parts[0].startswith("queue '"):
        parts[0] = parts[0].partition(": ")[2] or parts[0]
    # What is kept for a job is the best news about it, and must not be cut off.
    parts.sort(key=lambda part: not part.startswith(_KEPT))
    return "; ".join(parts)


def _where(story: JobStory) -> str:
    """Return the node of a gang, or how many it has and the domain they share."""
    nodes = story.runs[-1].nodes
    if len(nodes) == 1:
        return nodes[0]
    placement = story.status.get("placement", {})
    inside = placement.get("domain") or placement.get("level")
    return f"{len(nodes)} nodes" + (f" of {inside}" if inside else "")
