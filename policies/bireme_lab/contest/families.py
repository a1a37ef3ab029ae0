"""Families of worlds by origin, and the split of each into training, validation and test.

The split is fixed here: by time, by virtual cluster, by the number of a workload, by seed.
Workloads that stem from one trace are one family, however many papers derived them from it. This
module gives access to worlds that policies may be trained and tuned on. Only
:mod:`bireme_lab.contest.sealed` opens the test part, for ``python -m bireme_lab.contest`` and for
the evaluation of finished checkpoints.

Blocks of a part come in an order that mixes early and late, so that the first few represent all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from bireme.core.errors import SettingError, nearest
from bireme.core.estimates import RuntimeHistory
from bireme.core.gpus import GPU, GPU_MODEL_LABEL, gpu_model
from bireme.core.nodes import Node
from bireme_lab.contest.candidates import PLACERS, RULES, TunedRule
from bireme_lab.contest.worlds import CHARGED, Part, World, world_of
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.loads import DAY, GPUS_PER_NODE, Window, make_window, stretch
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.physics.model import MachineLaw, Physics
from bireme_lab.simulator.traces.sources import read_trace
from bireme_lab.simulator.workload import Trace, TraceJob, template_of

LOADS: Final = (0.7, 0.9, 1.1)
PHILLY: Final = "philly/philly_2017-09-04_2017-11-14.csv.gz"
HELD_OUT_CLUSTERS: Final = frozenset({"0e4a51", "6c71a0", "7f04ca"})
"""Virtual clusters of Philly that training and validation never see."""
PHILLY_DAYS: Final[Mapping[Part, range]] = {
    "training": range(3, 42),
    "validation": range(42, 49),
    "test": range(49, 72),
}
_OPENB: Final = "alibaba_v2023/openb_pod_list_default.csv.gz"
_OPENB_DAYS: Final[Mapping[Part, range]] = {
    "training": range(116, 125),
    "validation": range(125, 130),
    "test": range(130, 149),
}
_MURI: Final = {"trace1": 125.0, "trace2": 99.0}
_MURI_DAYS: Final = 12.4
_POLLUX: Final = "pollux/pollux_osdi21_traces.tar.gz"
_POLLUX_WORKLOADS: Final[Mapping[Part, range]] = {
    "training": range(1, 3),
    "validation": range(3, 4),
    "test": range(4, 9),
}
_POLLUX_NODES: Final = "16x4"
_SEEDS: Final[Mapping[Part, range]] = {
    "training": range(1000, 1012),
    "validation": range(2000, 2006),
    "test": range(3000, 3200),
}
_MIN_JOBS: Final = 200
_MAX_JOBS: Final = 1500
"""A day of more jobs is one user's sweep, and takes minutes to simulate."""
_REMEMBERED: Final = 3000
_FAILING: Final = replace(CHARGED, node_mtbf_seconds=4 * DAY)
"""A node fails every four days, a hundred times as often as measured, to show within a day."""
_POLLUX_OWN: Final = "goodput?fairness_power=-1&restart_seconds=30"
"""Goodput with the constants of Pollux itself, which are not the defaults."""
_ELASTIC_RULES: Final = tuple(
    TunedRule(orderer, grid, sizers=("goodput", _POLLUX_OWN, "general", "optimus", "max"))
    for orderer, grid in (
        ("combined-priority", {"service_threshold": (0,)}),
        ("srtf", {}),
        ("tiresias-las", {}),
    )
)
_PLACED_RULES: Final = tuple(
    replace(rule, placers=PLACERS) if rule.orderer in {"srtf", "tiresias-gittins"} else rule
    for rule in RULES
)

Build = Callable[[Path, Part, int], Iterator[World]]


@dataclass(frozen=True, slots=True)
class Family:
    """Worlds of one origin.

    Attributes:
        says: Description of the worlds.
        split: Description of each part.
        rules: Rules that are tuned on the training part; the best of them is the baseline.
        is_elastic: Whether its jobs may change size, so that sizers matter.
        needs_data: Whether its workloads are in the folder of the traces.
    """

    name: str
    says: str
    split: str
    rules: Sequence[TunedRule]
    build: Build
    is_elastic: bool = False
    needs_data: bool = True


