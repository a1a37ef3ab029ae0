"""Single runs as files, kept so that nothing is simulated twice; pages show their revisions."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks import machine
from bireme_lab.simulator.metrics import SimulationMetrics, first_submission, mean_between, measure
from bireme_lab.simulator.outcome import Outcome

T = TypeVar("T")


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation.

    Attributes:
        waits, completions: By job, seconds from submission to the first start, or the finish.
        gpus_in_use: Share of all GPUs, mean from the first to the last submission; the emptying of
            the cluster after it says little about a policy.
    """

    metrics: SimulationMetrics
    waits: dict[str, float]
    completions: dict[str, float]
    gpus_in_use: float
    revision: str
    fragmentation: float | None = None
    """Free GPUs on partly used nodes over all GPUs, mean over the same time; None without GPUs."""


class Store:
    def __init__(self, folder: Path, say: Callable[[str], None] = print) -> None:
        self._folder = folder
        self._say = say
        self.revisions: set[str] = set()
        """Of all runs that were asked for."""

    def runs(
        self,
        table: str,
        contender: str,
        name: str,
        cases: Mapping[int, T],
        simulate: Callable[[T], Outcome],
    ) -> list[Run]:
        """Return the run of each of ``cases``, known by number: kept ones, or simulated and kept.

        Their policy is called ``name`` and their seed is the number, so that ``compare`` pairs
        cases.
        """
        found = []
        for number, case in cases.items():
            path = self._folder / table / f"{contender}-{number}.json"
            if not path.is_file():
                self._say(f"{table}: {contender}, window {number}")
                run = run_of(replace(simulate(case), policy=name, seed=number))
                path.parent.mkdir(parents=True, exist_ok=True)
                # Renamed when it is whole: a run that was cut off is simulated again.
                unfinished = path.with_suffix(".part")
                unfinished.write_bytes(msgspec.json.encode(run))
                unfinished.rename(path)
            found.append(msgspec.json.decode(path.read_bytes(), type=Run))
        self.revisions.update(run.revision for run in found)
        return found


def run_of(outcome: Outcome) -> Run:
    """Reduce ``outcome``, without processor seconds, so that equal runs are equal."""
    began = first_submission(outcome)
    last = max(record.job.submitted for record in outcome.jobs)
    series, gpus_in_use, fragmentation = outcome.series, 0.0, None
    if last > began and outcome.total_gpus:
        used = mean_between(series.times, series.used_gpus, began, last)
        split = mean_between(series.times, series.fragmented_gpus, began, last)
        gpus_in_use, fragmentation = used / outcome.total_gpus, split / outcome.total_gpus
    return Run(
        metrics=replace(measure(outcome), decision_seconds=0.0),
        waits={
            r.job.name: r.started - r.job.submitted for r in outcome.jobs if r.started is not None
        },
        completions={
            r.job.name: r.finished - r.job.submitted for r in outcome.jobs if r.finished is not None
        },
        gpus_in_use=gpus_in_use,
        fragmentation=fragmentation,
        revision=machine.revision(),
    )
