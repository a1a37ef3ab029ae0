"""The checks of ``bireme doctor``: an installation from the API server to the gangs that wait.

Each check reads with the caller's own rights. An object that the caller may not read is reported as
unknown, which is no fault of the installation. No check changes anything; an access review creates
no object.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec

from bireme.cli import installed
from bireme.cli.arguments import Json
from bireme.cli.cluster import ClusterReader, ConsoleError, refusal
from bireme.cli.findings import Finding, Findings, State, condition, condition_text, some
from bireme.cli.gangs import GangLine, line_of
from bireme.cli.gpus import gpus_in
from bireme.cli.installed import Installation, installation
from bireme.cli.programs import operator_leads, programs_run, scheduler_leads
from bireme.cli.why import gangs_if_allowed, remedy
from bireme.core.accelerators import read_accelerators
from bireme.core.gpus import (
    GPU_MODEL_LABEL,
    gpu_model,
    is_known_gpu_model,
    read_gpu_models,
)
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.times import duration
from bireme.kube import crd, names
from bireme.kube.client import ApiError
from bireme.kube.conditions import cleaned

OLDEST_MINOR: Final = 35
"""The oldest minor version of Kubernetes 1, as the chart's kubeVersion."""
START_TIMEOUT_SECONDS: Final = 900
"""The operator's default of startTimeoutSeconds."""
_GRACE_SECONDS: Final = 60.0
"""Time in which the operator reacts, on top of each limit."""
_FAULTS: Final = frozenset(str(reason) for reason in Reason if reason.is_configuration_fault)
_DIGITS: Final = re.compile("[0-9]+")


async def examine(reader: ClusterReader) -> list[Finding]:
    """Return all findings, the most fundamental ones first."""
    try:
        version_info: Json = msgspec.json.decode(await reader.client.get("/version"))
    except ApiError as error:
        helps = "check the address and the credentials of the kubeconfig: kubectl version"
        return [Finding("API server", State.WRONG, f"does not answer: {error.message}", helps)]
    minor = int((_DIGITS.match(str(version_info.get("minor"))) or ["0"])[0])
    served_kinds = await _api_kinds(reader)
    facts = await installation(reader, minor)
    checks: list[tuple[str, Callable[[], Awaitable[Findings]]]] = [
        ("definitions", lambda: _definitions(reader)),
        ("programs", lambda: programs_run(facts)),
        ("operator leads", lambda: operator_leads(reader, facts)),
        ("kube-scheduler leads", lambda: scheduler_leads(reader, facts)),
        ("admission", lambda: _admission(reader, facts)),
        ("rights", lambda: _rights(reader)),
        ("nodes", lambda: _nodes(reader, facts)),
    ]
    if len(served_kinds) == len(names.PLURALS):
        checks += [
            ("queues", lambda: _queues(reader)),
            ("policies", lambda: _policies(reader)),
            ("gangs", lambda: _gangs(reader, facts)),
        ]
    findings = [_api_server(version_info, minor), *_kinds(served_kinds), *_settings(facts)]
    for name, check in checks:
        try:
            findings += await check()
        except ConsoleError as error:  # overload, say; later checks may succeed
            findings.append(Finding(name, State.UNKNOWN, str(error)))
    return findings


def _api_server(version_info: Json, minor: int) -> Finding:
    running = cleaned(str(version_info.get("gitVersion")))
    if minor < OLDEST_MINOR:
        helps = f"upgrade the cluster to Kubernetes 1.{OLDEST_MINOR} or newer"
        return Finding("API server", State.WRONG, f"{running} is too old for Bireme", helps)
    return Finding("API server", State.FINE, f"answers, {running}")


def _settings(facts: Installation) -> Iterator[Finding]:
    if facts.settings_of is None:
        message = "unknown, so the defaults are assumed: you may not list ConfigMaps"
        yield Finding("settings", State.UNKNOWN, message)
    elif len(facts.settings_of) > 1:
        message = f"of several releases, of which only one leads: {', '.join(facts.settings_of)}"
        yield Finding("settings", State.WRONG, message, "helm uninstall all but one")
    elif facts.fault:
        helps = "correct the values of the chart, or use the bireme command of the chart's version"
        yield Finding("settings", State.WRONG, cleaned(facts.fault), helps)


# --- kinds --------------------------------------------------------------------------------------


async def _api_kinds(reader: ClusterReader) -> set[str]:
    """Return the plurals of Bireme's kinds that the cluster serves."""
    try:
        api_group = msgspec.json.decode(await reader.client.get(f"/apis/{names.API_VERSION}"))
    except ApiError as error:
        if not error.is_not_found:
            raise refusal(error, f"read /apis/{names.API_VERSION}") from error
        return set()
    return {resource["name"] for resource in api_group.get("resources") or ()} & set(
        names.PLURALS.values()
    )


