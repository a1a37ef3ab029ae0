"""Kubelets of fake nodes: pods start, run as long as an annotation says, and end.

The annotations are those of ``manifests/kwok/stages.yaml``, which has the same kubelet for real
control planes.
"""

import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.requests import ApiUser
from bireme_lab.embedded.api.store import Key, StoreChange
from bireme_lab.embedded.client import Client
from bireme_lab.embedded.controllers.work import KeyQueue
from bireme_lab.embedded.objects import is_ready, key_of, object_path

USER: Final = ApiUser("system:node:embedded", ("system:nodes", "system:authenticated"))
_PREFIX: Final = "fake.bireme.dev/"
NOT_READY: Final = f"{_PREFIX}not-ready"
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)(h|ms|us|ns|m|s)")
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_UP: Final = ("KubeletReady", "kubelet is posting ready status")
_DOWN: Final = ("KubeletNotReady", "container runtime is down")
_SANDBOX: Final = ("PodReadyToStartContainers", "Initialized")
_REFUSED: Final = (
    "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate "
    "unhealthy devices nvidia.com/gpu, which is unexpected"
)


@dataclass(eq=False)
class Kubelets:
    """The kubelets of all nodes; runs as a task of the cluster's loop."""

    client: Client
    logs: dict[str, str] = field(default_factory=dict)
    """What containers wrote, by uid of the pod."""
    pods: KeyQueue[Key] = field(init=False)
    nodes: KeyQueue[str] = field(init=False)

    def __post_init__(self) -> None:
        self.pods, self.nodes = KeyQueue(self._sync_pod), KeyQueue(self._sync_node)

    def start(self) -> None:
        """Follow nodes and pods."""
        self.client.follow(kinds.NODES, self._node_changed)
        self.client.follow(kinds.PODS, self._pod_changed)

    def _node_changed(self, change: StoreChange) -> None:
        node = change.object
        self.nodes.add(node["metadata"]["name"])

    def _pod_changed(self, change: StoreChange) -> None:
        if change.new is not None and change.new["spec"].get("nodeName"):
            self.pods.add(key_of(change.new))

    # --- nodes ---------------------------------------------------------------------------------

    def _sync_node(self, name: str) -> None:
        node = self.client.get(kinds.NODES, ("", name))
        if node is None:
            return
        status = node.get("status") or {}
        conditions = list(status.get("conditions") or ())
        ready = next((c for c in conditions if c["type"] == "Ready"), None)
        is_down = NOT_READY in (node["metadata"].get("annotations") or {})
        status_text = "False" if is_down else "True"
        if ready is not None and ready["status"] == status_text:
            return
        now = self.client.timestamp()
        reason, message = _DOWN if is_down else _UP
        condition = {
            "type": "Ready",
            "status": status_text,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        others = [c for c in conditions if c["type"] != "Ready"]
        addresses = status.get("addresses") or [
            {"type": "InternalIP", "address": _address(name, 10)},
            {"type": "Hostname", "address": name},
        ]
        info = status.get("nodeInfo") or {
            "kubeletVersion": "v1.37.1",
            "operatingSystem": "linux",
            "architecture": "amd64",
            "osImage": "embedded",
            "containerRuntimeVersion": "embedded",
            "kernelVersion": "",
            "kubeProxyVersion": "",
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
        }
        new = {**status, "conditions": [*others, condition], "addresses": addresses}
        self.client.set_status(kinds.NODES, ("", name), {**new, "nodeInfo": info})
        for pod in self.client.objects(kinds.PODS):
            if pod["spec"].get("nodeName") == name:
                self.pods.add(key_of(pod))

    # --- pods ----------------------------------------------------------------------------------

    def _sync_pod(self, key: Key) -> None:
        pod = self.client.get(kinds.PODS, key)
        if pod is None or not pod["spec"].get("nodeName"):
            return
        node = self.client.get(kinds.NODES, ("", pod["spec"]["nodeName"]))
        if node is None or not is_ready(node):
            return  # nobody acts for it there
        status, meta = pod.get("status") or {}, pod["metadata"]
        phase = status.get("phase", "Pending")
        if meta.get("deletionTimestamp"):
            self._end_deleted(key, pod, phase)
        elif phase == "Pending":
            self._begin(key, pod, status)
        elif phase == "Running":
            self._end_by_time(key, pod, status)

    def _end_deleted(self, key: Key, pod: Object, phase: str) -> None:
        """End a deleted pod as a kubelet does: killed, phase Failed, then gone."""
        if phase == "Running":
            self._finish(key, pod, {"exitCode": 143, "reason": "Error"}, "Failed", "PodFailed")
            return
        uid = pod["metadata"]["uid"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self.client.send("DELETE", object_path(kinds.PODS, key), options)
        self.logs.pop(uid, None)

    def _begin(self, key: Key, pod: Object, status: Object) -> None:
        notes, node = pod["metadata"].get("annotations") or {}, pod["spec"]["nodeName"]
        refusing = [each.strip() for each in notes.get(f"{_PREFIX}refused-by", "").split(",")]
        duration = notes.get(f"{_PREFIX}duration")
        if node in refusing:
            self._fail_early(key, status, "UnexpectedAdmissionError", _REFUSED)
            return
        if duration is not None and seconds_of(duration) is None:
            text = (
                f'annotation {_PREFIX}duration is "{duration}"; give a Go duration such as 20s or '
                "1h5m"
            )
            self._fail_early(key, status, "InvalidDuration", text)
            return
        if error := notes.get(f"{_PREFIX}pull-error"):
            self._wait_for_image(key, pod, status, error)
        else:
            self._run(key, pod, status)

    def _wait_for_image(self, key: Key, pod: Object, status: Object, error: str) -> None:
        """Keep a pod whose image never comes: the sandbox runs, the containers wait."""
        if status.get("containerStatuses"):
            return
        now = self.client.timestamp()
        state: Object = {"waiting": {"reason": "ImagePullBackOff", "message": error}}
        new = {
            **status,
            "startTime": now,
            "containerStatuses": [
                _container(c, state, ready=False) for c in pod["spec"]["containers"]
            ],
            "conditions": _with_conditions(
                status, now, _SANDBOX, ("Ready", "ContainersReady"), "ContainersNotReady"
            ),
        }
        self.client.set_status(kinds.PODS, key, new)

    def _run(self, key: Key, pod: Object, status: Object) -> None:
        now, address = self.client.timestamp(), _address(pod["metadata"]["uid"], 64)
        running: Object = {"running": {"startedAt": now}}
        times = {"startedAt": now, "finishedAt": now}
        ended: Object = {"terminated": {"exitCode": 0, "reason": "Completed", **times}}
        new = {
            **status,
            "phase": "Running",
            "startTime": now,
            "hostIP": _address(pod["spec"]["nodeName"], 10),
            "podIP": address,
            "podIPs": [{"ip": address}],
            "containerStatuses": [
                _container(c, running, ready=True) for c in pod["spec"]["containers"]
            ],
            "conditions": _with_conditions(
                status, now, (*_SANDBOX, "Ready", "ContainersReady"), (), ""
            ),
        }
        if init_containers := pod["spec"].get("initContainers"):
            new["initContainerStatuses"] = [
                _container(c, running if c.get("restartPolicy") == "Always" else ended, ready=True)
                for c in init_containers
            ]
        self.client.set_status(kinds.PODS, key, new)

    def _fail_early(self, key: Key, status: Object, reason: str, message: str) -> None:
        new = {**status, "phase": "Failed", "reason": reason, "message": message}
        self.client.set_status(kinds.PODS, key, new)

    def _end_by_time(self, key: Key, pod: Object, status: Object) -> None:
        notes = pod["metadata"].get("annotations") or {}
        duration = seconds_of(notes.get(f"{_PREFIX}duration", ""))
        if duration is None:
            return
        began = datetime.fromisoformat(status["startTime"]).timestamp()
        remaining = began + duration - self.client.now
        if remaining > 0:
            self.pods.add_later(remaining, key)
            return
        attempt = (pod["metadata"].get("labels") or {}).get("bireme.dev/attempt")
        failing = [each.strip() for each in notes.get(f"{_PREFIX}fail-attempts", "").split(",")]
        if attempt is not None and attempt in failing:
            message = notes.get(f"{_PREFIX}fail-message", "")
            state = {"exitCode": 1, "reason": "Error", "message": message}
            self.logs[pod["metadata"]["uid"]] = f"{message}\n"
            self._finish(key, pod, state, "Failed", "PodFailed")
        else:
            state = {"exitCode": 0, "reason": "Completed"}
            self._finish(key, pod, state, "Succeeded", "PodCompleted")

    def _finish(self, key: Key, pod: Object, state: Object, phase: str, reason: str) -> None:
        now, status = self.client.timestamp(), pod.get("status") or {}
        statuses = []
        for previous in status.get("containerStatuses") or ():
            began = (previous["state"].get("running") or {}).get("startedAt", now)
            ended: Object = {"terminated": {**state, "startedAt": began, "finishedAt": now}}
            statuses.append({**previous, "ready": False, "started": False, "state": ended})
        new = {
            **status,
            "phase": phase,
            "containerStatuses": statuses,
            "conditions": _with_conditions(status, now, (), ("Ready", "ContainersReady"), reason),
        }
        self.client.set_status(kinds.PODS, key, new)


def seconds_of(text: str) -> float | None:
    """Return a Go duration in seconds; None for a text that is none."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _container(container: Object, state: Object, *, ready: bool) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "started": ready and "running" in state,
        "restartCount": 0,
        "state": state,
    }


def _with_conditions(
    status: Object, now: str, true: tuple[str, ...], false: tuple[str, ...], reason: str
) -> list[Any]:
    """Return the conditions of a status with some of them set; an equal one keeps its time."""
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    for kind in (*true, *false):
        word = "True" if kind in true else "False"
        old = conditions.get(kind) or {}
        since = old.get("lastTransitionTime", now) if old.get("status") == word else now
        new = {"type": kind, "status": word, "lastProbeTime": None, "lastTransitionTime": since}
        conditions[kind] = {**new, "reason": reason} if kind in false and reason else new
    return list(conditions.values())


def _address(text: str, first: int) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"10.{first + digest[0] % 60}.{digest[1]}.{digest[2] % 254 + 1}"
