"""Submits the jobs of a workload as a user would: YAML files, ``kubectl apply``, at their times."""

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml

from controlplane.cluster import Cluster
from controlplane.errors import ControlPlaneError
from demo.workload import NAMESPACE, Workload

_TOGETHER_SECONDS: Final = 0.5
"""Jobs due within this time go in with one kubectl, whose start alone costs a tenth of a second."""


class Submitter:
    """A thread that submits; as a context manager it stops with the block.

    The files are written to ``folder``, one per job, in order of arrival.
    """

    def __init__(self, cluster: Cluster, workload: Workload, folder: Path) -> None:
        self._cluster = cluster
        self._due = [(job.seconds, folder / f"{n:02d}-{job.name}.yaml")
                     for n, job in enumerate(workload.submissions, 1)]  # fmt: skip
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="submitter", daemon=True)
        self.failure: Exception | None = None
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("*.yaml"):
            stale.unlink()
        for (_, path), job in zip(self._due, workload.submissions, strict=True):
            path.write_text(yaml.safe_dump(job.manifest, sort_keys=False))

    @property
    def is_done(self) -> bool:
        """Whether every job has been submitted."""
        return not self._due

    def __enter__(self) -> Self:
        self._cluster.create_namespace(NAMESPACE)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(70)

    def _work(self) -> None:
        began = time.monotonic()
        while self._due and not self._stopping.is_set():
            now = time.monotonic() - began
            ready = [path for at, path in self._due if at <= now + _TOGETHER_SECONDS]
            if not ready or self._due[0][0] > now:
                self._stopping.wait(min(0.1, max(0.01, self._due[0][0] - now)))
                continue
            try:
                self._cluster.kubectl("apply", *(f"--filename={path}" for path in ready))
            except (ControlPlaneError, OSError) as error:
                self.failure = error
                return
            self._due = self._due[len(ready) :]
