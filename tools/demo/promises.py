"""Promises of the demo: the invariants of every history, and the turns of its own story.

All is judged from the API server's history alone. Who may be stopped and what may pass is stated by
the observer of histories and by the reference model of the core.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from testbed.history.amounts import GPU
from testbed.history.observer import INVARIANTS, check
from testbed.history.records import Record
from tools.demo.moments import Moment
from tools.demo.timeline import JobStory, Timeline
from tools.demo.workload import NAMESPACE, Part, Workload

# Estimates do not know how slow a busy machine creates and binds pods.
GRACE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise, whether it was kept, and the numbers or violations behind that."""

    text: str
    kept: bool
    detail: str


def judge(records: list[Record], timeline: Timeline, workload: Workload) -> list[Promise]:
    """Judge the invariants, then the turns of the story."""
    broken = check(records, grace_seconds=GRACE_SECONDS, settled=True)
    promises = []
    for name, text in INVARIANTS.items():
        violations = [str(violation) for violation in broken if violation.invariant == name]
        promises.append(Promise(text, not violations, "; ".join(violations[:3])))
    gaps = sum(record.change == "GAP" for record in records)
    revisions = f"{len(records)} revisions, {gaps} gaps"
    promises.append(Promise("the history has no gap", bool(records) and not gaps, revisions))
    story = _Story(records, timeline, workload)
    if any((NAMESPACE, job.name) not in timeline.stories for job in workload.submissions):
        # The later parts of the story wait for the earlier ones: it stood still on the way.
        return [*promises, story.all_end()]
    return [
        *promises,
        *(story.all_end(), story.says_never(), story.retries(), story.overtakes()),
        *(story.reserves(), story.backfills(), story.preempts(), story.resizes()),
    ]


def _verdict(text: str, wrong: Iterable[str], detail: str) -> Promise:
    """Return a promise that is kept if nothing is ``wrong``; ``detail`` shows then."""
    found = "; ".join(wrong)
    return Promise(text, not found, found or detail)


