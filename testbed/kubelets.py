"""Fake scheduler and kubelets for the fake API server: pinned pods get bound, run and end.

They act on the store behind the server's back. :class:`ProgramKubelets` really runs the command of
a pod's first container: its process gets SIGTERM when the pod is deleted, and the pod ends as the
process does.
"""

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from bireme.kube import names, training_jobs, wire
from bireme.kube.pods import request_of_spec
from testbed.fakeapi import FakeApi
from testbed.fakeapi.recording import recorded
from testbed.fakeapi.store import Change, Key, Object
from testbed.history.observer import check
from testbed.objects.facts import through_the_wire
from testbed.scenario.tenant import environment
from testbed.simcluster.objects import JOBS, NODES, PODS, pin_of


def succeeds(_: Object) -> str:
    return "Succeeded"


def runs(_: Object) -> str:
    return "Running"


class FakeKubelets:
    """Kubelets and scheduler inside ``async with``; ``outcome`` maps a pod to its last phase."""

    def __init__(
        self, api: FakeApi, outcome: Callable[[Object], str] = succeeds, *, binds: bool = True
    ) -> None:
        self.outcome = outcome
        self.binds = binds
        self.created: Counter[str] = Counter()
        """Creations by name of the pod."""
        self._records = recorded(api.store, {NODES: "Node", PODS: "Pod"})
        self._api = api
        self._work: asyncio.Queue[Key] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._api.store.collection(PODS).subscribers.append(self._seen)
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._api.store.collection(PODS).subscribers.remove(self._seen)
        if self._task is not None:
            self._task.cancel()
            ended = (await asyncio.gather(self._task, return_exceptions=True))[0]
            if isinstance(ended, Exception):
                raise ended

    @property
    def violations(self) -> list[str]:
        found = check(self._records)
        return [str(one) for one in found if one.invariant == "node-overcommitted"]

    def end(self, pod: str, phase: str = "Succeeded") -> None:
        """Have a pod of the namespace ``default`` end in ``phase`` now."""
        self._say(("default", pod), phase, "False")

    def _seen(self, change: Change) -> None:
        if change.after is None:
            return
        meta = change.after["metadata"]
        if change.before is None:
            self.created[meta["name"]] += 1
        # Not here: the store is still handing this change to its other subscribers.
        self._work.put_nowait((meta["namespace"], meta["name"]))

    async def _run(self) -> None:
        while True:
            key = await self._work.get()
            await asyncio.sleep(0)  # others take their turn between any two steps of a pod
            pod = self._api.store.collection(PODS).objects.get(key)
            if pod is not None:
                self._step(key, pod)

    def _step(self, key: Key, pod: Object) -> None:
        """Take one step further: bound, then running, then ended."""
        phase = pod.get("status", {}).get("phase", "Pending")
        if pod["spec"].get("schedulingGates") or not self.binds:
            return
        if not pod["spec"].get("nodeName"):
            if self._is_above_plan(key, pod):
                return
            node = pin_of(pod)
            if node and ("", node) in self._api.store.collection(NODES).objects:
                bound = {**pod, "spec": {**pod["spec"], "nodeName": node}}
                self._api.store.update(PODS, key, bound)
        elif phase == "Pending":
            self._say(key, "Running", "True")
        elif phase == "Running" and self.outcome(pod) != "Running":
            self._say(key, self.outcome(pod), "False")

    def _is_above_plan(self, key: Key, pod: Object) -> bool:
        """Whether the extender would refuse a job's pod because it asks for more than planned."""
        labels = pod["metadata"].get("labels", {})
        job = self._api.store.collection(JOBS).objects.get((key[0], labels.get(names.JOB_LABEL)))
        if job is None:
            return False
        plan = training_jobs.from_manifest(through_the_wire(job, wire.CustomObject)).plan
        if plan is None:
            return False
        planned = dict(plan.requests.get(labels.get(names.TASK_LABEL), ()))
        spec = through_the_wire(pod["spec"], wire.V1PodSpec)
        return any(amount > planned.get(name, 0) for name, amount in request_of_spec(spec))

    def _say(self, key: Key, phase: str, ready: str) -> None:
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
        self._api.store.update(PODS, key, {"status": status}, "status")


_POLL_SECONDS = 0.05
_ROOT = str(Path(__file__).parents[1])
_HOST = re.compile(r"[a-z0-9-]+-(\d+)\.[a-z0-9-]+\.[a-z0-9-]+\.svc", re.IGNORECASE)
"""A replica's name under the headless Service, and its index."""


def start(pod: Object, swapped: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start the program of ``pod`` on this machine, writing to ``log``.

    In its words and variables every key of ``swapped`` is replaced by its value, and the host name
    of replica n of a gang by the loopback address 127.0.0.(n + 1).
    """

    def here(text: str) -> str:
        text = _HOST.sub(lambda host: f"127.0.0.{int(host[1]) + 1}", text)
        for old, new in swapped.items():
            text = text.replace(old, new)
        return text

    container: dict[str, Any] = pod["spec"]["containers"][0]
    words = [*container["command"], *container.get("args", ())]
    own = {name: here(value) for name, value in environment(pod).items()}
    with log.open("ab") as output:
        return subprocess.Popen(
            [Path(sys.executable).with_name(words[0]), *map(here, words[1:])],
            env={**os.environ, "PYTHONPATH": _ROOT, "GLOO_SOCKET_IFNAME": "lo", **own},
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End ``process`` and its children: torchrun's workers outlive an agent killed alone."""
    if process.poll() is not None:
        return
    started = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    for child in started:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(started)


class ProgramKubelets(FakeKubelets):
    """Kubelets that run programs; all are killed at the end of the block.

    ``folder`` gets a log per pod name; ``swapped`` as in :func:`start`.
    """

    def __init__(self, api: FakeApi, folder: Path, swapped: Mapping[str, str]) -> None:
        super().__init__(api, runs)
        self._folder = folder
        self._swapped = swapped
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._waits: set[asyncio.Task[None]] = set()
        # A deleted pod stays until its process has ended.
        api.store.lingers = lambda obj: bool((obj.get("spec") or {}).get("nodeName"))

    async def __aexit__(self, *_: object) -> None:
        for wait in self._waits:
            wait.cancel()
        for process in self._processes.values():
            _kill(process)
        await super().__aexit__()

    def log(self, pod: str) -> str:
        path = self._folder / f"{pod}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _step(self, key: Key, pod: Object) -> None:
        process = self._processes.get(pod["metadata"]["uid"])
        if "deletionTimestamp" in pod["metadata"]:
            if process is not None and process.poll() is None:
                process.terminate()
            else:
                self._api.store.delete(PODS, key, {}, grace_seconds=0)
            return
        super()._step(key, pod)
        is_running = pod.get("status", {}).get("phase") == "Running"
        if process is None and is_running and pod["spec"]["containers"][0].get("command"):
            process = start(pod, self._swapped, self._folder / f"{key[1]}.log")
            self._processes[pod["metadata"]["uid"]] = process
            wait = asyncio.create_task(self._tell_end(key, pod["metadata"]["uid"], process))
            self._waits.add(wait)
            wait.add_done_callback(self._waits.discard)

    async def _tell_end(self, key: Key, uid: str, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            await asyncio.sleep(_POLL_SECONDS)
        pod = self._api.store.collection(PODS).objects.get(key)
        if pod is None or pod["metadata"]["uid"] != uid:
            return
        if "deletionTimestamp" in pod["metadata"]:
            self._api.store.delete(PODS, key, {}, grace_seconds=0)
        else:
            self._say(key, "Failed" if process.returncode else "Succeeded", "False")
