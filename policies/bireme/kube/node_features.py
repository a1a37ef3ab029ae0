"""Features that a pod needs and its node must declare (kube-scheduler's NodeDeclaredFeatures).

For the core a declared feature is a label of the node, with a key that no object can have.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from bireme.core.pod_constraints import NodeDemand, Requirement, SelectorOperator, SelectorTerm
from bireme.kube import wire

_RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
_HOST_USERS: Final = "UserNamespacesHostNetworkSupport"
_ALL: Final = frozenset({_RESTART_ALL, _HOST_USERS})
"""Features that filter new pods; all others concern changes of running pods."""


def labels(declared: Iterable[str] | None) -> dict[str, str]:
    """Return the declared features of a node (``status.declaredFeatures``) as labels."""
    return {_key(feature): "" for feature in declared or () if feature in _ALL}


def demands(spec: wire.V1PodSpec) -> tuple[NodeDemand, ...]:
    """Return the demands of a pod of this spec on the features of its node."""
    return tuple(
        NodeDemand(
            f"feature {feature}",
            (SelectorTerm(labels=(Requirement(_key(feature), SelectorOperator.EXISTS),)),),
        )
        for feature in _features_of(spec)
    )


def _features_of(spec: wire.V1PodSpec) -> Iterator[str]:
    """Yield the features that ``InferForScheduling`` infers.

    Source: ``nodedeclaredfeatures/features`` of ``k8s.io/component-helpers`` 0.37.1. Options of
    bind mounts are left out: only an API server with an alpha feature keeps that field.
    """
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    rules = (rule for container in containers for rule in container.restart_policy_rules or ())
    if any(rule.action == "RestartAllContainers" for rule in rules):
        yield _RESTART_ALL
    if spec.host_network and spec.host_users is False:
        yield _HOST_USERS


def _key(feature: str) -> str:
    return f"declared feature {feature}"  # with blanks it cannot be the key of a real label
