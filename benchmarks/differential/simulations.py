"""A scenario in the simulator: as it was planned, as the cluster saw it, and a little disturbed.

The effects of a fake kubelet are modelled: a stopped pod starts from the beginning, and an elastic
gang, whose pods run until the end, is as fast at any size.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from benchmarks.differential.course import Course, differences, of_outcome
from benchmarks.differential.scenarios import (
    CLASSES,
    DEBOUNCE_SECONDS,
    ENVIRONMENT,
    Scenario,
    Submission,
)
from bireme import settings_source
from bireme.core.nodes import Node
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.kube import nodes, tenancy, training_jobs, wire
from bireme.registry import make_policy
from bireme_lab.simulator.physics.laws import MeasuredSpeed
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import Trace, TraceJob, job_of
from testbed.objects.facts import served, through_the_wire

UNENDING_SECONDS: Final = 1e6
"""The run time of pods without one: beyond every horizon."""
SETTINGS: Final = settings_source.read(SchedulingSettings, ENVIRONMENT, {})
PHYSICS: Final = Physics(checkpoint_interval_seconds=math.inf)
MAX_ROUNDS: Final = 50
QUIET_SECONDS: Final = 2.5
"""Least time from stops and resizes, which are instant in the simulation, to what comes or ends."""
DISTURBANCES: Final = 3
SLACK_SECONDS: Final = 0.3
"""Delay that every event may have."""
LATE_SECONDS: Final = (0.0, 0.0, 0.0, 0.0, 1.0)
"""Further delays of ends: pods that do not start in their second end a second later."""


def as_planned(scenario: Scenario) -> Course:
    """Simulate a scenario whose events come exactly when they should."""
    return _course(scenario, trace_of(scenario), scenario.until_seconds)


def as_seen(scenario: Scenario, seen: Course, until_seconds: float) -> Course:
    """Simulate it with jobs that come and gangs that end as in ``seen``.

    A machine under load is late, and then the same rules may rightly decide otherwise. A run time
    follows from an end only once the start is known, which depends on the ends before. So run times
    are corrected, first ends first, until nothing moves.
    """
    seen = _gathered(seen)
    planned = trace_of(scenario)
    jobs = [
        replace(job, submitted=seen.arrivals.get(job.name, job.submitted)) for job in planned.jobs
    ]
    course = Course((), {}, {})
    run_seconds: Mapping[str, float] = {}
    for _ in range(MAX_ROUNDS):
        timed = [
            replace(job, duration_seconds=run_seconds.get(job.name, job.duration_seconds))
            for job in jobs
        ]
        course = _course(scenario, _with_jobs(planned, timed), until_seconds)
        wanted = _run_seconds(course, seen)
        if wanted == run_seconds:
            break
        run_seconds = wanted
    return course


def _gathered(seen: Course) -> Course:
    """Move what one cycle of the operator takes in together to one moment, the last."""
    moments: dict[float, float] = {}
    group: list[float] = []
    for moment in [*sorted({*seen.arrivals.values(), *seen.ends.values()}), math.inf]:
        if group and moment - group[0] > DEBOUNCE_SECONDS:
            moments |= dict.fromkeys(group, group[-1])
            group = []
        group.append(moment)
    return replace(
        seen,
        arrivals={name: moments[moment] for name, moment in seen.arrivals.items()},
        ends={name: moments[moment] for name, moment in seen.ends.items()},
    )


def is_unambiguous(scenario: Scenario) -> bool:
    """Return whether late events and other names lead to the same decisions.

    Names decide among equals; in a cluster random uids do.
    """
    planned = as_planned(scenario)
    if _is_crowded(planned) or differences(planned, _impatient(scenario), math.inf):
        return False
    chance = random.Random(scenario.seed)  # noqa: S311  # reproducible, not a secret
    return not any(
        differences(planned, _disturbed(scenario, chance), math.inf) for _ in range(DISTURBANCES)
    )


def _is_crowded(course: Course) -> bool:
    """Return whether a gang comes or ends soon after a stop or a resize."""
    events = {*course.arrivals.values(), *course.ends.values()}
    moments = {change.seconds for change in course.changes if change.kind != "start"}
    return any(0 < event - moment < QUIET_SECONDS for moment in moments for event in events)


def trace_of(scenario: Scenario) -> Trace:
    jobs = tuple(_trace_job(submission) for submission in scenario.submissions)
    return Trace(f"seed {scenario.seed}", jobs, queues=queues_of(scenario))


def nodes_of(scenario: Scenario) -> tuple[Node, ...]:
    """Read the nodes, which kwok makes ready."""
    read = (nodes.from_manifest(through_the_wire(m, wire.V1Node)) for m in scenario.nodes)
    return tuple(replace(node, is_ready=True) for node in read)


def queues_of(scenario: Scenario) -> tuple[Queue, ...]:
    return tuple(
        tenancy.queue_from_manifest(through_the_wire(manifest, wire.CustomObject), {})
        for manifest in scenario.queues
    )


def _trace_job(submission: Submission) -> TraceJob:
    manifest = served(submission.manifest, submission.name)
    facts = training_jobs.from_manifest(through_the_wire(manifest, wire.CustomObject))
    gang = facts.gang(CLASSES.get(manifest["spec"].get("priorityClassName", ""), 0))
    if gang.fault or gang.flaw:
        raise ValueError(f"job {gang.name} makes no sense: {gang.fault or gang.flaw}")
    seconds = submission.run_seconds or UNENDING_SECONDS
    gang = replace(gang, uid=gang.name)
    job = job_of(gang, submission.seconds, seconds)
    # Fake pods run until their time is over, whatever the size of their gang.
    constant = MeasuredSpeed((1, 1_000_000), (1.0, 1.0))
    return replace(job, speed=constant, steps=seconds) if gang.is_elastic else job


def _course(scenario: Scenario, trace: Trace, until_seconds: float) -> Course:
    outcome = simulate(
        trace,
        nodes_of(scenario),
        make_policy(SETTINGS),
        SETTINGS,
        physics=PHYSICS,
        config=SimulationConfig(
            round_seconds=DEBOUNCE_SECONDS, until_seconds=until_seconds, verifies=True
        ),
    )
    return of_outcome(outcome)


def _run_seconds(course: Course, seen: Course) -> Mapping[str, float]:
    """Return how long each gang runs from its last start in ``course`` to its end in ``seen``."""
    last = {change.gang: change.seconds for change in course.starts}
    # Rounded: errors of the last digit would keep the correction from ever coming to rest.
    found = {name: round(end - last[name], 6) for name, end in seen.ends.items() if name in last}
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def _with_jobs(trace: Trace, jobs: list[TraceJob]) -> Trace:
    return replace(trace, jobs=tuple(sorted(jobs, key=lambda job: job.submitted)))


def _impatient(scenario: Scenario) -> Course:
    """Simulate with wait bounds a second shorter: nothing may hang on the moment they pass."""
    queues = tuple(
        queue
        if queue.wait_bound_seconds is None
        else replace(queue, wait_bound_seconds=queue.wait_bound_seconds - 1)
        for queue in queues_of(scenario)
    )
    return _course(scenario, replace(trace_of(scenario), queues=queues), scenario.until_seconds)


def _disturbed(scenario: Scenario, chance: random.Random) -> Course:
    trace = trace_of(scenario)
    names = [job.name for job in trace.jobs]
    alias = dict(zip(names, chance.sample(names, len(names)), strict=True))
    jobs = [
        replace(
            job,
            name=alias[job.name],
            submitted=job.submitted + chance.uniform(0, SLACK_SECONDS),
            duration_seconds=job.duration_seconds
            + chance.choice(LATE_SECONDS)
            + chance.uniform(0, SLACK_SECONDS),
        )
        for job in trace.jobs
    ]
    course = _course(scenario, _with_jobs(trace, jobs), scenario.until_seconds)
    true = {shuffled: name for name, shuffled in alias.items()}
    return replace(
        course, changes=tuple(replace(change, gang=true[change.gang]) for change in course.changes)
    )
