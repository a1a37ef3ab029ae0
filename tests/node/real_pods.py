"""Pods on a real node: Python programs in the base image, and what came of them."""

import textwrap
from typing import Any

from testbed.scenario.manifests import Manifest
from testbed.scenario.tenant import Tenant
from tools.images.archives import base


def python_pod(name: str, program: str, *, cpu: str = "50m", **spec: Any) -> Manifest:
    """A pod that runs a Python program and, in the whole, only once.

    ``spec`` is laid over the pod's, its ``container`` over the one container.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", **python_spec(program, cpu=cpu, **spec)},
    }


def python_spec(program: str, *, cpu: str = "50m", **spec: Any) -> Manifest:
    """The spec of such a pod, for a template."""
    container = {
        "name": "main",
        "image": base().name,
        "command": ["python3", "-uc", textwrap.dedent(program)],
        "resources": {"requests": {"cpu": cpu, "memory": "32Mi"}},
        **spec.pop("container", {}),
    }
    # The first process of a pod ignores SIGTERM unless it handles it.
    return {"containers": [container], "terminationGracePeriodSeconds": 1, **spec}


def logs(tenant: Tenant, pod: str) -> str:
    """The pod's output so far."""
    return tenant.cluster.kubectl("logs", pod, f"--namespace={tenant.namespace}")


def await_end(tenant: Tenant, pod: str) -> Manifest:
    """The end of a pod's first container, once it has ended: ``exitCode``, ``reason``."""

    def terminated() -> Manifest:
        statuses = tenant.status(pod, "Pod").get("containerStatuses") or [{"state": {}}]
        state: Manifest = statuses[0]["state"]
        found: Manifest = state.get("terminated", {})
        return found

    ended: Manifest = tenant.eventually(terminated)
    return ended


def await_ready(tenant: Tenant, pod: str) -> Manifest:
    """The pod, once it is ready."""
    found: Manifest = tenant.eventually(lambda: tenant.get("Pod", pod), is_ready)
    return found


def is_ready(pod: Manifest) -> bool:
    """Whether kubelet says so."""
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
