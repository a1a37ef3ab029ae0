"""Kubelets of the fake API server that really run the program of a pod's first container here.

A process starts when its pod is bound, gets SIGTERM when the pod is deleted, and the pod ends as
the process does; a pod without a command only counts as running. What a cluster would give a
program and this machine cannot (files at other places, host names of the gang's headless Service)
is replaced; everything else is what the operator wrote.
"""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tests.support.fakeapi import FakeApi
from tests.support.fakeapi.store import Key, Object
from tests.support.objects.kubelets import PODS, FakeKubelets, runs
from tests.support.scenario.tenant import environment

_POLL_SECONDS = 0.05
_ROOT = str(Path(__file__).parents[3])
_HOST = re.compile(r"[a-z0-9-]+-(\d+)\.[a-z0-9-]+\.[a-z0-9-]+\.svc", re.IGNORECASE)
"""A replica's name under the headless Service, and its index."""


def start(pod: Object, swapped: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """The program of ``pod``, here, writing to ``log``.

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
    """End ``process`` and all that it started: torchrun's workers outlive an agent killed alone."""
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
    """Runs inside ``async with``; who is left at its end is killed.

    ``folder`` gets a log per pod name; ``swapped`` as in :func:`start`.
    """

    def __init__(self, api: FakeApi, folder: Path, swapped: Mapping[str, str]) -> None:
        super().__init__(api, runs)
        self._folder = folder
        self._swapped = swapped
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._waits: set[asyncio.Task[None]] = set()
        api.store.lingers = lambda obj: bool((obj.get("spec") or {}).get("nodeName"))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for wait in self._waits:
            wait.cancel()
        for process in self._processes.values():
            _kill(process)
        await super().__aexit__(kind, error, trace)

    def log(self, pod: str) -> str:
        """What the processes of a pod name have written; empty before there is one."""
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
