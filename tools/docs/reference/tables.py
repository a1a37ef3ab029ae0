"""Markdown tables, whose cells may hold anything that fits on one line."""

import json
import re
from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a header; line breaks and bars in cells are made harmless."""
    head = [_row(columns), "|" + "---|" * len(columns) + "\n"]
    return "".join([*head, *(_row([_cell(text) for text in row]) for row in rows)])


def code(value: object) -> str:
    """A value as code: text as it is, everything else as JSON; "" where there is none."""
    if value is None or value == "":
        return ""
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return re.sub("`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], text)
