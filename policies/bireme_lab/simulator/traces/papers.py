"""The workloads on which the papers of the learned schedulers were evaluated.

A docstring names the section of every fact that the paper states. It also lists the values filled
in for open points; arguments change them. Each trace brings the machines of its paper. Jobs request
their starting size. Speed laws, not traces, define their speed at other sizes.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from bireme.core import gangs
from bireme.core.gpus import GPU
from bireme.core.nodes import HOSTNAME_LABEL, Node
from bireme.core.pod_constraints import NodeConstraints, Requirement, SelectorOperator, SelectorTerm
from bireme.core.resources import CPU, MEMORY, PODS, IntArray, request_of
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.machines import POOL_LABEL, agent_nodes, parse_nodes
from bireme_lab.simulator.traces import generators
from bireme_lab.simulator.traces.tables import PODS_PER_NODE
from bireme_lab.simulator.workload import Trace, TraceJob

_GIB: Final = 2**30


def a2c(*, rate: float = 0.7, steps: int = 50, step_seconds: float = 1.0, seed: int = 0) -> Trace:
    """Draw Bernoulli arrivals in the environment of A2cScheduler, the same as DeepRM's.

    Stated (A2cScheduler, sections 4.1 and 4.5): Bernoulli arrivals, rates 0.6 to 0.9, resources CPU
    and memory. From DeepRM (its public code): at most one job a step; 80 % run 1 to 3 steps, 20 %
    run 10 to 15; the one resource, drawn evenly, takes 5 to 10 of 10 units, the other 1 or 2; one
    machine; 50 steps. A unit is one core or one GiB.
    """
    generators.require_share(rate=rate)
    generators.require_positive(steps=steps, step_seconds=step_seconds)
    rng = np.random.default_rng(seed)
    arrivals = np.flatnonzero(rng.random(steps) < rate)
    jobs = len(arrivals)
    is_short = rng.random(jobs) < 0.8
    runs = np.where(is_short, rng.integers(1, 4, jobs), rng.integers(10, 16, jobs))
    wants_cpu = rng.random(jobs) < 0.5
    much, little = rng.integers(5, 11, jobs), rng.integers(1, 3, jobs)
    units = np.stack([np.where(wants_cpu, much, little), np.where(wants_cpu, little, much)], axis=1)
    rows = zip(arrivals.tolist(), runs.tolist(), units.tolist(), strict=True)
    return generators.in_order(
        "a2c",
        [
            TraceJob(f"job-{i}", step * step_seconds, (_worker(*amounts),), run * step_seconds)
            for i, (step, run, amounts) in enumerate(rows, start=1)
        ],
        [_machine("machine", cores=10, gib=10)],
    )


_TAPFINGER: Final = {
    "synthetic": ((("insensitive", 4.0), ("sensitive", 17.0)), 16),
    "testbed": ((("mnist", 26.2), ("lm", 26.4), ("audio", 1.8)), 8),
}
"""Task types with their run time at the minimum size, in steps of 10 s, and GPUs per agent."""


def tapfinger(
    *,
    agents: int = 3,
    rate: float = 2.0,
    tasks: int = 0,
    world: str = "synthetic",
    step_seconds: float = 10.0,
    seed: int = 0,
) -> Trace:
    """Draw Poisson arrivals per step for agents that each own a pool of machines, as TapFinger.

    Stated (sections 5.1 and 5.2): arrivals Poisson with ``rate`` tasks a step of 10 s, 64 tasks an
    agent (``tasks`` 0), a minimum of 2 CPUs and 1 GPU, pools of 16 CPUs and 16 GPUs (test-bed: 8).
    Types are equally likely (its public code). Synthetic ones take 4 steps, or 17 at the minimum.
    The test-bed has those of table 2; their longest durations, 262, 264 and 18 s, count as those at
    the minimum. A task reaches 1 to ``agents`` pools, every number equally likely (its code; the
    text has a bandwidth rule).
    """
    generators.require_positive(agents=agents, rate=rate, step_seconds=step_seconds)
    if world not in _TAPFINGER or tasks < 0:
        raise TraceError(
            f"world is {world!r}, tasks {tasks}; write synthetic or testbed, 0 or more"
        )
    kinds, pool_gpus = _TAPFINGER[world]
    agent_pools = agent_nodes([(16, pool_gpus)] * agents)
    count = tasks or 64 * agents
    rng = np.random.default_rng(seed)
    jobs = []
    for i, step in enumerate(poisson_steps(rng, rate, count).tolist(), start=1):
        kind, steps = kinds[rng.integers(len(kinds))]
        reached = rng.choice(agents, rng.integers(1, agents + 1), replace=False)
        task = _worker(2, 4, gpus=1, reached=tuple(agent_pools[a].name for a in sorted(reached)))
        run_seconds = steps * step_seconds
        submitted = step * step_seconds
        jobs.append(TraceJob(f"job-{i}", submitted, (task,), run_seconds, application=kind))
    return generators.in_order("tapfinger", jobs, agent_pools)


def poisson_steps(rng: np.random.Generator, rate: float, count: int) -> IntArray:
    """Draw the steps at which ``count`` tasks arrive, shape (count,), ascending."""
    steps = np.empty(0, dtype=np.int64)
    first_step = 0
    while len(steps) < count:
        arrivals = rng.poisson(rate, count)
        steps = np.concatenate(
            [steps, np.repeat(np.arange(first_step, first_step + count), arrivals)]
        )
        first_step += count
    return steps[:count]


_DAS_CLUSTERS: Final = {"small": (8, 1.3), "medium": (32, 0.8), "large": (64, 0.5)}
"""The number of machines of 4 GPUs, and the filled-in load."""

_DAS_SIZES: Final = "1:0.10,2:0.15,4:0.20,8:0.25,16:0.23,32:0.07"
_DAS_RUN_SECONDS: Final = 110 * 60.0


def das(*, cluster: str = "small", jobs: int = 1000, load: float = 0.0, seed: int = 0) -> Trace:
    """Draw a sample like the one of DAS' evaluation, which its slides describe only in part.

    Stated (DAS slides, figure 3 and table 1): the Small cluster has 8 machines of 4 GPUs, jobs are
    of an Alibaba GPU trace, the mean fee is about 51 $ in every cluster, the mean completion time
    on Large 110 minutes. Filled in: Poisson arrivals, 32 and 64 machines for Medium and Large,
    loads 1.3, 0.8 and 0.5 of the GPUs (``load`` 0 takes these), lognormal run times with mean 110
    minutes, and sizes with mean 9.12 GPUs, so that a job costs 16.7 GPU-hours: 51 $ of V100s.
    """
    if cluster not in _DAS_CLUSTERS:
        raise TraceError(f"cluster is {cluster!r}; write one of {', '.join(_DAS_CLUSTERS)}")
    machines, usual_load = _DAS_CLUSTERS[cluster]
    generators.require_positive(jobs=jobs, load=load or usual_load)
    rng = np.random.default_rng(seed)
    sizes, shares = generators.parse_sizes(_DAS_SIZES)
    gpu_seconds = float(sizes @ shares) * _DAS_RUN_SECONDS
    gap_seconds = gpu_seconds / (4 * machines * (load or usual_load))
    times = np.cumsum(rng.exponential(gap_seconds, jobs))
    gpus = generators.draw_sizes(rng, _DAS_SIZES, jobs)
    runs = generators.draw_durations(rng, "lognormal", _DAS_RUN_SECONDS, 1.0, jobs)
    users = rng.integers(10, size=jobs)
    return generators.gpu_trace("das", times, gpus, runs, users, 4, parse_nodes(f"{machines}x4"))


RLPTO_PRIORITIES: Final = (
    (1, 2, 2, 3, 1, 2, 1, 3, 1, 1, 1, 3),
    (2, 3, 1, 4, 1, 2, 2, 1, 4, 1, 1, 3),
    (1, 4, 2, 3, 1, 4, 4, 3, 4, 4, 1, 4),
    (1, 4, 4, 3, 1, 2, 5, 3, 4, 4, 5, 1),
)
"""The sequences of table V, of the tasks in the order of ``RLPTO_IMAGES``."""
RLPTO_IMAGES: Final = (120_000,) * 4 + (60_000,) * 4 + (40_000,) * 4
_RLPTO_SECONDS_PER_IMAGE: Final = 3 * 8498 / sum(RLPTO_IMAGES)


def rlpto(*, mix: int = 1, interval_seconds: float = 0.0) -> Trace:
    """Make the twelve tasks of RLPTO's reward experiment in one of its mixes of priorities.

    Stated (section VII-B, part 4 and table V): four tasks each on 120 000, 60 000 and 40 000
    images, with the priorities of the table's sequences; 5 is urgent; 12 nodes in three clusters.
    Row 2's count of fours contradicts its sequence; the sequence is used. Filled in: a task is one
    parameter server and three workers, a node each, so that three run at once. Its run time is
    proportional to its images; the sum is three times the 8498 s of fair scheduling (table II). All
    arrive at once (``interval_seconds`` 0). The class value is 100 times the priority. Nothing is
    random.
    """
    if not 1 <= mix <= len(RLPTO_PRIORITIES) or interval_seconds < 0:
        raise TraceError(
            f"mix is {mix}, interval_seconds {interval_seconds}; write a mix from 1 to 4 and an "
            "interval from 0"
        )
    tasks = (_worker(1, 2, role=gangs.Role.PS), _worker(1, 2, replicas=3))
    jobs = []
    for i, images in enumerate(RLPTO_IMAGES):
        run_seconds, priority = images * _RLPTO_SECONDS_PER_IMAGE, RLPTO_PRIORITIES[mix - 1][i]
        job = TraceJob(f"job-{i + 1}", i * interval_seconds, tasks, run_seconds)
        jobs.append(replace(job, priority=100 * priority, application=f"cnn-{images}"))
    nodes = [_machine(f"node-{n + 1}", cores=1, gib=2) for n in range(12)]
    return generators.in_order("rlpto", jobs, nodes)


def _worker(
    cores: int,
    gib: int,
    gpus: int = 0,
    replicas: int = 1,
    role: gangs.Role = gangs.Role.WORKER,
    reached: tuple[str, ...] = (),
) -> gangs.Task:
    resources = {CPU: 1000 * cores, MEMORY: gib * _GIB, GPU: gpus, PODS: 1}
    term = SelectorTerm((Requirement(POOL_LABEL, SelectorOperator.IN, reached),))
    return gangs.Task(
        role.value,
        replicas,
        request_of(resources),
        role,
        priority=role.default_priority,
        constraints=NodeConstraints(affinity_terms=(term,) if reached else None),
    )


def _machine(name: str, cores: int, gib: int) -> Node:
    offer = {CPU: 1000 * cores, MEMORY: gib * _GIB, PODS: PODS_PER_NODE}
    return Node(name, offer, {HOSTNAME_LABEL: name})
