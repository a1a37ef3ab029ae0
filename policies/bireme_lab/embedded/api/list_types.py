"""How fields of Kubernetes' kinds are merged, by the client's model: keys of lists, atomic maps.

Source: ``x-kubernetes-list-type``, ``x-kubernetes-list-map-keys`` and ``x-kubernetes-map-type`` of
the OpenAPI documents of Kubernetes 1.37. Lists that are not named here are replaced whole.
"""

from collections.abc import Mapping
from typing import Any, Final

_NAME: Final = ("name",)
_TYPE: Final = ("type",)
_SET: Final = ()
_CONTAINER: Final = {
    "env": _NAME,
    "ports": ("containerPort", "protocol"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
}
_WITH_CONDITIONS: Final = (
    "V1CustomResourceDefinitionStatus",
    "V1DeploymentStatus",
    "V1NamespaceStatus",
    "V1PersistentVolumeClaimStatus",
    "V1PodDisruptionBudgetStatus",
    "V1ReplicaSetStatus",
    "V1ServiceStatus",
    "V1StatefulSetStatus",
    "V1ValidatingAdmissionPolicyStatus",
)
_KEYS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    **{model: {"conditions": _TYPE} for model in _WITH_CONDITIONS},
    "V1CSIDriverSpec": {"volumeLifecycleModes": _SET},
    "V1CSINodeSpec": {"drivers": _NAME},
    "V1CSINodeStatus": {"storageHealth": _NAME},
    "V1Container": _CONTAINER,
    "V1ContainerRestartRuleOnExitCodes": {"values": _SET},
    "V1ContainerStatus": {"allocatedResourcesStatus": _NAME, "volumeMounts": ("mountPath",)},
    "V1EphemeralContainer": _CONTAINER,
    "V1JobSchedulingConfiguration": {"resourceClaims": _NAME},
    "V1MutatingAdmissionPolicySpec": {"matchConditions": _NAME},
    "V1NodeAllocatableResourceClaimStatus": {
        "containers": _SET,
        "mapping": _NAME,
        "overhead": _NAME,
    },
    "V1NodePodPreemptionPolicy": {"disableResizePreemption": _SET},
    "V1NodeSpec": {"podCIDRs": _SET},
    "V1NodeStatus": {"addresses": _TYPE, "conditions": _TYPE},
    "V1ObjectMeta": {"finalizers": _SET, "ownerReferences": ("uid",)},
    "V1PodFailurePolicyOnExitCodesRequirement": {"values": _SET},
    "V1PodSpec": {
        "containers": _NAME,
        "ephemeralContainers": _NAME,
        "evictionResponders": _NAME,
        "hostAliases": ("ip",),
        "imagePullSecrets": _NAME,
        "initContainers": _NAME,
        "resourceClaims": _NAME,
        "schedulingGates": _NAME,
        "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
        "volumes": _NAME,
    },
    "V1PodStatus": {
        "conditions": _TYPE,
        "nodeAllocatableResourceClaimStatuses": ("resourceClaimName",),
        "podIPs": ("ip",),
        "resourceClaimStatuses": _NAME,
        "volumeHealth": _NAME,
    },
    "V1PodVolumeHealth": {"healthConditions": ("status", "reason")},
    "V1ResourceRequirements": {"claims": _NAME},
    "V1ResourceSliceSpec": {"skipNodeOperations": _SET},
    "V1ResourceStatus": {"resources": ("resourceID",)},
    "V1ServiceAccount": {"secrets": _NAME},
    "V1ServiceSpec": {"ports": ("port", "protocol")},
    "V1UncountedTerminatedPods": {"failed": _SET, "succeeded": _SET},
    "V1ValidatingAdmissionPolicyBindingSpec": {"validationActions": _SET},
    "V1ValidatingAdmissionPolicySpec": {"matchConditions": _NAME, "variables": _NAME},
    "V1ValidatingWebhook": {"matchConditions": _NAME},
    "V1ValidatingWebhookConfiguration": {"webhooks": _NAME},
    "V1VolumeHealthStatus": {"healthConditions": ("status", "reason")},
    "V1VolumeMount": {"bindMountOptions": _SET},
}
_ATOMIC_MODELS: Final = frozenset(
    {
        "RbacV1Subject",
        "V1ConfigMapKeySelector",
        "V1EvictionResponder",
        "V1FileKeySelector",
        "V1LabelSelector",
        "V1LocalObjectReference",
        "V1MatchResources",
        "V1NamedRuleWithOperations",
        "V1NodeSelector",
        "V1NodeSelectorTerm",
        "V1ObjectFieldSelector",
        "V1ObjectReference",
        "V1OwnerReference",
        "V1ParamKind",
        "V1ParamRef",
        "V1ResourceFieldSelector",
        "V1RoleRef",
        "V1ScopeSelector",
        "V1SecretKeySelector",
        "V1SecretReference",
        "V1TopologySelectorTerm",
        "V1TypedLocalObjectReference",
        "V1Variable",
    }
)
_ATOMIC_FIELDS: Final = frozenset({("V1PodSpec", "nodeSelector"), ("V1ServiceSpec", "selector")})
_ATOMIC: Final[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
_NONE: Final[Mapping[str, Any]] = {}


def of_model(model: str) -> Mapping[str, Any]:
    """Return the marks of a model's schema."""
    return _ATOMIC if model in _ATOMIC_MODELS else _NONE


def of_field(model: str, name: str) -> Mapping[str, Any]:
    """Return the marks of the schema of a model's field."""
    if (model, name) in _ATOMIC_FIELDS:
        return _ATOMIC
    keys = _KEYS.get(model, {}).get(name)
    if keys is None:
        return _NONE
    if not keys:
        return {"x-kubernetes-list-type": "set"}
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
