"""Colours of phases and reasons on a terminal: green for what is well, yellow for what waits or
starts again, red for what waiting does not help.

They are a second sign and never the only one: the words say the same.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Final

from bireme.core.reasons import Reason

Paint = Callable[[str], str]
"""Puts a colour around a text that is one of the known words, and returns others as they are."""

_CODE: Final = re.compile(r"(\x1b\[[0-9;]*m)")
_RED, _GREEN, _YELLOW = "31", "32", "33"

_WELL: Final = (
    *("Running", "Completed", "ok"),
    *(Reason.SUCCEEDED, Reason.GANG_RUNNING, Reason.ADMITTED, Reason.GROWN, Reason.POLICY_LOADED),
)
_WAITS: Final = (
    *("Pending", "Starting", "Restarting", "Interrupted", "note", "unknown"),
    *(Reason.WAITING_FOR_CAPACITY, Reason.WAITING_BEHIND, Reason.OVER_QUEUE_LIMIT),
    *(Reason.OVER_QUOTA, Reason.OVER_NAMESPACE_LIMIT, Reason.MAINTENANCE_AHEAD),
    *(Reason.WAITING_FOR_PREEMPTION, Reason.SCALING_UP, Reason.CLAIM_NOT_READY),
    *(Reason.WAITING_FOR_PODS, Reason.STOPPING, Reason.PODS_REFUSED, Reason.PREEMPTED),
    *(Reason.BUDGET_OVERRIDDEN, Reason.SHRUNK, Reason.GANG_NOT_BOUND_IN_TIME),
    *(Reason.UNSCHEDULABLE, Reason.START_TIMED_OUT, Reason.NODE_LOST, Reason.NODE_MAINTENANCE),
    Reason.FASTER_GPUS,
    *(Reason.POD_REJECTED, Reason.POD_LOST, Reason.POD_FAILED, Reason.PODS_CHANGED),
    *(Reason.TASKS_EDITED, Reason.SUSPENDED),
)
_NEEDS_SOMEBODY: Final = (
    *("Failed", "wrong"),
    *(reason for reason in Reason if reason.is_configuration_fault),
    *(Reason.OPERATOR_FAILED, Reason.BACKOFF_LIMIT_EXCEEDED, Reason.DEADLINE_EXCEEDED),
    *(Reason.LOAD_FAILED, Reason.POLICY_OVERRULED),
)
_CODES: Final[Mapping[str, str]] = {
    **dict.fromkeys(map(str, _WELL), _GREEN),
    **dict.fromkeys(map(str, _WAITS), _YELLOW),
    **dict.fromkeys(map(str, _NEEDS_SOMEBODY), _RED),
}


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument that says whether to colour."""
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="default: auto, on a terminal unless NO_COLOR is set",
    )


def painter(options: argparse.Namespace) -> Paint:
    """Return what colours standard output as ``options`` and the environment want it."""
    if options.color == "auto":
        is_wanted = (
            sys.stdout.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
    else:
        is_wanted = options.color == "always"
    return _painted if is_wanted else str


def _painted(text: str) -> str:
    code = _CODES.get(text)
    return text if code is None else f"\x1b[{code}m{text}\x1b[0m"


def cut(line: str, width: int) -> str:
    """Return the first ``width`` characters of a line, with all of its colours."""
    shown = []
    for part in _CODE.split(line):
        if _CODE.fullmatch(part):
            shown.append(part)
        else:
            shown.append(part[:width])
            width -= len(shown[-1])
    return "".join(shown)
