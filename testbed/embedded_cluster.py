"""An embedded cluster for stories that are told on the real control plane, too.

It runs in a thread of this program.
"""

import asyncio
import contextlib
import json
import shutil
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import yaml

from bireme_lab.embedded.cluster import EmbeddedCluster
from bireme_lab.embedded.installation import kubeconfig_of
from bireme_lab.embedded.scheduler.configuration import Configuration
from testbed.controlplane.binaries import control_plane
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.process import Component, Process

T = TypeVar("T")
_CALL_SECONDS: Final = 30.0


class ThreadedCluster(Cluster):
    """A running embedded cluster. Its control plane has no programs to stop or to pause."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._temporary = Path(tempfile.mkdtemp(prefix="embedded-"))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self.embedded = self.call(_running())
        self.kubeconfig.write_text(json.dumps(kubeconfig_of(self.embedded.http.url)))

    def stop(self) -> None:
        """End the cluster; stopping twice is fine."""
        if self._loop.is_closed():
            return
        if api := self.__dict__.pop("api", None):
            api.close()
        self.call(self.embedded.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_SECONDS)
        self._loop.close()
        shutil.rmtree(self._temporary)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that runs in the cluster's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_SECONDS)

    @property
    def kubeconfig(self) -> Path:
        return self._temporary / "kubeconfig.yaml"

    def binary(self, name: str) -> Path:
        return control_plane().path(name)

    def component(self, name: str) -> Component:
        raise ControlPlaneError(f"{name} is no program of an embedded cluster: take a real one")

    def second_scheduler(self, config: str, folder: Path, port: int) -> Process:
        return ThreadedScheduler(self, Configuration.parse(yaml.safe_load(config)), folder)

    @property
    def _folder(self) -> Path:
        return self._temporary


async def _running() -> EmbeddedCluster:
    return await EmbeddedCluster().__aenter__()


class ThreadedScheduler(Process):
    """A second scheduler of an embedded cluster, which starts and ends as a process does."""

    def __init__(
        self, cluster: ThreadedCluster, configuration: Configuration, folder: Path
    ) -> None:
        super().__init__("kube-scheduler", [], folder / "kube-scheduler.log", "")
        self._cluster = cluster
        self._configuration = configuration
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> Self:
        self._task = self._cluster.call(self._start())
        return self

    async def _start(self) -> "asyncio.Task[None]":
        return self._cluster.embedded.start_scheduler(self._configuration)

    def wait_ready(self, timeout_seconds: float = 30.0) -> Self:
        return self

    def terminate(self, timeout_seconds: float = 15.0) -> int:
        if self._task is not None and not self._task.done():
            self._cluster.call(self._end(self._task))
        return 0

    def kill(self) -> int:
        return self.terminate()

    def pause(self) -> None:
        """Let it end: what it knows is in the cluster, and it learns it again."""
        self.terminate()

    def resume(self) -> None:
        self.start()

    async def _end(self, task: "asyncio.Task[None]") -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
