"""What a reader of a converted manifest must know: what changed, what is lost, what is left to do.

Notes are for people: they name the object and the field they speak of.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Effect(StrEnum):
    """What became of a field."""

    CHANGED = "changed"
    """Said otherwise, or with another meaning."""
    LOST = "lost"
    """Bireme has nothing like it."""
    TO_DO = "to do"
    """It does not run before somebody did this."""


@dataclass(frozen=True, slots=True)
class Note:
    """One remark about one field of one object."""

    subject: str
    field: str
    effect: Effect
    text: str


@dataclass(slots=True)
class Notes:
    """The notes about one object, in the order of its fields."""

    subject: str
    notes: list[Note] = field(default_factory=list)

    def changed(self, path: str, text: str) -> None:
        """``path`` is said otherwise."""
        self._add(path, Effect.CHANGED, text)

    def lost(self, path: str, text: str) -> None:
        """``path`` has no counterpart."""
        self._add(path, Effect.LOST, text)

    def to_do(self, path: str, text: str) -> None:
        """``path`` needs somebody's hand."""
        self._add(path, Effect.TO_DO, text)

    def _add(self, path: str, effect: Effect, text: str) -> None:
        self.notes.append(Note(self.subject, path, effect, text))
