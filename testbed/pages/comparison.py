"""Comparison of the output that a page shows with that of its commands.

A line ``...`` of the page stands for any lines, and ``...`` inside a line for any text. The page
may break a long line. Ages, times, durations, ports, addresses, tokens and uids are not
compared, and two digits of fractions are.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

_ANY: Final = "..."
_MAX_PIECES: Final = 8
"""Lines of a page that one long line may be broken into."""
_VARYING: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
        (r"\b\d\d:\d\d:\d\d( UTC)?\b", "<time>"),
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uid>"),
        (r"\btoken=[\w.-]+", "token=<token>"),
        (r"\bwait 0(\.\d+)? x", "wait <wait> x"),
        (r"\b127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
        (r"\b10\.\d+\.\d+\.\d+\b", "<address>"),
        (r"\b\d+d\d+h\b|\b\d+h\d+m\b|\b\d+m\d+s\b|\b\d+(\.\d+)? ?(ms|s|min|m|h|d)\b", "<duration>"),
        (r"/\S*/bireme-\w+/", "<folder>/"),
    )
)

# A priority follows the wait and the service so far: 0.4334 after some seconds, not 0.4333.
_FRACTION: Final = re.compile(r"(?<![\d.])0\.\d+(?![\d.])")
_DRIFT: Final = 0.0005


def differences(page: str, program: str) -> list[str]:
    """Return a line for each line of the page and the program if they differ; else nothing."""
    output = _lines(program)
    page_lines = _join_broken_lines(_lines(page), output)
    if re.fullmatch("".join(map(_pattern, page_lines)), "".join(f"{line}\n" for line in output)):
        return []
    return list(_mark_lines(page_lines, output))


def _lines(text: str) -> list[str]:
    return [_normalise(line) for line in text.strip("\n").splitlines()]


def _normalise(line: str) -> str:
    """Return a line without what differs from run to run; columns are two spaces apart."""
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    line = _FRACTION.sub(_round, line)
    indentation = re.match(r" *", line)
    assert indentation is not None  # it matches nothing as well
    return indentation[0] + re.sub(r" {2,}", "  ", line.strip())


def _round(fraction: re.Match[str]) -> str:
    return f"{float(fraction[0]) + _DRIFT:.2f}"


def _join_broken_lines(page: Sequence[str], output: Sequence[str]) -> list[str]:
    """Join the lines of the page that are one line of the program."""
    lines: list[str] = []
    start = 0
    while start < len(page):
        end = min(start + _MAX_PIECES, len(page))
        while end > start + 1 and not _is_broken(page[start:end], output):
            end -= 1
        lines.append(_join(page[start:end]))
        start = end
    return lines


def _is_broken(pieces: Sequence[str], output: Sequence[str]) -> bool:
    """Whether the pieces, none of them empty or a gap, are one line of the program."""
    return all(piece.strip() not in ("", _ANY) for piece in pieces) and _is_in(
        _join(pieces), output
    )


def _join(pieces: Sequence[str]) -> str:
    return " ".join([pieces[0], *(piece.strip() for piece in pieces[1:])])


def _is_in(line: str, output: Sequence[str]) -> bool:
    return any(re.fullmatch(_pattern(line), f"{each}\n") for each in output)


def _pattern(line: str) -> str:
    if line.strip() == _ANY:
        return r"(?:.*\n)*?"
    pieces = (re.escape(piece.strip() if at else piece.rstrip()) for at, piece in _pieces(line))
    return " *.* *".join(pieces) + r"\n"


def _pieces(line: str) -> Iterator[tuple[int, str]]:
    return enumerate(line.split(_ANY))


def _mark_lines(page: Sequence[str], output: Sequence[str]) -> Iterator[str]:
    """Yield ``-`` before lines that only the page has, ``+`` before those of the program."""
    # A line with gaps is the same as the one that it stands for.
    page_lines = [
        next((each for each in output if re.fullmatch(_pattern(line), f"{each}\n")), line)
        if line.strip() != _ANY
        else _ANY
        for line in page
    ]
    matcher = SequenceMatcher(None, page_lines, output, autojunk=False)
    for tag, start, end, first, last in matcher.get_opcodes():
        if tag == "equal":
            yield from (f"  {line}" for line in page_lines[start:end])
            continue
        page_only = [line for line in page_lines[start:end] if line != _ANY]
        yield from (f"- {line}" for line in page_only)
        if _ANY in page_lines[start:end] and not page_only:
            yield f"  {_ANY}"
        else:
            yield from (f"+ {line}" for line in output[first:last])
