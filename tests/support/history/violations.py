"""What a broken promise looks like, and the shape of a check."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tests.support.history.records import Record
from tests.support.history.world import World


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise: which, when, at which revision, of what, in words with numbers."""

    invariant: str
    seconds: float
    revision: int
    subject: str
    message: str

    def __str__(self) -> str:
        where = f"{self.seconds:.2f} s, revision {self.revision}"
        return f"{self.invariant}: {self.subject}: {self.message} ({where})"


class Check(Protocol):
    """Looks at the world after every record; keeps what it needs to remember."""

    def see(self, world: World, record: Record) -> Iterator[Violation]:
        """Violations that this record brought about, or that have lasted too long by now."""
        ...


def violation(invariant: str, record: Record, subject: object, message: str) -> Violation:
    """A violation at ``record``; a key is shown as ``namespace/name``."""
    text = "/".join(map(str, subject)) if isinstance(subject, tuple) else str(subject)
    return Violation(invariant, record.seconds, record.revision, text, message)
