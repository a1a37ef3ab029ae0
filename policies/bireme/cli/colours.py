"""Colours of phases and reasons on a terminal.

Green marks phases without a problem, yellow those that wait or start again, red those that waiting
does not help. A colour is never the only sign: the text says the same.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Final

from bireme.core.reasons import Attention, Reason

Paint = Callable[[str], str]
"""Function that colours a phase or a reason, and returns any other text unchanged."""

_CODE: Final = re.compile(r"(\x1b\[[0-9;]*m)")
_RED, _GREEN, _YELLOW = "31", "32", "33"

_COLOURS: Final = {
    Attention.NOBODY: _GREEN,
    Attention.TIME: _YELLOW,
    Attention.PERSON: _RED,
}
_PHASES: Final[Mapping[Attention, tuple[str, ...]]] = {
    Attention.NOBODY: ("Running", "Completed", "ok"),
    Attention.TIME: ("Pending", "Starting", "Restarting", "Interrupted", "note", "unknown"),
    Attention.PERSON: ("Failed", "wrong"),
}
"""Phases, and states of checks."""
_CODES: Final[Mapping[str, str]] = {
    **{word: _COLOURS[attention] for attention, phases in _PHASES.items() for word in phases},
    **{str(reason): _COLOURS[reason.attention] for reason in Reason},
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
    """Return the function that colours standard output, by ``options`` and the environment."""
    if options.color == "auto":
        is_wanted = (
            sys.stdout.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
    else:
        is_wanted = options.color == "always"
    return _paint_text if is_wanted else str


def _paint_text(text: str) -> str:
    code = _CODES.get(text)
    return text if code is None else f"\x1b[{code}m{text}\x1b[0m"


def cut(line: str, width: int) -> str:
    """Return the first ``width`` characters of a line, with all of its colours."""
    parts = []
    for part in _CODE.split(line):
        if _CODE.fullmatch(part):
            parts.append(part)
        else:
            parts.append(part[:width])
            width -= len(parts[-1])
    return "".join(parts)
