"""A script of faults: which requests go wrong, how, and how often.

Rules are tried in the order they were added; the first that matches and is not used up wins. Fake
API server and fault proxy share it, so that a test of the one runs against the other.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
DRY_RUN = "DRY RUN"
"""Method of a POST that stores nothing."""

Match = Callable[[str, str, bool], bool]
"""(method, path without query, whether it is a watch) -> whether the rule applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Fault of one request. Delay comes first and combines with everything else."""

    delay_seconds: float = 0.0
    status: int | None = None
    """Answer with this status instead of doing the work."""
    reason: str = "Injected"
    message: str = "injected fault"
    retry_after_seconds: int | None = None
    drop: bool = False
    """Hang up without an answer, before the work is done."""
    drop_answer: bool = False
    """Do the work, then hang up."""
    silent: bool = False
    """Watches only: send the headers and then nothing at all, not even the end."""


@dataclass(slots=True)
class _Rule:
    match: Match
    fault: Fault
    times_left: int | None


@dataclass(slots=True)
class FaultScript:
    """An ordered list of rules; empty means no fault."""

    rules: list[_Rule] = field(default_factory=list)

    def add(self, fault: Fault, match: Match | None = None, *, times: int | None = 1) -> None:
        """Apply ``fault`` to the next ``times`` matching requests (None: until cleared)."""
        self.rules.append(_Rule(match or (lambda *_: True), fault, times))

    def clear(self) -> None:
        self.rules.clear()

    def next(self, method: str, path: str, watch: bool) -> Fault | None:
        """Return the fault for this request, if any, and use it up."""
        for rule in list(self.rules):
            if rule.times_left == 0 or not rule.match(method, path, watch):
                continue
            if rule.times_left is not None:
                rule.times_left -= 1
            return rule.fault
        return None


def writes(method: str, path: str, watch: bool) -> bool:  # a Match
    return method in WRITES


def dry_runs(method: str, path: str, watch: bool) -> bool:  # a Match
    return method == DRY_RUN


def watches(method: str, path: str, watch: bool) -> bool:  # a Match
    return watch


def lists(method: str, path: str, watch: bool) -> bool:  # a Match
    return method == "GET" and not watch


def every(number: int, match: Match = writes) -> Match:
    """Match every ``number``-th of the requests that ``match`` does."""
    counts = itertools.count(1)
    return lambda *request: match(*request) and next(counts) % number == 0
