"""Verdict on one seed (same, late, overtaken or different), and the page about many."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.differential.course import Course, differences, pairs_of_starts, tied_starts
from benchmarks.differential.runner import Seen
from benchmarks.differential.scenarios import DEBOUNCE_SECONDS, Scenario
from benchmarks.differential.simulations import as_planned, as_seen
from benchmarks.report import Result, Row, Sample, Table, at_most

Word = Literal["same", "late", "overtaken", "differs"]
TOLERANCE_SECONDS: Final = 2.0
"""Largest distance of a start from its moment in the simulation of what was seen."""
_AGREEING: Final = ("same", "late", "overtaken")
_COLUMNS: Final = (
    *("seed", "starts", "ties", "stops", "resizes"),
    *("verdict", "delay p50", "delay max"),
)
_MEANING: Final = (
    "Each seed is a small scenario with one right answer, given to both sides: 8 to 10 gangs on 3 "
    "to 5 nodes. Same: the same gangs are started, stopped and resized on the same nodes, the "
    "starts in the same order (those of one moment of the simulation, the ties, in any order) and "
    f"within {TOLERANCE_SECONDS:g} s, after a stop within so much of its end. Late: not as "
    "planned, but as the simulator decides when jobs "
    "come and gangs end when they did in the cluster, which a slow machine moves by seconds. "
    "Overtaken: nor that, but a gang came or ended while another was being stopped, or something "
    "was decided while one was ending replica by replica; in the simulation both take no time. "
    "Differs: none of these."
)
_DELAY: Final = (
    "The delay of a start is from its moment in the simulation to its plan in the recorded "
    f"history; for {DEBOUNCE_SECONDS} s of it the operator gathers what happens together. A stop "
    "takes no time in the simulation, so the delay of a start that waited for it includes it."
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one seed.

    Attributes:
        expected: The simulation with arrivals and ends as seen; as planned where only that agrees.
        lines: The differences from ``expected``, or of a late one from the plan.
    """

    seed: int
    word: Word
    expected: Course
    seen: Course
    lines: Sequence[str]

    @property
    def delays(self) -> list[float]:
        """Seconds of each start after the simulator's."""
        pairs = pairs_of_starts(self.expected, self.seen)
        return [found.seconds - wanted.seconds for wanted, found in pairs]

    @property
    def ties(self) -> int:
        return tied_starts(self.expected)


def verdict_on(scenario: Scenario, seen: Seen) -> Verdict:
    """Judge what the cluster did; the page has the words' meaning."""
    word: Word
    planned = as_planned(scenario)
    followed = as_seen(scenario, seen.course, seen.until_seconds)
    unplanned = differences(planned, seen.course, math.inf)
    unfollowed = differences(followed, seen.course, TOLERANCE_SECONDS)
    if not unfollowed:
        word = "late" if unplanned else "same"
        return Verdict(scenario.seed, word, followed, seen.course, unplanned)
    if not differences(planned, seen.course, TOLERANCE_SECONDS):
        return Verdict(scenario.seed, "same", planned, seen.course, ())
    word = "overtaken" if seen.course.is_overtaken else "differs"
    return Verdict(scenario.seed, word, followed, seen.course, unfollowed)


def line_of(verdict: Verdict) -> str:
    """Write one seed as a line, with its differences below."""
    course = verdict.expected
    counts = f"{len(course.starts)} starts, {course.count('stop')} stops"
    head = f"seed {verdict.seed}: {verdict.word}; {counts}, {course.count('resize')} resizes"
    return "\n".join([head, *(f"    {line}" for line in verdict.lines)])


def result_of(verdicts: Sequence[Verdict]) -> Result:
    delays = Sample.of(delay for verdict in verdicts for delay in verdict.delays)
    differing = [verdict for verdict in verdicts if verdict.word == "differs"]
    rows = (
        Row.alone("seeds", "", len(verdicts)),
        *(Row.alone(f"seeds, {w}", "", sum(v.word == w for v in verdicts)) for w in _AGREEING),
        Row.alone("seeds that differ", "", len(differing), aim=at_most(0)),
        Row.alone("starts compared", "", len(delays.values)),
        Row.alone("ties", "", sum(verdict.ties for verdict in verdicts)),
        Row.alone("stops", "", sum(v.expected.count("stop") for v in verdicts)),
        Row.alone("resizes", "", sum(v.expected.count("resize") for v in verdicts)),
        *(Row.alone(f"delay of a start, p{p}", "s", delays.percentile(p)) for p in (50, 99)),
    )
    table = Table(title="Seeds", columns=_COLUMNS, rows=tuple(map(_cells, verdicts)))
    found = (f"Seed {v.seed}: {'; '.join(v.lines)}." for v in differing)
    return Result(rows=rows, tables=(table,), notes=(_MEANING, _DELAY, *found))


def _cells(verdict: Verdict) -> tuple[str | float, ...]:
    course, delays = verdict.expected, Sample.of(verdict.delays or [0.0])
    counts = (len(course.starts), verdict.ties, course.count("stop"), course.count("resize"))
    return (str(verdict.seed), *map(str, counts), verdict.word, delays.median, max(delays.values))
