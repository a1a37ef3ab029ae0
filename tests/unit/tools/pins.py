"""Reads the lists of pinned packages that ``make constraints`` writes."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
PIN = re.compile(r"^(\S+)==(\S+)(?: ; [^\\]*)? \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE)

Pins = dict[tuple[str, str], str]


def pins(file: str) -> Pins:
    """Hashes by name and version; every line of the file belongs to one of them."""
    text = re.sub(r"^#.*\n", "", (REPOSITORY / file).read_text())
    assert PIN.sub("", text) == "", f"{file} has lines that pin nothing"
    return {(name, version): hashes for name, version, hashes in PIN.findall(text)}
