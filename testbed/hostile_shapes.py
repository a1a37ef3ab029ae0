"""Tenants whose waiting jobs cost a scheduler the most: no two ask the same, and all of them wait.

Every node has a GPU less than a replica asks, so that all sums look as if everything fitted.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from bireme.core.gangs import Gang, Task
from bireme.core.nodes import HOSTNAME_LABEL
from bireme.core.pod_constraints import (
    NodeConstraints,
    PodKind,
    PodSelector,
    PodTerm,
    Requirement,
    SelectorOperator,
    SelectorTerm,
)
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import GPU, a_gang, a_node, a_snapshot, a_task

TASKS: Final = 16
"""The most that the CRD of TrainingJobs allows is 16."""
TENANT: Final = "hostile"
OTHER: Final = "other"
"""Name and namespace of the job of another tenant, the last to come."""
_NODES_PER_RACK: Final = 20

MakeTask = Callable[[int, int], Task]
"""``make(job, number)``: one task of one job."""


def own_node_affinity(job: int, number: int) -> Task:
    """Make a task with node affinity to labels that no other task names and no node has."""
    labels = tuple(
        Requirement(f"example.com/{job}-{number}-{at}", SelectorOperator.NOT_IN, ("x",))
        for at in range(3)
    )
    constraints = NodeConstraints(affinity_terms=(SelectorTerm(labels),))
    return a_task(1, 8, name=f"task-{number}", constraints=constraints)


def own_pod_affinity(job: int, number: int) -> Task:
    """Make a task whose pods must be apart from each other and from those of the next task."""
    own, following = (_pods(job, at) for at in (number, (number + 1) % TASKS))
    kind = PodKind(
        namespace=TENANT,
        labels=(("task", f"{job}-{number}"),),
        apart=(PodTerm(HOSTNAME_LABEL, own), PodTerm(HOSTNAME_LABEL, following)),
    )
    return a_task(1, 8, name=f"task-{number}", pod=kind, cpu_millis=1000 + job)


def _pods(job: int, number: int) -> PodSelector:
    label = Requirement("task", SelectorOperator.IN, (f"{job}-{number}",))
    return PodSelector((TENANT,), (), (label,))


def one_shape(_job: int, number: int) -> Task:
    """Make a task as any other."""
    return a_task(1, 8, name=f"task-{number}")


def a_gang_of(make: MakeTask, job: int, tasks: int = TASKS) -> Gang:
    """Make the ``job``-th gang of the hostile tenant."""
    made = (make(job, number) for number in range(tasks))
    return a_gang(f"job-{job:05d}", *made, namespace=TENANT, arrived=float(job))


def a_cluster(make: MakeTask, jobs: int, nodes: int, tasks: int = TASKS) -> ClusterSnapshot:
    """Make a cluster in which ``jobs`` of one tenant wait, and then one of another."""
    machines = [
        a_node(f"node-{at:05d}", rack=f"rack-{at // _NODES_PER_RACK}") for at in range(nodes)
    ]
    other = a_gang(OTHER, namespace=OTHER, arrived=1e6)
    waiting = [a_gang_of(make, job, tasks) for job in range(jobs)]
    snapshot = a_snapshot(machines, *waiting, other, now=1e6 + 1)
    used = np.zeros_like(snapshot.used)
    used[:, snapshot.nodes.axis.names.index(GPU)] = 1
    return replace(snapshot, used=used)
