"""Tiresias, Optimus and goodput on the workloads of Pollux, beside what its authors published.

Qiao et al., Pollux, OSDI 2021; petuum/adaptdl, branch osdi21-artifact: 16 nodes of 4 GPUs, rounds
of 60 s, 30 s from every start and every change of size until work begins, no work lost. Their
results (``results-jobload``) name the completion time of every job.
"""

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.report import Page, Table
from benchmarks.simulations import beside
from benchmarks.simulations.beside import BOUND, mean, ratio
from benchmarks.simulations.plain import LasByArrival, decide_anew
from benchmarks.simulations.store import Run, Store
from bireme.core.policy import Policy
from bireme.core.resources import FloatArray
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.goodput import Goodput
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.heuristics.tiresias import TiresiasLas
from bireme_lab.heuristics.measured_sizers import Optimus
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.traces.pollux import read_pollux
from bireme_lab.simulator.traces.tables import unpack
from bireme_lab.simulator.workload import Trace

ARCHIVE: Final = "pollux/pollux_osdi21_traces.tar.gz"
WORKLOADS: Final = tuple(range(1, 9))
LOADS: Final = ("0.5", "1.0", "1.5", "2.0")
CALIBRATED: Final = ("0.5", "1.0")
"""Loads at which the rules of others are held against their authors'."""
_THRESHOLD_GPU_SECONDS: Final = 57_600.0

_PHYSICS: Final = Physics(start_seconds=30.0, restart_seconds=30.0)
_ROUNDS: Final = SimulationConfig(round_seconds=60.0)
_SETTINGS: Final = SchedulingSettings(
    min_runtime_seconds=0, eviction_budget=10**6, wait_bound_seconds=10**9, resize_settle_seconds=0
)
"""Without the guardrails that the published simulations have no counterpart of."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to simulate what was published under ``published``; ``mode`` is the reader's."""

    name: str
    says: str
    published: str
    mode: str
    policy: Callable[[], Policy]  # made anew for each simulation, because some remember
    config: SimulationConfig = _ROUNDS
    knows_run_times: bool = False
    loads: tuple[str, ...] = CALIBRATED


CONTENDERS: Final = (
    Contender(
        *("tiresias-their-rule", "Tiresias, the authors' rule", "tiresias", "rigid"),
        lambda: Policy(LasByArrival(_THRESHOLD_GPU_SECONDS), Packing()),
        replace(_ROUNDS, decide=decide_anew, takes_shortcuts=False),
    ),
    Contender(
        *("tiresias-run-times-known", "tiresias-las, run times known", "tiresias", "rigid"),
        lambda: Policy(TiresiasLas(_THRESHOLD_GPU_SECONDS), Packing()),
        knows_run_times=True,
    ),
    Contender(
        *("tiresias-run-times-unknown", "tiresias-las, run times unknown", "tiresias", "rigid"),
        lambda: Policy(TiresiasLas(_THRESHOLD_GPU_SECONDS), Packing()),
        loads=LOADS,
    ),
    Contender(
        *("optimus", "optimus", "optimus", "elastic"),
        lambda: Policy(Fifo(), Packing(), Optimus()),
        loads=LOADS,
    ),
)
ELASTIC: Final = Contender(
    *("goodput", "goodput", "pollux", "adaptive"),
    lambda: Policy(Fifo(), Packing(), Goodput(fairness_power=-1.0, restart_seconds=30.0)),
    loads=LOADS,
)
RIVALS: Final = (CONTENDERS[2], CONTENDERS[3])
"""Ours that :data:`ELASTIC` is to be below at every load."""


def carry_out(archive: Path, contender: Contender, load: str, workload: int) -> Outcome:
    """Simulate one workload on the authors' cluster."""
    trace = _workload(archive, load, workload, contender)
    return simulate(
        trace,
        parse_nodes("16x4"),
        contender.policy(),
        _SETTINGS,
        physics=_PHYSICS,
        config=contender.config,
    )


@cache
def _workload(archive: Path, load: str, workload: int, contender: Contender) -> Trace:
    """Read the workload with the times that the authors' rounds count from."""
    path = _path(archive, load, workload)
    trace = read_pollux(path, mode=contender.mode)
    jobs = (replace(job, submitted=_times(path)[job.name]) for job in trace.jobs)
    if contender.knows_run_times:
        jobs = (replace(job, estimated_seconds=job.duration_seconds) for job in jobs)
    return replace(trace, jobs=tuple(jobs))


def published(archive: Path, policy: str, load: str) -> dict[int, dict[str, float]]:
    """Return the published completion seconds by job, by workload."""
    with unpack(archive / f"results-jobload/{policy}-{load}/summary.json") as path:
        summary = json.loads(path.read_text(encoding="utf-8"))["jcts"]
    return {number: summary[f"workload-{number}"] for number in WORKLOADS}


