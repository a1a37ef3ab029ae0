"""StatefulSet of ``apps/v1``."""

from typing import Final

from bireme.kube import wire
from bireme.kube.integrations.integration import Integration, TemplateEdit, owner_name


def _creation_remedy(pod: wire.V1Pod) -> str:
    name = owner_name(pod, "StatefulSet")
    return name and (
        f"StatefulSet {name} creates each pod only once the last is ready, unless it has"
        " podManagementPolicy: Parallel; create it again with that"
    )


STATEFUL_SET: Final = Integration(
    api_version="apps/v1",
    kind="StatefulSet",
    plural="statefulsets",
    is_service=True,
    creation_remedy=_creation_remedy,
    release=TemplateEdit(replaces_pods=False),
)
