"""ReplicaSet of ``apps/v1``; one of a Deployment is released through the Deployment."""

from typing import Final

from bireme.kube.integrations.integration import Integration, TemplateEdit

REPLICA_SET: Final = Integration(
    api_version="apps/v1",
    kind="ReplicaSet",
    plural="replicasets",
    is_service=True,
    release=TemplateEdit(replaces_pods=False),
)
