"""The checks of ``bireme doctor``: an installation from the API server to the gangs that wait.

Each reads with the caller's own rights. What may not be read is unknown, and said so: it is no
fault of the installation. Nothing is changed; asking what one may do creates no object.
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
from bireme.cli.cluster import ConsoleError, Reader, refused
from bireme.cli.findings import Finding, Findings, State, condition, said, some
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
"""Of Kubernetes 1, as the chart's kubeVersion."""
START_TIMEOUT_SECONDS: Final = 900
"""The operator's default of startTimeoutSeconds."""
_GRACE_SECONDS: Final = 60.0
"""What the operator may take for anything, beside the limit itself."""
_FAULTS: Final = frozenset(str(each) for each in Reason if each.is_configuration_fault)
_DIGITS: Final = re.compile("[0-9]+")


async def examined(reader: Reader) -> list[Finding]:
    """Return all findings, from what everything needs to what only some gangs need."""
    try:
        told: Json = msgspec.json.decode(await reader.client.get("/version"))
    except ApiError as error:
        helps = "check the address and the credentials of the kubeconfig: kubectl version"
        return [Finding("API server", State.WRONG, f"does not answer: {error.message}", helps)]
    minor = int((_DIGITS.match(str(told.get("minor"))) or ["0"])[0])
    there = await _served(reader)
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
    if len(there) == len(names.PLURALS):
        checks += [
            ("queues", lambda: _queues(reader)),
            ("policies", lambda: _policies(reader)),
            ("gangs", lambda: _gangs(reader, facts)),
        ]
    found = [_api_server(told, minor), *_kinds(there), *_settings(facts)]
    for name, check in checks:
        try:
            found += await check()
        except ConsoleError as error:  # overload, say, of which later checks may see nothing
            found.append(Finding(name, State.UNKNOWN, str(error)))
    return found


def _api_server(told: Json, minor: int) -> Finding:
    running = cleaned(str(told.get("gitVersion")))
    if minor < OLDEST_MINOR:
        helps = f"upgrade the cluster to Kubernetes 1.{OLDEST_MINOR} or newer"
        return Finding("API server", State.WRONG, f"{running} is too old for Bireme", helps)
    return Finding("API server", State.FINE, f"answers, {running}")


def _settings(facts: Installation) -> Iterator[Finding]:
    if facts.settings_of is None:
        message = "unknown, and taken for the defaults: you may not list ConfigMaps"
        yield Finding("settings", State.UNKNOWN, message)
    elif len(facts.settings_of) > 1:
        message = f"of several releases, of which one alone leads: {', '.join(facts.settings_of)}"
        yield Finding("settings", State.WRONG, message, "helm uninstall all but one")
    elif facts.fault:
        helps = "correct the values of the chart, or use the bireme of its version"
        yield Finding("settings", State.WRONG, cleaned(facts.fault), helps)


# --- kinds --------------------------------------------------------------------------------------


async def _served(reader: Reader) -> set[str]:
    """Return the plurals of Bireme's kinds that the cluster serves."""
    try:
        told = msgspec.json.decode(await reader.client.get(f"/apis/{names.API_VERSION}"))
    except ApiError as error:
        if not error.is_not_found:
            raise refused(error, f"read /apis/{names.API_VERSION}") from error
        return set()
    return {each["name"] for each in told.get("resources") or ()} & set(names.PLURALS.values())


def _kinds(there: set[str]) -> Iterator[Finding]:
    missing = sorted(set(names.PLURALS.values()) - there)
    if missing:
        helps = (
            "install the chart with crds.enabled=true, or kubectl apply charts/bireme/files/crds"
        )
        yield Finding("kinds", State.WRONG, f"not served: {', '.join(missing)}", helps)
    else:
        yield Finding("kinds", State.FINE, f"{', '.join(sorted(there))} are served")


async def _definitions(reader: Reader) -> Findings:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    listed = await reader.objects_if_allowed(path)
    if listed is None:
        message = "whether they are of this version is unknown: you may not list them"
        return [Finding("definitions", State.UNKNOWN, message)]
    by_name = {each["metadata"]["name"]: each for each in listed}
    there = {
        kind: by_name[name]
        for kind in crd.KINDS
        if (name := f"{kind.plural}.{names.GROUP}") in by_name
    }
    if not there:
        return []
    differing = [
        kind.plural
        for kind, definition in there.items()
        if _schemas(definition) != _schemas(crd.definition(kind))
    ]
    if differing:
        message = f"of another version than this bireme {version('bireme')}: {', '.join(differing)}"
        helps = "helm upgrade to this version, or use the bireme of the cluster's"
        return [Finding("definitions", State.WRONG, message, helps)]
    return [Finding("definitions", State.FINE, f"are those of {version('bireme')}")]


