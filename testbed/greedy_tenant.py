"""What one tenant may create that costs the operator most; every object passes the API server.

Jobs are in one namespace, ask for more than any node has, and so wait for ever.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from bireme.kube import envelopes, job_sizes, wire
from testbed.objects.facts import served
from testbed.scenario.manifests import Manifest, pod_spec, task, training_job

TENANT: Final = "greedy"


def _job(name: str, spec: Manifest, **fields: Any) -> Manifest:
    job = training_job(name, task("worker", 4, spec=spec), **fields)
    return served(job, f"{name}-uid", namespace=TENANT)


def small_jobs(number: int) -> Iterator[Manifest]:
    """Yield jobs of one shape."""
    return (_job(f"small-{index:05}", pod_spec(64)) for index in range(number))


def largest_jobs(number: int) -> Iterator[Manifest]:
    """Yield jobs with as many bytes as one may have, and as many of them to place pods by."""
    return (largest_job(f"largest-{index:04}") for index in range(number))


def largest_job(
    name: str,
    spec_bytes: int = envelopes.MAX_SPEC_BYTES,
    placing_bytes: int = job_sizes.MAX_PLACING_BYTES,
) -> Manifest:
    """Return a job of ``spec_bytes``, with what takes most memory: many small values."""
    spec = pod_spec(64)
    (container,) = spec["containers"]
    # Tolerations become an object each.
    tolerations: list[Manifest] = []
    spec["tolerations"] = tolerations
    left = placing_bytes - len(msgspec.json.encode(_read(spec)))
    while left >= 16:
        tolerations.append({"key": f"k{len(tolerations):05}"})
        left -= len(msgspec.json.encode(tolerations[-1])) + 1
    variables: list[Manifest] = [{"name": "JOB", "value": name}]  # no two templates are alike
    container["env"] = variables
    left = spec_bytes - len(msgspec.json.encode(_job(name, spec)["spec"]))
    while left >= 64:
        variables.append({"name": f"V{len(variables)}", "value": "x"})
        left -= len(msgspec.json.encode(variables[-1])) + 1
    made = _job(name, spec)
    variables[-1]["value"] += "x" * (spec_bytes - len(msgspec.json.encode(made["spec"])))
    return made


def _read(spec: Manifest) -> wire.V1PodSpec:
    """Return what is read of a pod spec to place pods by."""
    return msgspec.json.decode(msgspec.json.encode(spec), type=wire.V1PodSpec)
