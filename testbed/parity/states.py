"""The state that a namespace has come to, without what hangs on milliseconds or on chance."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from testbed.parity.answers import CHANCE, plain
from testbed.parity.scripts.script import DEFAULT_QUEUE
from testbed.scenario.manifests import POD_GROUP_LABEL, Manifest

State = dict[str, Any]
Objects = Callable[[str], Sequence[Manifest]]
"""Returns the objects of a kind, such as ``Pod``."""
DURATION: Final = "fake.bireme.dev/duration"
_OF_JOBS: Final = (
    *("phase", "reason", "restarts", "attempt", "interruptions", "preemptions", "ready", "queue"),
    *("queuePosition", "gpus", "observedGeneration", "tasks"),
)


def state_of(objects: Objects, namespace: str) -> State:
    """Return what a script's namespace and its queues have come to, by subject."""
    in_namespace = {
        kind: [each for each in objects(kind) if _namespace(each) == namespace]
        for kind in ("TrainingJob", "PodGroup", "Pod", "Job")
    }
    state: State = {
        f"pods of {gang}": phases for gang, phases in _pods(in_namespace["Pod"]).items()
    }
    for kind, read in (("TrainingJob", _job), ("PodGroup", _group), ("Job", _batch_job)):
        state |= {f"{kind} {_name(each)}": read(each) for each in in_namespace[kind]}
    queues = [q for q in objects("Queue") if _name(q).startswith((namespace, DEFAULT_QUEUE))]
    return state | {f"Queue {_name(each)}": _queue(each) for each in queues}


def is_moving(objects: Objects, namespace: str) -> bool:
    """Return whether something in the namespace is on its way: it ends, starts or leaves."""
    for pod in objects("Pod"):
        if _namespace(pod) != namespace:
            continue
        is_running = (pod.get("status") or {}).get("phase") == "Running"
        will_end = DURATION in (pod["metadata"].get("annotations") or {})
        if pod["metadata"].get("deletionTimestamp") or (is_running and will_end):
            return True
    return any(
        (job.get("status") or {}).get("phase") in ("Starting", "Restarting")
        for job in objects("TrainingJob")
        if _namespace(job) == namespace
    )


def _pods(pods: Sequence[Manifest]) -> dict[str, Mapping[str, int]]:
    """Return the number of pods by gang or owner, in each phase and with or without a node."""
    counts: dict[str, Counter[str]] = {}
    for pod in pods:
        meta, status = pod["metadata"], pod.get("status") or {}
        group = (meta.get("labels") or {}).get(POD_GROUP_LABEL)
        owner = next((each["name"] for each in meta.get("ownerReferences") or ()), meta["name"])
        words = [str(status.get("phase")), "bound" if pod["spec"].get("nodeName") else "free"]
        words += ["gated"] if pod["spec"].get("schedulingGates") else []
        words += ["leaving"] if meta.get("deletionTimestamp") else []
        counts.setdefault(group or CHANCE.sub("-*", owner), Counter())[" ".join(words)] += 1
    return {gang: dict(sorted(count.items())) for gang, count in counts.items()}


def _job(job: Manifest) -> State:
    status = job.get("status") or {}
    plan = status.get("plan")
    # Which replicas a job still counted when it ended hangs on milliseconds.
    has_ended = status.get("phase") in ("Succeeded", "Failed")
    names = [name for name in _OF_JOBS if not (has_ended and name in ("ready", "tasks"))]
    state = {name: status.get(name) for name in names if name in status}
    state["conditions"] = _conditions(status)
    state["planned nodes"] = (status.get("placement") or {}).get("nodes")
    state["has plan"] = plan is not None
    return state


def _group(group: Manifest) -> State:
    status = group.get("status") or {}
    names = ("phase", "reason", "queue", "running", "succeeded", "failed", "queuePosition")
    return {name: status[name] for name in names if name in status} | {
        "conditions": _conditions(status)
    }


def _batch_job(job: Manifest) -> State:
    status = job.get("status") or {}
    names = ("active", "ready", "succeeded", "failed", "terminating", "completedIndexes")
    return {name: status[name] for name in names if status.get(name)} | {
        "conditions": _conditions(status),
        "started": "startTime" in status,
        "ended": "completionTime" in status,
        "suspended": (job.get("spec") or {}).get("suspend"),
        "leaving": bool(job["metadata"].get("deletionTimestamp")),
    }


def _queue(queue: Manifest) -> State:
    status = queue.get("status") or {}
    names = ("admitted", "pending", "usage")
    return {name: status[name] for name in names if name in status} | {
        "conditions": _conditions(status)
    }


def _conditions(status: Mapping[str, Any]) -> list[str]:
    """Return type, value and reason of each condition, sorted."""
    return sorted(
        plain(" ".join(map(str, (each["type"], each["status"], each.get("reason")))))
        for each in status.get("conditions") or ()
    )


def _name(obj: Manifest) -> str:
    return str(obj["metadata"]["name"])


def _namespace(obj: Manifest) -> str:
    return str(obj["metadata"].get("namespace", ""))
