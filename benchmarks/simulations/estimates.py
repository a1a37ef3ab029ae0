"""Estimated starts and positions, held against the starts.

The ranges are those of ``status.estimatedStart``, by the core's own code, which learns from the
simulated cycle. Beside them are two that know half as much: the reservation without what was
learned, and the waits so far without the reservation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.report import Page, Table
from benchmarks.simulations import windows
from benchmarks.simulations.store import Store
from bireme import registry
from bireme.core.cycle import run_cycle
from bireme.core.decision import Action, Decision, Hold
from bireme.core.estimates import RuntimeHistory
from bireme.core.eta import StartRange, StartRanges
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme_lab.simulator.loads import Window
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import Trace, with_true_estimates

LOAD: Final = 1.0
_WITHIN_SECONDS: Final = 1.0
"""Times are given in whole seconds."""
ESTIMATED: Final[Mapping[str, str]] = {
    "exact": "exactly how long they run",
    "twice": "up to twice as long as they run",
    "learned": "nothing; the history of like runs tells",
}
"""What owners state of run times."""
TRACES: Final[Mapping[str, Callable[[Path], list[Window]]]] = {
    "philly": windows.philly,
    "muri": windows.muri,
    "openb": windows.openb,
}
ALONE: Final = "reservation alone"
WAITS: Final = "earlier waits alone"
LEARNED: Final = "learned"
SOURCES: Final = (ALONE, WAITS, LEARNED)
"""Ranges from the start of the reservation and the last end on its places; from earlier waits, of
reservations that foresee nothing; and from both, as the core makes them."""

Ranges = dict[str, list[tuple[float, StartRange]]]
"""By job, the moments and ranges that it was given, in the order of time."""


@dataclass(slots=True)
class Estimates:
    """Ranges by source, and positions, that jobs were given while they waited. Times in seconds.

    Attributes:
        places: By job, when it first got its position, and which.
    """

    ranges: Mapping[str, Ranges] = field(default_factory=lambda: {name: {} for name in SOURCES})
    places: dict[str, tuple[float, int]] = field(default_factory=dict)
    _blind: StartRanges = field(default_factory=StartRanges)
    _learning: StartRanges = field(default_factory=StartRanges)

    def decide(self, snapshot: ClusterSnapshot, policy: Policy) -> Decision:
        decision = run_cycle(snapshot, policy)
        for hold in decision.held:
            if hold.position is not None:
                self.places.setdefault(hold.gang.uid, (snapshot.now, hold.position))
        blind = _changed(decision, sooner=None, start=snapshot.now)
        for source, ranges in (
            (ALONE, StartRanges().update(snapshot, _changed(decision, sooner=None))),
            (WAITS, self._blind.update(snapshot, blind)),
            (LEARNED, self._learning.update(snapshot, decision)),
        ):
            for name, found in ranges.items():
                self.ranges[source].setdefault(name, []).append((snapshot.now, found))
        return decision


def _changed(decision: Decision, **fields: float | None) -> Decision:
    """Replace ``fields`` of all reservations in ``decision``."""
    actions: list[Action] = []
    for action in decision.actions:
        if isinstance(action, Hold) and action.reservation is not None:
            kept = replace(action.reservation, **fields)  # type: ignore[arg-type]  # two floats
            action = replace(action, reservation=kept)
        actions.append(action)
    return Decision(tuple(actions))


@dataclass(slots=True)
class Coverage:
    """Ranges of several windows held against the starts.

    Attributes:
        given: Jobs with any range before they started.
        early, late: Whether a start was before or after the first range with two ends.
        widths: Of the same, seconds.
        renewed: By job, the share of all its ranges that held the start.
    """

    given: int = 0
    early: list[bool] = field(default_factory=list)
    late: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    renewed: list[float] = field(default_factory=list)

    @property
    def inside(self) -> list[bool]:
        return [not (early or late) for early, late in zip(self.early, self.late, strict=True)]

    def add(self, starts: Mapping[str, float], ranges: Ranges, needs_coverage: bool) -> None:
        """Count the ranges of one window, whose jobs first started at ``starts``."""
        for name, given in ranges.items():
            # Ranges of a job that was stopped and waits again are about a later start.
            before = [one for one in given if one[0] < starts.get(name, -np.inf)]
            self.given += bool(before)
            held = []
            for number, (_, found) in enumerate(before):
                if found.latest is None or (needs_coverage and found.coverage is None):
                    continue
                early = starts[name] < int(found.earliest) - _WITHIN_SECONDS
                late = starts[name] > int(found.latest) + _WITHIN_SECONDS
                held.append(not (early or late))
                if number == 0:
                    self.early.append(early)
                    self.late.append(late)
                    self.widths.append(found.latest - found.earliest)
            if held:
                self.renewed.append(float(np.mean(held)))


def carry_out(window: Window, estimated: str) -> tuple[Outcome, Estimates]:
    """Simulate one window whose owners estimate run times as ``estimated`` names."""
    given = Estimates()
    settings = SchedulingSettings()
    outcome = simulate(
        _estimating(window.at(LOAD), estimated),
        window.nodes(LOAD),
        registry.make_policy(settings),
        settings,
        # The core learns from every cycle, also from those that a shortcut would leave out.
        config=SimulationConfig(
            heartbeat_seconds=3600.0, takes_shortcuts=False, decide=given.decide
        ),
        estimator=RuntimeHistory() if estimated == "learned" else None,
    )
    return outcome, given


def _estimating(trace: Trace, estimated: str) -> Trace:
    if estimated == "learned":
        return trace
    if estimated == "exact":
        return with_true_estimates(trace)
    more = np.random.default_rng(len(trace.jobs)).uniform(1.0, 2.0, len(trace.jobs)).tolist()
    jobs = (
        replace(job, estimated_seconds=job.duration_seconds * factor)
        for job, factor in zip(trace.jobs, more, strict=True)
    )
    return replace(trace, jobs=tuple(jobs))


def in_place(
    starts: Mapping[str, float], places: Mapping[str, tuple[float, int]]
) -> Iterator[bool]:
    """Yield of each that waited whether as few others started before it as its position says."""
    moments = np.sort(np.array(list(starts.values())))
    for name, (now, place) in places.items():
        if starts.get(name, now) > now:
            until = np.searchsorted(moments, starts[name])
            yield bool(until - np.searchsorted(moments, now, side="right") < place)


@dataclass(slots=True)
class Found:
    jobs: int = 0
    coverage: Mapping[str, Coverage] = field(
        default_factory=lambda: {name: Coverage() for name in SOURCES}
    )
    places: list[bool] = field(default_factory=list)

    def add(self, outcome: Outcome, given: Estimates) -> None:
        starts = {r.job.name: r.started for r in outcome.jobs if r.started is not None}
        self.jobs += len(outcome.jobs)
        for source, ranges in given.ranges.items():
            self.coverage[source].add(starts, ranges, needs_coverage=source != ALONE)
        self.places += in_place(starts, given.places)


def build(data: Path, _: Store) -> Page:
    ranges: list[tuple[str, ...]] = []
    positions: list[tuple[str, ...]] = []
    every = {estimated: Found() for estimated in ESTIMATED}
    for trace, read in TRACES.items():
        for estimated, words in ESTIMATED.items():
            found = Found()
            for window in read(data):
                outcome, given = carry_out(window, estimated)
                found.add(outcome, given)
                every[estimated].add(outcome, given)
            ranges += [(trace, words, name, *_cells(one)) for name, one in found.coverage.items()]
            count = str(len(found.places))
            positions.append((trace, words, str(found.jobs), count, _share(found.places)))
    findings = tuple(_finding(words, every[one].coverage) for one, words in ESTIMATED.items())
    return Page(
        name="estimates",
        title="Estimated starts and positions",
        summary=findings[0],
        findings=findings,
        tables=(
            Table(title=f"Ranges, load {LOAD:g}", columns=_RANGES, rows=tuple(ranges)),
            Table(title=f"Positions, load {LOAD:g}", columns=_POSITIONS, rows=tuple(positions)),
        ),
    )


_POSITIONS: Final = ("trace", "what owners say", "jobs", "given a position", "kept")
_RANGES: Final = (
    "trace", "what owners say", "range by", "given anything", "given a range", "started inside",
    "before", "after", "median width", "inside, whenever given",
)  # fmt: skip


def _cells(kept: Coverage) -> tuple[str, ...]:
    return (
        str(kept.given),
        str(len(kept.inside)),
        *map(_share, (kept.inside, kept.early, kept.late)),
        _minutes(kept.widths),
        _share(kept.renewed),
    )


def _share(truths: Sequence[float]) -> str:
    return f"{np.mean(truths):.1%}" if truths else "-"


def _minutes(seconds: Sequence[float]) -> str:
    return f"{np.median(seconds) / 60:.3g} min" if seconds else "-"


def _finding(words: str, found: Mapping[str, Coverage]) -> str:
    alone, learned = found[ALONE], found[LEARNED]
    return (
        f"Where owners say {words}: of {len(learned.inside)} jobs that were given a learned range"
        f" {_share(learned.inside)} started inside, {_share(learned.early)} before and"
        f" {_share(learned.late)} after, the middle one {_minutes(learned.widths)} wide; of"
        f" {len(alone.inside)} that would have been given one by their reservation alone"
        f" {_share(alone.inside)} did, {_minutes(alone.widths)} wide."
    )
