"""The demo without a cluster: what it shows, its report and its picture."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from testbed.history.records import Record
from tests.unit.tools.demo_history import DemoHistory, tell_all
from tools.demo.__main__ import main
from tools.demo.colours import Palette
from tools.demo.gantt import draw
from tools.demo.plain import Plain
from tools.demo.promises import judge
from tools.demo.report import report_of
from tools.demo.screen import Screen
from tools.demo.story import small_workload
from tools.demo.summary import show
from tools.demo.timeline import Timeline, mean_busy
from tools.demo.words import shortened
from tools.demo.workload import NAMESPACE, Workload


@pytest.fixture
def workload() -> Workload:
    return small_workload(7)


@pytest.fixture
def demo(workload: Workload) -> DemoHistory:
    return tell_all(workload)


def folded(records: list[Record]) -> Timeline:
    timeline = Timeline()
    timeline.feed(records)
    return timeline


# --- the timeline, the report and the picture ----------------------------------------------------


def test_timeline_knows_waits_runs_and_usage(demo: DemoHistory) -> None:
    timeline = folded(demo.records)
    flaky = timeline.stories[NAMESPACE, "flaky-finetune"]
    assert [(run.attempt, run.outcome) for run in flaky.runs] == [
        (0, "PodFailed"),
        (1, "Succeeded"),
    ]
    assert flaky.finished is not None
    held = sum((run.ended or 0) - run.began for run in flaky.runs)
    waited = flaky.waited_seconds(1000)
    assert waited == pytest.approx(flaky.finished - flaky.submitted - held)
    assert max(step.total for step in timeline.usage) == 32
    assert timeline.usage[-1].total == 0
    assert (timeline.gpus, timeline.stories[NAMESPACE, "llm-175b"].gpus) == (32, 40)
    assert timeline.in_order_of_start()[0].name == "recommender"


def test_timeline_knows_how_large_an_elastic_job_was(demo: DemoHistory) -> None:
    timeline = folded(demo.records)
    (run,) = timeline.stories[NAMESPACE, "llama-elastic"].runs
    assert [gpus for _, gpus in run.sizes] == [4, 8, 4]
    half = folded(demo.records[: len(demo.records) // 4])
    assert half.held_gpus("llama-elastic") == 4
    assert (half.held_gpus("hotfix"), timeline.held_gpus("llama-elastic")) == (0, 0)


def test_turns_are_shown_in_the_words_of_the_objects(demo: DemoHistory) -> None:
    turns = folded(demo.records).moments.turns
    assert [(turn.job, turn.kind) for turn in turns] == [
        ("llama-elastic", "grown"),
        ("vit-large", "waits for room"),
        ("llama-elastic", "shrunk"),
        ("search-pretrain", "reserved"),
        ("moe-scaling", "held back"),
        ("eval-suite", "backfilled"),
        ("hotfix", "waits for room"),
        ("phi-distill", "preempted"),
    ]
    words = {turn.kind: turn.text for turn in turns}
    assert words["reserved"].startswith("kept for it: 3 nodes across the cluster, expected free at")
    assert words["backfilled"] == "ahead of demo/search-pretrain without delaying it"
    assert words["preempted"].startswith("stopped to make room for demo/hotfix, which has a higher")


def test_mean_usage_weighs_by_time(demo: DemoHistory) -> None:
    usage = folded(demo.records).usage
    first = usage[0]
    assert mean_busy(usage[:1], first.seconds, first.seconds + 5) == first.total
    assert mean_busy(usage, 0, 0) == 0


def test_report_and_picture_are_written_as_documented(
    demo: DemoHistory, workload: Workload, tmp_path: Path
) -> None:
    timeline = folded(demo.records)
    report = report_of(timeline, judge(demo.records, timeline, workload), seed=7)
    again = json.loads(json.dumps(report))
    assert again["ok"]
    assert len(again["jobs"]) == len(workload.submissions)
    assert again["startOrder"][0]["name"] == "recommender"
    assert [turn["kind"] for turn in again["turns"]].count("reserved") == 1
    assert 0 < again["utilisation"]["mean"] <= again["utilisation"]["peak"] <= 1
    path = tmp_path / "gantt.png"
    draw(timeline, Palette(demo.jobs), path, "title")
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


def until(demo: DemoHistory, name: str, phase: str) -> list[Record]:
    """The records up to the one where the job reached that phase."""
    reached = (
        at
        for at, record in enumerate(demo.records)
        if record.key[1] == name and record.manifest.get("status", {}).get("phase") == phase
    )
    return demo.records[: next(reached) + 1]


def test_screen_shows_jobs_map_reasons_and_turns(demo: DemoHistory, workload: Workload) -> None:
    lines = painted(folded(until(demo, "eval-suite", "Running")), workload, 120, 40)
    text = "\n".join(lines)
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 120
    assert "rack-0" in text
    assert "NeverFits: the cluster holds at most 15" in text
    assert " kept for it: 3 nodes across the cluster, free about 00:00:21 " in text
    (row,) = [line for line in lines if line.split()[1:2] == ["eval-suite"] and "research" in line]
    letter = row.split()[0]
    (node,) = [line for line in lines if "│ gpu-02" in line]
    assert node.count(letter) == 4, "four GPUs of gpu-02 carry the letter of the job on them"
    assert "llama-elastic shrunk: shrunk to make room for demo/vit-large" in text
    assert "eval-suite backfilled: ahead of demo/search-pretrain without delaying it" in lines[-1]


def test_low_terminal_leaves_out_finished_jobs_first(demo: DemoHistory, workload: Workload) -> None:
    lines = painted(folded(demo.records), workload, 80, 13)
    assert len(lines) <= 13
    assert any("llm-175b" in line for line in lines)
    assert not any("vit-large" in line or "recommender" in line for line in lines)


def test_plain_view_tells_each_turn_once(demo: DemoHistory) -> None:
    timeline, lines = Timeline(), list[str]()
    plain = Plain(timeline, lines.append)
    timeline.feed(demo.records, plain.take)

    def of(name: str) -> list[str]:
        return [line.split()[3] for line in lines if line.split()[2] == name]

    first, starts = ["submitted", "Pending"], ["Starting", "Running"]
    again = ["Restarting", "Restarting", *starts]
    assert of("flaky-finetune") == [*first, *starts, *again, "Succeeded"]
    assert of("llama-elastic") == [*first, *starts, "grown", "shrunk", "Succeeded"]
    assert of("eval-suite") == [*first, "backfilled", *starts, "Succeeded"]
    plain.totals(9.0)
    plain.totals(9.5)
    assert lines[-1].endswith("--- 1 waiting, 0 running, 16 finished; 0 of 32 GPUs busy")
    assert sum("---" in line for line in lines) == 1


def test_summary_names_every_promise_and_marks_broken_ones(
    demo: DemoHistory, workload: Workload
) -> None:
    never = next(r for r in demo.records if r.key[1] == "llm-175b" and "status" in r.manifest)
    timeline = folded([*demo.records, replace(never, revision=len(demo.records) + 1)])
    promises = judge(demo.records, timeline, workload)
    console = Console(file=io.StringIO(), width=120)
    show(report_of(timeline, promises, 7), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.count("✗") == 1
    assert text.count("✓") == len(promises) - 1
    assert "16 of 17 jobs finished" in text
    assert " ".join(text.split()).count("preempted stopped to make room for demo/hotfix") == 1


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "asks 4 nvidia.com/gpu as 4 worker; 1 nvidia.com/gpu free; 3 nvidia.com/gpu missing",
            "1 GPU free; 3 missing",
        ),
        ("queue 'batch': asks 2 nvidia.com/gpu, 4 in use", "asks 2 GPU, 4 in use"),
        (
            "0 ahead; kept for it: 4 nodes of rack rack-2, expected free at 2026-01-31T12:00:05Z",
            "kept for it: 4 nodes of rack-2, free about 12:00:05 UTC; 0 ahead",
        ),
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
