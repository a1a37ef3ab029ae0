"""The result of many seeds as a page like those of the measurements, and as lines on the screen."""

from collections.abc import Sequence
from typing import Final

from benchmarks.differential.scenarios import DEBOUNCE_SECONDS
from benchmarks.differential.verdicts import TOLERANCE_SECONDS, Verdict
from benchmarks.report import Result, Row, Sample, Table, at_most

_AGREEING: Final = ("same", "late", "overtaken")
_COLUMNS: Final = (
    "seed",
    "starts",
    "ties",
    "stops",
    "resizes",
    "verdict",
    "delay p50",
    "delay max",
)
_MEANING: Final = (
    "Each seed is a small scenario with one right answer, given to both sides: 8 to 10 gangs on 3 "
    "to 5 nodes. Same: the same gangs are started, stopped and resized on the same nodes, the "
    "starts in the same order (those of one moment of the simulation, the ties, in any order) and "
    f"within {TOLERANCE_SECONDS:g} s. Late: not as planned, but as the simulator decides when jobs "
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


def line_of(verdict: Verdict) -> str:
    """Write one seed as a line, with its differences below."""
    course = verdict.expected
    counts = f"{len(course.starts)} starts, {course.count('stop')} stops"
    head = f"seed {verdict.seed}: {verdict.word}; {counts}, {course.count('resize')} resizes"
    return "\n".join([head, *(f"    {line}" for line in verdict.lines)])


def result_of(verdicts: Sequence[Verdict]) -> Result:
    delays = Sample.of(delay for verdict in verdicts for delay in verdict.delays)
    rows = (
        _count("seeds", len(verdicts)),
        *(_count(f"seeds, {w}", sum(v.word == w for v in verdicts)) for w in _AGREEING),
        Row(
            what="seeds that differ",
            unit="",
            bireme=Sample.of([sum(verdict.word == "differs" for verdict in verdicts)]),
            aim=at_most(0),
        ),
        _count("starts compared", len(delays.values)),
        _count("ties", sum(verdict.ties for verdict in verdicts)),
        _count("stops", sum(v.expected.count("stop") for v in verdicts)),
        _count("resizes", sum(v.expected.count("resize") for v in verdicts)),
        *(
            Row(what=f"delay of a start, p{p}", unit="s", bireme=Sample.of([delays.percentile(p)]))
            for p in (50, 99)
        ),
    )
    table = Table(title="Seeds", columns=_COLUMNS, rows=tuple(map(_cells, verdicts)))
    return Result(rows=rows, tables=(table,), notes=(_MEANING, _DELAY, *_told(verdicts)))


def _count(what: str, number: int) -> Row:
    return Row(what=what, unit="", bireme=Sample.of([number]))


def _cells(verdict: Verdict) -> tuple[str | float, ...]:
    course, delays = verdict.expected, Sample.of(verdict.delays or [0.0])
    counts = (len(course.starts), verdict.ties, course.count("stop"), course.count("resize"))
    return (str(verdict.seed), *map(str, counts), verdict.word, delays.median, max(delays.values))


def _told(verdicts: Sequence[Verdict]) -> list[str]:
    return [f"Seed {v.seed}: {'; '.join(v.lines)}." for v in verdicts if v.word == "differs"]