def tuning_worlds(data: Path, family: str, part: Part, blocks: int) -> list[World]:
    """Return the worlds of the first ``blocks`` blocks of a part that may be trained on.

    Raises:
        SettingError: ``part`` is the test, the family is unknown, or a file of it is missing.
    """
    if part == "test":
        raise SettingError(
            "part is 'test', which nothing is trained, tuned or chosen by; use 'training' or "
            "'validation', and `python -m bireme_lab.contest` to judge"
        )
    return list(find(family).build(data, part, blocks))


def find(name: str) -> Family:
    """Return the family called ``name``; SettingError names the nearest if there is none."""
    if name not in FAMILIES:
        raise SettingError(f"no family is called {name!r}; {nearest(name, sorted(FAMILIES))}")
    return FAMILIES[name]


def philly_jobs(data: Path, part: Part) -> Trace:
    """Return Philly up to the end of ``part``, without the held-out virtual clusters.

    Raises:
        SettingError: ``part`` is the test, or the trace is missing.
    """
    if part == "test":
        raise SettingError(
            "part is 'test', which nothing is trained by; use 'training' or 'validation'"
        )
    return _philly_until(data, part)


def usual_days(trace: Trace, part: Part) -> list[int]:
    """Return the days of ``part`` with neither few jobs nor one user's sweep, in mixed order.

    ``trace`` is that of :func:`philly_jobs`, and days count from its start.
    """
    return [day for day in _spread(list(PHILLY_DAYS[part])) if _is_usual(trace, day)]


def history_before(trace: Trace, begin_days: float, every: int = 1) -> RuntimeHistory:
    """Return the history of every ``every``-th job that ended by then, the latest 3000."""
    jobs = sorted(
        (job.submitted + job.duration_seconds, job.user, template_of(job), job.duration_seconds)
        for job in trace.jobs
        if job.submitted + job.duration_seconds <= begin_days * DAY
    )[::every]
    history = RuntimeHistory()
    for _, user, template, seconds in jobs[-_REMEMBERED:]:
        history.observe(user, template, seconds)
    return history


# --- Philly, and workloads derived from it ------------------------------------------------------


@cache
def _philly_until(data: Path, part: Part) -> Trace:
    end = PHILLY_DAYS[part].stop * DAY
    hidden = frozenset() if part == "test" else HELD_OUT_CLUSTERS
    whole = _read(data, PHILLY, f"philly:{data / PHILLY}")
    jobs = (job for job in whole.jobs if job.submitted < end and job.queue not in hidden)
    # the virtual cluster stands for users that the trace does not name
    return replace(whole, jobs=tuple(replace(job, user=job.user or job.queue) for job in jobs))


def _philly(data: Path, part: Part, blocks: int) -> Iterator[World]:
    trace = _philly_until(data, part)
    held_out = _of(trace, HELD_OUT_CLUSTERS) if part == "test" else None
    windows_by_day: dict[str, list[tuple[str, Trace, float, float]]] = {}
    for day in _spread(list(PHILLY_DAYS[part])):
        name = f"day {day}"
        if _is_usual(trace, day):
            windows_by_day.setdefault(name, []).append((name, trace, float(day), 1.0))
        # The same day is the same block: most of these jobs are among those of the day.
        if held_out is not None and _is_usual(held_out, day, 100):
            label = f"held-out clusters, {name}"
            windows_by_day.setdefault(name, []).append((label, held_out, float(day), 1.0))
    named = list(windows_by_day.items())
    if held_out is not None:  # Muri's traces have the same origin
        later = [(f"muri {name}", t, begin, _MURI_DAYS) for name, t, begin in _muri(data)]
        named[2:2] = [(entry[0], [entry]) for entry in later]
    for block, windows in named[:blocks]:
        for name, jobs, begin, length in windows:
            window = stretch(jobs, 0, begin, length, slice(None))
            history = history_before(jobs, begin)
            yield from _at_loads("philly", name, part, window, history=history, block=block)


