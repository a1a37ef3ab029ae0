"""Worlds with a known best constant."""

from bireme_lab.contest.worlds import Part, World
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.traces.tables import tasks_of_gpus
from bireme_lab.simulator.workload import Trace, TraceJob

BEST = 10_000.0
"""Below it the long jobs are stopped for the short ones, above it they are not."""


def planted(number: int, part: Part = "training") -> World:
    """A long job that has had 16 000 device-seconds when twenty short ones come."""
    whole = tasks_of_gpus(8, 8)
    long = TraceJob("long", 0.0, whole, 20_000.0 + number)
    short = [TraceJob(f"short-{n}", 2000.0 + 10 * n, whole, 60.0) for n in range(20)]
    return World(
        name=f"planted-{number}",
        block=f"planted-{number}",
        part=part,
        trace=Trace("planted", (long, *short)),
        nodes=parse_nodes("1x8"),
    )
