"""What the demo promises: the invariants of every history, and the turns of its own story."""

from dataclasses import dataclass

from tests.support.history.amounts import GPU
from tests.support.history.observer import INVARIANTS, check
from tests.support.history.records import Record
from tools.demo.evidence import Evidence, Promise, verdict
from tools.demo.rails import backfill, reservation, resize
from tools.demo.stops import preemption
from tools.demo.timeline import JobStory, Timeline
from tools.demo.workload import NAMESPACE, Workload


def judge(records: list[Record], timeline: Timeline, workload: Workload) -> list[Promise]:
    """Judge every promise from the API server's history alone."""
    broken = check(records, grace_seconds=5.0, settled=True)
    promises = []
    for name, text in INVARIANTS.items():
        violations = [str(violation) for violation in broken if violation.invariant == name]
        promises.append(Promise(text, not violations, "; ".join(violations[:3])))
    gaps = sum(record.change == "GAP" for record in records)
    revisions = f"{len(records)} revisions, {gaps} gaps"
    promises.append(Promise("the history has no gap", bool(records) and not gaps, revisions))
    story, evidence = _Story(timeline, workload), Evidence(records)
    return [
        *promises,
        *(story.all_end(), story.says_never(), story.retries(), story.overtakes()),
        *(rail(evidence, workload) for rail in (reservation, backfill, preemption, resize)),
    ]


@dataclass(frozen=True, slots=True)
class _Story:
    timeline: Timeline
    workload: Workload

    def _of(self, name: str) -> JobStory:
        return self.timeline.stories[NAMESPACE, name]

    def all_end(self) -> Promise:
        never = self.workload.named("never fits")
        stories = {story.name: story.phase for story in self.timeline.stories.values()}
        wanted = {job.name for job in self.workload.submissions} - {never}
        left = [f"{name} {stories.get(name, 'not submitted')}" for name in sorted(wanted)]
        left = [said for said in left if not said.endswith(" Succeeded")]
        return verdict(
            "every job that can run has succeeded", left, f"{len(wanted)} jobs succeeded"
        )

    def says_never(self) -> Promise:
        """Check that it waits from beginning to end with the right number in its message."""
        story = self._of(self.workload.named("never fits"))
        message, reason = str(story.status.get("message")), story.status.get("reason")
        task = story.job["spec"]["tasks"][0]
        each = task["template"]["spec"]["containers"][0]["resources"]["limits"][GPU]
        most = self.timeline.gpus // each - int(task["replicas"])
        kept = reason == "NeverFits" and f"at most {most} beside" in message and not story.runs
        text = "a gang larger than the cluster is told so, with the largest that would fit"
        return Promise(text, kept, message)

    def retries(self) -> Promise:
        story = self._of(self.workload.named("fails once"))
        attempts = [f"attempt {run.attempt} {run.outcome}" for run in story.runs]
        restarts = story.status.get("restarts")
        kept = attempts == ["attempt 0 PodFailed", "attempt 1 Succeeded"] and restarts == 1
        text = "a failed gang starts again as a whole, and counts it"
        return Promise(text, kept, f"{', '.join(attempts)}, restarts {restarts}")

    def overtakes(self) -> Promise:
        """Check that it starts before all that waited when it came and ask as much as it does."""
        urgent = self._of(self.workload.named("urgent"))
        rivals = [s for s in self.timeline.stories.values() if self._is_rival(s, urgent)]
        text = "the urgent gang starts before all lower ones of its size that waited"
        if urgent.started is None:
            return Promise(text, False, "it never started")
        ahead = [s.name for s in rivals if s.started is not None and s.started < urgent.started]
        names = ", ".join(sorted(s.name for s in rivals))
        waited = f"it waited {urgent.started - urgent.submitted:.1f} s"
        if ahead or not rivals:
            return Promise(text, False, f"{waited}; started before it: {ahead}; of {names}")
        return Promise(text, True, f"{waited} and went ahead of {names}")

    def _is_rival(self, story: JobStory, urgent: JobStory) -> bool:
        waits = story.submitted < urgent.submitted and (
            story.started is None or story.started > urgent.submitted
        )
        return waits and urgent.gpus <= story.gpus <= self.timeline.gpus
