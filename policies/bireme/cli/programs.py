"""Checks of Bireme's programs: whether they are ready, lead, and are of versions that fit.

An operator or kube-scheduler without the chart is visible only by its claim or Lease.
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
from bireme.cli.cluster import ClusterReader
from bireme.cli.findings import Finding, Findings, State, condition, condition_text
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
        helps = "install the chart; without it only the Leases show a running operator"
        return [Finding("programs", State.NOTE, message, helps)]
    findings: list[Finding] = []
    for component, container in _CONTAINERS:
        deployment = facts.deployment(component)
        if deployment is not None:
            findings += [
                _readiness(deployment, facts.pods, container),
                *_version_of(deployment, container, facts.cluster_minor),
            ]
        elif not facts.observes:
            helps = f"helm upgrade again; see kubectl -n {facts.namespace} get deployments"
            findings.append(Finding(container, State.WRONG, "its Deployment is missing", helps))
    return findings


def _readiness(deployment: Json, pods: Sequence[Json], container: str) -> Finding:
    about = deployment["metadata"]
    where, replicas = about["namespace"], (deployment.get("spec") or {}).get("replicas", 1)
    program_pods = [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == where
        and installed.component_of(pod) == installed.component_of(deployment)
    ]
    ready, troubles = 0, Counter[str]()
    for pod in program_pods:
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
        # One ready pod suffices; the others are standbys.
        state = State.FINE if ready >= replicas else State.NOTE
        details = f", others: {', '.join(troubles)}" if troubles else ""
        return Finding(container, state, f"{ready} of {replicas} are ready{details}")
    helps = f"kubectl -n {where} describe pods -l app.kubernetes.io/part-of=bireme"
    if not program_pods:
        failure = condition(deployment, "ReplicaFailure")
        details = f": {condition_text(failure)}" if failure else f", of {replicas} wanted"
        if not replicas:
            helps = f"kubectl -n {where} scale deployment {about['name']} --replicas=1"
        return Finding(
            container, State.WRONG, f"Deployment {about['name']} has no pod{details}", helps
        )
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
        own_version, theirs = version("bireme"), ".".join(tag.groups())
        if own_version == theirs:
            yield Finding(check, State.FINE, f"{theirs}, like this bireme")
        else:
            helps = f"helm upgrade to {own_version}, or install bireme {theirs} here"
            yield Finding(check, State.WRONG, f"{theirs}, and this bireme is {own_version}", helps)


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
    """A Lease or the ClusterClaim as last read, and its path."""

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


async def operator_leads(reader: ClusterReader, facts: Installation) -> Findings:
    """Check that one operator holds the cluster and renews its claim, unless it only observes."""
    check = "operator leads"
    if facts.observes:
        return [Finding(check, State.FINE, "it only observes, so it needs no ClusterClaim")]
    helps = (
        f"why none leads: kubectl -n {facts.namespace} logs -l app.kubernetes.io/component=operator"
    )
    listed = await reader.objects_if_allowed(names.path("clusterclaims"))
    if listed is None:
        message = f"you may not list ClusterClaims; {CLAIM_NAME} names the leader"
        return [Finding(check, State.UNKNOWN, message)]
    title = f"ClusterClaim {CLAIM_NAME}"
    findings = [
        await _leader_finding(
            reader, [_claim(manifest) for manifest in listed], title, check, helps
        )
    ]
    if findings[0].state is State.FINE:
        leads = _claim(listed[0]).statement.namespace
        waiting = sorted(_namespaces(facts, "operator") - {leads})
        message = f"the operator in {', '.join(waiting)} waits for the release in {leads}"
        stop = "helm uninstall one of the releases; the other leads when the lease ends"
        findings += [Finding(check, State.NOTE, message, stop)] if waiting else []
    return findings


async def scheduler_leads(reader: ClusterReader, facts: Installation) -> Findings:
    """Check that one kube-scheduler holds the Lease in its release's namespace and renews it."""
    if facts.observes:
        return []
    helps = (
        f"why none leads: kubectl -n {facts.namespace} logs -c kube-scheduler"
        " -l app.kubernetes.io/component=scheduler"
    )
    check, listed = "kube-scheduler leads", list[Json]()
    # Only in these namespaces: tenants may write such a Lease in their own.
    for namespace in sorted(_namespaces(facts, "scheduler")):
        path = f"{_LEASES}/namespaces/{namespace}/leases"
        selector = f"metadata.name={_SCHEDULER_LEASE}"
        some = await reader.objects_if_allowed(path, fieldSelector=selector)
        if some is None:
            message = f"you may not list Leases; {_SCHEDULER_LEASE} names the leader"
            return [Finding(check, State.UNKNOWN, message)]
        listed += some
    title = f"Lease {_SCHEDULER_LEASE}"
    return [
        await _leader_finding(
            reader, [_lease(manifest) for manifest in listed], title, check, helps
        )
    ]


def _namespaces(facts: Installation, component: str) -> set[str]:
    """Return the namespaces in which the chart has installed a component."""
    of = (d for d in facts.deployments or () if installed.component_of(d) == component)
    return {str(deployment["metadata"]["namespace"]) for deployment in of} or {facts.namespace}


async def _leader_finding(
    reader: ClusterReader, records: Sequence[_Record], title: str, check: str, helps: str
) -> Finding:
    holders = [record for record in records if record.statement.holder]
    if not holders:
        none = "there is no such object" if not records else "nobody holds it"
        return Finding(check, State.WRONG, f"nobody: of {title}, {none}", helps)
    renewed = await asyncio.gather(*(_is_renewed(reader, record) for record in holders))
    live = [record for record, is_live in zip(holders, renewed, strict=True) if is_live]
    if not live:
        return Finding(check, State.WRONG, f"nobody: {title} is not renewed any more", helps)
    if len(live) > 1:
        stop = "helm uninstall all releases of Bireme but one"
        both = ", ".join(sorted(record.who for record in live))
        return Finding(check, State.WRONG, f"two at a time: {both}", stop)
    return Finding(check, State.FINE, f"{live[0].who} holds {title} and renews it")


async def _is_renewed(reader: ClusterReader, record: _Record) -> bool:
    # Whatever stands in it, it is looked at for a minute at most.
    seconds = record.statement.seconds or _LEASE_SECONDS
    renewed = quantities.parse_timestamp(record.renewed)
    now = time.time()  # noqa: TID251  # a person asks now
    if renewed is not None and 0 <= now - renewed < seconds:
        return True
    # This machine's clock may differ from the cluster's, so wait for the object to change.
    sys.stderr.write(f"bireme: {record.title} looks old; watching it for {seconds} s\n")
    for _ in range(seconds):
        await asyncio.sleep(1)
        try:
            latest: Json = msgspec.json.decode(await reader.client.get(record.path))
        except ApiError:
            continue
        if _version_in(latest) != record.version:
            spec = latest.get("spec") or {}
            return bool(spec.get("holderIdentity") or spec.get("holder"))
    return False
