"""The controller of ``batch/v1`` Jobs: pods, retries, completions, suspension.

By the rules of Kubernetes 1.37 (``pkg/controller/job``), for Indexed and NonIndexed Jobs.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.store import Change, Key
from bireme_lab.embedded.client import Client
from bireme_lab.embedded.controllers.work import Work
from bireme_lab.embedded.scheduler.cache import key_of

_ENDED: Final = ("Succeeded", "Failed")
_INDEX: Final = "batch.kubernetes.io/job-completion-index"


@dataclass(eq=False)
class Jobs:
    """Follows Jobs and pods; runs as a task of the cluster's loop."""

    client: Client
    work: Work[Key] = field(init=False)
    _counted: dict[str, set[str]] = field(default_factory=dict)
    """By uid of a Job, the uids of ended pods that its status counts."""

    def __post_init__(self) -> None:
        self.work = Work(self._sync)

    def start(self) -> None:
        self.client.follow(kinds.JOBS, self._job_changed)
        self.client.follow(kinds.PODS, self._pod_changed)

    def _job_changed(self, change: Change) -> None:
        found = change.after or change.before or {}
        if change.after is None:
            self._counted.pop(found["metadata"]["uid"], None)
        else:
            self.work.add(key_of(found))

    def _pod_changed(self, change: Change) -> None:
        found = change.after or change.before or {}
        owner = controller_of(found)
        if owner is None or owner["kind"] != "Job":
            return
        if change.after is None and not _is_ended(found):
            # Its end was never seen: a deleted pod counts as failed.
            self._counted.setdefault(owner["uid"], set())
        self.work.add((found["metadata"]["namespace"], owner["name"]))

    def _sync(self, key: Key) -> None:
        job = self.client.get(kinds.JOBS, key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return
        spec, status = job["spec"], dict(job.get("status") or {})
        if any(c["type"] in ("Complete", "Failed") and c["status"] == "True"
               for c in status.get("conditions") or ()):  # fmt: skip
            return
        uid, now = job["metadata"]["uid"], self.client.timestamp()
        own = [
            p for p in self.client.objects(kinds.PODS) if (controller_of(p) or {}).get("uid") == uid
        ]
        counted = self._counted.setdefault(uid, set())
        fresh = [p for p in own if _is_ended(p) and p["metadata"]["uid"] not in counted]
        for pod in fresh:
            counted.add(pod["metadata"]["uid"])
            name = "succeeded" if pod["status"]["phase"] == "Succeeded" else "failed"
            if not (name == "failed" and _is_ignored(job, pod)):
                status[name] = status.get(name, 0) + 1
        active = [p for p in own if not _is_ended(p) and not p["metadata"].get("deletionTimestamp")]
        if spec.get("suspend"):
            for pod in active:
                self._delete(pod)
            if not _has(status, "Suspended", "True"):
                status["conditions"] = _set(
                    status, "Suspended", "True", "JobSuspended", "Job suspended", now
                )
            status.pop("startTime", None)
            status.pop("active", None)
            self._write(key, status)
            return
        if _has(status, "Suspended", "True"):
            status["conditions"] = _set(
                status, "Suspended", "False", "JobResumed", "Job resumed", now
            )
        status.setdefault("startTime", now)
        done = {_index(p) for p in own if (p.get("status") or {}).get("phase") == "Succeeded"}
        wanted, parallelism = spec.get("completions"), int(spec.get("parallelism") or 0)
        succeeded = int(status.get("succeeded", 0))
        if int(status.get("failed", 0)) > int(spec.get("backoffLimit", 6)):
            for pod in active:
                self._delete(pod)
            text = "Job has reached the specified backoff limit"
            status["conditions"] = _set(status, "Failed", "True", "BackoffLimitExceeded", text, now)
            self._write(key, {k: v for k, v in status.items() if k != "active"})
            return
        is_complete = succeeded >= wanted if wanted is not None else succeeded > 0 and not active
        if is_complete:
            text = "Reached expected number of succeeded pods"
            status["conditions"] = _set(status, "Complete", "True", "CompletionsReached", text, now)
            status["completionTime"] = now
            status.pop("active", None)
            status["ready"] = 0
            self._write(key, status)
            return
        missing = parallelism - len(active)
        if wanted is not None:
            missing = min(missing, wanted - succeeded - len(active))
        if wanted is None and succeeded:
            missing = 0
        is_indexed = spec.get("completionMode") == "Indexed"
        taken = {_index(p) for p in active} | done
        free = [i for i in range(wanted or 0) if str(i) not in taken] if is_indexed else []
        for number in range(max(0, missing)):
            if is_indexed and number >= len(free):
                break
            self._create(job, free[number] if is_indexed else None)
        for pod in active[parallelism:] if len(active) > parallelism else ():
            self._delete(pod)
        ready = sum(
            any(c["type"] == "Ready" and c["status"] == "True"
                for c in (p.get("status") or {}).get("conditions") or ())
            for p in active
        )  # fmt: skip
        status["active"] = min(parallelism, len(active) + max(0, missing))
        status["ready"] = ready
        status["uncountedTerminatedPods"] = {}
        if is_indexed and done:
            status["completedIndexes"] = _ranges(sorted(int(i) for i in done if i))
        self._write(key, status)

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
            self.client.post_event(job, "Warning", "FailedCreate", text, "job-controller")
            self.work.add_later(1.0, key_of(job))
            return
        text = f"Created pod: {answer.body['metadata']['name']}"
        self.client.post_event(job, "Normal", "SuccessfulCreate", text, "job-controller")

    def _delete(self, pod: Object) -> None:
        key = key_of(pod)
        # Deleted by the controller itself, it is no failure of the Job.
        owner = controller_of(pod) or {}
        self._counted.setdefault(owner.get("uid", ""), set()).add(pod["metadata"]["uid"])
        self.client.send("DELETE", f"/api/v1/namespaces/{key[0]}/pods/{key[1]}", {})

    def _write(self, key: Key, status: Object) -> None:
        self.client.set_status(kinds.JOBS, key, status)


def controller_of(obj: Object) -> dict[str, Any] | None:
    """Return the owner reference of an object's controller."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _is_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in _ENDED


def _is_ignored(job: Object, pod: Object) -> bool:
    """Return whether the failure policy of a Job ignores how a pod ended."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    for rule in (job["spec"].get("podFailurePolicy") or {}).get("rules") or ():
        for wanted in rule.get("onPodConditions") or ():
            if any(
                c["type"] == wanted["type"] and c["status"] == wanted.get("status", "True")
                for c in conditions
            ):
                return bool(rule["action"] == "Ignore")
    return False


def _index(pod: Object) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(_INDEX, ""))


def _ranges(numbers: list[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _has(status: Object, kind: str, word: str) -> bool:
    return any(c["type"] == kind and c["status"] == word for c in status.get("conditions") or ())


def _set(status: Object, kind: str, word: str, reason: str, text: str, now: str) -> list[Object]:
    others = [c for c in status.get("conditions") or () if c["type"] != kind]
    condition = {
        "type": kind,
        "status": word,
        "reason": reason,
        "message": text,
        "lastProbeTime": now,
        "lastTransitionTime": now,
    }
    return [*others, condition]
