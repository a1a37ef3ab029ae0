"""The controller of ``batch/v1`` Jobs: pods, retries, completions, suspension.

By the rules of Kubernetes 1.37 (``pkg/controller/job``), for Indexed and NonIndexed Jobs.
"""

from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.store import Key, StoreChange
from bireme_lab.embedded.client import Client
from bireme_lab.embedded.controllers.work import KeyQueue
from bireme_lab.embedded.objects import (
    controller_of,
    is_ended,
    is_leaving,
    is_ready,
    key_of,
    object_path,
    phase,
)

_INDEX: Final = "batch.kubernetes.io/job-completion-index"


@dataclass(eq=False)
class Jobs:
    """Follows Jobs and pods; runs as a task of the cluster's loop."""

    client: Client
    work: KeyQueue[Key] = field(init=False)
    _ends: dict[str, dict[str, str]] = field(default_factory=dict)
    """By uid of a Job and of its pod, how the pod ended; "" for one that does not count."""
    _counted: dict[str, set[str]] = field(default_factory=dict)
    """By uid of a Job, the uids of ended pods that its status counts."""

    def __post_init__(self) -> None:
        self.work = KeyQueue(self._sync)

    def start(self) -> None:
        self.client.follow(kinds.JOBS, self._job_changed)
        self.client.follow(kinds.PODS, self._pod_changed)

    def _job_changed(self, change: StoreChange) -> None:
        job = change.object
        if change.new is None:
            self._counted.pop(job["metadata"]["uid"], None)
            self._ends.pop(job["metadata"]["uid"], None)
        else:
            self.work.add(key_of(job))

    def _pod_changed(self, change: StoreChange) -> None:
        pod = change.object
        owner = controller_of(pod)
        if owner is None or owner["kind"] != "Job":
            return
        ends, uid = self._ends.setdefault(owner["uid"], {}), pod["metadata"]["uid"]
        if phase(pod) == "Succeeded":
            ends.setdefault(uid, "succeeded")
        elif is_ended(pod) or change.new is None:
            # One that is gone had no kubelet to write its end.
            ends.setdefault(uid, "" if self._is_ignored(pod) else "failed")
        self.work.add((pod["metadata"]["namespace"], owner["name"]))

    def _sync(self, key: Key) -> None:
        job = self.client.get(kinds.JOBS, key)
        if job is None or is_leaving(job):
            return
        status = dict(job.get("status") or {})
        if any(_has(status, kind, "True") for kind in ("Complete", "Failed")):
            return
        uid, now = job["metadata"]["uid"], self.client.timestamp()
        pods = self.client.objects(kinds.PODS)
        own = [pod for pod in pods if (controller_of(pod) or {}).get("uid") == uid]
        self._count_ended(job, status)
        if job["spec"].get("completionMode") == "Indexed":
            _set_completed(status, own)
        active = [p for p in own if not is_ended(p) and not is_leaving(p)]
        if job["spec"].get("suspend"):
            self._suspend(job, active, status, now)
        elif not self._finish(job, active, status, now):
            self._run(job, own, active, status, now)
        self._write(key, status)

    def _count_ended(self, job: Object, status: Object) -> None:
        """Count the pods that have ended since the last time."""
        uid = job["metadata"]["uid"]
        counted = self._counted.setdefault(uid, set())
        for pod, end in self._ends.get(uid, {}).items():
            if pod not in counted:
                counted.add(pod)
                if end:
                    status[end] = status.get(end, 0) + 1

    def _is_ignored(self, pod: Object) -> bool:
        """Return whether the failure policy of its Job ignores how a pod ended."""
        owner = controller_of(pod) or {}
        key = (pod["metadata"]["namespace"], owner.get("name", ""))
        job = self.client.get(kinds.JOBS, key)
        return job is not None and _is_ignored(job, pod)

    def _suspend(self, job: Object, active: list[Object], status: Object, now: str) -> None:
        for pod in active:
            self._delete(job, pod)
        if not _has(status, "Suspended", "True"):
            _set(status, "Suspended", "True", "JobSuspended", "Job suspended", now)
            self._post(job, "Normal", "Suspended", "Job suspended")
        for name in ("startTime", "active", "ready"):
            status.pop(name, None)

    def _finish(self, job: Object, active: list[Object], status: Object, now: str) -> bool:
        """End a Job that has failed too often, or has all its completions."""
        spec, succeeded = job["spec"], int(status.get("succeeded", 0))
        if int(status.get("failed", 0)) > int(spec.get("backoffLimit", 6)):
            for pod in active:
                self._delete(job, pod)
            text = "Job has reached the specified backoff limit"
            for kind in ("FailureTarget", "Failed"):
                _set(status, kind, "True", "BackoffLimitExceeded", text, now)
            self._post(job, "Warning", "BackoffLimitExceeded", text)
            status.pop("active", None)
            return True
        completions = spec.get("completions")
        if not (succeeded >= completions if completions is not None else succeeded and not active):
            return False
        text = "Reached expected number of succeeded pods"
        for kind in ("SuccessCriteriaMet", "Complete"):
            _set(status, kind, "True", "CompletionsReached", text, now)
        self._post(job, "Normal", "Completed", "Job completed")
        status |= {"completionTime": now, "ready": 0}
        status.pop("active", None)
        return True

    def _run(
        self, job: Object, own: list[Object], active: list[Object], status: Object, now: str
    ) -> None:
        """Make the pods that lack, and delete those beyond the parallelism."""
        if _has(status, "Suspended", "True"):
            _set(status, "Suspended", "False", "JobResumed", "Job resumed", now)
            self._post(job, "Normal", "Resumed", "Job resumed")
        status.setdefault("startTime", now)
        spec = job["spec"]
        completions, parallelism = spec.get("completions"), int(spec.get("parallelism") or 0)
        succeeded = int(status.get("succeeded", 0))
        missing = parallelism - len(active)
        if completions is not None:
            missing = min(missing, completions - succeeded - len(active))
        elif succeeded:
            missing = 0
        indices: list[int | None] = [None] * max(0, missing)
        if spec.get("completionMode") == "Indexed":
            done = {_index(pod) for pod in own if phase(pod) == "Succeeded"}
            taken = {_index(pod) for pod in active} | done
            free = (i for i in range(completions or 0) if str(i) not in taken)
            indices = list(islice(free, max(0, missing)))
        for index in indices:
            self._create(job, index)
        for pod in active[parallelism:]:
            self._delete(job, pod)
        status["active"] = min(parallelism, len(active) + len(indices))
        status["ready"] = sum(map(is_ready, active))
        status["uncountedTerminatedPods"] = {}

    def _create(self, job: Object, index: int | None) -> None:
        meta, template = job["metadata"], job["spec"]["template"]
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        of_template = template.get("metadata") or {}
        labels = dict(of_template.get("labels") or {})
        annotations = dict(of_template.get("annotations") or {})
        spec = template["spec"]
        prefix = f"{meta['name']}-"
        if index is not None:
            labels[_INDEX] = annotations[_INDEX] = str(index)
            prefix = f"{meta['name']}-{index}-"
            env = {"name": "JOB_COMPLETION_INDEX", "value": str(index)}
            containers = [{**c, "env": [*(c.get("env") or ()), env]} for c in spec["containers"]]
            spec = {**spec, "containers": containers, "hostname": f"{meta['name']}-{index}"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": prefix,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [owner],
            },
            "spec": spec,
        }
        answer = self.client.send("POST", f"/api/v1/namespaces/{meta['namespace']}/pods", pod)
        if answer.code >= 300:
            text = f"Error creating: {answer.body.get('message')}"
            self._post(job, "Warning", "FailedCreate", text)
            self.work.add_later(1.0, key_of(job))
            return
        text = f"Created pod: {answer.body['metadata']['name']}"
        self._post(job, "Normal", "SuccessfulCreate", text)

    def _delete(self, job: Object, pod: Object) -> None:
        # Deleted by the controller itself, it is no failure of the Job.
        self._ends.setdefault(job["metadata"]["uid"], {})[pod["metadata"]["uid"]] = ""
        answer = self.client.send("DELETE", object_path(kinds.PODS, key_of(pod)), {})
        if answer.code < 300:
            text = f"Deleted pod: {pod['metadata']['name']}"
            self._post(job, "Normal", "SuccessfulDelete", text)

    def _post(self, job: Object, kind: str, reason: str, text: str) -> None:
        self.client.post_event(job, kind, reason, text, "job-controller")

    def _write(self, key: Key, status: Object) -> None:
        self.client.set_status(kinds.JOBS, key, status)


