"""Kinds of workload of other controllers, one file each, and the registry of all.

Add a kind with a file beside this one and its place in ``INTEGRATIONS``. A kind that is read or
suspended needs an entry in ``charts/bireme/files/workloads.yaml`` too, from which its rights come.
"""

from typing import Final

from bireme.kube.integrations import (
    deployment,
    job,
    jobset,
    leaderworkerset,
    mpijob,
    pod,
    replicaset,
    replicationcontroller,
    statefulset,
)
from bireme.kube.integrations.integration import Integration

# A kind comes before those of its dependents if both have a remedy: a pod of a LeaderWorkerSet is
# also one of a StatefulSet.
INTEGRATIONS: Final[tuple[Integration, ...]] = (
    job.JOB,
    leaderworkerset.LEADER_WORKER_SET,
    jobset.JOB_SET,
    statefulset.STATEFUL_SET,
    mpijob.MPI_JOB,
    deployment.DEPLOYMENT,
    replicaset.REPLICA_SET,
    replicationcontroller.REPLICATION_CONTROLLER,
    pod.POD,
)

_BY_KIND: Final = {(each.api_version, each.kind): each for each in INTEGRATIONS}


def integration_of(api_version: str, kind: str) -> Integration | None:
    """Return the integration of a kind; None for an unknown one."""
    return _BY_KIND.get((api_version, kind))
