"""Plain-text tables in aligned columns."""

from collections.abc import Sequence


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the characters of the widest cell of each column."""
    return [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]


def aligned(
    rows: Sequence[Sequence[str]],
    left: int = 1,
    *,
    least: Sequence[int] | None = None,
) -> list[str]:
    """Return one line per row: the first ``left`` columns flush left, the others flush right.

    Columns are as wide as their widest cell, or as ``least`` says where that is more.
    """
    own = widths(rows)
    columns = own if least is None else [max(pair) for pair in zip(own, least, strict=True)]

    def cell(text: str, width: int, is_left: bool) -> str:
        blank = " " * (width - len(text))
        return text + blank if is_left else blank + text

    return [
        "  ".join(
            cell(text, width, at < left)
            for at, (text, width) in enumerate(zip(row, columns, strict=True))
        ).rstrip()
        for row in rows
    ]
