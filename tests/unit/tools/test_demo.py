"""The demo without a cluster: its jobs, its view, its verdicts, its report and picture."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from demo.__main__ import main
from demo.colours import Palette
from demo.gantt import draw
from demo.plain import Plain
from demo.promises import judge
from demo.report import report_of
from demo.screen import Screen
from demo.summary import show
from demo.testing import Told
from demo.timeline import Timeline, mean_busy
from demo.words import shortened
from demo.workload import NAMESPACE, Manifest, Workload, full_workload, small_workload
from history.records import Record

SEEDS = range(40)


@pytest.fixture
def workload() -> Workload:
    return small_workload(7)


@pytest.fixture
def told(workload: Workload) -> Told:
    """The whole story, well told: first the large, then the urgent, then the rest."""
    story = Told(workload)
    for name in ("whisper", "recommender", "vit-large", "sweep-0", "sweep-1"):
        story.submit(name)
    story.run("vit-large", "gpu-00")
    story.run("recommender", "gpu-01")
    story.submit("llm-175b")
    story.say("llm-175b", "Pending", "NeverFits", "asks 4; the empty cluster holds at most 3")
    story.submit("hotfix")
    story.submit("flaky-finetune")
    story.run("flaky-finetune", "gpu-02")
    story.run("hotfix", "gpu-03")
    story.end("flaky-finetune", "gpu-02", "Failed")
    story.run("flaky-finetune", "gpu-02", attempt=1)
    for name, node in (("whisper", "gpu-03"), ("sweep-0", "gpu-02"), ("sweep-1", "gpu-02")):
        story.run(name, node)
    for name in ("hotfix", "vit-large", "recommender", "whisper", "sweep-0", "sweep-1"):
        story.end(name, "gpu-00" if name == "vit-large" else "gpu-03")
    story.end("flaky-finetune", "gpu-02", attempt=1)
    return story


def folded(records: list[Record]) -> Timeline:
    timeline = Timeline()
    timeline.feed(records)
    return timeline


# --- the jobs ----------------------------------------------------------------------------------


def gpus_of(manifest: Manifest) -> int:
    """GPUs of all replicas of a job."""
    counts = (
        task["replicas"]
        * task["template"]["spec"]["containers"][0]["resources"]
        .get("limits", {})
        .get("nvidia.com/gpu", 0)
        for task in manifest["spec"]["tasks"]
    )
    return sum(counts)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_seed_tells_the_same_story(seed: int) -> None:
    workload = full_workload(seed)
    jobs = {job.name: job for job in workload.submissions}
    assert len(jobs) == 24
    sizes = {name: gpus_of(job.manifest) for name, job in jobs.items()}
    capacity = workload.nodes * 8
    assert [name for name, gpus in sizes.items() if gpus > capacity] == ["llm-175b"]
    urgent = jobs["hotfix"]
    before = [job for job in workload.submissions if job.seconds <= 2]
    assert sum(sizes[job.name] for job in before) > capacity - sizes["hotfix"]
    rivals = [j for j in jobs.values() if 3 <= j.seconds < urgent.seconds]
    assert sum(sizes[job.name] >= sizes["hotfix"] for job in rivals) >= 3
    assert {job.manifest["spec"]["queue"] for job in jobs.values()} == {
        "production",
        "research",
        "batch",
    }


def test_equal_seeds_give_equal_jobs_and_others_do_not() -> None:
    assert full_workload(3) == full_workload(3)
    assert len({str(full_workload(seed)) for seed in SEEDS}) == len(SEEDS)


# --- the verdicts --------------------------------------------------------------------------------


def test_well_told_story_keeps_every_promise(told: Told, workload: Workload) -> None:
    promises = judge(told.records, folded(told.records), workload)
    assert [promise for promise in promises if not promise.kept] == []


def overtaken(story: Told) -> None:
    """whisper, as large as the urgent gang, gets nodes first."""
    index = next(i for i, r in enumerate(story.records) if r.key[1] == "hotfix") + 2
    late, story.records = story.records[index:], story.records[:index]
    story.run("whisper", "gpu-03")
    story.records += [
        Record(r.seconds, r.change, r.kind, r.revision + 10, r.manifest)
        for r in late
        if r.key[1] != "whisper"
    ]


def unfinished(story: Told) -> None:
    story.records = [r for r in story.records if not ends(r, "sweep-1")]


def silent(story: Told) -> None:
    story.say("llm-175b", "Pending", "WaitingForCapacity", "patience")


def never_failed(story: Told) -> None:
    story.records = [
        r
        for r in story.records
        if r.key[1] != "flaky-finetune" or r.manifest.get("status", {}).get("attempt") == 0
    ]


def missed(story: Told) -> None:
    story.records.append(Record(9.0, "GAP", "Pod", len(story.records) + 1, {}))


def ends(record: Record, name: str) -> bool:
    phase = record.manifest.get("status", {}).get("phase")
    return record.kind == "TrainingJob" and record.key[1] == name and phase == "Succeeded"


@pytest.mark.parametrize(
    ("spoil", "promise"),
    [
        (overtaken, "the urgent gang starts before"),
        (unfinished, "every job that can run has succeeded"),
        (unfinished, "every job finishes, or waits and says why"),
        (silent, "a gang larger than the cluster is told so"),
        (never_failed, "a failed gang starts again"),
        (missed, "the history has no gap"),
    ],
)
def test_broken_promise_is_not_called_kept(
    told: Told, workload: Workload, spoil: Callable[[Told], None], promise: str
) -> None:
    spoil(told)
    promises = judge(told.records, folded(told.records), workload)
    broken = [p.text for p in promises if not p.kept]
    assert any(text.startswith(promise) for text in broken), broken
    assert not report_of(folded(told.records), promises, 7)["ok"]


# --- the timeline, the report and the picture ----------------------------------------------------


def test_timeline_knows_waits_runs_and_usage(told: Told) -> None:
    timeline = folded(told.records)
    flaky = timeline.stories[NAMESPACE, "flaky-finetune"]
    assert [(run.attempt, run.outcome) for run in flaky.runs] == [
        (0, "PodFailed"),
        (1, "Succeeded"),
    ]
    assert flaky.finished is not None
    held = sum((run.ended or 0) - run.began for run in flaky.runs)
    waited = flaky.waited_seconds(1000)
    assert waited == pytest.approx(flaky.finished - flaky.submitted - held)
    assert max(step.total for step in timeline.usage) == 14
    assert timeline.usage[-1].total == 0
    assert (timeline.gpus, timeline.stories[NAMESPACE, "llm-175b"].gpus) == (32, 40)
    assert timeline.in_order_of_start()[0].name == "vit-large"


def test_mean_usage_weighs_by_time(told: Told) -> None:
    usage = folded(told.records).usage
    first = usage[0]
    assert mean_busy(usage[:1], first.seconds, first.seconds + 5) == first.total
    assert mean_busy(usage, 0, 0) == 0


def test_report_and_picture_are_written_as_documented(
    told: Told, workload: Workload, tmp_path: Path
) -> None:
    timeline = folded(told.records)
    report = report_of(timeline, judge(told.records, timeline, workload), seed=7)
    again = json.loads(json.dumps(report))
    assert again["ok"]
    assert len(again["jobs"]) == len(workload.submissions)
    assert again["startOrder"][0]["name"] == "vit-large"
    assert 0 < again["utilisation"]["mean"] <= again["utilisation"]["peak"] <= 1
    path = tmp_path / "gantt.png"
    draw(timeline, Palette(told.jobs), path, "title")
    with Image.open(path) as picture:
        assert picture.width > 1000
        assert len(picture.convert("RGB").getcolors(10**7) or ()) > 50


# --- what people see -----------------------------------------------------------------------------


def painted(timeline: Timeline, workload: Workload, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=True)
    palette = Palette(job.name for job in workload.submissions)
    screen = Screen(timeline, palette, 7, {"batch": 4})
    lines = console.render_lines(screen.draw(5.0, console), pad=False)
    return ["".join(segment.text for segment in line) for line in lines]


def test_screen_shows_jobs_map_and_reasons(told: Told, workload: Workload) -> None:
    half = len(told.records) * 2 // 3
    lines = painted(folded(told.records[:half]), workload, 120, 40)
    text = "\n".join(lines)
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 120
    assert "rack-0" in text
    assert "NeverFits: the cluster holds at most 3" in text
    assert "WaitingForCapacity: 4 GPU free; next in line" in text
    (row,) = [line for line in lines if "hotfix" in line]
    letter = row.split()[0]
    (node,) = [
        line for line in lines if "gpu-03" in line and "hotfix" not in line and letter in line
    ]
    assert node.count(letter) >= 2, "two GPUs of gpu-03 carry the letter of the job on them"


def test_low_terminal_leaves_out_finished_jobs_first(told: Told, workload: Workload) -> None:
    lines = painted(folded(told.records), workload, 80, 13)
    assert len(lines) <= 13
    assert any("llm-175b" in line for line in lines)
    assert not any("vit-large" in line or "hotfix" in line for line in lines)


def test_plain_view_tells_each_turn_once(told: Told) -> None:
    timeline, lines = Timeline(), list[str]()
    plain = Plain(timeline, lines.append)
    timeline.feed(told.records, plain.take)
    of_flaky = [line.split()[3] for line in lines if "flaky-finetune" in line]
    assert of_flaky == ["submitted", "Pending", "Running", "Restarting", "Running", "Succeeded"]
    plain.totals(9.0)
    plain.totals(9.5)
    assert lines[-1].endswith("--- 1 waiting, 0 running, 7 finished; 0 of 32 GPUs busy")
    assert sum("---" in line for line in lines) == 1


def test_summary_names_every_promise_and_marks_broken_ones(told: Told, workload: Workload) -> None:
    silent(told)
    timeline = folded(told.records)
    promises = judge(told.records, timeline, workload)
    console = Console(file=io.StringIO(), width=120)
    show(report_of(timeline, promises, 7), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.count("✗") == 1
    assert text.count("✓") == len(promises) - 1
    assert "7 of 8 jobs finished" in text


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "asks 4 nvidia.com/gpu as 4 worker; 1 nvidia.com/gpu free; 3 nvidia.com/gpu missing",
            "1 GPU free; 3 missing",
        ),
        ("queue 'batch': asks 2 nvidia.com/gpu, 4 in use", "asks 2 GPU, 4 in use"),
        ("something else", "something else"),
    ],
)
def test_messages_lose_what_the_table_says_already(message: str, words: str) -> None:
    assert shortened(message) == words


def test_bad_seed_is_refused_with_its_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEED", "lucky")
    with pytest.raises(SystemExit):
        main(["run"])
    assert "SEED is 'lucky'; give a whole number" in capsys.readouterr().err
