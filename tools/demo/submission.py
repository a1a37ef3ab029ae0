"""Submits the jobs of a workload as a user would: YAML files, applied on their cues."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

import yaml

from testbed.controlplane.errors import ControlPlaneError
from tools.demo.cluster import DemoCluster, DemoClusterError
from tools.demo.workload import Cue, Submission, Workload

_POLL_SECONDS: Final = 0.05
# Jobs due within this time go in with one kubectl, whose start alone costs a tenth of a second.
_TOGETHER_SECONDS: Final = 0.5


class Submitter:
    """A thread that submits; as a context manager it stops with the block.

    The files are written to ``folder``, one per job. ``held_gpus`` maps a job's name to its GPUs.
    """

    def __init__(
        self,
        cluster: DemoCluster,
        workload: Workload,
        folder: Path,
        held_gpus: Callable[[str], int],
    ) -> None:
        self._cluster = cluster
        self._held_gpus = held_gpus
        self._due = [
            (job, folder / f"{number:02d}-{job.name}.yaml")
            for number, job in enumerate(workload.submissions, 1)
        ]
        self._given: dict[Cue, float] = {}
        """Monotonic seconds of each cue."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="submitter", daemon=True)
        self.failure: Exception | None = None
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("*.yaml"):  # of an earlier run
            stale.unlink()
        for job, path in self._due:
            path.write_text(yaml.safe_dump(job.manifest, sort_keys=False))

    @property
    def is_done(self) -> bool:
        return not self._due

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(70)

    def _work(self) -> None:
        while self._due and not self._stopping.is_set():
            now = time.monotonic()
            self._look(now)
            if not any(self._is_due(job, now) for job, _ in self._due):
                self._stopping.wait(_POLL_SECONDS)
                continue
            ready = [
                entry for entry in self._due if self._is_due(entry[0], now + _TOGETHER_SECONDS)
            ]
            try:
                self._cluster.apply([path for _, path in ready])
            except (
                ControlPlaneError,
                DemoClusterError,
                OSError,
            ) as error:  # for the main thread to raise
                self.failure = error
                return
            self._due = [entry for entry in self._due if entry not in ready]

    def _look(self, now: float) -> None:
        for cue in {job.after for job, _ in self._due} - self._given.keys():
            if sum(map(self._held_gpus, cue.jobs)) >= cue.gpus:
                self._given[cue] = now

    def _is_due(self, job: Submission, now: float) -> bool:
        given = self._given.get(job.after)
        return given is not None and given + job.seconds <= now