def _muri(data: Path) -> Iterator[tuple[str, Trace, float]]:
    for name, days in _MURI.items():
        file = f"muri/{name}.csv.gz"
        trace = _read(data, file, f"muri:{data / file}")
        yield f"{name}, last {_MURI_DAYS:g} days", trace, days - _MURI_DAYS


def _of(trace: Trace, clusters: frozenset[str]) -> Trace:
    return replace(trace, jobs=tuple(job for job in trace.jobs if job.queue in clusters))


def _is_usual(trace: Trace, day: int, min_jobs: int = _MIN_JOBS) -> bool:
    return min_jobs <= sum(day <= job.submitted / DAY < day + 1 for job in trace.jobs) <= _MAX_JOBS


# --- openb ---------------------------------------------------------------------------------------


def _openb(data: Path, part: Part, blocks: int) -> Iterator[World]:
    """Days of pods on GPU nodes of several models, in an order drawn by the day."""
    trace = _read(data, _OPENB, f"openb:{data / _OPENB}")
    pods = replace(trace, jobs=tuple(job for job in trace.jobs if job.gpus))
    nodes = [node for node in trace.nodes if node.allocatable.get(GPU, 0)]
    for day in _spread(list(_OPENB_DAYS[part]))[:blocks]:
        order = np.random.default_rng(day).permutation(len(nodes))
        shuffled_nodes = tuple(nodes[index] for index in order)
        window = stretch(replace(pods, nodes=shuffled_nodes), 0, float(day), 1.0, slice(None))
        history = history_before(pods, float(day))
        for world in _at_loads("openb", f"day {day}", part, window, history=history):
            fitting = tuple(job for job in world.trace.jobs if _fits(job, world.nodes))
            # Speeds by the model's table; a pod that fits no drawn node says nothing of a policy.
            physics = replace(world.physics, machines=MachineLaw(_speeds(world.nodes)))
            yield replace(world, trace=replace(world.trace, jobs=fitting), physics=physics)


def _fits(job: TraceJob, nodes: Sequence[Node]) -> bool:
    (task,) = job.tasks
    request = dict(task.request)
    return any(
        all(node.allocatable.get(name, 0) >= amount for name, amount in request.items())
        for node in nodes
    )


def _speeds(nodes: Sequence[Node]) -> dict[str, float]:
    return {n.name: gpu_model(n.labels.get(GPU_MODEL_LABEL, "")).speed for n in nodes}


# --- Pollux --------------------------------------------------------------------------------------


def _pollux(data: Path, part: Part, blocks: int) -> Iterator[World]:
    """The authors' workloads of 160 elastic jobs on their 16 nodes, at other paces."""
    for number in list(_POLLUX_WORKLOADS[part])[:blocks]:
        file = f"{_POLLUX}/workloads/workload-{number}.csv"
        trace = _read(data, _POLLUX, f"pollux:{data / file}?mode=elastic")
        for load in LOADS:
            paced = (replace(job, submitted=job.submitted / load) for job in trace.jobs)
            yield World(
                name=f"pollux, workload {number}, load {load}",
                block=f"workload {number}",
                part=part,
                trace=replace(trace, jobs=tuple(paced)),
                nodes=parse_nodes(_POLLUX_NODES),
                load=load,
            )


# --- generated -----------------------------------------------------------------------------------


def _rigid(data: Path, part: Part, blocks: int) -> Iterator[World]:
    del data
    for seed in _SEEDS[part][:blocks]:
        yield from _at_loads("rigid", f"seed {seed}", part, _window_from("diurnal", seed))


def _failing(data: Path, part: Part, blocks: int) -> Iterator[World]:
    del data
    for seed in _SEEDS[part][:blocks]:
        window = _window_from("poisson", seed)
        yield from _at_loads("failing", f"seed {seed}", part, window, _FAILING, seed=seed)


