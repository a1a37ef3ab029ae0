"""Run one seed from beginning to end, and print its history line by line."""

import asyncio
import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from testbed.history.observed import planned_nodes
from testbed.history.records import Record, to_line
from testbed.simcluster import judge, objects
from testbed.simcluster.admission import Admission
from testbed.simcluster.cluster import SPACE, SimulatedCluster
from testbed.simcluster.fault_injection import FaultInjector
from testbed.simcluster.tenants import Tenants
from testbed.simcluster.virtual import VirtualLoop
from testbed.simcluster.world import World

FAULT_SECONDS = (30.0, 180.0)
_QUIET_SECONDS = 8.0
"""Nothing may be left to do for so long before a run counts as done."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a seed; ``story`` are (virtual seconds, line)."""

    seed: int
    seconds: float
    violations: tuple[str, ...]
    records: tuple[Record, ...]
    story: tuple[tuple[float, str], ...]

    @property
    def digest(self) -> str:
        lines = "".join(map(to_line, self.records)) + repr(self.story)
        return hashlib.sha256(lines.encode()).hexdigest()


def run(
    seed: int,
    *,
    faults: bool = True,
    world: World | None = None,
    calm_seconds: float | None = None,
) -> Outcome:
    """Simulate ``seed``; without ``faults`` nothing goes wrong.

    The ``world`` is drawn where none is given; in ``World()`` faults are all that goes wrong.
    What is not done ``calm_seconds`` after the last fault (None: as long as it may take there)
    counts as never done.
    """
    loop = VirtualLoop()
    try:
        with _seeded(seed):
            return loop.run_until_complete(_run(seed, loop, faults, world, calm_seconds))
    finally:
        loop.close()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed Python's own generator, from which the jitter of back-offs comes."""
    before, logging = random.getstate(), structlog.get_config()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)
        structlog.configure(**logging)


async def _run(
    seed: int, loop: VirtualLoop, faults: bool, world: World | None, calm_seconds: float | None
) -> Outcome:
    cluster = SimulatedCluster(seed, loop, world if faults else World())
    structlog.configure(processors=[cluster.log], logger_factory=structlog.ReturnLoggerFactory())
    tenants = Tenants(cluster)
    tenants.furnish()
    cluster.start()
    seconds = cluster.chance("length").uniform(*FAULT_SECONDS)
    admission = Admission(cluster, SPACE, seconds)
    if admission.has_quota:
        # Two that have half of their pods each could wait for each other for ever.
        tenants.most_foreign = 2
    admission.start()
    submitting = loop.create_task(tenants.submit_over(seconds * 0.8))
    administering = loop.create_task(tenants.administer_over(seconds * 0.8))
    if faults:
        await FaultInjector(cluster, tenants).run(seconds)
    await submitting
    await administering
    await _settle(cluster, calm_seconds or judge.calm_seconds(cluster.world))
    found = judge.violations(cluster)
    outcome = Outcome(seed, loop.time(), tuple(found), tuple(cluster.records), tuple(cluster.story))
    await cluster.stop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    return outcome


async def _settle(cluster: SimulatedCluster, seconds: float) -> None:
    """Return when all is done and stays so, or the time for it is over."""
    loop = cluster.loop
    end, quiet_since = loop.time() + seconds, loop.time()
    while loop.time() < end:
        is_quiet = loop.time() - quiet_since >= _QUIET_SECONDS
        # A status may be on its way at any moment, or no operator lead when the last job has ended;
        # what is never let go of is a leak, and what is never counted again a wrong count.
        is_clear = is_quiet and not any(judge.held_in_memory(cluster))
        if is_clear and not any(judge.wrong_at_the_end(cluster)):
            return
        await asyncio.sleep(1.0)
        if judge.unfinished(cluster):
            quiet_since = loop.time()


def story(outcome: Outcome) -> list[str]:
    lines = [*outcome.story, *_told(outcome.records)]
    lines.sort(key=lambda line: line[0])
    return [f"{seconds:9.3f}  {text}" for seconds, text in lines]


def _told(records: tuple[Record, ...]) -> Iterator[tuple[float, str]]:
    before: dict[tuple[str, tuple[str, str]], str] = {}
    for record in records:
        place = (record.kind, record.key)
        text = _words(record)
        if record.change == "DELETED":
            before.pop(place, None)
            yield record.seconds, f"{record.kind} {record.key[1]} is gone"
        elif before.get(place) != text:
            before[place] = text
            yield record.seconds, f"{record.kind} {record.key[1]}: {text}"


def _words(record: Record) -> str:
    obj: dict[str, Any] = record.manifest
    status = obj.get("status") or {}
    leaving = ", leaving" if objects.is_leaving(obj) else ""
    match record.kind:
        case "Pod":
            where = objects.node_of(obj) or ("gated" if objects.is_gated(obj) else "no node")
            label = objects.label(obj, "plan") or "of others"
            return f"{objects.phase(obj)} on {where}, plan {label}{leaving}"
        case "PodGroup":
            return f"{objects.phase(obj)}, {_plan(status)}"
        case "TrainingJob":
            attempt = status.get("attempt", 0)
            why = f"{status.get('reason')}: {status.get('message')}"
            return f"{objects.phase(obj)} attempt {attempt}, {_plan(status)}, {why}{leaving}"
        case "Node":
            ready = "ready" if objects.is_ready(obj) else "not ready"
            return ready + (", cordoned" if obj["spec"].get("unschedulable") else "")
    return str(obj["spec"])


def _plan(status: dict[str, Any]) -> str:
    plan = status.get("plan")
    if not plan:
        return "no plan"
    shown = (f"{_name(member)}@{node}" for member, node in planned_nodes(plan).items())
    return " ".join((f"plan {plan['epoch']}.{plan['attempt']} {plan['mode']}", *shown))


def _name(member: Any) -> str:
    return "-".join(member) if isinstance(member, tuple) else str(member)
