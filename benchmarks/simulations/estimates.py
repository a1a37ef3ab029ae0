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
from bireme.simulator.loads import Window
from bireme.simulator.outcome import Outcome
from bireme.simulator.simulation import SimulationConfig, simulate
from bireme.simulator.workload import Trace, with_true_estimates

LOAD: Final = 1.0
_WITHIN_SECONDS: Final = 1.0
"""Times are told in whole seconds."""
SAID: Final[Mapping[str, str]] = {
    "exact": "exactly how long they run",
    "twice": "up to twice as long as they run",
    "learned": "nothing; the history of like runs tells",
}
TRACES: Final[Mapping[str, Callable[[Path], list[Window]]]] = {
    "philly": windows.philly,
    "muri": windows.muri,
    "openb": windows.openb,
}

Tellings = dict[str, list[tuple[float, StartRange]]]
"""By name of the job: at which moment it was told which range, in the order of time."""


@dataclass(slots=True)
class Told:
    """Ranges and positions that jobs were given while they waited. Times in seconds.

    Attributes:
        alone: From the start of the reservation and the last end on its places.
        waits: From earlier waits alone, of reservations that foresee nothing.
        learned: From both, as the core does.
        places: When a job first got its position, and which.
    """

    alone: Tellings = field(default_factory=dict)
    waits: Tellings = field(default_factory=dict)
    learned: Tellings = field(default_factory=dict)
    places: dict[str, tuple[float, int]] = field(default_factory=dict)
    _blind: StartRanges = field(default_factory=StartRanges)
    _ranges: StartRanges = field(default_factory=StartRanges)

    def decide(self, snapshot: ClusterSnapshot, policy: Policy) -> Decision:
        decision = run_cycle(snapshot, policy)
        for hold in decision.held:
            if hold.position is not None:
                self.places.setdefault(hold.gang.uid, (snapshot.now, hold.position))
        alone = _changed(decision, sooner=None)
        blind = _changed(decision, sooner=None, start=snapshot.now)
        _note(self.alone, snapshot.now, StartRanges().update(snapshot, alone))
        _note(self.waits, snapshot.now, self._blind.update(snapshot, blind))
        _note(self.learned, snapshot.now, self._ranges.update(snapshot, decision))
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


def _note(told: Tellings, now: float, ranges: Mapping[str, StartRange]) -> None:
    for name, found in ranges.items():
        told.setdefault(name, []).append((now, found))


@dataclass(slots=True)
class Kept:
    """Ranges of several windows held against the starts.

    Attributes:
        told: Jobs with any range before they started.
        early, late: Whether a start was before or after the first range with two ends.
        widths: Of the same, seconds.
        renewed: By job, the share of all its ranges that held the start.
    """

    told: int = 0
    early: list[bool] = field(default_factory=list)
    late: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    renewed: list[float] = field(default_factory=list)

    @property
    def inside(self) -> list[bool]:
        return [not (early or late) for early, late in zip(self.early, self.late, strict=True)]

    def add(self, starts: Mapping[str, float], told: Tellings, needs_coverage: bool) -> None:
        """Count the ranges of one window, whose jobs first started at ``starts``."""
        for name, tellings in told.items():
            # What it was told when it waited again, after it was stopped, does not count.
            before = [one for one in tellings if one[0] < starts.get(name, -np.inf)]
            self.told += bool(before)
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


def carry_out(window: Window, said: str) -> tuple[Outcome, Told]:
    """Simulate one window whose owners estimate run times as ``said`` names."""
    told = Told()
    settings = SchedulingSettings()
    outcome = simulate(
        _saying(window.at(LOAD), said),
        window.nodes(LOAD),
        registry.make_policy(settings),
        settings,
        config=SimulationConfig(
            heartbeat_seconds=3600.0, takes_shortcuts=False, decide=told.decide
        ),
        estimator=RuntimeHistory() if said == "learned" else None,
    )
    return outcome, told


def _saying(trace: Trace, said: str) -> Trace:
    if said == "learned":
        return trace
    if said == "exact":
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
    alone: Kept = field(default_factory=Kept)
    waits: Kept = field(default_factory=Kept)
    learned: Kept = field(default_factory=Kept)
    places: list[bool] = field(default_factory=list)

    def add(self, outcome: Outcome, told: Told) -> None:
        starts = {r.job.name: r.started for r in outcome.jobs if r.started is not None}
        self.jobs += len(outcome.jobs)
        self.alone.add(starts, told.alone, needs_coverage=False)
        self.waits.add(starts, told.waits, needs_coverage=True)
        self.learned.add(starts, told.learned, needs_coverage=True)
        self.places += in_place(starts, told.places)


def build(data: Path, _: Store) -> Page:
    ranges: list[tuple[str, ...]] = []
    positions: list[tuple[str, ...]] = []
    every = {said: Found() for said in SAID}
    for trace, read in TRACES.items():
        for said, words in SAID.items():
            found = Found()
            for window in read(data):
                outcome, told = carry_out(window, said)
                found.add(outcome, told)
                every[said].add(outcome, told)
            ranges.append((trace, words, "reservation alone", *_cells(found.alone)))
            ranges.append((trace, words, "earlier waits alone", *_cells(found.waits)))
            ranges.append((trace, words, "learned", *_cells(found.learned)))
            count = str(len(found.places))
            positions.append((trace, words, str(found.jobs), count, _share(found.places)))
    findings = tuple(_finding(words, every[said]) for said, words in SAID.items())
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


_POSITIONS: Final = ("trace", "what owners say", "jobs", "told a position", "kept")
_RANGES: Final = (
    "trace", "what owners say", "range by", "told anything", "told a range", "started inside",
    "before", "after", "median width", "inside, whenever told",
)  # fmt: skip


def _cells(kept: Kept) -> tuple[str, ...]:
    return (
        str(kept.told),
        str(len(kept.inside)),
        _share(kept.inside),
        _share(kept.early),
        _share(kept.late),
        _minutes(kept.widths),
        _share(kept.renewed),
    )


def _share(truths: Sequence[float]) -> str:
    return f"{np.mean(truths):.1%}" if truths else "-"


def _minutes(seconds: Sequence[float]) -> str:
    return f"{np.median(seconds) / 60:.3g} min" if seconds else "-"


def _finding(words: str, found: Found) -> str:
    alone, learned = found.alone, found.learned
    return (
        f"Where owners say {words}: of {len(learned.inside)} jobs that were told a learned range"
        f" {_share(learned.inside)} started inside, {_share(learned.early)} before and"
        f" {_share(learned.late)} after, the middle one {_minutes(learned.widths)} wide; of"
        f" {len(alone.inside)} that would have been told one by their reservation alone"
        f" {_share(alone.inside)} did, {_minutes(alone.widths)} wide."
    )
