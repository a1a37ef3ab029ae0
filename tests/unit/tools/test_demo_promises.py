"""The promises of the demo: kept by a faithful history, and each broken by one that is not."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest

from testbed.history.records import Record
from tests.unit.tools.demo_history import DemoHistory, tell_all
from tools.demo.promises import judge
from tools.demo.report import report_of
from tools.demo.story import small_workload
from tools.demo.timeline import Timeline
from tools.demo.workload import NAMESPACE, Manifest, Workload

LATER_SECONDS = 60.0


@pytest.fixture
def workload() -> Workload:
    return small_workload(7)


@pytest.fixture
def demo(workload: Workload) -> DemoHistory:
    return tell_all(workload)


def broken(demo: DemoHistory, workload: Workload) -> dict[str, str]:
    """Texts of the promises that are not kept, and why."""
    timeline = Timeline()
    timeline.feed(demo.records)
    promises = judge(demo.records, timeline, workload)
    assert report_of(timeline, promises, 7)["ok"] == all(promise.kept for promise in promises)
    return {promise.text: promise.detail for promise in promises if not promise.kept}


def test_faithful_history_keeps_every_promise(demo: DemoHistory, workload: Workload) -> None:
    assert broken(demo, workload) == {}


# --- ways to spoil it ------------------------------------------------------------------------

Spoil = Callable[[DemoHistory], None]


def edit(demo: DemoHistory, kind: str, name: str, change: Callable[[Manifest], None]) -> None:
    """Apply ``change`` to every revision of an object; of every object where ``name`` is empty."""
    for at, record in enumerate(demo.records):
        if record.kind == kind and name in ("", record.key[1]):
            manifest = deepcopy(record.manifest)
            change(manifest)
            demo.records[at] = replace(record, manifest=manifest)


def drop(demo: DemoHistory, wrong: Callable[[Record], bool]) -> None:
    demo.records = [record for record in demo.records if not wrong(record)]


def status(record: Record) -> Manifest:
    found: Manifest = record.manifest.get("status") or {}
    return found


def named(demo: DemoHistory, reason: str) -> str:
    """The first job that gives that reason."""
    return next(r.key[1] for r in demo.records if status(r).get("reason") == reason)


def set_status(demo: DemoHistory, name: str, **fields: object) -> None:
    edit(demo, "TrainingJob", name, lambda job: job.get("status", {}).update(fields))


def reworded(demo: DemoHistory, name: str, old: str, new: str) -> None:
    def change(job: Manifest) -> None:
        found = job.get("status", {})
        found["message"] = found.get("message", "").replace(old, new)
        for condition in found.get("conditions", ()):
            condition["message"] = condition["message"].replace(old, new)

    edit(demo, "TrainingJob", name, change)


def starts_late(demo: DemoHistory) -> None:
    at = next(r.revision for r in demo.records if is_plan(r, "search-pretrain"))
    demo.records = [
        replace(r, seconds=r.seconds + LATER_SECONDS) if r.revision >= at else r
        for r in demo.records
    ]


def is_plan(record: Record, name: str) -> bool:
    return record.key[1] == name and "plan" in status(record)


def says_no_time(demo: DemoHistory) -> None:
    edit(demo, "TrainingJob", "", lambda job: job.get("status", {}).pop("estimatedStart", None))


def short_stays(demo: DemoHistory) -> None:
    drop(demo, lambda record: record.key[1] == "eval-suite" and ended(record))


def ended(record: Record) -> bool:
    return status(record).get("phase") == "Succeeded"


def passes_in_silence(demo: DemoHistory) -> None:
    reworded(demo, "eval-suite", "ahead of", "beside")


def holds_in_silence(demo: DemoHistory) -> None:
    drop(demo, lambda r: status(r).get("reason") == "WaitingBehind")


def stops_nobody(demo: DemoHistory) -> None:
    set_status(demo, named(demo, "Preempted"), preemptions=0)


def stops_the_oldest(demo: DemoHistory) -> None:
    """Another of the equal gangs starts after the one that is stopped."""
    other = named(demo, "WaitingBehind")
    stop = next(r for r in demo.records if status(r).get("reason") == "Preempted")
    urgent = next(r for r in demo.records if r.key[1] == "hotfix")
    starts = [r for r in demo.records if is_plan(r, other) and r.revision < urgent.revision]
    state = status(starts[-1])
    moment = urgent.manifest["metadata"]["creationTimestamp"]
    plan = {**state["plan"], "plannedTime": moment}
    late = replace(
        starts[-1],
        seconds=urgent.seconds - 0.01,
        revision=stop.revision - 1,
        manifest={**starts[-1].manifest, "status": {**state, "plan": plan}},
    )
    demo.records.insert(demo.records.index(urgent), late)
    drop(demo, starts.__contains__)


def stops_in_silence(demo: DemoHistory) -> None:
    reworded(demo, named(demo, "Preempted"), "to make room", "for a reason")


def waits_in_silence(demo: DemoHistory) -> None:
    reworded(demo, "hotfix", f"{NAMESPACE}/{named(demo, 'Preempted')}", "somebody")


def never_returns(demo: DemoHistory) -> None:
    victim = named(demo, "Preempted")
    stop = next(r for r in demo.records if status(r).get("reason") == "Preempted")
    drop(demo, lambda r: r.revision > stop.revision and is_plan(r, victim))


def counts_twice(demo: DemoHistory) -> None:
    def change(job: Manifest) -> None:
        if job.get("status", {}).get("preemptions"):
            job["status"]["preemptions"] = 2

    edit(demo, "TrainingJob", named(demo, "Preempted"), change)


def goes_below_minimum(demo: DemoHistory) -> None:
    plans = [r for r in demo.records if is_plan(r, "llama-elastic")]
    del plans[-1].manifest["status"]["plan"]["placements"][1:]


def never_shrinks(demo: DemoHistory) -> None:
    plans = [r.revision for r in demo.records if is_plan(r, "llama-elastic")]
    drop(demo, lambda r: r.revision in plans[2:])


def resizes_in_silence(demo: DemoHistory) -> None:
    drop(demo, lambda r: r.kind == "Event" and r.manifest["reason"] == "Shrunk")


def grows_in_silence(demo: DemoHistory) -> None:
    drop(demo, lambda r: r.kind == "Event" and r.manifest["reason"] == "Grown")


def shrinks_for_nobody(demo: DemoHistory) -> None:
    def change(event: Manifest) -> None:
        event["message"] = event["message"].replace(f"{NAMESPACE}/", f"{NAMESPACE}/no-")

    edit(demo, "Event", "", change)


def overtaken(demo: DemoHistory) -> None:
    """A gang as large as the urgent one and lower gets nodes first."""
    rival = next(r for r in demo.records if is_plan(r, "bert-large"))
    at = next(i for i, r in enumerate(demo.records) if status(r).get("reason") == "Preempted")
    early = replace(rival, seconds=demo.records[at].seconds, revision=demo.records[at].revision)
    demo.records = [
        *demo.records[: at + 1],
        *(replace(r, revision=r.revision + 1) for r in (early, *demo.records[at + 1 :])),
    ]


def unfinished(demo: DemoHistory) -> None:
    drop(demo, lambda r: r.kind == "TrainingJob" and r.key[1] == "sweep-1" and ended(r))


def forgotten(demo: DemoHistory) -> None:
    drop(demo, lambda r: r.key[1].startswith("sweep-1"))


def misreported(demo: DemoHistory) -> None:
    reworded(demo, "llm-175b", "at most 15", "at most 16")


def never_failed(demo: DemoHistory) -> None:
    set_status(demo, "flaky-finetune", restarts=0)


def missed(demo: DemoHistory) -> None:
    demo.records.append(Record(90.0, "GAP", "Pod", len(demo.records) + 1, {}))


RESERVATION = "a blocked gang says when"
BACKFILL = "a short gang passes"
PREEMPTION = "an urgent gang stops"
RESIZE = "an elastic job grows"


@pytest.mark.parametrize(
    ("spoil", "promise", "why"),
    [
        (says_no_time, RESERVATION, "promised nothing"),
        (starts_late, RESERVATION, "after the promised time"),
        (short_stays, BACKFILL, "eval-suite started in between"),
        (passes_in_silence, BACKFILL, "does not say that it passed"),
        (holds_in_silence, BACKFILL, "no gang says that it waits"),
        (stops_nobody, PREEMPTION, "stopped for hotfix: []"),
        (stops_the_oldest, PREEMPTION, "was not the last of"),
        (stops_in_silence, PREEMPTION, "does not say for whom"),
        (waits_in_silence, PREEMPTION, "never reported that it waits"),
        (never_returns, PREEMPTION, "did not run again"),
        (counts_twice, PREEMPTION, "('Succeeded', 2, 0)"),
        (goes_below_minimum, RESIZE, "not 2 or more"),
        (never_shrinks, RESIZE, "did not both grow and shrink"),
        (resizes_in_silence, RESIZE, "and say so"),
        (grows_in_silence, RESIZE, "no event says that llama-elastic grew"),
        (shrinks_for_nobody, RESIZE, "did not start then"),
        (overtaken, "the urgent gang starts before", "started before it: ['bert-large']"),
        (unfinished, "every job that can run has succeeded", "sweep-1 Running"),
        (unfinished, "every job finishes, or waits and says why", "at the end Running"),
        (forgotten, "every job that can run has succeeded", "sweep-1 not submitted"),
        (misreported, "a gang larger than the cluster says so", "at most 16"),
        (never_failed, "a failed gang starts again", "restarts 0"),
        (missed, "the history has no gap", "1 gaps"),
    ],
)
def test_broken_promise_is_not_called_kept(
    demo: DemoHistory, workload: Workload, spoil: Spoil, promise: str, why: str
) -> None:
    spoil(demo)
    (detail,) = [note for text, note in broken(demo, workload).items() if text.startswith(promise)]
    assert why in detail
