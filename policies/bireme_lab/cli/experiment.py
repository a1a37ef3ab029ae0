"""Experiments: the workload, machines and policies that arguments name, and their simulations.

Everything is read and checked before the first simulation, so that a wrong argument does not cost
an hour.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

from bireme import registry
from bireme.cli.arguments import UsageError, naming
from bireme.cli.own_policies import contenders, find_own, making
from bireme.core.accelerators import DEFAULT
from bireme.core.estimates import RuntimeHistory
from bireme.core.node_floor import PoolBounds
from bireme.core.nodes import Node
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme_lab.replay.simulated import SimulationRecorder
from bireme_lab.simulator.machines import parse_nodes, parse_pools
from bireme_lab.simulator.metrics import SimulationMetrics, measure
from bireme_lab.simulator.node_floors import REACTIVE, check_floor, with_floor
from bireme_lab.simulator.node_pools import NodePool
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.physics.model import Physics, read_physics
from bireme_lab.simulator.simulation import ProgressCallback, SimulationConfig, simulate
from bireme_lab.simulator.traces.sources import read_trace, window
from bireme_lab.simulator.workload import Trace, with_resumable_share, with_true_estimates

DEFAULTS: Final = SchedulingSettings()
GPUS_PER_NODE: Final = 8
"""Maximum GPUs of a replica on the machines of the trace."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A checked set of simulations.

    Attributes:
        traces: Traces by seed; one trace for all seeds unless it is generated.
        contenders: Policies and their settings, by name on the command line.
        pools: Node pools that grow and shrink; empty if all nodes are always there.
        floors: Forecasts of the pools, simulated in turn (:mod:`bireme_lab.simulator.node_floors`).
        physics: Disturbances of jobs, and failures of nodes.
        learns: Whether missing run times are estimated from finished jobs.
    """

    traces: Mapping[int, Trace]
    nodes: Sequence[Node]
    contenders: Mapping[str, tuple[Policy, SchedulingSettings]]
    physics: Physics
    learns: bool = True
    pools: Sequence[NodePool] = ()
    floors: Sequence[str] = (REACTIVE,)

    @property
    def trace(self) -> Trace:
        """The trace of the first seed."""
        return next(iter(self.traces.values()))

    @property
    def gpus_by_node(self) -> dict[str, int]:
        """GPUs by node name, in the order of the nodes."""
        return {node.name: DEFAULT.count(node.allocatable) for node in self.nodes}


def set_up(options: argparse.Namespace) -> Experiment:
    """Return the experiment that ``options`` of ``bireme simulate`` describe."""
    # The trace comes last: reading it takes longest, and any other argument may be wrong.
    contenders = _contenders(options)
    if options.record and options.floor:
        raise UsageError(
            f"argument --record: {options.floor[0]!r} looks ahead, which no record holds; leave "
            "--floor out"
        )
    with naming("--physics"):
        physics = read_physics(options.physics)
    nodes = _nodes(options)
    traces = _traces(options, nodes)
    nodes = nodes or next(iter(traces.values())).nodes
    if not nodes:
        raise UsageError(
            f"argument --nodes: {options.trace!r} does not name the machines it was recorded on; "
            "write 64x8, for 64 nodes of 8 GPUs"
        )
    pools, floors = _pools(options, nodes), options.floor or [REACTIVE]
    learns = options.estimates == "history"
    return Experiment(traces, nodes, contenders, physics, learns, pools, floors)


def carry_out(
    experiment: Experiment,
    on_progress: Callable[[str, int, int], None],
    record: Path | None = None,
) -> tuple[list[SimulationMetrics], list[Outcome]]:
    """Simulate every policy, and floor, with every seed.

    Return all metrics, and the outcomes of the first seed. ``on_progress`` gets the name of the
    run, and the numbers of finished and of all jobs. ``record`` gets the first simulation.
    """
    metrics: list[SimulationMetrics] = []
    first: list[Outcome] = []
    for seed in experiment.traces:
        for name, floor in product(experiment.contenders, experiment.floors):
            known_as = name if len(experiment.floors) == 1 else f"{name}, {floor}"
            progress = partial(on_progress, f"{known_as}, seed {seed}")
            with _simulation_config(None if metrics else record, experiment, name) as config:
                run = partial(_simulate, experiment, name, seed, progress, config=config)
                outcome = replace(run(with_floor(floor, experiment.pools, run)), policy=known_as)
            metrics.append(measure(outcome))
            # Outcomes of one seed only: they are large, and the page shows no more.
            if len(first) < len(experiment.contenders) * len(experiment.floors):
                first.append(outcome)
    return metrics, first


@contextmanager
def _simulation_config(
    folder: Path | None, experiment: Experiment, name: str
) -> Iterator[SimulationConfig]:
    """Yield the options of a simulation, and record it in ``folder`` unless that is None."""
    if folder is None:
        yield SimulationConfig()
        return
    with naming("--record"):
        recorder = SimulationRecorder(folder, experiment.contenders[name][1])
    with recorder:
        yield recorder.config


def _simulate(
    experiment: Experiment,
    name: str,
    seed: int,
    on_progress: ProgressCallback,
    pools: Sequence[NodePool],
    *,
    config: SimulationConfig,
) -> Outcome:
    policy, settings = experiment.contenders[name]
    return simulate(
        experiment.traces[seed],
        experiment.nodes,
        policy,
        settings,
        physics=experiment.physics,
        seed=seed,
        on_progress=on_progress,
        estimator=RuntimeHistory() if experiment.learns else None,
        config=config,
        pools=pools,
    )


def _contenders(options: argparse.Namespace) -> dict[str, tuple[Policy, SchedulingSettings]]:
    find_own([options.placer, options.sizer])
    with making("--placer", options.placer):
        registry.make_placer(options.placer)
    if options.sizer:
        with making("--sizer", options.sizer):
            registry.make_sizer(options.sizer)
    general = replace(
        DEFAULTS,
        placer=options.placer,
        sizer=options.sizer,
        preemption=not options.no_preemption,
        wait_bound_seconds=options.wait_bound,
    )
    return contenders(options.policy, general)


def _nodes(options: argparse.Namespace) -> Sequence[Node]:
    if options.nodes:
        with naming("--nodes" if options.racks is None else "--nodes, --racks"):
            return parse_nodes(options.nodes, options.racks)
    if options.racks is not None:
        raise UsageError("argument --racks: has no effect without --nodes; add --nodes")
    return ()


def _pools(options: argparse.Namespace, nodes: Sequence[Node]) -> list[NodePool]:
    if options.pools is None:
        if options.floor:
            raise UsageError("argument --floor: has no effect without --pools; add --pools")
        return []
    with naming("--floor"):
        for floor in options.floor or ():
            check_floor(floor)
    with naming("--pools"):
        return [
            NodePool(
                name=name,
                bounds=PoolBounds(min_nodes, max_nodes, scale_in=True),
                delay_seconds=delay,
            )
            for name, min_nodes, max_nodes, delay in parse_pools(options.pools, nodes)
        ]


def _traces(options: argparse.Namespace, nodes: Sequence[Node]) -> dict[int, Trace]:
    gpus = max((DEFAULT.count(node.allocatable) for node in nodes), default=0) or GPUS_PER_NODE
    is_generated = options.trace.startswith("gen:")
    traces: dict[int, Trace] = {}
    for seed in options.seed:
        if traces and not is_generated:  # a file does not depend on the seed: read it once
            traces[seed] = next(iter(traces.values()))
            continue
        with naming("--trace"):
            trace = read_trace(options.trace, gpus_per_node=gpus, seed=seed)
        with naming("--start"):
            trace = window(trace, options.start, options.limit)
        if options.resumable < 1:
            trace = with_resumable_share(trace, options.resumable)
        traces[seed] = with_true_estimates(trace) if options.estimates == "true" else trace
    return traces
