"""Checks of Bireme's programs: whether they are ready, lead, and are of versions that fit.

An operator or kube-scheduler without the chart is seen by what it holds alone.
"""

import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from bireme.kube.leadership import CLAIM_NAME, Statement, claim_statement, lease_statement

_LEASE_SECONDS: Final = 15
_LEASES: Final = "/apis/coordination.k8s.io/v1"
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


# --- leaders --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Record:
    """A Lease or the ClusterClaim, as read once, and where to read it again."""

    path: str
    title: str
    version: str
    renewed: str
    statement: Statement

    @property
    def who(self) -> str:
        return cleaned(f"{self.statement.namespace}/{self.statement.holder}")


def _claim(manifest: Json) -> _Record:
    spec = manifest.get("spec") or {}
    path, version = names.path("clusterclaims", name=CLAIM_NAME), _version_in(manifest)
    renewed = str(spec.get("renewTime"))
    return _Record(path, f"ClusterClaim {CLAIM_NAME}", version, renewed, claim_statement(spec))


def _lease(manifest: Json) -> _Record:
    spec, about = manifest.get("spec") or {}, manifest["metadata"]
    namespace, name = about["namespace"], about["name"]
    path = f"{_LEASES}/namespaces/{namespace}/leases/{name}"
    statement = lease_statement(namespace, name, spec)
    renewed = str(spec.get("renewTime"))
    return _Record(path, f"Lease {name}", _version_in(manifest), renewed, statement)


def _version_in(manifest: Json) -> str:
    return str(manifest["metadata"].get("resourceVersion"))


async def operator_leads(reader: Reader, facts: Installation) -> Findings:
    """Check that one operator holds the cluster and renews that, unless it only observes."""
    check = "operator leads"
    if facts.observes:
        return [Finding(check, State.FINE, "it only observes, so it needs no ClusterClaim")]
    helps = (
        f"why none leads: kubectl -n {facts.namespace} logs -l app.kubernetes.io/component=operator"
    )
    listed = await reader.objects_if_allowed(names.path("clusterclaims"))
    if listed is None:
        message = f"you may not list ClusterClaims, of which {CLAIM_NAME} says it"
        return [Finding(check, State.UNKNOWN, message)]
    title = f"ClusterClaim {CLAIM_NAME}"
    found = [await _led(reader, [_claim(each) for each in listed], title, check, helps)]
    if found[0].state is State.FINE:
        leads = _claim(listed[0]).statement.namespace
        waiting = sorted(_namespaces(facts, "operator") - {leads})
        message = f"the operator in {', '.join(waiting)} waits for the release in {leads}"
        stop = "helm uninstall one of the releases; the other goes on within a lease"
        found += [Finding(check, State.NOTE, message, stop)] if waiting else []
    return found


async def scheduler_leads(reader: Reader, facts: Installation) -> Findings:
    """Check that one kube-scheduler holds the Lease in its release's namespace and renews it."""
    if facts.observes:
        return []
    helps = (
        f"why none leads: kubectl -n {facts.namespace} logs -c kube-scheduler"
        " -l app.kubernetes.io/component=scheduler"
    )
    check, listed = "kube-scheduler leads", list[Json]()
    # In namespaces of tenants anybody may write such a Lease.
    for namespace in sorted(_namespaces(facts, "scheduler")):
        path = f"{_LEASES}/namespaces/{namespace}/leases"
        selector = f"metadata.name={_SCHEDULER_LEASE}"
        some = await reader.objects_if_allowed(path, fieldSelector=selector)
        if some is None:
            message = f"you may not list Leases, of which {_SCHEDULER_LEASE} says it"
            return [Finding(check, State.UNKNOWN, message)]
        listed += some
    title = f"Lease {_SCHEDULER_LEASE}"
    return [await _led(reader, [_lease(each) for each in listed], title, check, helps)]


def _namespaces(facts: Installation, component: str) -> set[str]:
    """Return the namespaces in which the chart has installed a component."""
    of = (d for d in facts.deployments or () if installed.component_of(d) == component)
    return {str(each["metadata"]["namespace"]) for each in of} or {facts.namespace}


async def _led(
    reader: Reader, records: Sequence[_Record], title: str, check: str, helps: str
) -> Finding:
    held = [record for record in records if record.statement.holder]
    if not held:
        none = "there is no such object" if not records else "nobody holds it"
        return Finding(check, State.WRONG, f"nobody: of {title}, {none}", helps)
    renewed = await asyncio.gather(*(_is_renewed(reader, record) for record in held))
    live = [record for record, is_live in zip(held, renewed, strict=True) if is_live]
    if not live:
        return Finding(check, State.WRONG, f"nobody: {title} is not renewed any more", helps)
    if len(live) > 1:
        stop = "helm uninstall all releases of Bireme but one"
        both = ", ".join(sorted(record.who for record in live))
        return Finding(check, State.WRONG, f"two at a time: {both}", stop)
    return Finding(check, State.FINE, f"{live[0].who} holds {title} and renews it")


async def _is_renewed(reader: Reader, record: _Record) -> bool:
    # Whatever stands in it, it is looked at for a minute at most.
    seconds = record.statement.seconds or _LEASE_SECONDS
    renewed = quantities.parse_timestamp(record.renewed)
    now = time.time()  # noqa: TID251  # a person asks now
    if renewed is not None and 0 <= now - renewed < seconds:
        return True
    # This machine's clock may differ from the cluster's, so only the object itself is believed.
    sys.stderr.write(f"bireme: {record.title} looks old; looking at it for {seconds} s\n")
    for _ in range(seconds):
        await asyncio.sleep(1)
        try:
            again: Json = msgspec.json.decode(await reader.client.get(record.path))
        except ApiError:
            continue
        if _version_in(again) != record.version:
            spec = again.get("spec") or {}
            return bool(spec.get("holderIdentity") or spec.get("holder"))
    return False
