"""Shortest-first orders on Philly by several ways to expect what remains of a run.

Reservations and backfill keep the bound that the history gives; only the order differs. The days
are those that policies may be trained on.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.report import Table
from benchmarks.simulations.intervals import paired_ratio, shown
from benchmarks.simulations.store import Run, Store
from bireme import registry
from bireme.core.estimates import MIN_RUNS, PRIOR_RUNS, RuntimeHistory
from bireme.core.gangs import Gang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import SortedOrderer, SortKey, devices
from bireme_lab.contest import families
from bireme_lab.contest.worlds import CHARGED
from bireme_lab.simulator.comparison import Estimate
from bireme_lab.simulator.job_state import MIN_ESTIMATE
from bireme_lab.simulator.loads import Window, stretch
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import job_of, template_of

LOAD: Final = 0.9
JOBS: Final = 250
DAYS: Final = 10
KEPT: Final = "run-times"
"""Folder of the kept runs."""
ORDERERS: Final = ("srtf", "sjf", "srsf")
TODAY: Final = "the bound, then nothing"
WAYS: Final[Mapping[str, tuple[bool, bool]]] = {
    TODAY: (False, False),
    "the bound, then as long again": (False, True),
    "the median, then nothing": (True, False),
    "the median, then as long again": (True, True),
}
"""Whether the median is expected instead of the bound, and whether a run that is longer than
expected is expected to last as long again."""


class MedianHistory(RuntimeHistory):
    """A history that also tells the median, drawn to wider groups as the bound is."""

    def median(self, user: str, template: str) -> float | None:
        every = self._groups.get(())
        if every is None or len(every.seconds) < MIN_RUNS:
            return None
        found = float(np.median(every.seconds))
        for group in ((user,), (user, template)):
            if (runs := self._groups.get(group)) is not None:
                own = len(runs.seconds) / (len(runs.seconds) + PRIOR_RUNS)
                found = float(np.median(runs.seconds)) ** own * found ** (1 - own)
        return found


@dataclass(slots=True)
class ShortestFirst(SortedOrderer):
    """Least expected rest first, times the devices for srsf; sjf goes by the whole run."""

    orderer: str
    history: MedianHistory
    by_median: bool
    lasts_as_long: bool
    _first: dict[str, tuple[float, float]]
    """Bound and median of each gang when it arrived."""

    def sort_key(self, gang: Gang, snapshot: ClusterSnapshot) -> SortKey:
        cost = self._expected_seconds(gang)
        if cost is None:
            return SortKey((1, gang.arrived), -gang.arrived, -np.inf)
        if self.orderer == "sjf":
            return SortKey((0, cost), -cost)
        cost = self._rest(gang, cost, snapshot)
        if self.orderer == "srsf":
            cost *= devices(gang, snapshot)
        return SortKey((0, cost), -cost, -cost)

    def _expected_seconds(self, gang: Gang) -> float | None:
        bound = gang.estimated_seconds
        if bound is None or not self.by_median:
            return bound
        if gang.uid not in self._first:
            median = self.history.median(gang.user, template_of(job_of(gang, 0.0, 0.0)))
            self._first[gang.uid] = bound, bound if median is None else median
        first, median = self._first[gang.uid]
        # what is kept of a run that was stopped shortens the next one, as it does the bound
        return max(MIN_ESTIMATE * median, median - (first - bound))

    def _rest(self, gang: Gang, expected: float, snapshot: ClusterSnapshot) -> float:
        running = snapshot.running_by_uid.get(gang.uid)
        elapsed = running.elapsed_seconds(snapshot.now) if running else 0.0
        if elapsed < expected:
            return expected - elapsed
        return elapsed if self.lasts_as_long else 0.0


@dataclass(frozen=True, slots=True)
class Compared:
    """One way to expect what remains, over today's on the same days.

    Attributes:
        shorter: Days of a shorter mean JCT than today's.
    """

    orderer: str
    way: str
    days: int
    jct: Estimate
    wait: Estimate
    shorter: int
    preemptions: int


def compare(data: Path, store: Store) -> list[Compared]:
    """Simulate what is not kept yet, and hold every way against today's."""
    found, days = [], dict(_days(data))
    for orderer in ORDERERS:
        runs = {way: _runs(store, orderer, way, days) for way in _ways(orderer)}
        found += [_compared(orderer, way, each, runs[TODAY]) for way, each in runs.items()]
    return found


