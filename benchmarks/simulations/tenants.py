"""One tenant cuts trainings into short jobs, the other has one long job: who gets what of a node.

The long job saves all its work whenever it is stopped. The other tenant has so many short jobs
alive at any time: when one ends, the next is submitted. All ask for the whole node and state
nothing. The simulation ends with the long job.
"""

from dataclasses import dataclass, replace
from typing import Final

from bireme.core.settings import SchedulingSettings
from bireme.registry import make_policy
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.simulation import Simulation
from bireme_lab.simulator.state import SimulationState
from bireme_lab.simulator.traces.tables import tasks_of_gpus
from bireme_lab.simulator.workload import Trace, TraceJob

_HOUR: Final = 3600.0
_LONG: Final = "long"
_GPUS: Final = 8


@dataclass(frozen=True, slots=True)
class Tenants:
    """A tenant with one job of ``long_hours``, and one with short jobs, some alive at once."""

    long_hours: float = 25.0
    short_minutes: float = 30.0
    alive: int = 2


@dataclass(frozen=True, slots=True)
class Split:
    """What came of it until the long job ended.

    Attributes:
        ended_hours: When that was.
        short_hours: How long the node ran short jobs.
        stops: How often the long job was stopped.
    """

    ended_hours: float
    short_hours: float
    stops: int

    @property
    def long_share(self) -> float:
        """The share of the time of the node that the long job had, 0 to 1."""
        return 1 - self.short_hours / self.ended_hours


def play(tenants: Tenants, settings: SchedulingSettings) -> Split:
    """Return how the two share one node of 8 GPUs under ``settings``."""
    tasks = tasks_of_gpus(_GPUS, _GPUS)
    long = TraceJob(_LONG, 0.0, tasks, tenants.long_hours * _HOUR, user="honest")
    short = TraceJob("", 0.0, tasks, tenants.short_minutes * 60, user="cutting")
    firsts = tuple(replace(short, name=f"short-{at}") for at in range(tenants.alive))
    state = SimulationState(
        Trace("tenants", (long, *firsts)), parse_nodes(f"1x{_GPUS}"), settings, Physics(), 0, None
    )
    simulation = Simulation(state, make_policy(settings))
    while _LONG not in state.records and simulation.advance():
        while len(state.jobs) - len(state.records) < tenants.alive + 1:
            name = f"short-{len(state.jobs)}"
            state.submit(replace(short, name=name, submitted=state.now))
        simulation.decide()
        simulation.finish_step()
    ended = state.records[_LONG].finished or 0.0
    records = simulation.records()
    used = sum(
        segment.ended - segment.began
        for record in records
        if record.job.name != _LONG
        for segment in record.segments
    )
    return Split(ended / _HOUR, used / _HOUR, state.records[_LONG].preemptions)
