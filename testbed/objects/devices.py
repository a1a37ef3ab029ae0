"""Slices, classes, templates and claims of devices, each argument a thing the test is about."""

from typing import Any

from testbed.scenario.manifests import Manifest

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"


def _made(kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def device(name: str, model: str = "h100", **fields: Any) -> Manifest:
    return {"name": name, "attributes": {"model": {"string": model}}, **fields}


def resource_slice(
    node: str, *devices: Manifest, driver: str = DRIVER, generation: int = 1, count: int = 1
) -> Manifest:
    """Return the only slice of a node's pool, or one of ``count``."""
    pool = {"name": node, "generation": generation, "resourceSliceCount": count}
    spec = {"driver": driver, "pool": pool, "nodeName": node, "devices": list(devices)}
    return _made("ResourceSlice", f"{node}-{driver}", spec)


def device_class(
    name: str = "gpu", *expressions: str, extended: str = "", driver: str = DRIVER
) -> Manifest:
    """Return a class of all devices of ``driver`` of which ``expressions`` are true."""
    texts = (f'device.driver == "{driver}"', *expressions)
    spec: Manifest = {"selectors": [{"cel": {"expression": text}} for text in texts]}
    if extended:
        spec["extendedResourceName"] = extended
    return _made("DeviceClass", name, spec)


def request(of_class: str = "gpu", count: int = 1, **fields: Any) -> Manifest:
    exactly = {"deviceClassName": of_class, "count": count, "allocationMode": "ExactCount"}
    return {"name": "gpus", "exactly": {**exactly, **fields}}


def claim_template(name: str, *requests: Manifest, **fields: Any) -> Manifest:
    devices = {"requests": list(requests) or [request()], **fields}
    return _made("ResourceClaimTemplate", name, {"spec": {"devices": devices}})


def claims(template: str) -> Manifest:
    """Return fields of a pod spec whose claim is made from ``template``."""
    return {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": template}]}