def table(found: Sequence[Compared]) -> Table:
    rows = [
        (
            *(each.orderer, each.way, str(each.days)),
            *(shown(ratio, "{:.3f}".format) for ratio in (each.jct, each.wait)),
            *(str(each.shorter), str(each.preemptions)),
        )
        for each in found
    ]
    return Table(
        title=f"Orders on Philly at load {LOAD:g}",
        columns=(
            *("order", "expects", "days", "mean JCT over the first way's"),
            *("mean wait over the first way's", "days of a shorter mean JCT", "stops"),
        ),
        rows=tuple(rows),
    )


def findings(found: Sequence[Compared]) -> Iterator[str]:
    """Yield a sentence for each way that is not today's."""
    for way in WAYS:
        judged = [each for each in found if each.way == way]
        if way != TODAY:
            ratios = (f"{shown(each.jct, '{:.2f}'.format)} under {each.orderer}" for each in judged)
            yield f"Expecting {way}, mean JCT is {', '.join(ratios)} times today's."


_Day = tuple[Window, RuntimeHistory]


def _days(data: Path) -> Iterator[tuple[int, _Day]]:
    """Yield the first jobs of days, and what was known before, by day."""
    trace = families.philly_jobs(data, "training")
    for day in families.usual_days(trace, "training")[:DAYS]:
        window = stretch(trace, day, float(day), 1.0, slice(None)).first(JOBS)
        yield day, (window, families.history_before(trace, float(day)))


def _ways(orderer: str) -> tuple[str, ...]:
    # sjf looks at no run that has begun, and what srtf does not gain srsf is not asked
    return tuple(way for way, (_, again) in WAYS.items() if orderer == "srtf" or not again)


def _runs(store: Store, orderer: str, way: str, days: Mapping[int, _Day]) -> list[Run]:
    name = f"{orderer}, {way}".replace(", ", "-").replace(" ", "-")
    return store.runs(KEPT, name, name, days, _simulation(orderer, way))


def _simulation(orderer: str, way: str) -> Callable[[_Day], Outcome]:
    by_median, lasts_as_long = WAYS[way]

    def carry_out(day: _Day) -> Outcome:
        window, known = day
        history = MedianHistory()
        history._groups = copy.deepcopy(known._groups)
        settings = SchedulingSettings()
        policy = registry.make_policy(settings)
        ordered = ShortestFirst(orderer, history, by_median, lasts_as_long, {})
        return simulate(
            window.at(LOAD),
            window.nodes(LOAD),
            replace(policy, orderer=ordered),
            settings,
            physics=CHARGED,
            estimator=history,
            config=SimulationConfig(heartbeat_seconds=3600.0),
        )

    return carry_out


def _compared(orderer: str, way: str, runs: Sequence[Run], today: Sequence[Run]) -> Compared:
    jct, before = (np.array([_mean(run.completions) for run in each]) for each in (runs, today))
    waits, waited = (np.array([_mean(run.waits) for run in each]) for each in (runs, today))
    return Compared(
        orderer,
        way,
        days=len(runs),
        jct=paired_ratio(jct, before),
        wait=paired_ratio(waits, waited),
        shorter=int((jct < before).sum()),
        preemptions=sum(run.metrics.preemptions for run in runs),
    )


def _mean(seconds: Mapping[str, float]) -> float:
    return float(np.mean(list(seconds.values())))
