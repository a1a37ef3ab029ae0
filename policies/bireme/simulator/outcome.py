"""What happened in a simulation: the record every report, plot and test is made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bireme.core.resources import FloatArray
from bireme.simulator.workload import TraceJob


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of a job's life on a fixed set of places.

    Attributes:
        began, ended: Seconds after the start of the trace.
        places: (task name, node name, replicas) for every node used.
        ended_by: "finished", "preempted", "resized", "node lost" or "still running".
    """

    began: float
    ended: float
    places: tuple[tuple[str, str, int], ...]
    ended_by: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The life of one job.

    Attributes:
        started: First start, seconds after the start of the trace; None when it never started.
        finished: None when it did not finish (it never fits, or the simulation was cut off).
        verdict: The last reason it was given while it did not run; for jobs that never ran.
        reserved_start: The earliest start the first reservation made for it promised; None when
            it never held one.
        wait_bound_seconds: The bound that applied to it.
    """

    job: TraceJob
    started: float | None
    finished: float | None
    spans: tuple[Span, ...] = ()
    verdict: str = ""
    preemptions: int = 0
    resizes: int = 0
    reserved_start: float | None = None
    wait_bound_seconds: float = 86_400.0


@dataclass(frozen=True, slots=True)
class Series:
    """What the cluster held over time, as a step function: value ``i`` holds from ``times[i]``.

    Attributes:
        times: Seconds after the start of the trace, shape (points,), ascending.
        used_gpus: Shape (points,).
        waiting: Gangs waiting, shape (points,).
        fragmented_gpus: Free GPUs on nodes that are partly used, shape (points,).
    """

    times: FloatArray
    used_gpus: FloatArray
    waiting: FloatArray
    fragmented_gpus: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class PoolSeries:
    """A node pool over time, as step functions like those of :class:`Series`.

    Attributes:
        name: Of the pool.
        gpus_per_node: What each of its nodes has.
        maximum: Nodes there could be.
        times: Seconds after the start of the trace, shape (points,), ascending.
        demand: What runs, is planned or waits asks for, in nodes, shape (points,).
        there: Nodes there, shape (points,).
        asked: Nodes there or on their way, shape (points,).
    """

    name: str
    gpus_per_node: int
    maximum: int
    times: FloatArray
    demand: FloatArray
    there: FloatArray
    asked: FloatArray


@dataclass(frozen=True, slots=True)
class Outcome:
    """One simulation, whole.

    Attributes:
        policy: As it was asked for, ``combined-priority/packing`` say.
        jobs: In order of submission.
        nodes: All that there are, or may be.
        total_gpus: Of those.
        counts: How often what was decided: "cycles", "admissions", "backfills", "preemptions",
            "shrinks", "growths", "reservations", "reservations_honoured", "fallbacks".
        decision_seconds: Processor seconds spent deciding.
        pools: Those that grow and shrink; other nodes are always there.
    """

    policy: str
    trace: str
    seed: int
    nodes: int
    total_gpus: int
    jobs: tuple[JobRecord, ...]
    series: Series
    counts: Mapping[str, int] = field(default_factory=dict)
    decision_seconds: float = 0.0
    pools: tuple[PoolSeries, ...] = ()
