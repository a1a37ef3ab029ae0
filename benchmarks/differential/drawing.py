"""Scenarios from seeds: small, eventful, and with one right answer.

Each is simulated before a cluster sees it, and drawn again when nothing waits, or when its outcome
hangs on a fraction of a second or on the random uid of a job. Every job has an estimate, right or
wrong: of others the operator would learn it from earlier scenarios.
"""

import random
from dataclasses import replace
from typing import Any, Final

from benchmarks.differential.scenarios import CLASSES, Scenario, Submission
from benchmarks.differential.simulations import as_planned, is_unambiguous
from testbed.controlplane.nodes import fake_nodes
from testbed.scenario.manifests import GPU, Manifest, annotations, queue, task, training_job

MAX_DRAWS: Final = 100
MAX_SECONDS: Final = 32.0
"""Latest end of the last gang that ends."""
MIN_WAITS: Final = 2
LAST_ARRIVAL: Final = 20
MAX_GPUS: Final = 8
_GPUS_PER_NODE: Final = 4


def scenario_of(seed: int) -> Scenario:
    """Draw the scenario of ``seed``, always the same one: 8 to 10 jobs, added one by one.

    Raises:
        ValueError: none was found; the generator no longer fits the simulator.
    """
    chance = random.Random(seed)  # noqa: S311  # a reproducible mix, not a secret
    for _ in range(MAX_DRAWS):
        count = chance.randint(3, 5)
        nodes = fake_nodes(count, gpus=_GPUS_PER_NODE, racks=chance.randint(1, 2))
        queues = _queues(chance, count * _GPUS_PER_NODE)
        empty = Scenario(seed, tuple(nodes), tuple(queues), ())
        drawn = _filled(empty, chance.randint(8, 10), chance)
        if drawn is not None and _is_eventful(drawn):
            return drawn
    raise ValueError(f"seed {seed}: none of {MAX_DRAWS} scenarios has one right answer")


def _filled(drawn: Scenario, jobs: int, chance: random.Random) -> Scenario | None:
    """Add ``jobs`` jobs, each of which leaves the scenario with one right answer."""
    free = _free_seconds(drawn)
    # Most additions bring a second right answer, so that each job takes several tries.
    for _ in range(6 * jobs):
        if len(drawn.submissions) == jobs:
            return drawn
        more = _submission(chance, chance.choice(free), drawn)
        jobs_so_far = sorted((*drawn.submissions, more), key=lambda job: job.seconds)
        tried = _timed(replace(drawn, submissions=tuple(jobs_so_far)))
        if tried is not None and is_unambiguous(tried):
            drawn, free = tried, _free_seconds(tried)
    return None


def _free_seconds(drawn: Scenario) -> list[float]:
    """Return the seconds not beside an event so far; all of them when there is none."""
    course, every = as_planned(drawn), [float(second) for second in range(LAST_ARRIVAL + 1)]
    taken = {*course.arrivals.values(), *course.ends.values()}
    beside = {moment + more for moment in taken for more in (-1, 0, 1)}
    alone = [second for second in every if second not in beside]
    return alone or [second for second in every if second not in taken] or every


def _timed(drawn: Scenario) -> Scenario | None:
    """Set the end of the scenario; None when that is too late."""
    course = as_planned(replace(drawn, until_seconds=MAX_SECONDS))
    if set(course.ends) != {s.name for s in drawn.submissions if s.run_seconds is not None}:
        return None
    return replace(drawn, until_seconds=max(course.ends.values(), default=0.0) + drawn.rest_seconds)


def _is_eventful(drawn: Scenario) -> bool:
    """Return whether enough gangs wait; in every fifth seed one must be stopped, too."""
    course = as_planned(drawn)
    waits = sum(change.seconds > course.arrivals[change.gang] for change in course.starts)
    return waits >= MIN_WAITS and course.count("stop") >= (drawn.seed % 5 == 1)


def _queues(chance: random.Random, gpus: int) -> list[Manifest]:
    """Draw two or three queues with one of four kinds of rules between them."""
    part = str(chance.randint(gpus // 2, 3 * gpus // 4))
    kind = chance.choice(("limit", "guarantee", "bound", "tree"))
    some: dict[str, Any] = {"userPriority": chance.choice((0, 30, 60))}
    match kind:
        case "limit":
            return [queue("one", **some), queue("other", limit={GPU: part})]
        case "guarantee":
            return [queue("one", guaranteed={GPU: part}), queue("other", **some)]
        case "bound":
            return [queue("one", waitBoundSeconds=chance.randint(3, 8)), queue("other", **some)]
    parent = queue("team", limit={GPU: part})
    return [parent, queue("one", parent="team", **some), queue("other")]


def _submission(chance: random.Random, at: float, drawn: Scenario) -> Submission:
    name = f"job-{chr(ord('a') + len(drawn.submissions))}"
    queues = [manifest["metadata"]["name"] for manifest in drawn.queues]
    spec: dict[str, Any] = {"queue": chance.choice([name for name in queues if name != "team"])}
    if chance.random() < 0.6:
        spec["priorityClassName"] = chance.choice(list(CLASSES))
    if chance.random() < 0.1:
        return Submission(at, None, _elastic(chance, name, spec))
    seconds = chance.randint(2, 7)
    estimate = chance.choice((seconds, seconds, seconds, 2 * seconds, (seconds + 1) // 2))
    spec["estimatedDuration"] = f"{estimate}s"
    gpus, fake = chance.choice((1, 1, 2, 4)), annotations(f"{seconds}s")
    workers = task(replicas=chance.randint(1, MAX_GPUS // gpus), gpus=gpus, fake=fake)
    tasks = [workers]
    if chance.random() < 0.25:
        tasks.insert(0, task("master", gpus=gpus, fake=fake))
    return Submission(at, float(seconds), training_job(name, *tasks, **spec))


def _elastic(chance: random.Random, name: str, spec: dict[str, Any]) -> Manifest:
    """Draw an elastic job without a run time: at the size asked for, or fewer, or more."""
    least = chance.randint(1, 2)
    asked = least + chance.randint(0, 2)
    most = asked + chance.randint(1, 3)
    workers = task(replicas=asked, minReplicas=least, maxReplicas=most)
    return training_job(name, workers, rendezvous="torch", estimatedDuration="1h", **spec)
