"""Defaults and checks of Kubernetes' other kinds, and the table of all behaviours."""

from collections.abc import Mapping
from typing import Any, Final

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.admission import Behaviour
from bireme_lab.embedded.api.errors import Faults, Object
from bireme_lab.embedded.api.object_selectors import matches_labels
from bireme_lab.embedded.builtin import admission_policies, definitions, jobs, limit_ranges, quotas
from bireme_lab.embedded.builtin.plain import Complete, PlainBehaviour, Validate, filled
from bireme_lab.embedded.builtin.pods import PodBehaviour, complete_template, validate_spec
from bireme_lab.embedded.builtin.priorities import SYSTEM_CLASSES

_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_PREEMPTION: Final = ("PreemptLowerPriority", "Never")
_HIGHEST_CLASS: Final = 1_000_000_000


def _namespace(obj: Object, old: Object | None) -> Object:
    if old is not None:
        return obj
    meta = obj["metadata"]
    labels = {**(meta.get("labels") or {}), _NAME_LABEL: meta["name"]}
    return {
        **obj,
        "metadata": {**meta, "labels": labels},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _node(obj: Object, _: Object | None) -> Object:
    obj = filled(obj, spec={}, status={})
    spec = obj["spec"]
    # The node controller taints a cordoned node; here it happens with the write.
    taints = [t for t in spec.get("taints") or () if t.get("key") != _UNSCHEDULABLE]
    if spec.get("unschedulable"):
        had = next((t for t in spec.get("taints") or () if t.get("key") == _UNSCHEDULABLE), None)
        taints.append(had or {"key": _UNSCHEDULABLE, "effect": "NoSchedule"})
    spec = {k: v for k, v in spec.items() if k != "taints"}
    return {**obj, "spec": {**spec, "taints": taints} if taints else spec}


_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"


def _service(obj: Object, old: Object | None) -> Object:
    spec = filled(obj.get("spec") or {}, type="ClusterIP", sessionAffinity="None")
    if old is not None:
        spec = {
            **{k: old["spec"][k] for k in ("clusterIP", "clusterIPs") if k in old["spec"]},
            **spec,
        }
    address = spec.get("clusterIP") or _address(obj)
    spec = filled(
        spec,
        clusterIP=address,
        clusterIPs=[address],
        internalTrafficPolicy="Cluster",
        ipFamilies=["IPv4"],
        ipFamilyPolicy="SingleStack",
    )
    if spec.get("ports"):
        ports = [filled(p, protocol="TCP", targetPort=p.get("port")) for p in spec["ports"]]
        spec = {**spec, "ports": ports}
    return {**obj, "spec": spec, "status": obj.get("status") or {"loadBalancer": {}}}


def _address(service: Object) -> str:
    return f"10.96.{_octets(service['metadata']['uid'])}"


def without_address(service: Object) -> Object:
    """Return a Service as it is before the server gives it an address."""
    if service["spec"].get("clusterIP") != _address(service):
        return service
    given = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
    spec = {name: value for name, value in service["spec"].items() if name not in given}
    return {**service, "spec": spec}


def _octets(uid: str) -> str:
    bits = int(uid[:4], 16)
    return f"{bits >> 8}.{bits & 255}"


def _priority_class(obj: Object, _: Object | None) -> Object:
    return filled(obj, value=0, preemptionPolicy="PreemptLowerPriority")


def _check_priority_class(obj: Object, old: Object | None, faults: Faults) -> None:
    name, value = obj["metadata"]["name"], obj["value"]
    if old is None and name.startswith("system-") and name not in SYSTEM_CLASSES:
        text = (
            "priority class names with 'system-' prefix are reserved for system use only. error: "
            f"{name} is not a known system priority class"
        )
        faults.forbidden("metadata.name", text)
    elif name not in SYSTEM_CLASSES and value > _HIGHEST_CLASS:
        text = f"maximum allowed value of a user defined priority is {_HIGHEST_CLASS}"
        faults.forbidden("value", text)
    if obj["preemptionPolicy"] not in _PREEMPTION:
        faults.unsupported("preemptionPolicy", obj["preemptionPolicy"], _PREEMPTION)
    if old is not None and old["value"] != value:
        faults.forbidden("value", "may not be changed in an update.")
    if old is not None and old["preemptionPolicy"] != obj["preemptionPolicy"]:
        faults.invalid("preemptionPolicy", obj["preemptionPolicy"], "field is immutable")


def _replicas(obj: Object, old: Object | None) -> Object:
    """Complete a kind of ``apps/v1``: one replica, and a template with its defaults."""
    spec = filled(obj.get("spec") or {}, replicas=1)
    if obj["kind"] == "StatefulSet":
        spec = filled(spec, podManagementPolicy="OrderedReady", revisionHistoryLimit=10)
    template = spec.get("template") or {}
    template = complete_template(template)
    status = {} if old is None else obj.get("status") or {}
    return {**obj, "spec": {**spec, "template": template}, "status": status or {"replicas": 0}}


def _check_replicas(obj: Object, old: Object | None, faults: Faults) -> None:
    spec = obj["spec"]
    validate_spec(spec["template"]["spec"], faults, "spec.template.spec")
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if not matches_labels(spec.get("selector"), labels):
        text = "`selector` does not match template `labels`"
        faults.invalid("spec.template.metadata.labels", labels, text)
    if old is not None and spec.get("selector") != old["spec"].get("selector"):
        faults.invalid("spec.selector", spec.get("selector"), "field is immutable")


def _budget(obj: Object, old: Object | None) -> Object:
    return (
        obj
        if old is not None
        else {
            **obj,
            "status": {
                "currentHealthy": 0,
                "desiredHealthy": 0,
                "disruptionsAllowed": 0,
                "expectedPods": 0,
            },
        }
    )


def _secret(obj: Object, _: Object | None) -> Object:
    return filled(obj, type="Opaque")


def _claim(obj: Object, _: Object | None) -> Object:
    spec = filled(obj.get("spec") or {}, volumeMode="Filesystem")
    return {**obj, "spec": spec, "status": obj.get("status") or {"phase": "Pending"}}


_PLAIN: Final[Mapping[str, tuple[Complete, Validate]]] = {
    kinds.NAMESPACES: (_namespace, lambda *_: None),
    kinds.NODES: (_node, lambda *_: None),
    kinds.SERVICES: (_service, lambda *_: None),
    kinds.PRIORITY_CLASSES: (_priority_class, _check_priority_class),
    kinds.BUDGETS: (_budget, lambda *_: None),
    kinds.LIMIT_RANGES: (limit_ranges.complete, limit_ranges.validate),
    kinds.QUOTAS: (quotas.complete, quotas.validate),
    "/api/v1/secrets": (_secret, lambda *_: None),
    kinds.CLAIMS: (_claim, lambda *_: None),
    kinds.VALIDATING_POLICIES: (
        admission_policies.complete_validating_policy,
        admission_policies.validate_validating_policy,
    ),
    kinds.VALIDATING_BINDINGS: (
        admission_policies.complete_binding,
        admission_policies.validate_binding,
    ),
    kinds.MUTATING_POLICIES: (
        admission_policies.complete_policy,
        admission_policies.validate_mutating_policy,
    ),
    kinds.MUTATING_BINDINGS: (
        admission_policies.complete_binding,
        admission_policies.validate_binding,
    ),
    kinds.DEFINITIONS: (definitions.complete, definitions.validate),
    kinds.STATEFUL_SETS: (_replicas, _check_replicas),
    kinds.REPLICA_SETS: (_replicas, _check_replicas),
    kinds.DEPLOYMENTS: (_replicas, _check_replicas),
    kinds.JOBS: (jobs.complete, jobs.validate),
}


def behaviours() -> dict[str, Behaviour]:
    """Return the behaviour of every kind of Kubernetes, by its path."""
    by_path: dict[str, Any] = {}
    for resource in kinds.KINDS:
        if resource.is_create_only:
            continue
        complete, validate = _PLAIN.get(resource.path, (lambda obj, _: obj, lambda *_: None))
        by_path[resource.path] = PlainBehaviour(resource, complete, validate)
    by_path[kinds.PODS] = PodBehaviour()
    return by_path
