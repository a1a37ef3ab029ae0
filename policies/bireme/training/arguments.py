"""Arguments of ``bireme train`` and ``bireme evaluate``, each checked as it is read."""

import argparse


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
