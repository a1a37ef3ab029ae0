"""Traces played in the order of time: what was known of like runs when each job was submitted.

A run is known from its end on, so that a job is foretold from runs that have finished before it.
A trace that states no users has those of its queues, as in the contests of policies.
"""

import math
import statistics
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bireme.core.estimates import PRIOR_RUNS, RUNS_PER_GROUP, RuntimeHistory
from bireme.core.resources import BoolArray, FloatArray
from bireme_lab.simulator.traces.sources import read_trace
from bireme_lab.simulator.workload import Trace, TraceJob, template_of

EARLIER: Final = 0.6
"""Part of the time of a trace that is fitted on; the later part alone judges."""
LATEST: Final = 8
SHARES: Final = (0.25, 0.5)
"""Parts of the expected run time after which what remains is foretold again."""
_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Source:
    """A trace below the folder of the data.

    Attributes:
        origin: Traces of one origin are no witnesses for each other.
        path: What ``read_trace`` reads, its folder left out.
    """

    name: str
    origin: str
    path: str

    def read(self, data: Path) -> Trace:
        kind, _, path = self.path.partition(":")
        return read_trace(f"{kind}:{data / path}")


SOURCES: Final = (
    Source("philly", "philly", "philly:philly/philly_2017-09-04_2017-11-14.csv.gz"),
    Source("openb", "openb", "openb:alibaba_v2023/openb_pod_list_default.csv.gz"),
    Source("muri-1", "philly", "muri:muri/trace1.csv.gz"),
    Source("muri-2", "philly", "muri:muri/trace2.csv.gz"),
    Source("elasticflow", "philly", "philly:philly/philly_103959_elasticflow.csv"),
)


@dataclass(frozen=True, slots=True)
class Played:
    """The jobs of one trace that could be foretold, in the order of submission.

    Run times are natural logarithms of seconds. Columns of groups are all runs, those of the user,
    and those of its template; a group without runs is nan.

    Attributes:
        submitted: Days since the start of the trace.
        log_seconds: The true run times.
        log_bound: What ``RuntimeHistory`` foretold.
        log_gpus: Of all replicas together, of a job without any as of one.
        runs: Remembered of each group, shape (jobs, groups).
        medians, uppers, latest, spreads: Of the runs remembered, by group: 50 % quantile, 90 %
            quantile, mean of the latest eight, and standard deviation.
        longer: Median of the runs remembered that took longer than such a part of ``SHARES`` of
            the median of like runs, shape (jobs, shares, groups).
    """

    name: str
    origin: str
    submitted: FloatArray
    log_seconds: FloatArray
    log_bound: FloatArray
    log_gpus: FloatArray
    runs: FloatArray
    medians: FloatArray
    uppers: FloatArray
    latest: FloatArray
    spreads: FloatArray
    longer: FloatArray

    @property
    def is_later(self) -> BoolArray:
        """Whether a job was submitted in the part of the time that judges."""
        first, last = self.submitted[0], self.submitted[-1]
        return np.asarray(self.submitted >= first + EARLIER * (last - first))


def play(source: Source, data: Path) -> Played:
    """Return what was known of the runs of a trace, job by job."""
    jobs = [job for job in source.read(data).jobs if job.gpus and job.duration_seconds > 0]
    history, groups = RuntimeHistory(), dict[tuple[str, ...], _Runs]()
    ended = sorted(jobs, key=_end)
    foretold, at = list[tuple[object, ...]](), 0
    for job in sorted(jobs, key=lambda job: job.submitted):
        while at < len(ended) and _end(ended[at]) <= job.submitted:
            run, at = ended[at], at + 1
            history.observe(_user(run), template_of(run), run.duration_seconds)
            for group in _groups(run):
                groups.setdefault(group, _Runs()).add(math.log(run.duration_seconds))
        bound = history.estimate(_user(job), template_of(job))
        if bound is not None:
            alike = [groups.get(group, _NONE) for group in _groups(job)]
            true = math.log(job.duration_seconds), math.log(bound), math.log(max(1, job.gpus))
            foretold.append((job.submitted / _DAY, *true, *_known(alike)))
    columns = (np.array(column, dtype=float) for column in zip(*foretold, strict=True))
    return Played(source.name, source.origin, *columns)


def shrunk(values: FloatArray, runs: FloatArray) -> FloatArray:
    """Return one value a job, shape (jobs,), drawn from group to wider group as the history does.

    ``values`` and ``runs`` have shape (jobs, groups), the widest group first.
    """
    found = values[:, 0]
    for group in range(1, values.shape[1]):
        own = runs[:, group] / (runs[:, group] + PRIOR_RUNS)
        # a group without runs, or without such as are asked for, says nothing
        has = np.isfinite(values[:, group])
        found = np.where(has, own * np.nan_to_num(values[:, group]) + (1 - own) * found, found)
    return found


class _Runs:
    """The latest runs of a group, in logarithms of seconds."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=RUNS_PER_GROUP)
        self._facts: tuple[float, ...] = ()
        self.sorted: Sequence[float] = ()

    def add(self, log_seconds: float) -> None:
        self._latest.append(log_seconds)
        self._facts = ()

    @property
    def facts(self) -> tuple[float, ...]:
        """Number, median, 90 % quantile, mean of the latest eight, standard deviation."""
        if not self._facts and self._latest:
            self.sorted = sorted(self._latest)
            eight = list(self._latest)[-LATEST:]
            middle, upper = _quantile(self.sorted, 0.5), _quantile(self.sorted, 0.9)
            spread = statistics.pstdev(self.sorted)
            self._facts = (len(self.sorted), middle, upper, statistics.fmean(eight), spread)
        return self._facts or (0, *[math.nan] * 4)


_NONE: Final = _Runs()


def _known(groups: Sequence[_Runs]) -> Iterator[object]:
    """Yield the columns of groups of one job, in the order of :class:`Played`."""
    facts = list(zip(*(group.facts for group in groups), strict=True))
    yield from facts
    runs, medians = (np.array([column], dtype=float) for column in facts[:2])
    middle = float(shrunk(medians, runs)[0])
    longer = []
    for part in SHARES:
        least = middle + math.log(part)
        beyond = [group.sorted[bisect_right(group.sorted, least) :] for group in groups]
        longer.append([_quantile(runs, 0.5) if runs else math.nan for runs in beyond])
    yield longer


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[math.ceil(share * len(ordered)) - 1]


def _end(job: TraceJob) -> float:
    return job.submitted + job.duration_seconds


def _user(job: TraceJob) -> str:
    return job.user or job.queue


def _groups(job: TraceJob) -> tuple[tuple[str, ...], ...]:
    return (), (_user(job),), (_user(job), template_of(job))