def _kinds(served_kinds: set[str]) -> Iterator[Finding]:
    missing = sorted(set(names.PLURALS.values()) - served_kinds)
    if missing:
        helps = (
            "install the chart with crds.enabled=true, or kubectl apply charts/bireme/files/crds"
        )
        yield Finding("kinds", State.WRONG, f"not served: {', '.join(missing)}", helps)
    else:
        yield Finding("kinds", State.FINE, f"{', '.join(sorted(served_kinds))} are served")


async def _definitions(reader: ClusterReader) -> Findings:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    listed = await reader.objects_if_allowed(path)
    if listed is None:
        message = "you may not list them, so their version is unknown"
        return [Finding("definitions", State.UNKNOWN, message)]
    by_name = {crd_object["metadata"]["name"]: crd_object for crd_object in listed}
    by_kind = {
        kind: by_name[name]
        for kind in crd.KINDS
        if (name := f"{kind.plural}.{names.GROUP}") in by_name
    }
    if not by_kind:
        return []
    differing = [
        kind.plural
        for kind, definition in by_kind.items()
        if _schemas(definition) != _schemas(crd.definition(kind))
    ]
    if differing:
        message = f"of another version than this bireme {version('bireme')}: {', '.join(differing)}"
        helps = "helm upgrade to this version, or use the bireme of the cluster's"
        return [Finding("definitions", State.WRONG, message, helps)]
    return [Finding("definitions", State.FINE, f"are those of {version('bireme')}")]


def _schemas(definition: Json) -> dict[str, Any]:
    versions = definition["spec"]["versions"]
    return {entry["name"]: entry["schema"]["openAPIV3Schema"] for entry in versions}


# --- admission, rights, nodes -------------------------------------------------------------------


async def _admission(reader: ClusterReader, facts: Installation) -> Findings:
    if facts.observes:
        return []
    root = "/apis/admissionregistration.k8s.io/v1"
    policies = await installed.objects(reader, f"{root}/validatingadmissionpolicies")
    bindings = await installed.objects(reader, f"{root}/validatingadmissionpolicybindings")
    if policies is None or bindings is None:
        message = "you may not list ValidatingAdmissionPolicies and their bindings"
        return [Finding("admission", State.UNKNOWN, message)]
    if not policies and not bindings:
        message = (
            "Bireme's admission policies are missing: anyone who creates pods may set "
            "Bireme's labels"
        )
        return [
            Finding(
                "admission", State.NOTE, message, "helm upgrade with the default value of admission"
            )
        ]
    policy_names = {policy["metadata"]["name"] for policy in policies}
    bound_names = {binding["spec"]["policyName"] for binding in bindings}
    faults = [
        *(
            f"policy {name} is missing, but its binding exists"
            for name in sorted(bound_names - policy_names)
        ),
        *(
            f"policy {name} has no binding, so it has no effect"
            for name in sorted(policy_names - bound_names)
        ),
    ]
    if faults:
        return [Finding("admission", State.WRONG, fault, "helm upgrade again") for fault in faults]
    return [Finding("admission", State.FINE, f"{len(policy_names)} policies exist and are bound")]


_RIGHTS: Final = (
    ("list", names.GROUP, "trainingjobs", "", True, "list, why"),
    ("create", names.GROUP, "trainingjobs", "", True, "submit"),
    ("patch", names.GROUP, "trainingjobs", "", True, "suspend, resume, scale"),
    ("delete", names.GROUP, "trainingjobs", "", True, "cancel"),
    ("get", "", "pods", "log", True, "logs"),
    ("list", names.GROUP, "trainingjobs", "", False, "queue of all namespaces"),
    ("list", names.GROUP, "queues", "", False, "queue --watch, submit --check"),
    ("list", "", "nodes", "", False, "queue --watch, maintenance plan"),
)
"""Verb, group, resource, subresource, whether the namespace suffices, and the commands for it."""