def _heterogeneous(data: Path, part: Part, blocks: int) -> Iterator[World]:
    """Half of the nodes have V100, half H100, which are 3.7 times as fast."""
    del data
    for seed in _SEEDS[part][:blocks]:
        window = _window_from("poisson", seed)
        for world in _at_loads("heterogeneous", f"seed {seed}", part, window):
            models = ("Tesla-V100-SXM2-32GB", "NVIDIA-H100-80GB-HBM3")
            nodes = [
                replace(node, labels={**node.labels, GPU_MODEL_LABEL: models[index % 2]})
                for index, node in enumerate(world.nodes)
            ]
            physics = replace(world.physics, machines=MachineLaw(_speeds(nodes)))
            yield replace(world, nodes=nodes, physics=physics)


def _window_from(generator: str, seed: int) -> Window:
    return make_window(seed, read_trace(f"gen:{generator}?jobs=160&spread=1.8", seed=seed))


# --- shared parts --------------------------------------------------------------------------------


def _at_loads(
    family: str,
    says: str,
    part: Part,
    window: Window,
    physics: Physics = CHARGED,
    history: RuntimeHistory | None = None,
    seed: int = 0,
    block: str = "",
) -> Iterator[World]:
    """Yield the window at each load; ``block`` defaults to ``says``."""
    for load in LOADS:
        yield world_of(
            window,
            load,
            name=f"{family}, {says}, load {load}",
            block=block or says,
            part=part,
            physics=physics,
            history=history,
            seed=seed,
        )


def _spread(days: Sequence[int]) -> list[int]:
    """Return ``days`` in an order whose first few lie all over the whole (van der Corput)."""
    bits = max(1, (len(days) - 1).bit_length())
    reverse = (int(f"{n:0{bits}b}"[::-1], 2) for n in range(2**bits))
    return [days[index] for index in reverse if index < len(days)]


@cache
def _read(data: Path, file: str, source: str) -> Trace:
    if not (data / file).is_file():
        raise SettingError(
            f"there is no {file} in {str(data)!r}; name the folder that has the traces"
        )
    try:
        return read_trace(source, gpus_per_node=GPUS_PER_NODE)
    except TraceError as error:
        raise SettingError(f"{file} in {str(data)!r}: {error}") from error


FAMILIES: Final[Mapping[str, Family]] = {
    family.name: family
    for family in (
        Family(
            "philly",
            "whole days of Philly, and of its virtual clusters that are held out; Muri's traces, "
            "which were derived from it",
            "training days 3 to 41 and validation days 42 to 48, both without virtual clusters "
            f"{', '.join(sorted(HELD_OUT_CLUSTERS))}; test days 49 to 71 with all, those "
            f"clusters alone, and the last {_MURI_DAYS} days of Muri's two traces",
            RULES,
            _philly,
        ),
        Family(
            "openb",
            "whole days of Alibaba's pods, nearly all of one GPU, on nodes of several models",
            "training days 116 to 124, validation days 125 to 129, test days 130 to 148",
            _PLACED_RULES,
            _openb,
        ),
        Family(
            "pollux",
            "Pollux' elastic jobs, of measured speeds, on 16 nodes of 4 GPUs",
            "training workloads 1 and 2, validation 3, test 4 to 8",
            _ELASTIC_RULES,
            _pollux,
            is_elastic=True,
        ),
        Family(
            "rigid",
            "160 generated jobs of fixed size whose rate follows the day",
            "training seeds from 1000, validation from 2000, test from 3000",
            RULES,
            _rigid,
            needs_data=False,
        ),
        Family(
            "heterogeneous",
            "160 generated jobs on nodes half of V100, half of H100",
            "training seeds from 1000, validation from 2000, test from 3000",
            _PLACED_RULES,
            _heterogeneous,
            needs_data=False,
        ),
        Family(
            "failing",
            "160 generated jobs on nodes that fail every four days",
            "training seeds from 1000, validation from 2000, test from 3000",
            RULES,
            _failing,
            needs_data=False,
        ),
    )
}
"""Families by name."""
