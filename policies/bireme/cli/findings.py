"""What the checks of ``bireme doctor`` find, each with what to do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bireme.cli.arguments import Json
from bireme.kube.conditions import cleaned

_MAX_NAMED: Final = 5


class State(StrEnum):
    """What a check has found; only WRONG is a fault of the installation."""

    FINE = "ok"
    NOTE = "note"
    UNKNOWN = "unknown"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer of a check; ``helps`` says what to do, empty where nothing is needed."""

    check: str
    state: State
    message: str
    helps: str = ""


Findings = Iterable[Finding]


def some(found: Sequence[str]) -> str:
    """Return the first of them as a list, and how many more there are."""
    more = len(found) - _MAX_NAMED
    return ", ".join(found[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def condition(manifest: Json, kind: str) -> Json:
    """Return the condition of this type; empty without one."""
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def said(of: Json) -> str:
    """Return reason and message of a condition."""
    return cleaned(f"{of.get('reason', '')}: {of.get('message', '')}")
