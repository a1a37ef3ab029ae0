"""What a case is: a name, a question, and a coroutine that answers it with numbers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Result


class Skipped(Exception):  # noqa: N818  # no error: the text says what is missing
    """A case that cannot be measured here; the results of an earlier run stay."""


@dataclass(frozen=True, slots=True)
class Run:
    """Circumstances of one run of a case: where it logs, how large and how often it runs."""

    workdir: Path
    is_quick: bool
    repetitions: int
    say: Callable[[str], None]

    def pick(self, full: int, quick: int) -> int:
        return quick if self.is_quick else full

    def sides(self) -> list[str]:
        """Alternate the sides, each first as often as the other, give or take one."""
        pairs = [("stock", "bireme"), ("bireme", "stock")]
        return [side for number in range(self.repetitions) for side in pairs[number % 2]]


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement; ``question`` is the heading of its table."""

    name: str
    question: str
    measure: Callable[[Run], Awaitable[Result]]