@dataclass(frozen=True, slots=True)
class _Story:
    records: list[Record]
    timeline: Timeline
    workload: Workload

    def _of(self, part: Part) -> JobStory:
        return self.timeline.stories[NAMESPACE, self.workload.named(part)]

    def _moments(self, kind: str, job: JobStory | None = None) -> list[Moment]:
        found = [moment for moment in self.timeline.moments.found if moment.kind == kind]
        return [moment for moment in found if job is None or moment.job == job.name]

    def all_end(self) -> Promise:
        never = self.workload.named("never fits")
        stories = {story.name: story.phase for story in self.timeline.stories.values()}
        wanted = {job.name for job in self.workload.submissions} - {never}
        phases = {name: stories.get(name, "not submitted") for name in sorted(wanted)}
        left = [f"{name} {phase}" for name, phase in phases.items() if phase != "Succeeded"]
        text = "every job that can run has succeeded"
        return _verdict(text, left, f"{len(wanted)} jobs succeeded")

    def says_never(self) -> Promise:
        """Check that it waits from beginning to end with the right number in its message."""
        story = self._of("never fits")
        message, reason = str(story.status.get("message")), story.status.get("reason")
        task = story.job["spec"]["tasks"][0]
        each = task["template"]["spec"]["containers"][0]["resources"]["limits"][GPU]
        most = self.timeline.gpus // each - int(task["replicas"])
        # The number is from here, not from Bireme: with it alone the message would prove nothing.
        kept = reason == "NeverFits" and f"at most {most} beside" in message and not story.runs
        text = "a gang larger than the cluster says so, with the largest that would fit"
        return Promise(text, kept, message)

    def retries(self) -> Promise:
        story = self._of("fails once")
        attempts = [f"attempt {run.attempt} {run.outcome}" for run in story.runs]
        restarts = story.status.get("restarts")
        kept = attempts == ["attempt 0 PodFailed", "attempt 1 Succeeded"] and restarts == 1
        text = "a failed gang starts again as a whole, and counts it"
        return Promise(text, kept, f"{', '.join(attempts)}, restarts {restarts}")

    def overtakes(self) -> Promise:
        """Check that it starts before all that waited when it came and ask as much as it does."""
        urgent = self._of("urgent")
        text = "the urgent gang starts before all lower ones of its size that waited"
        if urgent.started is None:
            return Promise(text, False, "it never started")
        rivals = [
            story
            for story in self.timeline.stories.values()
            if story.submitted < urgent.submitted < (story.started or math.inf)
            and urgent.gpus <= story.gpus <= self.timeline.gpus
        ]
        ahead = [s.name for s in rivals if s.started is not None and s.started < urgent.started]
        names = ", ".join(sorted(s.name for s in rivals))
        waited = f"it waited {urgent.started - urgent.submitted:.1f} s"
        if ahead or not rivals:
            return Promise(text, False, f"{waited}; started before it: {ahead}; of {names}")
        return Promise(text, True, f"{waited} and went ahead of {names}")

    def reserves(self) -> Promise:
        """Check that the blocked gang starts by the first time that its status promised."""
        large = self._of("reserved")
        promises = self._moments("reserved", large)
        text = "a blocked gang says when and where it starts, and starts by then"
        text = f"{text} ({GRACE_SECONDS:g} s)"
        if not promises or large.started is None:
            return Promise(text, False, f"{large.name} promised nothing, or did not start")
        stamp = promises[0].text.rpartition(" ")[2]
        promised = datetime.fromisoformat(stamp).timestamp() - self._zero()
        wait, late = large.started - promises[0].seconds, large.started - promised
        wrong = [f"it started {late:.1f} s after the promised time"] if late > GRACE_SECONDS else []
        if wait <= 0:
            wrong.append("it promised a start that it had had")
        return _verdict(
            text, wrong, f"{large.name} was promised {wait - late:.1f} s, and waited {wait:.1f} s"
        )

    def _zero(self) -> float:
        """POSIX time at the recorder's zero."""
        # Creation times are cut to whole seconds, so the largest difference is the closest.
        return max(
            datetime.fromisoformat(stamp).timestamp() - record.seconds
            for record in self.records
            if (stamp := record.manifest.get("metadata", {}).get("creationTimestamp"))
        )

    def backfills(self) -> Promise:
        large, short, long = self._of("reserved"), self._of("short"), self._of("long")
        text = "a short gang passes the blocked one and has ended when that starts; long ones wait"
        kept, passed = self._moments("reserved", large), self._moments("backfilled", short)
        if not kept or not passed or not short.started or not large.started:
            return Promise(text, False, f"{short.name} does not say that it passed {large.name}")
        wrong = list(self._in_the_way(kept[0].seconds, large.started))
        if not kept[0].seconds < short.started < large.started:
            wrong.append(f"{short.name} did not start between the reservation and {large.name}")
        places = f"kept for {NAMESPACE}/{large.name}"
        if not any(places in moment.text for moment in self._moments("held back")):
            wrong.append(f"no gang says that it waits for the places of {large.name}")
        ahead = large.started - short.started
        return _verdict(text, wrong, f"{short.name} ran {ahead:.1f} s before it, {long.name} not")

    def _in_the_way(self, reserved: float, started: float) -> Iterator[str]:
        """Yield gangs that started while places were kept and still ran when these were due."""
        for story in self.timeline.stories.values():
            for run in story.runs:
                ended = run.ended if run.ended is not None else math.inf
                # The job hears of its end a little later than the cycle that gives its places away.
                if reserved < run.began < started < ended - GRACE_SECONDS:
                    yield f"{story.name} started in between, and ran on"

    def preempts(self) -> Promise:
        """Check that one gang makes room, of three equal ones the last to start."""
        urgent = self._of("urgent")
        text = "an urgent gang stops one lower gang, of equal ones the last to start; it runs again"
        stopped = [s for s in self.timeline.stories.values() if s.status.get("preemptions")]
        blocks = next(s for s in self.workload.submissions if s.part == "urgent").after.jobs
        starts = [run for name in blocks for run in self.timeline.stories[NAMESPACE, name].runs[:1]]
        last = max((s.planned_time for s in starts if s.began < urgent.submitted), default="")
        if len(stopped) != 1 or urgent.started is None:
            names = [story.name for story in stopped]
            return Promise(text, False, f"stopped for {urgent.name}: {names}")
        victim = stopped[0]
        wrong = list(self._unexplained(urgent, victim))
        if victim.name not in blocks or victim.runs[0].planned_time < last:
            wrong.append(f"{victim.name} was not the last of {', '.join(blocks)} to start")
        if not victim.job["spec"].get("runPolicy", {}).get("resumable"):
            wrong.append(f"{victim.name} was stopped, and cannot resume")
        # To be stopped for another is no failure of its own, and must not use up its backoff limit.
        counts = (victim.phase, victim.status["preemptions"], victim.status.get("restarts") or 0)
        if counts != ("Succeeded", 1, 0) or victim.runs[-1].began < urgent.started:
            wrong.append(f"{victim.name} did not run again after it; it ended with {counts}")
        waited = f"{urgent.started - urgent.submitted:.1f} s"
        detail = f"{victim.name} made room for {urgent.name}, which waited {waited}; then ran again"
        return _verdict(text, wrong, detail)

    def _unexplained(self, urgent: JobStory, victim: JobStory) -> Iterator[str]:
        room = f"stopped to make room for {NAMESPACE}/{urgent.name}"
        if not any(m.text.startswith(f"{room},") for m in self._moments("preempted", victim)):
            yield f"{victim.name} does not say for whom it was stopped"
        waits = self._moments("waits for room", urgent)
        if not any(f"{NAMESPACE}/{victim.name}" in m.text for m in waits):
            yield f"{urgent.name} never reported that it waits for {victim.name} to leave"

    def resizes(self) -> Promise:
        """Check that the elastic job grows and gives back within one run; events say why."""
        story = self._of("elastic")
        text = "an elastic job grows into idle GPUs and gives back, without a restart"
        if len(story.runs) != 1 or story.phase != "Succeeded":
            return Promise(text, False, f"{story.name} had {len(story.runs)} runs: {story.phase}")
        (task,) = story.job["spec"]["tasks"]
        each = story.gpus // task["replicas"]
        sizes = [gpus // each for _, gpus in story.runs[0].sizes]
        wrong = []
        if not all(task["minReplicas"] <= size <= task["maxReplicas"] for size in sizes):
            wrong.append(f"it had {sizes} replicas, not {task['minReplicas']} or more")
        steps = {after > before for before, after in pairwise(sizes)}
        grown, shrunk = self._moments("grown", story), self._moments("shrunk", story)
        if steps != {True, False} or not shrunk:
            wrong.append(f"with {sizes} replicas it did not both grow and shrink, and say so")
        if not any("into idle capacity" in moment.text for moment in grown):
            wrong.append(f"no event says that {story.name} grew")
        for moment in shrunk:
            other = self.timeline.stories.get((NAMESPACE, moment.text.rpartition("/")[2]))
            if not other or not other.started or other.started > moment.seconds + GRACE_SECONDS:
                wrong.append(f"{moment.text!r}, but that did not start then")
        detail = f"{story.name} had {', '.join(map(str, sizes))} replicas, one after the other"
        return _verdict(text, wrong, detail)
