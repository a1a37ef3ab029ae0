"""Stories of jobs, folded from the recorder's records while they arrive.

Live view, summary, report and picture are made of them. Times are seconds of the recorder's clock.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from testbed.history.amounts import GPU
from testbed.history.observed import ENDED, ObservedCluster, phase_of, planned_nodes
from testbed.history.records import Key, Manifest, Record
from tools.demo.moments import Moments
from tools.demo.workload import NAMESPACE


@dataclass(slots=True)
class Run:
    """One attempt: from the plan that gave the gang its nodes to the end of its replicas."""

    attempt: int
    began: float
    nodes: tuple[str, ...]
    planned_time: str
    """Moment of the plan by Bireme's clock, in whole seconds. Plans of one cycle share it."""
    sizes: list[tuple[float, int]] = field(default_factory=list)
    """From when on it held how many GPUs, by its plan."""
    ended: float | None = None
    outcome: str = ""
    """Succeeded, Failed, or why it was interrupted; empty while it goes on."""


@dataclass(slots=True)
class JobStory:
    """One TrainingJob from submission to its end."""

    key: Key
    submitted: float
    job: Manifest
    runs: list[Run] = field(default_factory=list)
    finished: float | None = None

    @property
    def name(self) -> str:
        return self.key[1]

    @property
    def queue(self) -> str:
        return str(self.job["spec"].get("queue", "default"))

    @property
    def phase(self) -> str:
        return phase_of(self.job)

    @property
    def status(self) -> Manifest:
        status: Manifest = self.job.get("status", {})
        return status

    @property
    def score(self) -> float:
        """The combined priority it was last ordered by."""
        return float(self.status.get("priority", {}).get("score") or 0)

    @property
    def gpus(self) -> int:
        """GPUs that all its replicas ask for together."""
        return sum(task["replicas"] * _gpus(task["template"]) for task in self.job["spec"]["tasks"])

    def gpus_of(self, plan: Manifest) -> int:
        each = {task["name"]: _gpus(task["template"]) for task in self.job["spec"]["tasks"]}
        return sum(each[task] for task, _ in planned_nodes(plan))

    @property
    def started(self) -> float | None:
        return self.runs[0].began if self.runs else None

    @property
    def held_gpus(self) -> int:
        """GPUs that its plan gives it now."""
        goes_on = self.runs and self.runs[-1].ended is None
        return self.runs[-1].sizes[-1][1] if goes_on else 0

    def waited_seconds(self, now: float) -> float:
        """Return how long it has been without nodes until its end, over all attempts."""
        until = self.finished if self.finished is not None else now
        held = sum((run.ended if run.ended is not None else until) - run.began for run in self.runs)
        return max(0.0, until - self.submitted - held)

    def end_run(self, seconds: float, outcome: str) -> None:
        """End the last run, if it goes on."""
        if self.runs and self.runs[-1].ended is None:
            self.runs[-1].ended = seconds
            self.runs[-1].outcome = outcome


@dataclass(frozen=True, slots=True)
class Usage:
    """GPUs held from ``seconds`` on, by queue."""

    seconds: float
    gpus: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.gpus.values())


class Timeline:
    """All stories so far; ``feed`` it every record once."""

    def __init__(self) -> None:
        self.world = ObservedCluster()
        self.stories: dict[Key, JobStory] = {}
        self.usage: list[Usage] = []
        self.moments = Moments()
        self._fed = 0

    def feed(self, records: list[Record], then: Callable[[Record], None] | None = None) -> None:
        """Take in what is new in ``records``, which only ever grow; ``then`` sees each after it."""
        new = records[self._fed :]
        self._fed = len(records)
        for record in new:
            if record.change == "GAP":  # judged as a promise of its own
                continue
            # First the world: what follows reads from it.
            self.world.apply(record)
            self.moments.take(record)
            if record.kind == "TrainingJob" and record.change != "DELETED":
                self._job(record)
                self._plan(record)
            elif record.kind == "Pod":
                self._count(record.seconds)
            if then is not None:
                then(record)

    @property
    def gpus(self) -> int:
        nodes = self.world.objects.get("Node", {}).values()
        return sum(int(node["status"]["allocatable"].get(GPU, 0)) for node in nodes)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of waiting, running and finished jobs."""
        phases = [story.phase for story in self.stories.values()]
        waiting = sum(phase in ("Pending", "Restarting") for phase in phases)
        ended = sum(phase in ENDED for phase in phases)
        return waiting, len(phases) - waiting - ended, ended

    def held_gpus(self, name: str) -> int:
        story = self.stories.get((NAMESPACE, name))
        return 0 if story is None else story.held_gpus

    def in_order_of_start(self) -> list[JobStory]:
        begun = [story for story in self.stories.values() if story.runs]
        return sorted(begun, key=lambda story: (story.runs[0].began, -story.score))

    def _job(self, record: Record) -> None:
        new = JobStory(record.key, record.seconds, record.manifest)
        story = self.stories.setdefault(record.key, new)
        was, story.job = story.phase, record.manifest
        if story.phase != was and story.phase in (*ENDED, "Restarting", "Suspended"):
            reason = str(story.status.get("reason"))
            story.end_run(record.seconds, story.phase if story.phase in ENDED else reason)
        if story.phase in ENDED and story.finished is None:
            story.finished = record.seconds

    def _plan(self, record: Record) -> None:
        story, plan = self.stories.get(record.key), self.world.plan(record.key)
        if story is None:
            return
        if plan is None:  # taken back before the job could say that it holds nodes
            story.end_run(record.seconds, "TakenBack")
            return
        attempt = int(plan["attempt"])
        if not story.runs or story.runs[-1].attempt != attempt:
            nodes = tuple(sorted(set(planned_nodes(plan).values())))
            story.runs.append(Run(attempt, record.seconds, nodes, str(plan["plannedTime"])))
        run, size = story.runs[-1], story.gpus_of(plan)
        if not run.sizes or run.sizes[-1][1] != size:
            run.sizes.append((record.seconds, size))

    def _count(self, seconds: float) -> None:
        gpus: dict[str, int] = {}
        for gang, pods in self.world.gangs.items():
            held = int(sum(pod.request.get(GPU, 0) for pod in pods.values() if pod.holds_node))
            if held:
                queue = self.world.queue_of(gang)
                gpus[queue] = gpus.get(queue, 0) + held
        if not self.usage or self.usage[-1].gpus != gpus:
            self.usage.append(Usage(seconds, gpus))


def mean_busy(usage: Iterable[Usage], began: float, ended: float) -> float:
    """Return the GPUs held on average between two times."""
    steps = [step for step in usage if step.seconds < ended]
    area = 0.0
    for step, until in zip(steps, [*(each.seconds for each in steps[1:]), ended], strict=False):
        area += step.total * max(0.0, until - max(step.seconds, began))
    return area / (ended - began) if ended > began else 0.0


def _gpus(template: Manifest) -> int:
    containers = template["spec"]["containers"]
    return sum(int(c.get("resources", {}).get("limits", {}).get(GPU, 0)) for c in containers)
