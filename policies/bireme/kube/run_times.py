"""Run times of finished TrainingJobs, from which the run times of like ones are learned."""

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from bireme.core import finished_runs
from bireme.core.accelerators import Accelerators
from bireme.core.estimates import MAX_GROUPS, RuntimeHistory
from bireme.core.finished_runs import NO_RUNS, FinishedRun
from bireme.core.gangs import Key
from bireme.core.nodes import NodeTable
from bireme.core.service import devices_of
from bireme.kube import names, quantities
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts

MAX_KINDS: Final = MAX_GROUPS
"""Maximum number of remembered kinds of jobs that write checkpoints."""


class RunTimes:
    """Run times, and runs by node, of TrainingJobs that succeeded in their first start.

    The namespace is the user of :class:`~bireme.core.estimates.RuntimeHistory`: the API server
    stores no other owner of a job. Everything lives in memory. A new leader rebuilds it from the
    finished jobs that still exist, and the nodes from the pods that still exist.

    Attributes:
        finished: The last finished runs, by node.
    """

    def __init__(self) -> None:
        self.revision = 0
        """Number of runs learned from."""
        self.finished = NO_RUNS
        self._history = RuntimeHistory()
        self._with_checkpoints: dict[tuple[str, str], None] = {}
        self._learned: set[str] = set()

    def learn(
        self,
        jobs: Iterable[JobFacts],
        about: Callable[[Key], AbstractContextManager[object]] = nullcontext,
        run_of: Callable[[JobFacts, float], FinishedRun | None] = lambda *_: None,
    ) -> None:
        """Learn the run of each finished job of ``jobs`` once, in the order of their ends.

        ``about(key)`` is a context that is entered while the job is read, to isolate errors.
        ``run_of(job, seconds)`` returns the nodes of a job's run.
        """
        fresh = [job for job in jobs if job.is_finished and job.uid not in self._learned]
        for job in sorted(fresh, key=lambda job: (str(job.status.get("completionTime")), job.uid)):
            self._learned.add(job.uid)
            with about(job.key):
                seconds = run_seconds(job)
                if seconds is not None:
                    self._history.observe(job.key[0], job.template, seconds)
                    self.finished = self.finished.plus(run_of(job, seconds))
                    self.revision += 1

    def note_checkpoint(self, job: JobFacts) -> None:
        """Remember the kind of a job that has reported a checkpoint: similar jobs write some too.

        The leader remembers it for its whole term. The next leader knows it while the job exists.
        """
        kind = (job.key[0], job.template)
        if not job.template or not job.has_checkpoint:
            return
        if kind in self._with_checkpoints:
            del self._with_checkpoints[kind]
        else:
            self.revision += 1
        self._with_checkpoints[kind] = None  # now the last to be evicted
        while len(self._with_checkpoints) > MAX_KINDS:
            del self._with_checkpoints[next(iter(self._with_checkpoints))]

    def writes_checkpoints(self, job: JobFacts) -> bool:
        """Return whether a job with the namespace and template of ``job`` has reported one."""
        return (job.key[0], job.template) in self._with_checkpoints

    def forget(self, uids: set[str]) -> None:
        """Forget learned jobs that no longer exist; ``uids`` are the existing jobs."""
        self._learned &= uids

    def of_job(self, job: JobFacts) -> float | None:
        """Return the estimated run time of ``job`` in seconds; None if unknown.

        Also None if the owner gave ``estimatedDuration``, which takes precedence.
        """
        if job.spec is None or job.owner_estimate_seconds is not None or not job.tasks:
            return None
        return self._history.estimate(job.key[0], job.template)

    def of_group(self, key: Key, pods: Iterable[PodFacts | None]) -> float | None:
        """Return the estimated run time of another controller's ``pods``; None if unknown.

        It is unknown if a pod has restartPolicy Always. Otherwise the estimate comes from the
        TrainingJobs of the namespace, because the runs of external pods are not learned.
        """
        if any(pod is not None and pod.runs_forever for pod in pods):
            return None
        return self._history.estimate(key[0], "")


def run_seconds(job: JobFacts) -> float | None:
    """Return the seconds that a succeeded job held its places; None if it was ever restarted.

    Reservations and backfill need the time from admission to the end.
    """
    # A restarted job may have resumed from a checkpoint: its last run is only a part of the work.
    # Resized jobs do count, as similar jobs are resized too.
    started, admitted, completed = (
        quantities.parse_timestamp(job.status.get(name))
        for name in ("startTime", "admittedTime", "completionTime")
    )
    if job.phase != "Succeeded" or not job.tasks or admitted is None or completed is None:
        return None
    # ``startTime`` is the first time the gang ran; absent if it ended before it was observed.
    is_undisturbed = started is None or started >= admitted
    # Times have whole seconds: a run of less than one second is not zero.
    return (completed - admitted or 1.0) if is_undisturbed else None


def earlier_service(job: JobFacts, now: float, accelerators: Accelerators) -> tuple[float, float]:
    """Return the device-seconds of ``job`` so far, and the POSIX time of its end or ``now``.

    They come from its status: a new leader did not see it run.
    """
    admitted, completed = (
        quantities.parse_timestamp(job.status.get(name))
        for name in ("admittedTime", "completionTime")
    )
    ended_at = now if completed is None else completed
    seconds = job.earlier_run_seconds + (0.0 if admitted is None else max(0.0, ended_at - admitted))
    return seconds * devices_of(job.tasks, accelerators), ended_at


def run_on_nodes(
    job: JobFacts, seconds: float, pods: Iterable[PodFacts], nodes: NodeTable
) -> FinishedRun | None:
    """Return the run of a succeeded ``job`` that took ``seconds``; None if it is incomplete.

    ``pods`` are the pods of the job. Only they name its nodes, because the write of its success
    deletes the plan. A job with missing pods does not count.
    """
    if job.spec is None or job.spec.is_elastic:
        return None
    pods = list(pods)
    replicas = Counter(pod.labels.get(names.TASK_LABEL, "") for pod in pods)
    is_whole = replicas == {task.name: task.replicas for task in job.tasks}
    if not is_whole or len({pod.labels.get(names.PLAN_LABEL) for pod in pods}) > 1:
        return None
    stated = job.spec.estimated_duration
    return finished_runs.make_finished_run(
        Counter(pod.node for pod in pods),
        nodes,
        seconds,
        None if stated is None else quantities.parse_duration(stated),
        job.key[0],
        job.template,
    )
