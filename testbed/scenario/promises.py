"""The history of every cluster that Bireme runs on, recorded from its start and judged at its end.

At the end of each test everything must also have come to rest (:meth:`History.await_rest`).
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from testbed.controlplane.cluster import Cluster
from testbed.history.observed import ObservedCluster
from testbed.history.observer import (
    INVARIANTS,
    Findings,
    Violation,
    check,
    miscounted,
    restless,
)
from testbed.history.recorder import COLLECTIONS, Recorder
from testbed.history.records import Key, Record, to_line
from testbed.scenario.waiting import eventually

GRACE_SECONDS: Final = 60.0
"""Longest time a gang may be halfway, as is promised."""
REST_SECONDS: Final = 30.0
"""Longest time from the last event or fault to the state that it leads to."""
_NONE: Final[Mapping[str, str]] = {}
_RECORDED: Final[Mapping[str, str]] = {
    **COLLECTIONS,
    "SchedulingPolicy": "/apis/bireme.dev/v1alpha1/schedulingpolicies",
    "NodePoolScaler": "/apis/bireme.dev/v1alpha1/nodepoolscalers",
    "Event": "/api/v1/events",
}
_histories: Final[WeakKeyDictionary[Cluster, "History"]] = WeakKeyDictionary()


class BrokenPromisesError(AssertionError):
    """Invariants that a history breaks. No busy machine excuses it: such a test is not repeated."""


class History:
    """What one cluster has been through so far, with the tests it was for."""

    def __init__(
        self, recorder: Recorder, grace_seconds: float, not_judged: Mapping[str, str]
    ) -> None:
        if unknown := not_judged.keys() - INVARIANTS.keys():
            raise ValueError(f"no invariants: {sorted(unknown)}; there are {sorted(INVARIANTS)}")
        self._recorder = recorder
        self._grace_seconds = grace_seconds
        self._not_judged = not_judged
        self._tests: list[tuple[float, str]] = [(0.0, _current_test())]
        self._removed: set[Key] = set()

    @property
    def elapsed_seconds(self) -> float:
        """Return how long the recording has lasted."""
        return self._recorder.elapsed_seconds

    def begin_test(self) -> None:
        """Say that what follows is for the test that pytest runs now."""
        self._tests.append((self._recorder.elapsed_seconds, _current_test()))

    def forgive(self, namespace: str, name: str = "") -> None:
        """Take note that a user deletes a job, or all jobs of a namespace."""
        found = {(namespace, job["metadata"]["name"]) for job in self._jobs(namespace)}
        self._removed |= {(namespace, name)} if name else found

    def _jobs(self, namespace: str) -> list[dict[str, Any]]:
        self._recorder.settle()
        jobs = self._recorder.objects("TrainingJob")
        return [job for job in jobs if job["metadata"]["namespace"] == namespace]

    def records(self) -> list[Record]:
        """Return all records up to now."""
        self._recorder.settle()
        return self._recorder.records()

    def await_rest(self, namespace: str) -> None:
        """Return once all gangs of a namespace have ended, run whole, or wait and hold nothing.

        Raises:
            BrokenPromisesError: they have not in time, or queues still count others.
        """
        try:
            rest_seconds = min(REST_SECONDS, self._grace_seconds)
            eventually(lambda: self.restless(namespace), lambda w: not w, rest_seconds)
            eventually(self._miscounted, lambda w: not w, rest_seconds)
        except AssertionError as error:
            raise BrokenPromisesError(f"{_current_test()} did not come to rest: {error}") from None

    def restless(self, namespace: str = "") -> list[str]:
        """Return what keeps the gangs of a namespace, or of all, from being at rest."""
        return self._told(restless(self._now(), namespace))

    def _miscounted(self) -> list[str]:
        return self._told(miscounted(self._now()))

    def _now(self) -> ObservedCluster:
        """Return the cluster as it is."""
        self._recorder.settle()
        world = ObservedCluster()
        for kind in ("Node", "Queue", "TrainingJob", "PodGroup", "Pod"):
            for each in self._recorder.objects(kind):
                world.apply(Record(0.0, "ADDED", kind, 0, each))
        return world

    def _told(self, findings: Findings) -> list[str]:
        return [
            f"{invariant}: {subject if isinstance(subject, str) else '/'.join(subject)}: {message}"
            for invariant, subject, message in findings
            if invariant not in self._not_judged
        ]

    def judge(self) -> None:
        """Raise a :class:`BrokenPromisesError` with everything that was broken and where."""
        records = self.records()
        found = check(records, grace_seconds=self._grace_seconds, removed=self._removed)
        broken = [
            f"{violation} during {self._test_at(violation)}"
            for violation in found
            if violation.invariant not in self._not_judged
        ]
        broken += [f"{wrong} after {self._tests[-1][1]}" for wrong in self.restless()]
        if broken:
            path = Path(tempfile.mkdtemp(prefix="bireme-history-")) / "history.jsonl"
            path.write_text("".join(map(to_line, records)))
            raise BrokenPromisesError("\n".join((*broken, f"the history: {path}")))

    def _test_at(self, violation: Violation) -> str:
        return next(test for at, test in reversed(self._tests) if at <= violation.seconds)


@contextmanager
def judged(
    cluster: Cluster,
    *,
    grace_seconds: float = GRACE_SECONDS,
    not_judged: Mapping[str, str] = _NONE,
) -> Iterator[History]:
    """Record every revision within the block and judge the whole history at its end.

    The API must be installed. ``not_judged`` maps invariants that the tests break on purpose to
    why they do.

    Raises:
        BrokenPromisesError: another invariant was broken.
    """
    with Recorder(cluster.kubeconfig, collections=_RECORDED) as recorder:
        history = _histories[cluster] = History(recorder, grace_seconds, not_judged)
        try:
            yield history
        finally:
            del _histories[cluster]
        history.judge()


def history_of(cluster: Cluster) -> History | None:
    """Return the history that is being recorded of a cluster; None for one without Bireme."""
    return _histories.get(cluster)


def begin_test() -> None:
    """Say that what follows, on whichever cluster, is for the test that pytest runs now."""
    for history in _histories.values():
        history.begin_test()


def _current_test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "no test").partition(" ")[0]
