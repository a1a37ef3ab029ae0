"""Deployment of ``apps/v1``: a change of its template replaces its ReplicaSet and all pods."""

from typing import Final

from bireme.kube.integrations.integration import Integration, TemplateEdit

DEPLOYMENT: Final = Integration(
    api_version="apps/v1",
    kind="Deployment",
    plural="deployments",
    controls=("ReplicaSet",),
    release=TemplateEdit(replaces_pods=True),
)