def build(data: Path, store: Store) -> Page:
    archive = data / ARCHIVE
    tables: list[Table] = []
    means: dict[tuple[Contender, str], float] = {}
    runs: dict[tuple[Contender, str], dict[int, Run]] = {}
    for contender in (*CONTENDERS, ELASTIC):
        for load in contender.loads:
            theirs = published(archive, contender.published, load)
            ours = runs[contender, load] = _simulated(archive, store, contender, load)
            title = f"{contender.says}, load {load}"
            submitted = {number: _times(_path(archive, load, number)) for number in WORKLOADS}
            tables.append(beside.by_workload(title, ours, theirs, submitted))
            if contender is not ELASTIC and load in CALIBRATED:
                means[contender, load] = ratio(ours, theirs)
    first = runs[CONTENDERS[0], "0.5"]
    alone = beside.by_application(first, published(archive, CONTENDERS[0].published, "0.5"))
    rows = _rows(archive, runs)
    over_pollux = ratio(runs[ELASTIC, "1.0"], published(archive, "pollux", "1.0"))
    rivals, goal = [rival.says for rival in RIVALS], "published: pollux"
    finding = beside.finding(ELASTIC.says, rivals, goal, rows, LOADS)
    return Page(
        name="pollux",
        title="Pollux' workloads: Tiresias, Optimus and goodput beside the published results",
        summary=f"{_summary(means)}; goodput over Pollux {over_pollux:.3f}",
        findings=(_findings(means), finding),
        tables=(
            _overview(means),
            beside.overview(rows, LOADS),
            beside.against(ELASTIC.says, rows, LOADS),
            *(alone, *tables),
        ),
    )


def _path(archive: Path, load: str, workload: int) -> Path:
    folder = "workloads" if load == "1.0" else f"workloads-{load}"
    return archive / folder / f"workload-{workload}.csv"


@cache
def _times(path: Path) -> dict[str, float]:
    """Return the submission of each job of a workload, as the authors count."""
    with unpack(path) as file, file.open(encoding="utf-8") as rows:
        return {row["name"]: float(row["time"]) for row in csv.DictReader(rows)}


def _simulated(archive: Path, store: Store, contender: Contender, load: str) -> dict[int, Run]:
    cases = dict(zip(WORKLOADS, WORKLOADS, strict=True))
    one = partial(carry_out, archive, contender, load)
    runs = store.runs("pollux", f"{contender.name}-{load}", contender.name, cases, one)
    return dict(zip(WORKLOADS, runs, strict=True))


def _rows(archive: Path, runs: Mapping[tuple[Contender, str], Mapping[int, Run]]) -> beside.Means:
    """Return mean completion seconds of the workloads, ours and published, by row and load."""
    rows: dict[str, dict[str, FloatArray]] = {
        one.says: {
            load: np.array([mean(run.completions) for run in runs[one, load].values()])
            for load in LOADS
        }
        for one in (ELASTIC, *RIVALS)
    }
    for policy in ("pollux", "optimus", "tiresias"):
        rows[f"published: {policy}"] = {
            load: np.array([mean(found) for found in published(archive, policy, load).values()])
            for load in LOADS
        }
    return rows


_Means = Mapping[tuple[Contender, str], float]


def _is_near(ratio: float) -> bool:
    return abs(ratio - 1) <= BOUND


def _overview(means: _Means) -> Table:
    rows = tuple(
        (
            contender.says,
            *(f"{means[contender, load]:.3f}" for load in CALIBRATED),
            *("yes" if _is_near(means[contender, load]) else "**no**" for load in CALIBRATED),
        )
        for contender in CONTENDERS
    )
    heads = [f"load {load}" for load in CALIBRATED]
    columns = ("", *heads, *(f"within 5 %, {head}" for head in heads))
    title = "Mean over eight workloads of our mean JCT over the published one"
    return Table(title=title, columns=columns, rows=rows)


def _summary(means: _Means) -> str:
    parts = (f"{c.says} {means[c, '1.0']:.3f}" for c in CONTENDERS)
    return f"Mean JCT over the published one at load 1.0: {'; '.join(parts)}"


def _findings(means: _Means) -> str:
    misses = [
        f"{contender.says} at load {load} ({value:.3f})"
        for (contender, load), value in means.items()
        if not _is_near(value)
    ]
    reached = len(means) - len(misses)
    return (
        f"{reached} of {len(means)} rows are within 5 % of what the authors published. "
        f"Not within: {'; '.join(misses) or 'none'}."
    )
