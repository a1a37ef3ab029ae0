"""What all commands of ``bireme`` share: refused arguments, files they write, and columns.

It stands low and imports next to nothing, because every command pays for it when it starts.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bireme.core.errors import BiremeError

STANDARD_OUTPUT: Final = "-"
"""The name that stands for standard output where a file is asked for."""


class UsageError(BiremeError):
    """An argument that cannot be used; the text names the argument, its value and the remedy."""


@contextmanager
def naming(argument: str) -> Iterator[None]:
    """What goes wrong inside is the fault of ``argument``.

    Raises:
        UsageError: in place of every BiremeError and OSError inside.
    """
    try:
        yield
    except UsageError:
        raise
    except (BiremeError, OSError) as error:
        raise UsageError(f"argument {argument}: {error}") from error


def check_target(argument: str, target: str | None) -> None:
    """UsageError unless ``target`` of ``argument`` is a file that can be written, or None."""
    if target is None or (target == STANDARD_OUTPUT and argument == "--json"):
        return
    path = Path(target)
    if path.is_dir():
        raise UsageError(f"argument {argument}: {target!r} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"argument {argument}: there is no folder {str(path.parent)!r}; make it")


def write_text(target: str, text: str) -> None:
    """``text`` into the file ``target``, or to standard output."""
    if target == STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        Path(target).write_text(text, encoding="utf-8")


def whole(text: str) -> int:
    """An argument that is a whole number from 1 on; ArgumentTypeError otherwise."""
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Rows as lines of columns, the first ``left`` flush left, the others flush right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
