"""Cells of the tables of Kubernetes' own kinds, as its printers fill them."""

from datetime import datetime
from typing import Any, Final

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.durations import age, human_duration
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.resources import ResourceKind


def _created(obj: Object, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _namespace(obj: Object, now: float) -> list[Any]:
    return [(obj.get("status") or {}).get("phase", ""), _created(obj, now)]


def _node(obj: Object, now: float) -> list[Any]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    ready = next((c for c in conditions if c["type"] == "Ready"), None)
    states = ["Unknown" if ready is None else "Ready" if ready["status"] == "True" else "NotReady"]
    if obj.get("spec", {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    labels = obj["metadata"].get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = sorted(name.removeprefix(prefix) for name in labels if name.startswith(prefix))
    status = obj.get("status") or {}
    version = (status.get("nodeInfo") or {}).get("kubeletVersion", "")
    addresses = status.get("addresses") or ()
    address = next((a["address"] for a in addresses if a["type"] == "InternalIP"), "<none>")
    return [",".join(states), ",".join(roles) or "<none>", _created(obj, now), version, address]


def pod_status(pod: Object) -> str:
    """Return the word in the column STATUS of a pod."""
    status, meta = pod.get("status") or {}, pod["metadata"]
    text = status.get("reason") or status.get("phase") or "Unknown"
    gated = next(
        (
            c
            for c in status.get("conditions") or ()
            if c["type"] == "PodScheduled" and c.get("reason") == "SchedulingGated"
        ),
        None,
    )
    if gated is not None:
        text = "SchedulingGated"
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        if (waiting := state.get("waiting")) and waiting.get("reason"):
            text = waiting["reason"]
        elif ended := state.get("terminated"):
            text = ended.get("reason") or (
                f"Signal:{ended['signal']}"
                if ended.get("signal")
                else f"ExitCode:{ended['exitCode']}"
            )
        elif container.get("ready") and "running" in state:
            running = True
    if text == "Completed" and running:
        text = "Running"
    if meta.get("deletionTimestamp"):
        text = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
        if status.get("phase") in ("Succeeded", "Failed"):
            text = {"Succeeded": "Completed", "Failed": "Error"}[status["phase"]]
    return str(text)


def _pod(obj: Object, now: float) -> list[Any]:
    status, spec = obj.get("status") or {}, obj["spec"]
    containers = status.get("containerStatuses") or ()
    ready = sum(bool(each.get("ready")) for each in containers)
    restarts = sum(int(each.get("restartCount", 0)) for each in containers)
    return [
        f"{ready}/{len(spec.get('containers') or ())}",
        pod_status(obj),
        str(restarts),
        _created(obj, now),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        "<none>",
    ]


def _service(obj: Object, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    ports = [
        f"{port['port']}"
        + (f":{port['nodePort']}" if port.get("nodePort") else "")
        + f"/{port.get('protocol', 'TCP')}"
        for port in spec.get("ports") or ()
    ]
    address = spec.get("clusterIP") or "<none>"
    return [
        spec.get("type", "ClusterIP"),
        address,
        "<none>",
        ",".join(ports) or "<none>",
        _created(obj, now),
    ]


def _config_map(obj: Object, now: float) -> list[Any]:
    return [str(len(obj.get("data") or {}) + len(obj.get("binaryData") or {})), _created(obj, now)]


def _secret(obj: Object, now: float) -> list[Any]:
    return [obj.get("type", "Opaque"), str(len(obj.get("data") or {})), _created(obj, now)]


def _event(obj: Object, now: float) -> list[Any]:
    about = obj.get("involvedObject") or {}
    last = obj.get("lastTimestamp") or obj.get("eventTime") or obj.get("firstTimestamp")
    series = obj.get("series") or {}
    last = series.get("lastObservedTime") or last
    kind = about.get("kind", "").lower()
    return [
        age(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{about.get('name', '')}",
        str(obj.get("message", "")).strip(),
    ]


def _job(obj: Object, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    types = [c["type"] for c in status.get("conditions") or () if c["status"] == "True"]
    if "Complete" in types:
        word = "Complete"
    elif "Failed" in types:
        word = "Failed"
    elif obj["metadata"].get("deletionTimestamp"):
        word = "Terminating"
    elif "Suspended" in types:
        word = "Suspended"
    elif "FailureTarget" in types:
        word = "FailureTarget"
    elif "SuccessCriteriaMet" in types:
        word = "SuccessCriteriaMet"
    else:
        word = "Running"
    desired, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    succeeded = status.get("succeeded", 0)
    if desired is not None:
        completions = f"{succeeded}/{desired}"
    else:
        completions = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    duration = ""
    if started := status.get("startTime"):
        until = _seconds(status["completionTime"]) if status.get("completionTime") else now
        duration = human_duration(until - _seconds(started))
    return [word, completions, duration, _created(obj, now)]


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def _budget(obj: Object, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return [
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        status.get("disruptionsAllowed", 0),
        _created(obj, now),
    ]


def _stateful_set(obj: Object, now: float) -> list[Any]:
    desired = (obj.get("spec") or {}).get("replicas", 1)
    ready = (obj.get("status") or {}).get("readyReplicas", 0)
    return [f"{ready}/{desired}", _created(obj, now)]


def _replica_set(obj: Object, now: float) -> list[Any]:
    status = obj.get("status") or {}
    desired = (obj.get("spec") or {}).get("replicas", 1)
    return [desired, status.get("replicas", 0), status.get("readyReplicas", 0), _created(obj, now)]


def _deployment(obj: Object, now: float) -> list[Any]:
    status, desired = obj.get("status") or {}, (obj.get("spec") or {}).get("replicas", 1)
    return [
        f"{status.get('readyReplicas', 0)}/{desired}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _created(obj, now),
    ]


def _quota(obj: Object, now: float) -> list[Any]:
    status = obj.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    texts = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    limits = [text for name, text in texts.items() if name.startswith("limits")]
    requests = [text for name, text in texts.items() if not name.startswith("limits")]
    return [", ".join(requests), ", ".join(limits), _created(obj, now)]


_OF_KINDS: Final = {
    kinds.QUOTAS: _quota,
    kinds.STATEFUL_SETS: _stateful_set,
    kinds.REPLICA_SETS: _replica_set,
    kinds.DEPLOYMENTS: _deployment,
    kinds.NAMESPACES: _namespace,
    kinds.NODES: _node,
    kinds.PODS: _pod,
    kinds.SERVICES: _service,
    "/api/v1/configmaps": _config_map,
    "/api/v1/secrets": _secret,
    kinds.EVENTS: _event,
    kinds.JOBS: _job,
    kinds.BUDGETS: _budget,
}


def cells_of(resource: ResourceKind, obj: Object, now: float) -> list[Any] | None:
    """Return the cells of an object beside its name; None for a kind without a printer."""
    printer = _OF_KINDS.get(resource.path)
    return None if printer is None else printer(obj, now)
