"""Claims, volumes and storage classes as manifests, each argument a thing the test is about."""

from typing import Any

from testbed.scenario.manifests import Manifest

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
LATE = "WaitForFirstConsumer"
NO_PROVISIONER = "kubernetes.io/no-provisioner"


def selector(key: str, *values: str) -> Manifest:
    """Return a node selector for nodes whose label ``key`` has one of ``values``."""
    expression = {"key": key, "operator": "In", "values": list(values)}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


def volume(
    name: str,
    storage_class: str = "local",
    *,
    host: str = "",
    zone: str = "",
    gibibytes: int = 10,
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    claim: str = "",
    phase: str = "Available",
    driver: str = "",
    **metadata: Any,
) -> Manifest:
    """Return a PersistentVolume; ``claim`` is ``namespace/name`` of the one that has it."""
    spec: Manifest = {
        "storageClassName": storage_class,
        "capacity": {"storage": f"{gibibytes}Gi"},
        "accessModes": list(modes),
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if driver:
        spec["csi"] = {"driver": driver, "volumeHandle": f"handle-of-{name}"}
    elif host:
        spec["local"] = {"path": "/mnt/disk"}
    else:
        spec["nfs"] = {"server": "files", "path": "/"}
    if host or zone:
        wanted = selector(HOSTNAME, host) if host else selector(ZONE, zone)
        spec["nodeAffinity"] = {"required": wanted}
    if claim:
        namespace, _, of = claim.partition("/")
        kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        spec["claimRef"] = {**kind, "namespace": namespace, "name": of}
        phase = "Bound"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, **metadata},
        "spec": spec,
        "status": {"phase": phase},
    }


def claim_fields(
    storage_class: str = "local", gibibytes: int = 1, mode: str = "ReadWriteOnce", **spec: Any
) -> Manifest:
    return {
        "storageClassName": storage_class,
        "accessModes": [mode],
        "resources": {"requests": {"storage": f"{gibibytes}Gi"}},
        **spec,
    }


def claim(
    name: str,
    storage_class: str = "local",
    *,
    bound: str = "",
    phase: str = "",
    annotations: Manifest | None = None,
    metadata: Manifest | None = None,
    **spec: Any,
) -> Manifest:
    """Return a PersistentVolumeClaim, bound to the volume ``bound`` where one is given."""
    notes = dict(annotations or {})
    if bound:
        notes["pv.kubernetes.io/bind-completed"] = "yes"
        spec["volumeName"] = bound
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": notes, **(metadata or {})},
        "spec": claim_fields(storage_class, **spec),
        "status": {"phase": phase or ("Bound" if bound else "Pending")},
    }


def storage_class(
    name: str = "local", provisioner: str = NO_PROVISIONER, mode: str = LATE, **fields: Any
) -> Manifest:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        **fields,
    }


def csi_node(name: str, **limits: int) -> Manifest:
    """Return the CSINode of a node; ``limits`` by driver, whose dots are written ``_``."""
    drivers = [
        {"name": driver.replace("_", "."), "nodeID": name, "allocatable": {"count": most}}
        for driver, most in limits.items()
    ]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": drivers},
    }


def named(*claims: str) -> Manifest:
    """Return fields of a pod spec that names ``claims``."""
    return {
        "volumes": [
            {"name": f"of-{name}", "persistentVolumeClaim": {"claimName": name}} for name in claims
        ]
    }


def ephemeral(storage_class: str = "local", **spec: Any) -> Manifest:
    """Return fields of a pod spec whose claim is made with the pod."""
    template = {"spec": claim_fields(storage_class, **spec)}
    return {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]}
