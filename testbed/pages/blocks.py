"""Fenced blocks of a page: the files that it shows, its commands, and the output of these."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

_SAVE: Final = re.compile(r"\b[Ss]ave this as `([^`]+)`")
_PART: Final = "(a part)"


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block; ``introduction`` is the text between it and the fence before."""

    language: str
    text: str
    line: int
    introduction: str


@dataclass(frozen=True, slots=True)
class File:
    """A file that the page asks its reader to save."""

    name: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Output:
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Commands:
    """A shell block, and the output that the page shows after it."""

    text: str
    line: int
    output: Output | None


def fences_of(page: Path) -> Iterator[Fence]:
    """Yield the fenced blocks of a page in their order."""
    introduction: list[str] = []
    for token in MarkdownIt("commonmark").parse(page.read_text()):
        if token.type == "inline":
            introduction.append(token.content)
        elif token.type == "fence":
            line = token.map[0] + 1 if token.map else 0
            yield Fence(token.info.strip(), token.content, line, "\n".join(introduction))
            introduction = []


def steps_of(page: Path) -> list[File | Commands]:
    """Return what a reader of a page does, in its order."""
    steps: list[File | Commands] = []
    # The shell block whose output the next fence may be.
    before: Fence | None = None
    for fence in fences_of(page):
        if fence.language == "" and before is not None:
            introduction = before.introduction + fence.introduction
            text = f"...\n{fence.text}...\n" if _PART in introduction else fence.text
            steps[-1] = Commands(before.text, before.line, Output(text, fence.line))
            before = None
        elif fence.language == "sh":
            steps.append(Commands(fence.text, fence.line, None))
            before = fence
        else:
            before = None
            if name := _SAVE.search(fence.introduction):
                steps.append(File(name[1], fence.text, fence.line))
    return steps


def shell_blocks(page: Path) -> list[Commands]:
    return [step for step in steps_of(page) if isinstance(step, Commands)]
