"""The past of a cluster as worlds: its record, cut by time into training, validation and test.

The record is cut into windows of about a day, or of a twentieth of a shorter record. The first half
of them is for training, the next fifth for validation, the rest for the test. No part knows what
happened after its end. Every window is played on the recorded nodes, queues and settings.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from bireme.contest.candidates import Candidate
from bireme.contest.worlds import CHARGED, Part, World
from bireme.core.errors import SettingError
from bireme.core.parameters import with_parameters
from bireme.core.policy import PARTS, Policy
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import DAY, clock_time, duration
from bireme.onnx.checkpoints import read_card
from bireme.registry import CHECKPOINT
from bireme.replay import windows
from bireme.replay.reader import Record
from bireme.replay.windows import RecordWindow, windows_of
from bireme.replay.workload import RUNNING, WAITING, Workload
from bireme.rl.components import served
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource, named_folder
from bireme.simulator.physics.model import Physics
from bireme.simulator.simulation import SimulationConfig, simulate
from bireme.simulator.workload import Trace

MIN_WINDOWS: Final = 20
_SHARES: Final[tuple[tuple[Part, float], ...]] = (("training", 0.5), ("validation", 0.2))
"""Of all windows; the rest is the test."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a record says.

    Attributes:
        worlds: By part, in the order of time.
        baseline: Who decided most of its cycles that could change anything.
        decided_by: Which of the sources that was.
        settings: Those of the record, whose parts a SchedulingPolicy that leaves them out has.
        began, ended: POSIX seconds; the test begins at ``judged_from``.
        windows: How many there are, with or without gangs.
        gangs: Over all windows; one that is in several of them counts once.
        left_out: Others, which never started, and could not start on the empty cluster either.
    """

    worlds: dict[Part, list[World]]
    baseline: Candidate
    decided_by: PolicySource
    settings: SchedulingSettings
    began: float
    ended: float
    judged_from: float
    windows: int
    gangs: int
    left_out: int

    @property
    def judged_days(self) -> float:
        """Return the length of the test in days."""
        return (self.ended - self.judged_from) / DAY


def read_past(
    record: Record,
    span: tuple[float, float],
    *,
    checkpoints: str = "",
    stops: Physics = CHARGED,
    on_progress: Callable[[float], None] = lambda _: None,
) -> Past:
    """Return the past in ``record``.

    Args:
        span: From when to when, POSIX seconds; what came later is not used.
        checkpoints: The folder of the checkpoints that decided then, as far as none comes with
            Bireme.
        stops: What a stop costs, restart and lost work; of the rest nothing is taken.
        on_progress: Gets the share of the record that was read.

    Raises:
        SettingError: it is too short, or no gang ended in it.
        CheckpointError: the checkpoint that decided is not there.
    """
    began, ended = span
    if began >= ended:
        raise SettingError(
            "the record has no two cycles at different times; record for longer, at best for weeks"
        )
    parts, count = _parts(began, ended)
    sources: Counter[PolicySource] = Counter()

    def snapshots() -> Iterator[ClusterSnapshot]:
        for cycle in record.cycles():
            if cycle.snapshot.now > ended:
                return
            # A cycle without anything to do is recorded as the settings', whatever policy decides.
            if cycle.snapshot.may_change:
                sources[msgspec.structs.replace(cycle.source, canaries=())] += 1
            yield cycle.snapshot

    found = windows_of(snapshots(), parts, lambda now: on_progress((now - began) / (ended - began)))
    _check_ended(found, began, ended)
    decided_by = max(sources, key=sources.__getitem__, default=SETTINGS_SOURCE)
    baseline = _baseline(decided_by, record.settings, checkpoints)
    worlds = _worlds(found, baseline, record.settings, stops)
    for (part, inside), stretch in zip(worlds.items(), parts, strict=True):
        if not inside:
            raise SettingError(
                f"no gang came from {clock_time(stretch.began)} to "
                f"{clock_time(stretch.ended)}, the part of the record for {part}; record for longer"
            )
    gangs = {job.name for inside in worlds.values() for world in inside for job in world.trace.jobs}
    seen = {job.name for window in found for job in window.workload.trace.jobs}
    return Past(
        worlds=worlds,
        baseline=baseline,
        decided_by=decided_by,
        settings=record.settings,
        began=began,
        ended=ended,
        judged_from=parts[-1].began,
        windows=count,
        gangs=len(gangs),
        left_out=len(seen - gangs),
    )


def _parts(began: float, ended: float) -> tuple[list[windows.Part], int]:
    """Return the three parts in the order of time, and how many windows they have."""
    count = max(MIN_WINDOWS, int((ended - began) / DAY))
    seconds = (ended - began) / count
    found, first = [], 0
    for name, share in _SHARES:
        inside = round(share * count)
        start = began + first * seconds
        found.append(windows.Part(name, start, start + inside * seconds, inside))
        first += inside
    found.append(windows.Part("test", began + first * seconds, ended, count - first))
    return found, count


def _check_ended(found: Sequence[RecordWindow], began: float, ended: float) -> None:
    treatments = [window.workload.trace.treatments for window in found]
    jobs = sum(len(window.workload.trace.jobs) for window in found)
    open_ones = sum(each.get(RUNNING, 0) + each.get(WAITING, 0) for each in treatments)
    if jobs <= open_ones:
        raise SettingError(
            f"no gang ended in the {duration(ended - began)} of the record; record until some have"
        )


def _worlds(
    found: Sequence[RecordWindow],
    baseline: Candidate,
    general: SchedulingSettings,
    stops: Physics,
) -> dict[Part, list[World]]:
    """Return the worlds by part: windows to which a gang came that can start."""
    policy, settings = baseline.policy(general)
    worlds: dict[Part, list[World]] = {"training": [], "validation": [], "test": []}
    for window in found:
        trace = _startable(window.workload, policy, settings)
        if len(trace.jobs) > len(trace.underway):  # somebody came; else nobody's wait counts
            part: Part = window.part  # type: ignore[assignment]  # the names are those of _parts
            worlds[part].append(_world(window, part, trace, settings, stops))
    return worlds


def _startable(workload: Workload, policy: Policy, settings: SchedulingSettings) -> Trace:
    """Return the trace without gangs that would never start."""
    trace = workload.trace
    seen = workload.waits.keys() | {there.job for there in trace.underway}
    jobs = tuple(
        job
        for job in trace.jobs
        # What was seen to run can run.
        if job.name in seen or _starts(replace(trace, jobs=(job,), underway=()), policy, settings)
    )
    return replace(trace, jobs=jobs)


def _starts(alone: Trace, policy: Policy, settings: SchedulingSettings) -> bool:
    """Return whether the only job of ``alone`` starts on the empty cluster."""
    only = alone.jobs[0]
    config = SimulationConfig(until_seconds=only.submitted)
    outcome = simulate(alone, alone.nodes, policy, settings, config=config)
    return outcome.jobs[0].started is not None


def _world(
    window: RecordWindow, part: Part, trace: Trace, settings: SchedulingSettings, stops: Physics
) -> World:
    name = f"{part}-{window.number:03}"
    physics = replace(
        window.workload.physics,
        restart_seconds=stops.restart_seconds,
        checkpoint_interval_seconds=stops.checkpoint_interval_seconds,
    )
    return World(
        name=name,
        block=name,
        part=part,
        trace=trace,
        nodes=trace.nodes,
        physics=physics,
        settings=settings,
        history=None,  # gangs of a record have the estimates that they had
    )


@functools.cache
def _baseline(source: PolicySource, settings: SchedulingSettings, checkpoints: str) -> Candidate:
    """Return the policy that ``source`` was, without canaries: they decided for few queues."""
    named: dict[str, str] = {part: source.named(part) or getattr(settings, part) for part in PARTS}
    if source != SETTINGS_SOURCE and source.checkpoint:
        folder = named_folder(source.checkpoint, checkpoints)
        card, _ = read_card(folder, source.sha256 or None)
        free = [part for part in served(card) if not getattr(source, part)]
        for part in free:
            named[part] = with_parameters(f"{CHECKPOINT}{folder}", source.parameters(part))
    return Candidate(named["orderer"], named["placer"], named["sizer"])
