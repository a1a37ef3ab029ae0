"""Tables of numbers as Markdown, for pages that a command writes."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Cell: TypeAlias = str | float


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """The lines of a table; numbers as :func:`number` writes them."""
    words = ([cell if isinstance(cell, str) else number(cell) for cell in row] for row in rows)
    return [_line(cells) for cells in (columns, ["---"] * len(columns), *words)]


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    decimals = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{decimals}f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
