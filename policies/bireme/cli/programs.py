"""Checks of Bireme's programs: whether they are ready, lead, and are of versions that fit.

An operator or kube-scheduler without the chart is seen by its Lease alone.
"""

import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Final

import msgspec

from bireme.cli import installed
from bireme.cli.arguments import Json
from bireme.cli.cluster import Reader
from bireme.cli.findings import Finding, Findings, State, condition, said
from bireme.cli.installed import Installation
from bireme.kube import names, quantities
from bireme.kube.client import ApiError
from bireme.kube.conditions import cleaned

_LEASE_SECONDS: Final = 15
_SCHEDULER_LEASE: Final = "bireme-scheduler"
_TAG: Final = re.compile(r":v?([0-9]+)\.([0-9]+)\.([^:/@]+)$")

_CONTAINERS: Final = (
    ("operator", "operator"),
    ("scheduler", "kube-scheduler"),
    ("scheduler", "extender"),
)


async def programs_run(facts: Installation) -> Findings:
    """Check that a pod of each program of the chart is ready, and its version."""
    if facts.deployments is None or facts.pods is None:
        message = "you may not list Deployments and pods of all namespaces"
        return [Finding("programs", State.UNKNOWN, message)]
    if not facts.deployments:
        message = "the cluster has no Deployment of Bireme's chart"
        helps = "install the chart; what runs without it is seen by its Leases alone"
        return [Finding("programs", State.NOTE, message, helps)]
    found: list[Finding] = []
    for component, container in _CONTAINERS:
        deployment = facts.deployment(component)
        if deployment is not None:
            found += [
                _readiness(deployment, facts.pods, container),
                *_version_of(deployment, container, facts.cluster_minor),
            ]
        elif not facts.observes:
            helps = f"helm upgrade again; see kubectl -n {facts.namespace} get deployments"
            found.append(Finding(container, State.WRONG, "its Deployment is not there", helps))
    return found


def _readiness(deployment: Json, pods: Sequence[Json], container: str) -> Finding:
    about = deployment["metadata"]
    where, wanted = about["namespace"], (deployment.get("spec") or {}).get("replicas", 1)
    own = [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == where
        and installed.component_of(pod) == installed.component_of(deployment)
    ]
    ready, troubles = 0, Counter[str]()
    for pod in own:
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        status: Json = next((s for s in statuses if s["name"] == container), {})
        if status.get("ready"):
            ready += 1
        else:
            state = status.get("state") or {}
            stopped = state.get("waiting") or state.get("terminated") or {}
            phase = (pod.get("status") or {}).get("phase", "Pending")
            troubles[cleaned(str(stopped.get("reason") or phase))] += 1
    if ready:
        # One leads or answers; the others stand by.
        state = State.FINE if ready >= wanted else State.NOTE
        why = f", others: {', '.join(troubles)}" if troubles else ""
        return Finding(container, state, f"{ready} of {wanted} are ready{why}")
    helps = f"kubectl -n {where} describe pods -l app.kubernetes.io/part-of=bireme"
    if not own:
        failure = condition(deployment, "ReplicaFailure")
        why = f": {said(failure)}" if failure else f", of {wanted} wanted"
        if not wanted:
            helps = f"kubectl -n {where} scale deployment {about['name']} --replicas=1"
        return Finding(container, State.WRONG, f"Deployment {about['name']} has no pod{why}", helps)
    return Finding(container, State.WRONG, f"no pod is ready: {', '.join(troubles)}", helps)


def _version_of(deployment: Json, name: str, cluster_minor: int) -> Iterator[Finding]:
    containers = deployment["spec"]["template"]["spec"]["containers"]
    image = next((str(c.get("image", "")) for c in containers if c["name"] == name), "")
    check = f"version of {name}"
    tag = _TAG.search(image)
    if tag is None:
        message = f"image {cleaned(image)!r} does not say which it is"
        yield Finding(check, State.UNKNOWN, message)
    elif name == "kube-scheduler":
        yield _skew(check, tag, cluster_minor)
    else:
        own, theirs = version("bireme"), ".".join(tag.groups())
        if own == theirs:
            yield Finding(check, State.FINE, f"{theirs}, as of this bireme")
        else:
            helps = f"helm upgrade to {own}, or install bireme {theirs} here"
            yield Finding(check, State.WRONG, f"{theirs}, and this bireme is {own}", helps)


