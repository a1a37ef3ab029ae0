"""Subresources of pods that are verbs: binding, eviction, log."""

from collections.abc import Callable, Mapping
from typing import Final

from bireme_lab.embedded.api import bodies, kinds
from bireme_lab.embedded.api.errors import (
    ApiRefusal,
    Object,
    bad_request,
    conflict,
    other_record,
    precondition,
)
from bireme_lab.embedded.api.requests import ApiAnswer, ApiRequest
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.server import ApiServer
from bireme_lab.embedded.api.store import Key
from bireme_lab.embedded.controllers.budgets import covered, status_of

_TOPOLOGY: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_OK: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def register(api: ApiServer, logs: Mapping[str, str]) -> None:
    """Have the API server answer these; ``logs`` are what containers wrote, by uid of the pod."""
    api.connects[kinds.PODS, "binding"] = _binding(api)
    api.connects[kinds.PODS, "eviction"] = _eviction(api)
    api.connects[kinds.PODS, "log"] = _log(logs)


Handler = Callable[[ApiRequest, ResourceKind, Key, Object], ApiAnswer]


def _binding(api: ApiServer) -> Handler:
    def bind(request: ApiRequest, resource: ResourceKind, key: Key, pod: Object) -> ApiAnswer:
        body = bodies.decode_object(request, resource, "binding")
        subject, meta = resource.subject(key[1]), pod["metadata"]
        uid = (body.get("metadata") or {}).get("uid")
        if uid and uid != meta["uid"]:
            raise precondition(subject, "UID", uid, meta["uid"])
        if meta.get("deletionTimestamp"):
            raise conflict(subject, f"pod {key[1]} is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            text = f'pod {key[1]} is already assigned to node "{pod["spec"]["nodeName"]}"'
            raise conflict(subject, text)
        if pod["spec"].get("schedulingGates"):
            text = f"pod {key[1]} has non-empty .spec.schedulingGates"
            raise conflict(subject, text)
        node = (body.get("target") or {}).get("name", "")
        if not node:
            raise bad_request("target.name: Required value")
        now = api.timestamp()
        status = {k: v for k, v in (pod.get("status") or {}).items() if k != "nominatedNodeName"}
        others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
        condition = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": now,
            "observedGeneration": meta.get("generation", 1),
        }
        new = {
            **_with_topology(api, pod, node),
            "spec": {**pod["spec"], "nodeName": node},
            "status": {**status, "conditions": [*others, condition]},
        }
        api.store.write(kinds.PODS, key, new)
        return ApiAnswer(201, _OK)

    return bind


def _with_topology(api: ApiServer, pod: Object, node: str) -> Object:
    """Return a pod with the labels of its node's zone and region, as a bound pod gets them."""
    stored = api.store.get(kinds.NODES, ("", node)) or {"metadata": {}}
    labels = stored["metadata"].get("labels") or {}
    copied = {name: labels[name] for name in _TOPOLOGY if name in labels}
    if not copied:
        return pod
    meta = pod["metadata"]
    return {**pod, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **copied}}}


def _eviction(api: ApiServer) -> Handler:
    def evict(request: ApiRequest, resource: ResourceKind, key: Key, pod: Object) -> ApiAnswer:
        body = bodies.decode_object(request, resource, "eviction")
        options = body.get("deleteOptions") or {}
        subject, meta = resource.subject(key[1]), pod["metadata"]
        uid = (options.get("preconditions") or {}).get("uid")
        if body.get("kind", "Eviction") != "Eviction":
            text = f'{body["kind"]} in version "v1" cannot be handled as a Eviction'
            raise bad_request(f"{text}: no conversion is known")
        if (body.get("metadata") or {}).get("name") != key[1]:
            raise bad_request("name in URL does not match name in Eviction object")
        if uid and uid != meta["uid"]:
            raise other_record(subject, "UID", uid, meta["uid"])
        phase = (pod.get("status") or {}).get("phase")
        if phase == "Running" and not meta.get("deletionTimestamp"):
            _spend(api, pod)
        if request.is_dry_run or options.get("dryRun"):
            return ApiAnswer(201, _OK)
        if not meta.get("deletionTimestamp"):
            status = pod.get("status") or {}
            others = [c for c in status.get("conditions") or () if c["type"] != "DisruptionTarget"]
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
                "lastProbeTime": None,
                "lastTransitionTime": api.timestamp(),
            }
            new = {**pod, "status": {**status, "conditions": [*others, condition]}}
            api.store.write(kinds.PODS, key, new)
        api.deleter.delete(resource, key, options.get("gracePeriodSeconds"))
        return ApiAnswer(201, _OK)

    return evict


def _spend(api: ApiServer, pod: Object) -> None:
    """Take one disruption from the budget of a pod; 429 where it has none left."""
    budgets = api.store.collection(kinds.BUDGETS).objects
    covering = [budget for budget in budgets.values() if covered(budget, [pod])]
    if len(covering) > 1:
        text = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )
        raise ApiRefusal(500, "InternalError", text)
    for budget in covering:
        pods = list(api.store.collection(kinds.PODS).objects.values())
        status = status_of(budget, covered(budget, pods))
        if status["disruptionsAllowed"] < 1:
            name = budget["metadata"]["name"]
            details = {
                "causes": [
                    {
                        "reason": "DisruptionBudget",
                        "message": f"The disruption budget {name} needs "
                        f"{status['desiredHealthy']} healthy pods and has "
                        f"{status['currentHealthy']} currently",
                    }
                ]
            }
            text = "Cannot evict pod as it would violate the pod's disruption budget."
            raise ApiRefusal(429, "TooManyRequests", text, details)


def _log(logs: Mapping[str, str]) -> Handler:
    def read(request: ApiRequest, _: ResourceKind, key: Key, pod: Object) -> ApiAnswer:
        phase = (pod.get("status") or {}).get("phase")
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        if phase == "Pending" and not statuses:
            names = [c["name"] for c in pod["spec"]["containers"]]
            text = (
                f'container "{names[0]}" in pod "{key[1]}" is waiting to start: ContainerCreating'
            )
            raise bad_request(text)
        lines = logs.get(pod["metadata"]["uid"], "").splitlines(keepends=True)
        if (tail := request.number("tailLines")) is not None:
            lines = lines[max(0, len(lines) - tail) :]
        return ApiAnswer(200, "".join(lines))

    return read
