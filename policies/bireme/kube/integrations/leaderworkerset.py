"""LeaderWorkerSet: groups of a leader and its workers, each a StatefulSet."""

from typing import Final

from bireme.kube import wire
from bireme.kube.integrations.integration import Integration, label_of


def _creation_remedy(pod: wire.V1Pod) -> str:
    name = label_of(pod, "leaderworkerset.sigs.k8s.io/name")
    return name and (
        f"LeaderWorkerSet {name} creates workers only once their leader is ready, if it has"
        " startupPolicy: LeaderReady; give it startupPolicy: LeaderCreated"
    )


LEADER_WORKER_SET: Final = Integration(
    api_version="leaderworkerset.x-k8s.io/v1",
    kind="LeaderWorkerSet",
    plural="leaderworkersets",
    controls=("StatefulSet",),
    creation_remedy=_creation_remedy,
)