def _skew(check: str, tag: re.Match[str], cluster_minor: int) -> Finding:
    minor, theirs = int(tag[2]), f"{tag[1]}.{tag[2]}.{tag[3]}"
    if minor == cluster_minor:
        return Finding(check, State.FINE, f"{theirs}, the cluster's minor version")
    message = f"{theirs}, and the cluster is 1.{cluster_minor}"
    helps = "helm upgrade again: by default the chart takes the cluster's own version"
    # As Kubernetes allows it: one minor version older than the API server, never newer.
    state = State.NOTE if minor == cluster_minor - 1 else State.WRONG
    return Finding(check, state, message, helps)


# --- Leases ---------------------------------------------------------------------------------------


async def operator_leads(reader: Reader, facts: Installation) -> Findings:
    """Check that one operator holds its Lease and renews it, unless it only observes."""
    if facts.observes:
        return [Finding("operator leads", State.FINE, "it only observes, so it needs no Lease")]
    helps = (
        f"why none leads: kubectl -n {facts.namespace} logs -l app.kubernetes.io/component=operator"
    )
    return [await _led(reader, facts, names.OPERATOR_LEASE, "operator leads", helps)]


async def scheduler_leads(reader: Reader, facts: Installation) -> Findings:
    """Check the same of the second kube-scheduler."""
    if facts.observes:
        return []
    helps = (
        f"why none leads: kubectl -n {facts.namespace} logs -c kube-scheduler"
        " -l app.kubernetes.io/component=scheduler"
    )
    return [await _led(reader, facts, _SCHEDULER_LEASE, "kube-scheduler leads", helps)]


async def _led(reader: Reader, facts: Installation, name: str, check: str, helps: str) -> Finding:
    root = "/apis/coordination.k8s.io/v1"
    path = f"{root}/leases"
    listed = await reader.objects_if_allowed(path, fieldSelector=f"metadata.name={name}")
    if listed is None:
        path = f"{root}/namespaces/{facts.namespace}/leases"
        listed = await reader.objects_if_allowed(path, fieldSelector=f"metadata.name={name}")
    if listed is None:
        return Finding(check, State.UNKNOWN, f"you may not list Leases, of which {name} says it")
    held = [lease for lease in listed if (lease.get("spec") or {}).get("holderIdentity")]
    if not held:
        none = "there is no such Lease" if not listed else "nobody holds it"
        return Finding(check, State.WRONG, f"nobody: of Lease {name}, {none}", helps)
    renewed = await asyncio.gather(*(_is_renewed(reader, lease) for lease in held))
    live = [lease for lease, is_live in zip(held, renewed, strict=True) if is_live]
    if not live:
        return Finding(check, State.WRONG, f"nobody: Lease {name} is not renewed any more", helps)
    who = [cleaned(f"{each['metadata']['namespace']}/{_holder(each)}") for each in live]
    if len(live) > 1:
        stop = "helm uninstall all releases of Bireme but one"
        return Finding(check, State.WRONG, f"two at a time: {', '.join(sorted(who))}", stop)
    return Finding(check, State.FINE, f"{who[0]} holds Lease {name} and renews it")


def _holder(lease: Json) -> str:
    return str(lease["spec"]["holderIdentity"])


async def _is_renewed(reader: Reader, lease: Json) -> bool:
    spec, about = lease["spec"], lease["metadata"]
    seconds = spec.get("leaseDurationSeconds") or _LEASE_SECONDS
    renewed = quantities.parse_timestamp(spec.get("renewTime"))
    now = time.time()  # noqa: TID251  # a person asks now
    if renewed is not None and 0 <= now - renewed < seconds:
        return True
    # This machine's clock may differ from the cluster's, so only the Lease itself is believed.
    sys.stderr.write(f"bireme: Lease {about['name']} looks old; looking at it for {seconds} s\n")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{about['namespace']}/leases/{about['name']}"
    for _ in range(seconds):
        await asyncio.sleep(1)
        try:
            again: Json = msgspec.json.decode(await reader.client.get(path))
        except ApiError:
            continue
        if again["metadata"]["resourceVersion"] != about["resourceVersion"]:
            return bool((again.get("spec") or {}).get("holderIdentity"))
    return False
