"""Markdown tables, whose cells may hold anything that fits on one line."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a header; line breaks and bars in cells are made harmless."""
    head = [_row(columns), "|" + "---|" * len(columns) + "\n"]
    return "".join([*head, *(_row([_cell(text) for text in row]) for row in rows)])


def code(value: object) -> str:
    """Return a value as code: text as it is, everything else as JSON; "" where there is none."""
    if value is None or value == "":
        return ""
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    # Outside of code a "<" would begin a tag, and hide the words after it.
    return re.sub("`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], text)


# --- docstrings below fields, which Python itself does not keep ---------------------------------


def docstrings(cls: type[Any]) -> dict[str, str]:
    """Return the text under each field of a dataclass or member of an enumeration, by its name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    return {
        name: ast.literal_eval(text.value).replace("``", "`")
        for field, text in pairwise(body)
        if isinstance(text, ast.Expr)
        for name in _named(field)
    }


def _named(field: ast.stmt) -> list[str]:
    match field:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
    return []
