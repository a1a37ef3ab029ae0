"""Records of simulations, as an operator would have written them of a real workload."""

from pathlib import Path
from typing import Final

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.replay.record import RecordError
from bireme.replay.writer import RecordWriter
from bireme_lab.simulator.simulation import SimulationConfig

_FILE_BYTES: Final = 64 * 2**20
_MAX_FILES: Final = 10_000


class SimulationRecorder:
    """Writes the cycles of one simulation as a record into ``folder``, which is created.

    Use it as a context, and simulate with its :attr:`config`. Times are those of the simulation, so
    the record begins on 1970-01-01.

    Raises:
        RecordError: ``folder`` is not empty.
    """

    def __init__(self, folder: Path, settings: SchedulingSettings) -> None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RecordError(f"{str(folder)!r} is not an empty folder; name another, or empty it")
        folder.mkdir(parents=True, exist_ok=True)
        limits = {"file_bytes": _FILE_BYTES, "most_files": _MAX_FILES}
        self._writer = RecordWriter(folder, "simulation", settings, **limits)

    @property
    def config(self) -> SimulationConfig:
        """Options for every cycle with all its gangs: a record omits nothing."""
        return SimulationConfig(takes_shortcuts=False, settles=True, decide=self._decide)

    def _decide(self, snapshot: ClusterSnapshot, policy: Policy) -> Decision:
        decision = run_cycle(snapshot, policy, explain=False)
        self._writer.write(snapshot, decision)
        return decision

    def __enter__(self) -> "SimulationRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
