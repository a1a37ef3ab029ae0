"""Subresources of pods that are verbs: binding, eviction, log."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object, Refusal, bad_request, conflict, precondition
from bireme_lab.embedded.api.requests import Answer, Request
from bireme_lab.embedded.api.resources import Resource
from bireme_lab.embedded.api.server import ApiServer, decode_body
from bireme_lab.embedded.api.store import Key
from bireme_lab.embedded.controllers.budgets import covered, status_of

_OK: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def register(api: ApiServer, logs: Mapping[str, str]) -> None:
    """Have the API server answer these; ``logs`` are what containers wrote, by uid of the pod."""
    api.connects[kinds.PODS, "binding"] = _binding(api)
    api.connects[kinds.PODS, "eviction"] = _eviction(api)
    api.connects[kinds.PODS, "log"] = _log(logs)


Handler = Callable[[Request, Resource, Key, Object], Answer]


def _binding(api: ApiServer) -> Handler:
    def bind(request: Request, resource: Resource, key: Key, pod: Object) -> Answer:
        body = decode_body(request)
        subject, meta = resource.subject(key[1]), pod["metadata"]
        wanted = (body.get("metadata") or {}).get("uid")
        if wanted and wanted != meta["uid"]:
            raise precondition(subject, "UID", wanted, meta["uid"])
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
        status = pod.get("status") or {}
        others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
        condition = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": now,
            "observedGeneration": meta.get("generation", 1),
        }
        new = {
            **pod,
            "spec": {**pod["spec"], "nodeName": node},
            "status": {**status, "conditions": [*others, condition]},
        }
        api.store.write(kinds.PODS, key, new)
        return Answer(201, _OK)

    return bind


def _eviction(api: ApiServer) -> Handler:
    def evict(request: Request, resource: Resource, key: Key, pod: Object) -> Answer:
        body: dict[str, Any] = decode_body(request)
        options = body.get("deleteOptions") or {}
        subject, meta = resource.subject(key[1]), pod["metadata"]
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != meta["uid"]:
            raise precondition(subject, "UID", wanted, meta["uid"])
        phase = (pod.get("status") or {}).get("phase")
        if phase == "Running" and not meta.get("deletionTimestamp"):
            _spend(api, pod)
        if request.is_dry_run or options.get("dryRun"):
            return Answer(201, _OK)
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
        api.delete(resource, key, options.get("gracePeriodSeconds"))
        return Answer(201, _OK)

    return evict


def _spend(api: ApiServer, pod: Object) -> None:
    """Take one disruption from the budget of a pod; 429 where it has none left."""
    budgets = api.store.collection(kinds.BUDGETS).objects
    own = [budget for budget in budgets.values() if covered(budget, [pod])]
    if len(own) > 1:
        text = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )
        raise Refusal(500, "InternalError", text)
    for budget in own:
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
            raise Refusal(429, "TooManyRequests", text, details)


def _log(logs: Mapping[str, str]) -> Handler:
    def read(request: Request, _: Resource, key: Key, pod: Object) -> Answer:
        phase = (pod.get("status") or {}).get("phase")
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        if phase == "Pending" and not statuses:
            names = [c["name"] for c in pod["spec"]["containers"]]
            text = (
                f'container "{names[0]}" in pod "{key[1]}" is waiting to start: ContainerCreating'
            )
            raise bad_request(text)
        lines = logs.get(pod["metadata"]["uid"], "").splitlines(keepends=True)
        if "tailLines" in request.query:
            lines = lines[max(0, len(lines) - int(request.query["tailLines"])) :]
        return Answer(200, "".join(lines))

    return read
