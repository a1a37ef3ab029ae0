"""Argument types and checks that the commands of ``bireme`` share.

Imports next to nothing, because every command pays for it when it starts.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bireme.core.errors import BiremeError

STANDARD_OUTPUT: Final = "-"

Json = dict[str, Any]


class UsageError(BiremeError):
    """An argument that cannot be used; the text names the argument, its value and the remedy."""


@contextmanager
def naming(argument: str) -> Iterator[None]:
    """Turn every BiremeError and OSError inside the block into a UsageError of ``argument``."""
    try:
        yield
    except UsageError:  # it names its own argument
        raise
    except (BiremeError, OSError) as error:
        raise UsageError(f"argument {argument}: {error}") from error


def check_target(argument: str, target: str | None) -> None:
    """Raise UsageError unless ``target`` of ``argument`` is a writable file, or None."""
    if target is None or (target == STANDARD_OUTPUT and argument == "--json"):
        return
    # Checked before the work, which may take hours.
    path = Path(target)
    if path.is_dir():
        raise UsageError(f"argument {argument}: {target!r} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"argument {argument}: there is no folder {str(path.parent)!r}; create it")


def write_text(target: str, text: str) -> None:
    """Write ``text`` into the file ``target``, or to standard output."""
    if target == STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        Path(target).write_text(text, encoding="utf-8")


def write_results(options: argparse.Namespace, numbers: Json, text: str) -> None:
    """Write ``numbers`` as ``--json`` asks, and ``text`` unless they went to standard output.

    The version of Bireme and the command line come before the numbers.
    """
    if options.json:
        from importlib.metadata import version  # a thirtieth of a second, for this alone

        document = {"bireme": version("bireme"), "command": options.command, **numbers}
        with naming("--json"):
            write_text(options.json, json.dumps(document, indent=1, allow_nan=False) + "\n")
    if options.json != STANDARD_OUTPUT:
        sys.stdout.write(text)


# --- arguments of several commands --------------------------------------------------------------


def add_record(
    parser: argparse.ArgumentParser,
    *,
    is_option: bool = False,
    container: argparse._ActionsContainer | None = None,
) -> None:
    """Add the arguments for a record, and for the folder of the checkpoints that decided in it.

    ``container`` gets the option ``--record``, by default ``parser``.
    """
    what = "consecutive files record-*.jsonl, plain or gzipped, or their folder"
    add = parser.add_argument
    if is_option:
        (container or parser).add_argument(
            "--record",
            action="append",
            default=[],
            type=Path,
            metavar="RECORD",
            help=f"use an operator's record instead of the leader: {what}; repeatable",
        )
    else:
        add("record", nargs="+", type=Path, metavar="RECORD", help=what)
    add(
        "--checkpoints",
        default="",
        metavar="FOLDER",
        help="folder of the checkpoints that decided during the record; not needed for those "
        "that come with Bireme",
    )
    add_policy_class(parser)


def add_policy_class(parser: argparse.ArgumentParser) -> None:
    """Add the argument that lets a record name the user's own classes."""
    parser.add_argument(
        "--policy-class",
        dest="policy_classes",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="a class of yours that the record names as a policy and that may be imported; "
        "repeatable; default: only those of Bireme",
    )


def add_what_if(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that ``why --what-if`` and ``submit --dry-run`` share."""
    add = parser.add_argument
    add(
        "--try",
        dest="tries",
        action="append",
        default=[],
        type=pair,
        metavar="KEY=VALUE",
        help="a change that may make the start sooner: replicas=8 or replicas.TASK=8, "
        "queue=NAME, class=NAME or estimate=2h; repeatable",
    )
    add(
        "--priority-class",
        dest="priority_classes",
        action="append",
        default=[],
        type=pair,
        metavar="NAME=VALUE",
        help="the value of a PriorityClass, for --record, as a record has none; repeatable",
    )
    add_record(parser, is_option=True)


# --- types of arguments: each raises ArgumentTypeError for a text that has not its form ---------


def whole(text: str, minimum: int = 1) -> int:
    """Return a whole number, at least ``minimum``."""
    if not (text.isascii() and text.isdigit() and int(text) >= minimum):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {minimum} on")
    return int(text)


def number(text: str, is_allowed: Callable[[float], bool], fault: str) -> float:
    """Return a number for which ``is_allowed``; ``fault`` ends the error for any other."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan  # no comparison with it holds
    if not is_allowed(value):
        raise argparse.ArgumentTypeError(f"{text!r} {fault}")
    return value


def seed_range(text: str) -> range:
    """Return the range from A to B-1 of ``A:B``."""
    first, colon, end = text.partition(":")
    if not (colon and first.isdigit() and end.isdigit() and int(first) < int(end)):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds; write for example 0:20")
    return range(int(first), int(end))


def shard(text: str) -> tuple[int, int]:
    """Return (I, N) of ``I/N``: the Ith of N shares, counted from 0."""
    which, slash, of = text.partition("/")
    if not (slash and which.isdigit() and of.isdigit() and int(which) < int(of)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no share; write for example 0/4, 1/4, 2/4 or 3/4"
        )
    return int(which), int(of)


UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
"""Seconds of each unit of time."""


def seconds(text: str) -> int:
    """Return the seconds of a duration such as ``5m``."""
    match = re.fullmatch(r"([1-9][0-9]{0,8})([smhdw]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time; write 5m, 1h, 14d or 1w")
    number, unit = match.groups()
    if not unit:
        raise argparse.ArgumentTypeError(f"{text!r} has no unit; write {text}s, {text}m or {text}h")
    return int(number) * UNITS[unit]


def pair(text: str) -> tuple[str, str]:
    """Return (K, V) of ``K=V``."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is no option; write name=value")
    return key, value
