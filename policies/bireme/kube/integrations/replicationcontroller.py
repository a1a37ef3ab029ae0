"""ReplicationController of ``v1``."""

from typing import Final

from bireme.kube.integrations.integration import Integration

REPLICATION_CONTROLLER: Final = Integration(
    api_version="v1",
    kind="ReplicationController",
    plural="replicationcontrollers",
    is_service=True,
)
