"""Argument types and checks that the commands of ``bireme`` share.

Imports next to nothing, because every command pays for it when it starts.
"""

import argparse
import sys
from collections.abc import Iterator
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
    """Blame ``argument`` for every error inside the block.

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


def count(text: str) -> int:
    """A whole number from 0 on; ArgumentTypeError otherwise, as everywhere here."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def minutes(text: str) -> float:
    """A number of minutes above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
    return value


def seed_range(text: str) -> range:
    """``A:B``: from A to B-1."""
    first, colon, end = text.partition(":")
    if not (colon and first.isdigit() and end.isdigit() and int(first) < int(end)):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds; write 0:20, say")
    return range(int(first), int(end))


def shard(text: str) -> tuple[int, int]:
    """``I/N``: the Ith of N shares, counted from 0."""
    which, slash, of = text.partition("/")
    if not (slash and which.isdigit() and of.isdigit() and int(which) < int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is no share; write 0/4, 1/4, 2/4 or 3/4, say")
    return int(which), int(of)


def pair(text: str) -> tuple[str, str]:
    """``K=V``."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is no option; write name=value")
    return key, value