def _is_ignored(job: Object, pod: Object) -> bool:
    """Return whether the failure policy of a Job ignores how a pod ended."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    for rule in (job["spec"].get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if any(
                c["type"] == pattern["type"] and c["status"] == pattern.get("status", "True")
                for c in conditions
            ):
                return bool(rule["action"] == "Ignore")
    return False


def _set_completed(status: Object, pods: list[Object]) -> None:
    """Write down the indexes whose pods have succeeded."""
    indexes = sorted(
        {int(_index(pod)) for pod in pods if phase(pod) == "Succeeded" and _index(pod)}
    )
    if indexes:
        status["completedIndexes"] = _ranges(indexes)


def _index(pod: Object) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(_INDEX, ""))


def _ranges(numbers: list[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    # As Kubernetes writes them: two numbers are no range.
    return ",".join(
        ",".join(map(str, part)) if len(part) < 3 else f"{part[0]}-{part[-1]}" for part in parts
    )


def _has(status: Object, kind: str, word: str) -> bool:
    return any(c["type"] == kind and c["status"] == word for c in status.get("conditions") or ())


def _set(status: Object, kind: str, word: str, reason: str, text: str, now: str) -> None:
    others = [c for c in status.get("conditions") or () if c["type"] != kind]
    condition = {
        "type": kind,
        "status": word,
        "reason": reason,
        "message": text,
        "lastProbeTime": now,
        "lastTransitionTime": now,
    }
    status["conditions"] = [*others, condition]