async def _rights(reader: ClusterReader) -> Findings:
    async def may(verb: str, group: str, resource: str, sub: str, in_one: bool, _: str) -> bool:
        attributes: Json = {"verb": verb, "group": group, "resource": resource, "subresource": sub}
        if in_one:
            attributes["namespace"] = reader.namespace
        body = {"spec": {"resourceAttributes": attributes}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = msgspec.json.decode(await reader.client.create(path, body))
        return bool((answer.get("status") or {}).get("allowed"))

    try:
        allowed = await asyncio.gather(*(may(*right) for right in _RIGHTS))
    except ApiError as error:
        return [Finding("rights", State.UNKNOWN, f"cannot be asked for: {cleaned(error.message)}")]
    where = f"in namespace {reader.namespace}"
    lacking = [
        f"{verb} {'/'.join(filter(None, (resource, sub)))}"
        f" {where if in_one else 'of the cluster'} ({need})"
        for (verb, _, resource, sub, in_one, need), is_allowed in zip(_RIGHTS, allowed, strict=True)
        if not is_allowed
    ]
    if not lacking:
        return [Finding("rights", State.FINE, f"you may use all commands {where}")]
    helps = "if you need them: the chart's roles, docs/operations.md#tenants"
    return [Finding("rights", State.NOTE, f"you may not {'; '.join(lacking)}", helps)]


async def _nodes(reader: ClusterReader, facts: Installation) -> Findings:
    nodes = await reader.objects_if_allowed("/api/v1/nodes")
    if nodes is None:
        return [Finding("nodes", State.UNKNOWN, "you may not list nodes")]
    default = SchedulingSettings.__dataclass_fields__["node_pool_label"].default
    label = facts.setting("scheduling", "nodePoolLabel", default)
    pools: dict[str, list[Json]] = {}
    for node in nodes:
        pool = (node["metadata"].get("labels") or {}).get(label, "")
        pools.setdefault(pool, []).append(node)
    findings = [
        _pool_finding(pool, of) for pool, of in sorted(pools.items()) if not any(map(_takes, of))
    ]
    findings += _unknown_models(nodes, facts)
    if not nodes:
        helps = "add nodes; gangs wait with NeverFits until then"
        findings.append(Finding("nodes", State.WRONG, "the cluster has none", helps))
    taking = [node for node in nodes if _takes(node)]
    if taking:
        added = tuple(facts.setting("scheduling", "accelerators", ()))
        accelerators = read_accelerators(added)
        offers = ((n.get("status") or {}).get("allocatable") or {} for n in taking)
        gpus = sum(gpus_in(offer, accelerators) or 0 for offer in offers)
        message = f"{len(taking)} of {len(nodes)} are ready and not cordoned, with {gpus} GPUs"
        findings.append(Finding("nodes", State.FINE, message))
    return findings


def _unknown_models(nodes: Sequence[Json], facts: Installation) -> Iterator[Finding]:
    added = read_gpu_models(tuple(facts.setting("scheduling", "gpuModels", ())))
    products = Counter(
        (node["metadata"].get("labels") or {}).get(GPU_MODEL_LABEL) for node in nodes
    )
    for product, number in sorted((name, n) for name, n in products.items() if name):
        if is_known_gpu_model(product, added):
            continue
        counted = gpu_model(product, added).speed
        message = (
            f"{number} with GPUs of model {cleaned(product)}, which Bireme does not know: "
            f"policies assume {counted:g} times the speed of a V100"
        )
        helps = "add it to the setting gpuModels, in the chart scheduling.gpuModels"
        yield Finding("nodes", State.NOTE, message, helps)


def _takes(node: Json) -> bool:
    is_closed = bool((node.get("spec") or {}).get("unschedulable")) or _is_leaving(node)
    return not is_closed and condition(node, "Ready").get("status") == "True"


def _is_leaving(node: Json) -> bool:
    return "deletionTimestamp" in node["metadata"]


def _pool_finding(pool: str, nodes: Sequence[Json]) -> Finding:
    cordoned = sum(bool((node.get("spec") or {}).get("unschedulable")) for node in nodes)
    unready = sum(condition(node, "Ready").get("status") != "True" for node in nodes)
    leaving = sum(map(_is_leaving, nodes))
    which = f"pool {cleaned(pool)}" if pool else "all nodes without a pool"
    counts = (
        f"of {len(nodes)}, {cordoned} are cordoned, {unready} not ready, {leaving} being deleted"
    )
    message = f"{which}: no node takes pods; {counts}"
    first = nodes[0]["metadata"]["name"]
    does = f"kubectl uncordon {first}" if cordoned else f"kubectl describe node {first}"
    return Finding("nodes", State.WRONG, message, f"{does}, and so for the others")


# --- queues, policies, gangs --------------------------------------------------------------------


async def _queues(reader: ClusterReader) -> Findings:
    queues = await reader.objects_if_allowed(names.path("queues"))
    if queues is None:
        return [Finding("queues", State.UNKNOWN, "you may not list queues")]
    if not queues:
        helps = "create one: manifests/examples/04-queues.yaml; gangs wait with QueueNotFound"
        return [Finding("queues", State.WRONG, "there is none", helps)]
    findings = []
    for queue in queues:
        admitting = condition(queue, "Admitting")
        reason = str(admitting.get("reason", ""))
        # A queue at its limit admits nothing either, and is no fault.
        if admitting.get("status") == "False" and reason in _FAULTS:
            message = f"{queue['metadata']['name']} admits no gangs: {condition_text(admitting)}"
            is_meant = (queue.get("spec") or {}).get("state") == "Closed"
            state = State.NOTE if is_meant else State.WRONG
            findings.append(Finding("queues", state, message, "" if is_meant else remedy(reason)))
    if names.DEFAULT_QUEUE not in {queue["metadata"]["name"] for queue in queues}:
        message = f"none has the name {names.DEFAULT_QUEUE}: gangs that name no queue do not start"
        helps = f"create it, or label namespaces with {names.DEFAULT_QUEUE_LABEL}"
        findings.append(Finding("queues", State.NOTE, message, helps))
    return findings or [
        Finding("queues", State.FINE, f"{len(queues)} {'are' if len(queues) > 1 else 'is'} there")
    ]


async def _policies(reader: ClusterReader) -> Findings:
    policies = await reader.objects_if_allowed(names.path("schedulingpolicies"))
    if policies is None:
        return [Finding("policies", State.UNKNOWN, "you may not list SchedulingPolicies")]
    findings = []
    for policy in policies:
        loaded, degraded = condition(policy, "Loaded"), condition(policy, "Degraded")
        name = policy["metadata"]["name"]
        if loaded.get("status") == "False":
            message = f"{name} does not decide: {condition_text(loaded)}"
            helps = remedy(str(loaded.get("reason", "")))
            findings.append(Finding("policies", State.WRONG, message, helps))
        elif degraded.get("status") == "True":
            message = f"{name}: {condition_text(degraded)}"
            helps = remedy(str(degraded.get("reason", "")))
            findings.append(Finding("policies", State.NOTE, message, helps))
    if findings:
        return findings
    of = f"{len(policies)} are loaded" if policies else "none, so the settings decide"
    return [Finding("policies", State.FINE, of)]


async def _gangs(reader: ClusterReader, facts: Installation) -> Findings:
    manifests = await gangs_if_allowed(reader)
    scope = "of all namespaces"
    if manifests is None:
        manifests = await gangs_if_allowed(reader, reader.namespace)
        scope = f"of namespace {reader.namespace}"
    if manifests is None:
        return [Finding("gangs", State.UNKNOWN, "you may not list TrainingJobs and PodGroups")]
    queues = await reader.objects_if_allowed(names.path("queues")) or []
    by_name = {queue["metadata"]["name"]: queue.get("spec") or {} for queue in queues}
    now = time.time()  # noqa: TID251  # a person asks now
    unseen, stuck = [], []
    for manifest in manifests:
        gang = line_of(manifest)
        age = now - gang.created if gang.created is not None else 0.0
        if not manifest.get("status") and age > _GRACE_SECONDS:
            unseen.append(gang.key)
        limit = _start_limit(manifest, gang, by_name, facts) + _GRACE_SECONDS
        if gang.phase == "Starting" and gang.since is not None and now - gang.since > limit:
            stuck.append(f"{gang.key} ({duration(now - gang.since)})")
    findings = []
    if unseen:
        message = f"{some(unseen)} have no status: no operator has seen them"
        helps = "let an operator lead, see above" if not facts.observes else "it observes only"
        findings.append(Finding("gangs", State.WRONG, message, helps))
    if stuck:
        message = f"Starting for longer than their start limit: {some(stuck)}"
        helps = "the operator should have stopped them: see its log, and bireme why of each"
        findings.append(Finding("gangs", State.WRONG, message, helps))
    return findings or [Finding("gangs", State.FINE, f"{len(manifests)} {scope}, none is stuck")]


def _start_limit(
    manifest: Json, gang: GangLine, queues: Mapping[str, Json], facts: Installation
) -> float:
    """Return the seconds after which the operator gives the places of a gang back."""
    default = facts.setting("operator", "startTimeoutSeconds", START_TIMEOUT_SECONDS)
    policy = (manifest.get("spec") or {}).get("runPolicy") or {}
    limits = [policy.get("startTimeoutSeconds")]
    name, visited = gang.queue, set[str]()
    while name in queues and name not in visited:
        visited.add(name)
        limits.append(queues[name].get("startTimeoutSeconds"))
        name = queues[name].get("parent") or ""
    return float(min((limit for limit in limits if limit), default=default))
