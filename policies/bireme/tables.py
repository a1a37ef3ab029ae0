"""Plain-text tables in aligned columns."""

from collections.abc import Callable, Sequence


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the characters of the widest cell of each column."""
    return [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]


def aligned(
    rows: Sequence[Sequence[str]],
    left: int = 1,
    *,
    least: Sequence[int] | None = None,
    paint: Callable[[str], str] = str,
) -> list[str]:
    """Return one line per row: the first ``left`` columns flush left, the others flush right.

    Columns are as wide as their widest cell, or as ``least`` says where that is more. ``paint`` may
    put what takes no room, such as colours, around the text of a cell.
    """
    own = widths(rows)
    columns = own if least is None else [max(pair) for pair in zip(own, least, strict=True)]

    def cell(text: str, width: int, is_left: bool) -> str:
        blank = " " * (width - len(text))
        return paint(text) + blank if is_left else blank + paint(text)

    return [
        "  ".join(
            cell(text, width, at < left)
            for at, (text, width) in enumerate(zip(row, columns, strict=True))
        ).rstrip()
        for row in rows
    ]
