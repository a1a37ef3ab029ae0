"""Core facts to the Kubernetes JSON that means the same, written without the code that reads it.

Amounts are spelled as plain integers and requests are split over containers, limits and overhead
in several styles, so that a reader which looks in one place only is found out.
"""

from typing import Any

from bireme.core.gangs import Gang, Task
from bireme.core.pod_constraints import (
    NO_PREFERENCES,
    NodeConstraints,
    PodTerm,
    Preferences,
    Requirement,
    SelectorTerm,
    Toleration,
)
from bireme.core.queues import Queue
from bireme.core.resources import Request
from bireme.kube import names
from testbed.scenario.manifests import Manifest

STYLES = 6
"""Ways to ask for the same."""


def amount(name: str, units: int) -> str:
    """An amount of the core as a quantity."""
    return f"{units}m" if name == "cpu" else str(units)


def _amounts(request: Request) -> dict[str, str]:
    return {name: amount(name, units) for name, units in request if name != "pods"}


def _halves(request: Request) -> tuple[Request, Request]:
    return (
        tuple((name, units // 2) for name, units in request),
        tuple((name, units - units // 2) for name, units in request),
    )


def _container(name: str, resources: dict[str, Any], **fields: Any) -> Manifest:
    return {"name": name, "image": "any", "resources": resources, **fields}


def pod_spec(
    request: Request,
    constraints: NodeConstraints,
    style: int = 0,
    preferences: Preferences = NO_PREFERENCES,
) -> Manifest:
    """A pod spec that asks ``request``, demands ``constraints`` and prefers ``preferences``."""
    asked = {"requests": _amounts(request)}
    one, other = ({"requests": _amounts(half)} for half in _halves(request))
    spec: Manifest = {"containers": [_container("main", asked)]}
    match style:
        case 1:
            spec = {"containers": [_container("main", one), _container("second", other)]}
        case 2:
            spec = {"containers": [_container("main", {"limits": asked["requests"]})]}
        case 3:
            sidecar = _container("sidecar", other, restartPolicy="Always")
            spec = {"initContainers": [sidecar], "containers": [_container("main", one)]}
        case 4:
            spec = {"containers": [_container("main", one)], "overhead": other["requests"]}
        case 5:
            inits = [_container("init", asked)]
            spec = {"initContainers": inits, "containers": [_container("main", one)]}
    return {**spec, **_with_preferences(_demands(constraints), preferences)}


_SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


def _with_preferences(spec: Manifest, preferences: Preferences) -> Manifest:
    """Own weights are half of those in the core, which has them times two."""
    affinity: Manifest = spec.get("affinity", {})
    for given in preferences.nodes:
        soft = affinity.setdefault("nodeAffinity", {}).setdefault(_SOFT, [])
        soft.append({"weight": given.weight // 2, "preference": _term(given.term)})
    for wish in preferences.pods:
        kind, term = ("podAffinity", wish.near) if wish.near else ("podAntiAffinity", wish.apart)
        if term is not None:
            soft = affinity.setdefault(kind, {}).setdefault(_SOFT, [])
            soft.append({"weight": wish.weight // 2, "podAffinityTerm": _pod_term(term)})
    return {**spec, "affinity": affinity} if affinity else spec


def _pod_term(term: PodTerm) -> Manifest:
    asked = [_requirement(each) for each in term.pods.requirements]
    named = list(term.pods.namespaces or ())
    selector = {"matchExpressions": asked}
    return {"topologyKey": term.key, "namespaces": named, "labelSelector": selector}


def _demands(constraints: NodeConstraints) -> Manifest:
    found: Manifest = {}
    if constraints.node_selector:
        found["nodeSelector"] = dict(constraints.node_selector)
    if constraints.affinity_terms is not None:
        terms = [_term(term) for term in constraints.affinity_terms]
        name = "requiredDuringSchedulingIgnoredDuringExecution"
        found["affinity"] = {"nodeAffinity": {name: {"nodeSelectorTerms": terms}}}
    if constraints.tolerations:
        found["tolerations"] = [_toleration(toleration) for toleration in constraints.tolerations]
    return found


def _term(term: SelectorTerm) -> Manifest:
    parts = {"matchExpressions": term.labels, "matchFields": term.names}
    return {name: [_requirement(r) for r in part] for name, part in parts.items() if part}


def _requirement(requirement: Requirement) -> Manifest:
    found: Manifest = {"key": requirement.key, "operator": requirement.operator.value}
    return {**found, "values": list(requirement.values)} if requirement.values else found


def _toleration(toleration: Toleration) -> Manifest:
    given = {
        "key": toleration.key,
        "operator": "" if toleration.operator == "Equal" else toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    return {name: value for name, value in given.items() if value}


def task(given: Task, style: int = 0) -> Manifest:
    """A task of a TrainingJob."""
    found: Manifest = {
        "name": given.name,
        "role": given.role.value,
        "replicas": given.replicas,
        "template": {"spec": pod_spec(given.request, given.constraints, style, given.preferences)},
    }
    if given.min_replicas:
        found["minReplicas"] = given.min_replicas
    if given.max_replicas:
        found["maxReplicas"] = given.max_replicas
    if given.priority != given.role.default_priority:
        found["priority"] = given.priority
    return found


def training_job(gang: Gang, style: int = 0) -> Manifest:
    """A TrainingJob without its metadata's server part, class and status."""
    wish = gang.role_affinity
    spec: Manifest = {
        "queue": gang.queue,
        "tasks": [task(given, style) for given in gang.tasks],
        "roleAffinity": {"mode": wish.mode.value, "topologyKey": wish.topology_key},
    }
    if gang.min_available:
        spec["minAvailable"] = gang.min_available
    if gang.is_elastic:
        spec["rendezvous"] = "torch"
    if gang.estimated_seconds is not None:
        spec["estimatedDuration"] = f"{gang.estimated_seconds:.0f}s"
    spec["runPolicy"] = {"resumable": gang.is_resumable}
    if gang.min_runtime_seconds is not None:
        spec["runPolicy"]["minRuntimeSeconds"] = gang.min_runtime_seconds
    return {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": gang.name, "namespace": gang.namespace},
        "spec": spec,
    }


def queue(given: Queue) -> Manifest:
    """A Queue; one with namespaces selects those labelled ``queue: <its name>``."""
    spec: Manifest = {
        "userPriority": given.user_priority,
        "state": "Open" if given.is_open else "Closed",
        "limit": {name: amount(name, units) for name, units in given.limit.items()},
    }
    if given.wait_bound_seconds is not None:
        spec["waitBoundSeconds"] = given.wait_bound_seconds
    if given.namespaces is not None:
        spec["namespaceSelector"] = {"matchLabels": {f"queue-{given.name}": "yes"}}
    return {"metadata": {"name": given.name}, "spec": spec}


def namespace(name: str, queues: tuple[Queue, ...]) -> Manifest:
    """A namespace with the labels by which ``queues`` select it."""
    selected = [q for q in queues if q.namespaces is not None and name in q.namespaces]
    return {"metadata": {"name": name, "labels": {f"queue-{q.name}": "yes" for q in selected}}}
