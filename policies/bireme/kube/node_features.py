"""Features that a pod needs and its node declares, as kube-scheduler's NodeDeclaredFeatures asks.

To the core a declared feature is a label of the node, under a key that no object can have.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from bireme.core.gangs import NodeDemand, Requirement, SelectorOperator, SelectorTerm
from bireme.kube import wire

_RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
_HOST_USERS: Final = "UserNamespacesHostNetworkSupport"
_ALL: Final = frozenset({_RESTART_ALL, _HOST_USERS})
"""Those for which a new pod is filtered; the others concern changes of running pods."""


def labels(declared: Iterable[str] | None) -> dict[str, str]:
    """Return as labels what a node declares (``status.declaredFeatures``)."""
    return {_key(feature): "" for feature in declared or () if feature in _ALL}


def demands(spec: wire.V1PodSpec) -> tuple[NodeDemand, ...]:
    """Return what a pod of this spec demands of its node's features."""
    return tuple(
        NodeDemand(
            f"feature {feature}",
            (SelectorTerm(labels=(Requirement(_key(feature), SelectorOperator.EXISTS),)),),
        )
        for feature in _needed(spec)
    )


def _needed(spec: wire.V1PodSpec) -> Iterator[str]:
    """Yield the features that ``InferForScheduling`` infers.

    Source: ``nodedeclaredfeatures/features`` of ``k8s.io/component-helpers`` 0.37.1. Options of
    bind mounts are left out: only an API server with an alpha feature keeps that field.
    """
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    rules = (rule for each in containers for rule in each.restart_policy_rules or ())
    if any(rule.action == "RestartAllContainers" for rule in rules):
        yield _RESTART_ALL
    if spec.host_network and spec.host_users is False:
        yield _HOST_USERS


def _key(feature: str) -> str:
    return f"declared feature {feature}"  # the blanks make it no key of a label
