"""Statuses of pods as Kubernetes 1.37 writes them: kubelets, the scheduler and controllers."""

from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.fakeapi.store import Key, Object, Store
from testbed.simcluster.objects import ENDED, PODS, phase, uid

SANDBOX = "PodReadyToStartContainers"


def started(pod: Object, now: str) -> Object:
    """Return the status of a pod all of whose containers run and are ready."""
    return _of(pod, "Running", now, {"running": {"startedAt": now}}, is_ready=True)


def ended(pod: Object, now: str, exit_code: int) -> Object:
    """Return the status of a pod all of whose containers have ended with ``exit_code``."""
    words = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
    state = {"terminated": {**words, "startedAt": _started_at(pod) or now, "finishedAt": now}}
    return _of(pod, "Failed" if exit_code else "Succeeded", now, state)


def waiting(pod: Object, now: str, reason: str, message: str = "") -> Object:
    """Return the status of a pod whose sandbox runs and whose containers wait for their image."""
    words = {"reason": reason} | ({"message": message} if message else {})
    return _of(pod, "Pending", now, {"waiting": words})


def rejected(reason: str, message: str) -> Object:
    """Return the status that a kubelet gives a pod it does not admit (``rejectPod``)."""
    words = {"reason": reason, "message": f"Pod was rejected: {message}"}
    return {"phase": "Failed", "qosClass": "Burstable", **words}


def with_condition(status: Object, now: str, kind: str, value: str, **words: str) -> Object:
    """Return ``status`` with a condition set, which keeps its time as long as its value."""
    conditions = {each["type"]: each for each in status.get("conditions", ())}
    before = conditions.get(kind, {})
    since = before.get("lastTransitionTime") if before.get("status") == value else None
    new = {"type": kind, "status": value, "lastTransitionTime": since or now, **words}
    return {**status, "conditions": list((conditions | {kind: new}).values())}


def write(store: Store, key: Key, status: Object) -> None:
    store.update(PODS, key, {"status": status}, "status")


def disrupt(store: Store, key: Key, reason: str, message: str) -> None:
    """Say why a pod is about to be deleted; Refusal when it is gone."""
    pod = store.get(PODS, key)
    status = {"phase": "Pending", **(pod.get("status") or {})}
    words = {"reason": reason, "message": message}
    write(store, key, with_condition(status, store.now(), "DisruptionTarget", "True", **words))


def same(store: Store, key: Key, pod: Object) -> Object | None:
    """Return this very pod as it is now, None when it is gone or has ended."""
    try:
        now = store.get(PODS, key)
    except ApiRefusal:
        return None
    return now if uid(now) == uid(pod) and phase(now) not in ENDED else None


def _of(pod: Object, phase: str, now: str, state: Object, *, is_ready: bool = False) -> Object:
    old = pod.get("status") or {}
    status: Object = {"phase": phase, "startTime": old.get("startTime", now)}
    # Those of others stay: the kubelet replaces its own alone.
    status["conditions"] = list(old.get("conditions", ()))
    status["qosClass"] = "Burstable"
    for kind in ("PodScheduled", "Initialized", SANDBOX):
        is_true = kind != SANDBOX or phase in ("Pending", "Running")
        status = with_condition(status, now, kind, "True" if is_true else "False")
    words = {} if is_ready else {"reason": _not_ready(phase)}
    for kind in ("Ready", "ContainersReady"):
        status = with_condition(status, now, kind, str(is_ready), **words)
    status["containerStatuses"] = [
        _container(each, state, is_ready) for each in pod["spec"]["containers"]
    ]
    if sidecars := pod["spec"].get("initContainers"):
        # They run as long as the others, and are there before them.
        theirs = state if "waiting" not in state else {"running": {"startedAt": now}}
        status["initContainerStatuses"] = [_container(each, theirs, True) for each in sidecars]
    return status


def _container(container: Object, state: Object, is_ready: bool) -> Object:
    has_image = "waiting" not in state
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": f"sha256:{container['image']}" if has_image else "",
        "ready": is_ready,
        "started": is_ready,
        "restartCount": 0,
        "state": state,
    }


def _not_ready(phase: str) -> str:
    reasons = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}
    return reasons.get(phase, "ContainersNotReady")


def _started_at(pod: Object) -> str:
    for container in (pod.get("status") or {}).get("containerStatuses", ()):
        if running := container["state"].get("running"):
            return str(running["startedAt"])
    return ""
