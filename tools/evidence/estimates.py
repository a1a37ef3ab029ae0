"""How often jobs start when it was said they would, and as many places later as was said.

The ranges are those that the operator writes into ``status.estimatedStart``, by its own function
from the decisions of the simulated cycle; the first that a job is told counts, as its owner reads
it then. Positions likewise: how many others start before a job after it was told its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from bench import machine
from bench.measurements import Table
from bireme import registry
from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.estimates import RuntimeHistory
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import timestamps
from bireme.simulator.conduct import Conduct
from bireme.simulator.engine import simulate
from bireme.simulator.loads import Window
from bireme.simulator.outcome import Outcome
from bireme.simulator.workload import Trace, knowing
from bireme_operator.status import estimated_start
from evidence import windows
from evidence.pages import Page
from evidence.store import Store

LOAD: Final = 1.0
_WITHIN_SECONDS: Final = 1.0
"""Times are told in whole seconds."""
SAID: Final[Mapping[str, str]] = {
    "exact": "exactly how long they run",
    "twice": "up to twice as long as they run",
    "learned": "nothing; the history of like runs tells",
}


@dataclass(slots=True)
class Told:
    """What jobs were told first, by name. Times in seconds.

    Attributes:
        ranges: When, the earliest and the latest start; the latest None where nobody could say.
        places: When a job was first told its position, and which.
    """

    ranges: dict[str, tuple[float, float, float | None]] = field(default_factory=dict)
    places: dict[str, tuple[float, int]] = field(default_factory=dict)

    def decide(self, snapshot: ClusterSnapshot, policy: Policy) -> Decision:
        """The scheduling cycle, listened to."""
        decision = run_cycle(snapshot, policy, explain=False)
        for hold in decision.held:
            name = hold.gang.uid
            if hold.position is not None:
                self.places.setdefault(name, (snapshot.now, hold.position))
            if name not in self.ranges and (start := estimated_start(hold, snapshot)):
                earliest, latest = map(timestamps.parse, (start["earliest"], start.get("latest")))
                if earliest is not None:
                    self.ranges[name] = (snapshot.now, earliest, latest)
        return decision


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of it, over all jobs that were told: arrays of bool, one entry per job.

    ``inside``, ``before`` and ``after`` are of those whose range had an end; ``in_place`` of all
    that waited: no more others started before them than stood before them.
    """

    inside: Sequence[bool]
    before: Sequence[bool]
    after: Sequence[bool]
    widths: Sequence[float]
    open_ended: Sequence[bool]
    in_place: Sequence[bool]
    jobs: int


def carry_out(window: Window, said: str) -> tuple[Outcome, Told]:
    """One window whose owners say of run times what ``said`` names."""
    told = Told()
    settings = SchedulingSettings()
    trace = _saying(window.at(LOAD), said)
    conduct = Conduct(heartbeat_seconds=3600.0, takes_shortcuts=False, decide=told.decide)
    policy, estimator = registry.make_policy(settings), RuntimeHistory()
    outcome = simulate(
        trace,
        window.nodes(LOAD),
        policy,
        settings,
        conduct=conduct,
        estimator=estimator if said == "learned" else None,
    )
    return outcome, told


def _saying(trace: Trace, said: str) -> Trace:
    if said == "learned":
        return trace
    if said == "exact":
        return knowing(trace)
    more = np.random.default_rng(len(trace.jobs)).uniform(1.0, 2.0, len(trace.jobs)).tolist()
    jobs = (
        replace(job, estimated_seconds=job.duration_seconds * factor)
        for job, factor in zip(trace.jobs, more, strict=True)
    )
    return replace(trace, jobs=tuple(jobs))


def kept(found: Sequence[tuple[Outcome, Told]]) -> Kept:
    """How the promises of several windows were kept."""
    inside, before, after, widths, late_open, in_place = [], [], [], [], [], []
    jobs = 0
    for outcome, told in found:
        starts = {r.job.name: r.started for r in outcome.jobs if r.started is not None}
        jobs += len(outcome.jobs)
        for name, (now, earliest, latest) in told.ranges.items():
            if starts.get(name, now) <= now:
                continue  # it was stopped, and told before it starts once more
            early = starts[name] < earliest - _WITHIN_SECONDS
            if latest is None:
                late_open.append(not early)
                continue
            late = starts[name] > latest + _WITHIN_SECONDS
            inside.append(not (early or late))
            before.append(early)
            after.append(late)
            widths.append(latest - earliest)
        moments = np.sort(np.array(list(starts.values())))
        for name, (now, place) in told.places.items():
            if starts.get(name, now) > now:
                passed = np.searchsorted(moments, starts[name]) - np.searchsorted(
                    moments, now, side="right"
                )
                in_place.append(bool(passed < place))
    return Kept(inside, before, after, widths, late_open, in_place, jobs)


def build(data: Path, _: Store) -> Page:
    """The page over Philly and Muri and what their owners say."""
    rows = []
    results: dict[str, list[Kept]] = {said: [] for said in SAID}
    for trace, chosen in (("philly", windows.philly(data)), ("muri", windows.muri(data))):
        for said, words in SAID.items():
            found = kept([carry_out(window, said) for window in chosen])
            results[said].append(found)
            rows.append((trace, words, *_cells(found)))
    columns = ("trace", "what owners say", "jobs", "told a range", "started inside", "before",
               "after", "median width", "told an earliest start only", "kept to it",
               "position kept")  # fmt: skip
    findings = tuple(_finding(said, found) for said, found in results.items())
    return Page(
        name="estimates",
        title="Estimated starts and positions",
        summary=findings[0],
        findings=findings,
        tables=(Table(title=f"Load {LOAD:g}", columns=columns, rows=tuple(rows)),),
        revisions=(machine.revision(),),
    )


def _cells(found: Kept) -> tuple[str, ...]:
    return (
        str(found.jobs),
        str(len(found.inside)),
        _share(found.inside),
        _share(found.before),
        _share(found.after),
        f"{np.median(found.widths) / 60:.0f} min" if found.widths else "-",
        str(len(found.open_ended)),
        _share(found.open_ended),
        _share(found.in_place),
    )


def _share(truths: Sequence[bool]) -> str:
    return f"{np.mean(truths):.1%}" if truths else "-"


def _finding(said: str, found: Sequence[Kept]) -> str:
    inside = [truth for one in found for truth in one.inside]
    on_time = [not truth for one in found for truth in one.after]
    places = [truth for one in found for truth in one.in_place]
    return (
        f"Where owners say {SAID[said]}: of the {len(inside)} jobs that were told a range"
        f" {_share(on_time)} started by its end and {_share(inside)} not before its beginning"
        f" either; {_share(places)} of those that waited had no more others start before them than"
        " their position said."
    )
