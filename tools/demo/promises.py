"""What the demo promises: the invariants of every history, and the turns of its own story."""

from dataclasses import dataclass

from demo.timeline import JobStory, Timeline
from demo.workload import NAMESPACE, Workload
from history.check import INVARIANTS, check
from history.records import Record


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise, whether it was kept, and the numbers or violations behind that."""

    text: str
    kept: bool
    detail: str


def judge(records: list[Record], timeline: Timeline, workload: Workload) -> list[Promise]:
    """Every promise, judged from the API server's history alone."""
    broken = check(records, grace_seconds=5.0, settled=True)
    promises = []
    for name, text in INVARIANTS.items():
        violations = [str(violation) for violation in broken if violation.invariant == name]
        promises.append(Promise(text, not violations, "; ".join(violations[:3])))
    gaps = sum(record.change == "GAP" for record in records)
    revisions = f"{len(records)} revisions, {gaps} gaps"
    promises.append(Promise("the history has no gap", not gaps, revisions))
    story = _Story(timeline, workload)
    return [*promises, story.all_end(), story.says_never(), story.retries(), story.overtakes()]


@dataclass(frozen=True, slots=True)
class _Story:
    timeline: Timeline
    workload: Workload

    def _of(self, name: str) -> JobStory:
        return self.timeline.stories[NAMESPACE, name]

    def all_end(self) -> Promise:
        never = self.workload.named("never fits")
        stories = self.timeline.stories.values()
        left = [
            f"{s.name} {s.phase}" for s in stories if s.phase != "Succeeded" and s.name != never
        ]
        missing = len(self.workload.submissions) - len(self.timeline.stories)
        detail = ", ".join(left) or f"{len(self.timeline.stories) - 1} jobs succeeded"
        return Promise("every job that can run has succeeded", not left and not missing, detail)

    def says_never(self) -> Promise:
        status = self._of(self.workload.named("never fits")).status
        message = str(status.get("message"))
        kept = status.get("reason") == "NeverFits" and "at most" in message
        text = "a gang larger than the cluster is told so, with the largest that would fit"
        return Promise(text, kept, message)

    def retries(self) -> Promise:
        story = self._of(self.workload.named("fails once"))
        attempts = [f"attempt {run.attempt} {run.outcome}" for run in story.runs]
        kept = attempts == ["attempt 0 PodFailed", "attempt 1 Succeeded"]
        return Promise("a failed gang starts again as a whole", kept, ", ".join(attempts))

    def overtakes(self) -> Promise:
        """The urgent gang starts before all that waited when it came and ask as much as it does."""
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
        return waits and story.gpus >= urgent.gpus and story.phase == "Succeeded"
