"""Findings of ``bireme doctor``, each with its remedy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bireme.cli.arguments import Json
from bireme.kube.conditions import cleaned

_MAX_NAMED: Final = 5


class State(StrEnum):
    """The result of a check; only WRONG is a fault of the installation."""

    FINE = "ok"
    NOTE = "note"
    UNKNOWN = "unknown"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer of a check; ``helps`` is the remedy, empty if none is needed."""

    check: str
    state: State
    message: str
    helps: str = ""


Findings = Iterable[Finding]


def some(names: Sequence[str]) -> str:
    """Return the first ``names`` as a list, and the number of the others."""
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def condition(manifest: Json, kind: str) -> Json:
    """Return the condition of this type; empty without one."""
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return next((entry for entry in conditions if entry.get("type") == kind), {})


def condition_text(of: Json) -> str:
    """Return reason and message of a condition."""
    return cleaned(f"{of.get('reason', '')}: {of.get('message', '')}")