def _schemas(definition: Json) -> dict[str, Any]:
    versions = definition["spec"]["versions"]
    return {each["name"]: each["schema"]["openAPIV3Schema"] for each in versions}


# --- admission, rights, nodes -------------------------------------------------------------------


async def _admission(reader: Reader, facts: Installation) -> Findings:
    if facts.observes:
        return []
    root = "/apis/admissionregistration.k8s.io/v1"
    policies = await installed.objects(reader, f"{root}/validatingadmissionpolicies")
    bindings = await installed.objects(reader, f"{root}/validatingadmissionpolicybindings")
    if policies is None or bindings is None:
        message = "you may not list ValidatingAdmissionPolicies and their bindings"
        return [Finding("admission", State.UNKNOWN, message)]
    if not policies and not bindings:
        message = "no admission policy of Bireme's: who may create pods may write its labels too"
        return [
            Finding("admission", State.NOTE, message, "helm upgrade with admission as by default")
        ]
    there = {each["metadata"]["name"] for each in policies}
    bound = {each["spec"]["policyName"] for each in bindings}
    faults = [
        *(f"policy {name} is not there, and its binding is" for name in sorted(bound - there)),
        *(
            f"policy {name} has no binding, so nobody is held to it"
            for name in sorted(there - bound)
        ),
    ]
    if faults:
        return [Finding("admission", State.WRONG, each, "helm upgrade again") for each in faults]
    return [Finding("admission", State.FINE, f"{len(there)} policies are there and bound")]


_RIGHTS: Final = (
    ("list", names.GROUP, "trainingjobs", "", True, "list, why"),
    ("create", names.GROUP, "trainingjobs", "", True, "submit"),
    ("patch", names.GROUP, "trainingjobs", "", True, "suspend, resume, scale"),
    ("delete", names.GROUP, "trainingjobs", "", True, "cancel"),
    ("get", "", "pods", "log", True, "logs"),
    ("list", names.GROUP, "trainingjobs", "", False, "queue and top of all namespaces"),
    ("list", names.GROUP, "queues", "", False, "top, submit --check"),
    ("list", "", "nodes", "", False, "top, drain"),
)
"""Verb, group, resource, subresource, whether in the namespace alone, and what needs it."""


async def _rights(reader: Reader) -> Findings:
    async def may(verb: str, group: str, resource: str, sub: str, in_one: bool, _: str) -> bool:
        asked: Json = {"verb": verb, "group": group, "resource": resource, "subresource": sub}
        if in_one:
            asked["namespace"] = reader.namespace
        body = {"spec": {"resourceAttributes": asked}}
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


async def _nodes(reader: Reader, facts: Installation) -> Findings:
    nodes = await reader.objects_if_allowed("/api/v1/nodes")
    if nodes is None:
        return [Finding("nodes", State.UNKNOWN, "you may not list nodes")]
    default = SchedulingSettings.__dataclass_fields__["node_pool_label"].default
    label = facts.setting("scheduling", "nodePoolLabel", default)
    pools: dict[str, list[Json]] = {}
    for node in nodes:
        pool = (node["metadata"].get("labels") or {}).get(label, "")
        pools.setdefault(pool, []).append(node)
    found = [
        _closed_pool(pool, of) for pool, of in sorted(pools.items()) if not any(map(_takes, of))
    ]
    found += _unknown_models(nodes, facts)
    if not nodes:
        helps = "add nodes; gangs wait with NeverFits until then"
        found.append(Finding("nodes", State.WRONG, "the cluster has none", helps))
    taking = [node for node in nodes if _takes(node)]
    if taking:
        added = tuple(facts.setting("scheduling", "accelerators", ()))
        known = read_accelerators(added)
        offers = ((n.get("status") or {}).get("allocatable") or {} for n in taking)
        gpus = sum(gpus_in(offer, known) or 0 for offer in offers)
        message = f"{len(taking)} of {len(nodes)} are ready and not cordoned, with {gpus} GPUs"
        found.append(Finding("nodes", State.FINE, message))
    return found


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
            f"{number} with GPUs of model {cleaned(product)}, which Bireme does not know: policies "
            f"that ask for speeds count {counted:g} times a V100"
        )
        helps = "add it to the setting gpuModels, in the chart scheduling.gpuModels"
        yield Finding("nodes", State.NOTE, message, helps)


