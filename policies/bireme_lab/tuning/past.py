"""The past of a cluster as worlds: its record, split by time into training, validation and test.

The record is cut into windows of about a day, or of a twentieth of a shorter record. The first half
of them is for training, the next fifth for validation, the rest for the test. No part knows events
after its end. Every window is played on the recorded nodes, queues and settings.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from bireme.contender import Contender
from bireme.core.errors import SettingError
from bireme.core.parameters import with_parameters
from bireme.core.policy import PARTS, Policy
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import DAY, clock_time, duration
from bireme.onnx.checkpoints import read_card
from bireme.registry import CHECKPOINT
from bireme.replay.reader import Record
from bireme.rl.components import parts_of
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource, find_folder
from bireme_lab.contest.worlds import CHARGED, Part, World
from bireme_lab.replay import windows
from bireme_lab.replay.windows import RecordWindow, windows_of
from bireme_lab.replay.workload import RUNNING, WAITING, Workload
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import Trace

MIN_WINDOWS: Final = 20
_SHARES: Final[tuple[tuple[Part, float], ...]] = (("training", 0.5), ("validation", 0.2))
"""Shares of all windows; the rest is the test."""


@dataclass(frozen=True, slots=True)
class Past:
    """The content of a record.

    Attributes:
        worlds: Worlds by part, in the order of time.
        baseline: The policy that decided most of the cycles that could change anything.
        decided_by: The source of that policy.
        settings: Those of the record; they name the parts that a SchedulingPolicy omits.
        begin, end: POSIX seconds; the test begins at ``judged_from``.
        windows: Number of windows, with or without gangs.
        gangs: Number of gangs over all windows; a gang in several of them counts once.
        left_out: Number of other gangs, which cannot start even on the empty cluster.
    """

    worlds: dict[Part, list[World]]
    baseline: Contender
    decided_by: PolicySource
    settings: SchedulingSettings
    begin: float
    end: float
    judged_from: float
    windows: int
    gangs: int
    left_out: int

    @property
    def test_days(self) -> float:
        """Return the length of the test in days."""
        return (self.end - self.judged_from) / DAY


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
        span: Begin and end in POSIX seconds; later cycles are not used.
        checkpoints: The folder of the checkpoints that decided then, unless they come with Bireme.
        stops: Cost of a stop, restart and lost work; its other fields are ignored.
        on_progress: Gets the share of the record that was read.

    Raises:
        SettingError: the record is too short, or no gang ended in it.
        CheckpointError: the checkpoint that decided is missing.
    """
    begin, end = span
    if begin >= end:
        raise SettingError(
            "the record has no two cycles at different times; record for longer, at best for weeks"
        )
    parts, count = _parts(begin, end)
    sources: Counter[PolicySource] = Counter()

    def snapshots() -> Iterator[ClusterSnapshot]:
        for cycle in record.cycles():
            if cycle.snapshot.now > end:
                return
            # A cycle without anything to do is recorded as the settings', whichever policy decides.
            if cycle.snapshot.may_change:
                sources[msgspec.structs.replace(cycle.source, canaries=())] += 1
            yield cycle.snapshot

    record_windows = windows_of(
        snapshots(), parts, lambda now: on_progress((now - begin) / (end - begin))
    )
    _check_ended(record_windows, begin, end)
    decided_by = max(sources, key=sources.__getitem__, default=SETTINGS_SOURCE)
    baseline = _baseline(decided_by, record.settings, checkpoints)
    worlds = _worlds(record_windows, baseline, record.settings, stops)
    for (part, inside), stretch in zip(worlds.items(), parts, strict=True):
        if not inside:
            raise SettingError(
                f"no gang came from {clock_time(stretch.begin)} to "
                f"{clock_time(stretch.end)}, the part of the record for {part}; record for longer"
            )
    gangs = {job.name for inside in worlds.values() for world in inside for job in world.trace.jobs}
    job_names = {job.name for window in record_windows for job in window.workload.trace.jobs}
    return Past(
        worlds=worlds,
        baseline=baseline,
        decided_by=decided_by,
        settings=record.settings,
        begin=begin,
        end=end,
        judged_from=parts[-1].begin,
        windows=count,
        gangs=len(gangs),
        left_out=len(job_names - gangs),
    )


def _parts(begin: float, end: float) -> tuple[list[windows.Part], int]:
    """Return the three parts in the order of time, and their number of windows."""
    count = max(MIN_WINDOWS, int((end - begin) / DAY))
    seconds = (end - begin) / count
    parts, first = [], 0
    for name, share in _SHARES:
        inside = round(share * count)
        start = begin + first * seconds
        parts.append(windows.Part(name, start, start + inside * seconds, inside))
        first += inside
    parts.append(windows.Part("test", begin + first * seconds, end, count - first))
    return parts, count


def _check_ended(record_windows: Sequence[RecordWindow], begin: float, end: float) -> None:
    treatments = [window.workload.trace.treatments for window in record_windows]
    jobs = sum(len(window.workload.trace.jobs) for window in record_windows)
    open_ones = sum(counts.get(RUNNING, 0) + counts.get(WAITING, 0) for counts in treatments)
    if jobs <= open_ones:
        raise SettingError(
            f"no gang ended in the {duration(end - begin)} of the record; record until some have"
        )


def _worlds(
    record_windows: Sequence[RecordWindow],
    baseline: Contender,
    general: SchedulingSettings,
    stops: Physics,
) -> dict[Part, list[World]]:
    """Return the worlds by part: windows with a new gang that can start."""
    policy, settings = baseline.policy(general)
    worlds: dict[Part, list[World]] = {"training": [], "validation": [], "test": []}
    for window in record_windows:
        trace = _startable(window.workload, policy, settings)
        if len(trace.jobs) > len(trace.underway):  # without a new gang no wait counts
            part: Part = window.part  # type: ignore[assignment]  # the names are those of _parts
            worlds[part].append(_world(window, part, trace, settings, stops))
    return worlds


def _startable(workload: Workload, policy: Policy, settings: SchedulingSettings) -> Trace:
    """Return the trace without gangs that would never start."""
    trace = workload.trace
    startable = workload.waits.keys() | {start.job for start in trace.underway}
    jobs = tuple(
        job
        for job in trace.jobs
        # A gang that was seen to run can run.
        if job.name in startable
        or _starts(replace(trace, jobs=(job,), underway=()), policy, settings)
    )
    return replace(trace, jobs=jobs)


def _starts(single: Trace, policy: Policy, settings: SchedulingSettings) -> bool:
    """Return whether the only job of ``single`` starts on the empty cluster."""
    only = single.jobs[0]
    config = SimulationConfig(until_seconds=only.submitted)
    outcome = simulate(single, single.nodes, policy, settings, config=config)
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
def _baseline(source: PolicySource, settings: SchedulingSettings, checkpoints: str) -> Contender:
    """Return the policy of ``source``, without canaries: they decided for few queues."""
    named: dict[str, str] = {
        part: source.part_name(part) or getattr(settings, part) for part in PARTS
    }
    if source != SETTINGS_SOURCE and source.checkpoint:
        folder = find_folder(source.checkpoint, checkpoints)
        card, _ = read_card(folder, source.sha256 or None)
        free = [part for part in parts_of(card) if not getattr(source, part)]
        for part in free:
            named[part] = with_parameters(f"{CHECKPOINT}{folder}", source.parameters(part))
    return Contender(named["orderer"], named["placer"], named["sizer"])
