"""What is measured every ten seconds: each program, and what the cluster holds.

Samples go to two CSV files as they are taken, so that a run that is cut off keeps them.
"""

import csv
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final, TypeVar

import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.machine import MIB
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.stack import BiremeStack

COMPONENTS: Final = {
    "kube-apiserver": "kube-apiserver",
    "etcd": "etcd",
    "kube-controller-manager": "kube-controller-manager",
    "kwok-controller": "kwok-controller",
    "kube-scheduler": "kube-scheduler (default)",
}
"""The cluster's own programs, and what they are called here."""
COLLECTIONS: Final[Mapping[str, str]] = {
    "jobs": "/apis/bireme.dev/v1alpha1/trainingjobs",
    "groups": "/apis/bireme.dev/v1alpha1/podgroups",
    "pods": "/api/v1/pods",
    "services": "/api/v1/services",
    "events": "/api/v1/events",
}
_TIMEOUT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ProgramSample:
    """One program at one time; another ``pid`` is another life."""

    seconds: float
    program: str
    pid: int
    resident_mib: float
    descriptors: int
    threads: int
    processor_seconds: float


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """What the cluster holds and how Bireme keeps up; -1 is what could not be asked.

    ``turn_seconds`` and ``cycle_seconds`` are means since the sample before. ``heard_seconds`` is
    the age of what the extender heard last on its quietest watch, ``turn_age_seconds`` that of the
    leader's last turn.
    """

    seconds: float
    jobs: int
    groups: int
    pods: int
    services: int
    events: int
    etcd_mib: float
    etcd_used_mib: float
    turn_seconds: float
    cycle_seconds: float
    turn_age_seconds: float
    heard_seconds: float


class Sampler:
    """Takes samples of a stack and its cluster and writes them into ``folder``."""

    def __init__(self, stack: BiremeStack, folder: Path) -> None:
        self._stack = stack
        self._programs = _Table(folder / "programs.csv", ProgramSample)
        self._cluster = _Table(folder / "cluster.csv", ClusterSample)
        self._totals: dict[str, tuple[float, float]] = {}

    def sample(self, seconds: float) -> None:
        for name, pid in self._pids().items():
            with suppress(psutil.NoSuchProcess):
                self._programs.add(_of_program(seconds, name, pid))
        self._cluster.add(self._of_cluster(seconds))

    def _pids(self) -> dict[str, int]:
        own = {p.name: p for p in self._stack.processes}
        found: dict[str, int] = {}
        for name, process in own.items():
            with suppress(ControlPlaneError):  # it was killed, and is started again soon
                found[name] = process.pid
        for component, name in COMPONENTS.items():
            if (pid := self._stack.cluster.component(component).pid) is not None:
                found[name] = pid
        return found

    def _of_cluster(self, seconds: float) -> ClusterSample:
        counts = {name: _count(self._stack.cluster, path) for name, path in COLLECTIONS.items()}
        size, used = _etcd_mib(self._stack.cluster)
        operator = _metrics(self._stack.operator().port)
        extender = _metrics(self._stack.extender_port)
        heard = extender.get("bireme_extender_cache_age_seconds", [])
        age = operator.get("bireme_cycle_age_seconds", [])
        return ClusterSample(
            seconds=round(seconds, 1),
            **counts,
            etcd_mib=round(size, 2),
            etcd_used_mib=round(used, 2),
            turn_seconds=self._mean("bireme_turn_seconds", operator),
            cycle_seconds=self._mean("bireme_cycle_seconds", operator),
            turn_age_seconds=round(max(age, default=-1.0), 2),
            heard_seconds=round(max(heard, default=-1.0), 2),
        )

    def _mean(self, histogram: str, metrics: Mapping[str, list[float]]) -> float:
        """Return the mean of what a histogram has counted since the last call; -1 of nothing."""
        count = sum(metrics.get(f"{histogram}_count", ()))
        total = sum(metrics.get(f"{histogram}_sum", ()))
        count_before, total_before = self._totals.get(histogram, (0.0, 0.0))
        self._totals[histogram] = (count, total)
        if count < count_before:  # another life began
            count_before = total_before = 0.0
        if count == count_before:
            return -1.0
        return round((total - total_before) / (count - count_before), 5)


def read_programs(folder: Path) -> list[ProgramSample]:
    return _read(folder / "programs.csv", ProgramSample)


def read_cluster(folder: Path) -> list[ClusterSample]:
    return _read(folder / "cluster.csv", ClusterSample)


T = TypeVar("T")


class _Table:
    """A CSV file of dataclasses, whole lines at any time."""

    def __init__(self, path: Path, kind: type[ProgramSample] | type[ClusterSample]) -> None:
        self._file = path.open("w", newline="", buffering=1)
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(field.name for field in fields(kind))

    def add(self, sample: ProgramSample | ClusterSample) -> None:
        self._writer.writerow(astuple(sample))


def _read(path: Path, kind: type[T]) -> list[T]:
    types = kind.__annotations__
    with path.open(newline="") as file:
        return [
            kind(**{name: types[name](text) for name, text in row.items()})
            for row in csv.DictReader(file)
        ]


def _of_program(seconds: float, name: str, pid: int) -> ProgramSample:
    process = psutil.Process(pid)
    with process.oneshot():
        times = process.cpu_times()
        return ProgramSample(
            seconds=round(seconds, 1),
            program=name,
            pid=pid,
            resident_mib=round(process.memory_info().rss / MIB, 2),
            descriptors=process.num_fds(),
            threads=process.num_threads(),
            processor_seconds=round(times.user + times.system, 2),
        )


def _count(cluster: Cluster, path: str) -> int:
    """Return how many objects a collection has, without reading them."""
    try:
        listed = cluster.api.get(f"{path}?limit=1")
    except (OSError, ControlPlaneError):  # the API server is down: a fault, and no sample
        return -1
    return len(listed["items"]) + int(listed["metadata"].get("remainingItemCount", 0))


def _etcd_mib(cluster: Cluster) -> tuple[float, float]:
    """Return the size of etcd's file, and what of it is in use."""
    try:
        status = cluster.call_etcd("status", {}, "maintenance")
    except OSError:
        return -1.0, -1.0
    return int(status["dbSize"]) / MIB, int(status["dbSizeInUse"]) / MIB


def _metrics(port: int) -> dict[str, list[float]]:
    """Return values by name of what a program serves; nothing of one that does not answer."""
    url = f"http://127.0.0.1:{port}/metrics"
    found: dict[str, list[float]] = {}
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:
            text = answer.read().decode()
    except OSError:
        return found
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.value)
    return found