def _takes(node: Json) -> bool:
    is_closed = bool((node.get("spec") or {}).get("unschedulable")) or _is_leaving(node)
    return not is_closed and condition(node, "Ready").get("status") == "True"


def _is_leaving(node: Json) -> bool:
    return "deletionTimestamp" in node["metadata"]


def _closed_pool(pool: str, nodes: Sequence[Json]) -> Finding:
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


async def _queues(reader: Reader) -> Findings:
    queues = await reader.objects_if_allowed(names.path("queues"))
    if queues is None:
        return [Finding("queues", State.UNKNOWN, "you may not list queues")]
    if not queues:
        helps = "create one: manifests/examples/04-queues.yaml; gangs wait with QueueNotFound"
        return [Finding("queues", State.WRONG, "there is none", helps)]
    found = []
    for queue in queues:
        admitting = condition(queue, "Admitting")
        reason = str(admitting.get("reason", ""))
        # One that holds its limit admits nothing either, and is well.
        if admitting.get("status") == "False" and reason in _FAULTS:
            message = f"{queue['metadata']['name']} admits nothing: {said(admitting)}"
            is_meant = (queue.get("spec") or {}).get("state") == "Closed"
            state = State.NOTE if is_meant else State.WRONG
            found.append(Finding("queues", state, message, "" if is_meant else remedy(reason)))
    if names.DEFAULT_QUEUE not in {queue["metadata"]["name"] for queue in queues}:
        message = f"none is called {names.DEFAULT_QUEUE}: gangs that name no queue do not start"
        helps = f"create it, or label namespaces with {names.DEFAULT_QUEUE_LABEL}"
        found.append(Finding("queues", State.NOTE, message, helps))
    return found or [
        Finding("queues", State.FINE, f"{len(queues)} {'are' if len(queues) > 1 else 'is'} there")
    ]


async def _policies(reader: Reader) -> Findings:
    policies = await reader.objects_if_allowed(names.path("schedulingpolicies"))
    if policies is None:
        return [Finding("policies", State.UNKNOWN, "you may not list SchedulingPolicies")]
    found = []
    for policy in policies:
        loaded, degraded = condition(policy, "Loaded"), condition(policy, "Degraded")
        name = policy["metadata"]["name"]
        if loaded.get("status") == "False":
            message = f"{name} does not decide: {said(loaded)}"
            helps = remedy(str(loaded.get("reason", "")))
            found.append(Finding("policies", State.WRONG, message, helps))
        elif degraded.get("status") == "True":
            message = f"{name}: {said(degraded)}"
            helps = remedy(str(degraded.get("reason", "")))
            found.append(Finding("policies", State.NOTE, message, helps))
    if found:
        return found
    of = f"{len(policies)} are loaded" if policies else "none, so the settings decide"
    return [Finding("policies", State.FINE, of)]


async def _gangs(reader: Reader, facts: Installation) -> Findings:
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
    found = []
    if unseen:
        message = f"nothing is written on {some(unseen)}: no operator has seen them"
        helps = "have an operator lead, as said above" if not facts.observes else "it observes only"
        found.append(Finding("gangs", State.WRONG, message, helps))
    if stuck:
        message = f"Starting for longer than their start limit: {some(stuck)}"
        helps = "the operator should have stopped them: see its log, and bireme why of each"
        found.append(Finding("gangs", State.WRONG, message, helps))
    return found or [Finding("gangs", State.FINE, f"{len(manifests)} {scope}, none is stuck")]


def _start_limit(
    manifest: Json, gang: GangLine, queues: Mapping[str, Json], facts: Installation
) -> float:
    """Return the seconds after which the operator gives the places of a gang back."""
    default = facts.setting("operator", "startTimeoutSeconds", START_TIMEOUT_SECONDS)
    policy = (manifest.get("spec") or {}).get("runPolicy") or {}
    said = [policy.get("startTimeoutSeconds")]
    name, seen = gang.queue, set[str]()
    while name in queues and name not in seen:
        seen.add(name)
        said.append(queues[name].get("startTimeoutSeconds"))
        name = queues[name].get("parent") or ""
    return float(min((each for each in said if each), default=default))
