"""Controllers that create the pods of a gang one after the other, and the remedies.

A gang waits until its pods exist, and such a controller waits until its existing pods are ready: a
deadlock. The operator may not read most of these controllers, so it recognises them by the labels
and owners of their pods.
"""

from collections.abc import Iterable
from typing import Final

from bireme.kube import wire

_LEADER_WORKER_SET: Final = "leaderworkerset.sigs.k8s.io/name"
_JOB_SET: Final = "jobset.sigs.k8s.io/jobset-name"


def remedy_of(pods: Iterable[wire.V1Pod]) -> str:
    """Return how to make the controllers of gated ``pods`` create all at once; empty if unknown.

    Each remedy names the condition under which it applies.
    """
    remedies = dict.fromkeys(map(_remedy, sorted(pods, key=lambda pod: pod.metadata.name)))
    return "; ".join(filter(None, remedies))


def _remedy(pod: wire.V1Pod) -> str:
    labels = pod.metadata.labels or {}
    if name := labels.get(_LEADER_WORKER_SET):
        return (
            f"LeaderWorkerSet {name} creates workers only once their leader is ready, if it has"
            " startupPolicy: LeaderReady; give it startupPolicy: LeaderCreated"
        )
    if name := labels.get(_JOB_SET):
        return (
            f"JobSet {name} creates one Job after the other, if it has startupPolicyOrder: InOrder;"
            " give it startupPolicyOrder: AnyOrder"
        )
    owners = {owner.kind: owner.name for owner in pod.metadata.owner_references or ()}
    if name := owners.get("StatefulSet"):
        return (
            f"StatefulSet {name} creates each pod only once the last is ready, unless it has"
            " podManagementPolicy: Parallel; create it again with that"
        )
    if name := owners.get("MPIJob"):
        return (
            f"MPIJob {name} creates its launcher only once its workers are ready, if it has"
            " launcherCreationPolicy: WaitForWorkersReady; give it AtStartup"
        )
    return ""
