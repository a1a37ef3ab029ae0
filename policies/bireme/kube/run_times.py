"""How long TrainingJobs will run, by those that have succeeded: the history of the operator.

The API server tells no other owner of a job than its namespace, so that is the user of
:class:`~bireme.core.estimates.RuntimeHistory`. All of it is memory, made anew from the finished
jobs that the API server still has when a term of leadership begins.

What is learned is how long a job held its places, from its admission to its end, which is what
reservations and backfill need to know. Only a success teaches, and only of a job whose last start
was the first that ever ran:

*   a run that failed, met its deadline or was stopped ended early;
*   a job that was preempted, interrupted, restarted or suspended after it had run may have gone on
    from a checkpoint, or may have begun again: its last run is a part of the work, and nobody
    knows which;
*   a resized job teaches like any other: its like are resized too.

Pods of other controllers teach nothing, as nobody says when they have done what they were for. How
long they run is judged by the TrainingJobs of their namespace, if they end by themselves at all.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

from bireme.core.estimates import RuntimeHistory
from bireme.core.gangs import Key
from bireme.kube import timestamps
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts


class RunTimes:
    """The history of run times, and of which jobs it consists."""

    def __init__(self) -> None:
        self._history = RuntimeHistory()
        self._learned: set[str] = set()

    def learn(
        self,
        jobs: Iterable[JobFacts],
        about: Callable[[Key], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Remember the run of each of ``jobs`` that has finished, once, in the order they ended.

        ``about`` the key of a job is held while its run is read.
        """
        fresh = [job for job in jobs if job.is_finished and job.uid not in self._learned]
        for job in sorted(fresh, key=lambda job: (str(job.status.get("completionTime")), job.uid)):
            self._learned.add(job.uid)
            with about(job.key):
                seconds = run_seconds(job)
                if seconds is not None:
                    self._history.observe(job.key[0], job.template, seconds)

    def forget(self, uids: set[str]) -> None:
        """Drop which jobs were learned from but are gone; ``uids`` are those that exist."""
        self._learned &= uids

    def of_job(self, job: JobFacts) -> float | None:
        """Seconds that ``job`` should run by the history; None where that, or its owner, says so.

        Its owner's word, ``estimatedDuration``, counts for more.
        """
        if job.spec is None or job.spec.estimated_duration is not None or not job.tasks:
            return None
        return self._history.estimate(job.key[0], job.template)

    def of_group(self, key: Key, pods: Iterable[PodFacts | None]) -> float | None:
        """Seconds that ``pods`` of another controller should run; None when nobody knows.

        That is so as soon as one of those that exist is started again whenever it ends.
        """
        if any(pod is not None and pod.runs_forever for pod in pods):
            return None
        return self._history.estimate(key[0], "")


def run_seconds(job: JobFacts) -> float | None:
    """How long a finished job held its places in one undisturbed start; None where it did not."""
    started, admitted, ended = (
        timestamps.parse(job.status.get(name))
        for name in ("startTime", "admittedTime", "completionTime")
    )
    if job.phase != "Succeeded" or not job.tasks or admitted is None or ended is None:
        return None
    # ``startTime`` is when the gang first ran, and absent where it ended before anybody looked.
    is_undisturbed = started is None or started >= admitted
    # Times are written in whole seconds: less than one is not nothing.
    return (ended - admitted or 1.0) if is_undisturbed else None
