"""Judges a recorded history: every promise, at every revision.

    violations = check(recorder.records(), grace_seconds=10, settled=True)

Pure; the order of the records does not matter. A GAP is no violation: what is known of both its
sides is judged, and who needs every revision asks for records without one. Violations carry the
names in ``INVARIANTS``.
"""

from collections.abc import Collection, Iterable
from typing import Final

from tests.support.history.capacity_checks import NodesNotOvercommitted, QueueLimitsKept
from tests.support.history.gang_checks import (
    Lasting,
    OnPlan,
    ReplicasOnce,
    RoleAffinityHeld,
    deserted,
    leftover,
    partial,
)
from tests.support.history.job_checks import LOST, EpochsGrow, JobsGoForward, JobsStay, unsettled
from tests.support.history.records import Key, Record, in_order
from tests.support.history.violations import Check, Violation
from tests.support.history.world import World

INVARIANTS: Final = {
    "node-overcommitted": "no node is asked for more than it has, of any resource",
    "queue-limit-exceeded": "no queue holds more than its limit",
    "gang-partial": "no gang stays on nodes with only a part of it",
    "replica-twice": "no replica exists twice",
    "plans-mixed": "no gang runs replicas of two plans",
    "off-plan": "every replica is bound where its plan says",
    "role-affinity-broken": "workers share the domain of a parameter server where required",
    "replica-left-over": "a finished job leaves no replica on a node",
    "epoch-went-back": "a deposed leader writes no plan",
    "job-went-back": "a finished job stays finished, attempts count up",
    "job-lost": "every job finishes, or waits and says why",
}


def check(
    records: Iterable[Record],
    *,
    grace_seconds: float = 10.0,
    settled: bool = False,
    removed: Collection[Key] = (),
) -> list[Violation]:
    """Every violation, in the order of the history.

    ``grace_seconds`` is how long what several writes must change (a gang on its nodes, the end of
    a job) may be halfway. ``settled`` says that the history ends when all was to be done, so that
    jobs must have ended or wait for a reason. ``removed`` are (namespace, name) of the jobs that
    the user deleted while they were unfinished.
    """
    checks: tuple[Check, ...] = (
        NodesNotOvercommitted(),
        QueueLimitsKept(),
        Lasting("gang-partial", grace_seconds, partial),
        Lasting("replica-left-over", grace_seconds, leftover),
        Lasting(LOST, grace_seconds, deserted),
        ReplicasOnce(),
        OnPlan(),
        RoleAffinityHeld(),
        JobsGoForward(),
        EpochsGrow(),
        JobsStay(removed),
    )
    world = World()
    found: list[Violation] = []
    last: Record | None = None
    for last in in_order(record for record in records if record.change != "GAP"):
        world.apply(last)
        for one in checks:
            found += one.see(world, last)
    if settled and last is not None:
        found += unsettled(world, last)
    return found
