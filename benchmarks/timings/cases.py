"""What a case is: a name, a question, and a coroutine that answers it with numbers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Result


class Skipped(Exception):  # noqa: N818  # no error: the text says what is missing
    """A case that cannot be measured here; the results of an earlier run stay."""


@dataclass(frozen=True, slots=True)
class Run:
    """The circumstances of one run of a case.

    Attributes:
        workdir: A folder of its own, for logs.
        is_quick: Small sizes: does it work at all?
        repetitions: How often each side is measured.
        say: Called with a line of progress.
    """

    workdir: Path
    is_quick: bool
    repetitions: int
    say: Callable[[str], None]

    def pick(self, full: int, quick: int) -> int:
        """The size for this run."""
        return quick if self.is_quick else full

    def sides(self) -> list[str]:
        """Both sides in alternation, each first as often as the other, give or take one."""
        pairs = [("stock", "bireme"), ("bireme", "stock")]
        return [side for number in range(self.repetitions) for side in pairs[number % 2]]


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement. ``question`` is the heading of its table."""

    name: str
    question: str
    measure: Callable[[Run], Awaitable[Result]]
