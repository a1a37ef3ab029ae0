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

from bireme.core.reasons import Attention, Reason

Paint = Callable[[str], str]
"""Puts a colour around a text that is one of the known words, and returns others as they are."""

_CODE: Final = re.compile(r"(\x1b\[[0-9;]*m)")
_RED, _GREEN, _YELLOW = "31", "32", "33"

_COLOURS: Final = {
    Attention.NOBODY: _GREEN,
    Attention.TIME: _YELLOW,
    Attention.PERSON: _RED,
}
_WORDS: Final[Mapping[Attention, tuple[str, ...]]] = {
    Attention.NOBODY: ("Running", "Completed", "ok"),
    Attention.TIME: ("Pending", "Starting", "Restarting", "Interrupted", "note", "unknown"),
    Attention.PERSON: ("Failed", "wrong"),
}
"""Phases, and states of checks."""
_CODES: Final[Mapping[str, str]] = {
    **{word: _COLOURS[attention] for attention, words in _WORDS.items() for word in words},
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
