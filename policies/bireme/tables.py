"""Plain-text tables in aligned columns."""

from collections.abc import Callable, Sequence


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the characters of the widest cell of each column."""
    return [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]


def align_columns(
    rows: Sequence[Sequence[str]],
    flush_left: int = 1,
    *,
    min_widths: Sequence[int] | None = None,
    paint: Callable[[str], str] = str,
) -> list[str]:
    """Return one line per row: the first ``flush_left`` columns flush left, the others flush right.

    Columns are as wide as their widest cell, and at least ``min_widths``. ``paint`` may put
    characters without width, such as colours, around the text of a cell.
    """
    cell_widths = widths(rows)
    columns = (
        cell_widths
        if min_widths is None
        else [max(pair) for pair in zip(cell_widths, min_widths, strict=True)]
    )

    def cell(text: str, width: int, is_left: bool) -> str:
        blank = " " * (width - len(text))
        return paint(text) + blank if is_left else blank + paint(text)

    return [
        "  ".join(
            cell(text, width, column < flush_left)
            for column, (text, width) in enumerate(zip(row, columns, strict=True))
        ).rstrip()
        for row in rows
    ]
