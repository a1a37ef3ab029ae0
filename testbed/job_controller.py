"""Fake Job and JobSet controllers for the fake API server: pods, failures and suspension.

By the rules of Kubernetes 1.37 (``pkg/controller/job``): a pod that goes without having succeeded
is a failure, unless the controller deleted it because its Job is suspended, or its
``podFailurePolicy`` ignores pods with the condition DisruptionTarget.
"""

import asyncio
import itertools
from collections import Counter
from typing import Any, Self

from testbed.fakeapi import FakeApi
from testbed.fakeapi.store import Change, Key, Object
from testbed.simcluster.objects import ENDED, PODS, is_leaving, phase, uid

JOBS = "/apis/batch/v1/jobs"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"


class FakeJobController:
    """Runs inside ``async with``; ``acts`` is False while the controller is down."""

    def __init__(self, api: FakeApi) -> None:
        self.acts = True
        self.failed: Counter[str] = Counter()
        """Failures counted so far by name of the Job."""
        self.suspended: Counter[str] = Counter()
        """Times that a Job or JobSet was suspended, by its name."""
        self._api = api
        self._ours: set[str] = set()
        self._numbers = itertools.count()
        self._work: asyncio.Queue[None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        for resource in (JOBS, JOB_SETS, PODS):
            self._api.store.collection(resource).subscribers.append(self._seen)
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        for resource in (JOBS, JOB_SETS, PODS):
            self._api.store.collection(resource).subscribers.remove(self._seen)
        if self._task is not None:
            self._task.cancel()
            (ended,) = await asyncio.gather(self._task, return_exceptions=True)
            if isinstance(ended, Exception):
                raise ended

    def start(self) -> None:
        """Act again."""
        self.acts = True
        self._work.put_nowait(None)

    def _seen(self, change: Change) -> None:
        self._count(change)
        # Not here: the store is still handing this change to its other subscribers.
        self._work.put_nowait(None)

    def _count(self, change: Change) -> None:
        before, after = change.before or {}, change.after or {}
        if before.get("kind", after.get("kind")) in ("Job", "JobSet"):
            was, now = ((o.get("spec") or {}).get("suspend") for o in (before, after))
            self.suspended[(before or after)["metadata"]["name"]] += bool(now and not was)
        elif not after and before["metadata"]["uid"] not in self._ours:
            owner = _controller(before)
            if owner is not None and phase(before) != "Succeeded" and not self._ignores(before):
                self.failed[owner["name"]] += 1

    def _ignores(self, pod: Object) -> bool:
        owner = _controller(pod) or {}
        key = (pod["metadata"]["namespace"], owner.get("name", ""))
        job = self._api.store.collection(JOBS).objects.get(key) or {"spec": {}}
        conditions = (pod.get("status") or {}).get("conditions") or ()
        is_disrupted = any(c["type"] == "DisruptionTarget" for c in conditions)
        return is_disrupted and "podFailurePolicy" in job["spec"]

    async def _run(self) -> None:
        while True:
            await self._work.get()
            await asyncio.sleep(0)
            if self.acts:
                for key in list(self._api.store.collection(JOB_SETS).objects):
                    self._sync_set(key)
                for key in list(self._api.store.collection(JOBS).objects):
                    self._sync(key)

    def _sync_set(self, key: Key) -> None:
        found = self._api.store.get(JOB_SETS, key)
        suspend = bool(found["spec"].get("suspend"))
        for name, job in list(self._api.store.collection(JOBS).objects.items()):
            if (_controller(job) or {}).get("uid") == found["metadata"]["uid"]:
                spec = {**job["spec"], "suspend": suspend}
                self._api.store.update(JOBS, name, {**job, "spec": spec})
        self._say(JOB_SETS, key, "Suspended", suspend)

    def _sync(self, key: Key) -> None:
        job = self._api.store.get(JOBS, key)
        own = [p for p in self._pods() if (_controller(p) or {}).get("uid") == uid(job)]
        active = [p for p in own if phase(p) not in ENDED and not is_leaving(p)]
        if self.failed[key[1]] > job["spec"].get("backoffLimit", 6):
            self._delete(active)
            self._say(JOBS, key, "Failed", True)
        elif job["spec"].get("suspend"):
            self._delete(active)
            self._say(JOBS, key, "Suspended", True)
        else:
            self._say(JOBS, key, "Suspended", False)
            done = sum(phase(p) == "Succeeded" for p in own)
            for _ in range(job["spec"]["parallelism"] - done - len(active)):
                self._create(job)

    def _pods(self) -> list[Object]:
        return list(self._api.store.collection(PODS).objects.values())

    def _delete(self, pods: list[Object]) -> None:
        for pod in pods:
            self._ours.add(uid(pod))
            key = pod["metadata"]["namespace"], pod["metadata"]["name"]
            self._api.store.delete(PODS, key, {})

    def _create(self, job: Object) -> None:
        template, meta = job["spec"]["template"], job["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
        owner |= {"name": meta["name"], "uid": meta["uid"]}
        made = {**template["metadata"], "ownerReferences": [owner]}
        pod = {"metadata": made, "spec": template["spec"], "status": {"phase": "Pending"}}
        name = f"{meta['name']}-{next(self._numbers)}"
        self._api.put(f"/api/v1/namespaces/{meta['namespace']}/pods/{name}", pod)

    def _say(self, resource: str, key: Key, kind: str, holds: bool) -> None:
        status = self._api.store.get(resource, key).get("status") or {}
        others = [c for c in status.get("conditions") or () if c["type"] != kind]
        conditions = [*others, {"type": kind, "status": str(holds)}]
        self._api.store.update(
            resource, key, {"status": {**status, "conditions": conditions}}, "status"
        )


def _controller(obj: Object) -> dict[str, Any] | None:
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)
