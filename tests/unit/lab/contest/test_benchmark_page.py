"""The page of the benchmark, the rows of cards, and the label of what loses."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.contest.__main__ import main as write
from bireme.cli import main
from bireme.cli import policies as listing
from bireme.onnx.cards import card_text
from bireme.onnx.checkpoints import read_card
from bireme.policy_names import checkpoint_folders
from bireme_lab.contest.benchmark import FamilyResult, Row, Tuning
from bireme_lab.contest.families import LOADS
from bireme_lab.contest.verdicts import Verdict
from bireme_lab.simulator.comparison import Estimate

LEVEL = Verdict(15, 5, Estimate(1.0, 0.9, 1.1), Estimate(2.0, 1.5, 2.5), 3.0, 4.0, 0, 0)
WORSE = replace(LEVEL, jct=Estimate(1.3, 1.2, 1.4))
LAS = "tiresias-las?threshold_device_seconds=30000"


def row(name: str, kind: str, verdict: Verdict) -> Row:
    loads = {f"{load}": verdict for load in LOADS}
    return Row(name, name, kind, int(kind == "learned"), verdict, loads)  # type: ignore[arg-type]


RESULT = FamilyResult(
    family="rigid",
    says="few jobs",
    split="by seed",
    tunings=[Tuning("tiresias-las", LAS, 8.5, 10)],
    training_worlds=6,
    worlds=15,
    blocks=5,
    jobs=450,
    nodes=(2, 4),
    rows=[
        row(LAS, "baseline", LEVEL),
        row("das", "learned", WORSE),
        row("rlpto", "learned", WORSE),
        row("learned-index", "learned", LEVEL),
        replace(row("mine", "learned", LEVEL), policy="fifo/checkpoint:/home/me/mine"),
    ],
)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    file = tmp_path / "rigid.json"
    file.write_text(json.dumps({"families": [RESULT.to_json()]}))
    return file


def test_the_page_has_every_row_and_the_command_that_measures_it(results: Path) -> None:
    write([str(results), "--out", str(results.parent), "--commit", "a" * 40])
    page = (results.parent / "benchmark.md").read_text()
    assert "| das | 1.30 [1.20, 1.40] |" in page
    assert "| das | 1 | 1.300 [1.200, 1.400] |" in page
    assert f"`{LAS}`" in page
    command = (
        "python -m bireme_lab.contest --data $DATA --family rigid --blocks 5 --training-blocks 2"
    )
    policies = "--policies das,rlpto,learned-index,mine"
    assert f"{command} --rules tiresias-las {policies} $(mine 1) --json rigid.json" in page
    assert "Of mine, which does not come with Bireme" in page
    numbers = (results.parent / "benchmark.json").read_text()
    assert "/home/me" not in numbers, "the folder of one machine"
    (family,) = json.loads(numbers)["families"]
    assert [each["finding"] for each in family["rows"]] == [
        "level",
        "worse",
        "worse",
        "level",
        "level",
    ]


def test_blocks_after_those_of_the_table_have_a_section_of_their_own(results: Path) -> None:
    fresh = replace(
        RESULT,
        skipped=5,
        blocks=40,
        rows=[row(LAS, "baseline", LEVEL), row("default", "default", WORSE)],
    )
    second = results.parent / "second.json"
    second.write_text(json.dumps({"families": [fresh.to_json()]}))
    commits = ("--commit", "a" * 40, "--commit-of", "rigid-after-5=later")
    write([str(results), str(second), "--out", str(results.parent), *commits])
    page = (results.parent / "benchmark.md").read_text()
    assert "| policy | rigid |\n" in page, "one column"
    assert "## Rigid, 40 blocks after the first 5\n" in page
    assert "(rigid-after-5 by later)" in page
    command = (
        "python -m bireme_lab.contest --data $DATA --family rigid --blocks 40 --training-blocks 2"
    )
    options = "--skip-blocks 5 --rules tiresias-las --policies default"
    assert f"{command} {options} --json rigid-after-5.json" in page


def test_what_was_tried_on_the_training_part_is_no_verdict(results: Path) -> None:
    mine = "tiresias-las?preemption_delay_seconds=300&promote_knob=8"
    tried = replace(
        RESULT,
        part="training",
        rows=[
            row(LAS, "baseline", LEVEL),
            row("default", "default", WORSE),
            row(mine, "candidate", WORSE),
        ],
    )
    second = results.parent / "second.json"
    second.write_text(json.dumps({"families": [tried.to_json()]}))
    write([str(results), str(second), "--out", str(results.parent), "--commit", "a" * 40])
    page = (results.parent / "benchmark.md").read_text()
    table, _, sections = page.partition("## Rigid\n")
    assert mine not in table, "the table in one is of the test part"
    assert "## Rigid, training part\n" in sections
    assert "5 blocks, 15 training worlds, 450 jobs" in sections
    command = "--family rigid --part training --blocks 5 --training-blocks 2 --rules tiresias-las"
    assert f"{command} --policies 'default,{mine}' --json rigid-training.json" in sections


def test_rows_that_were_played_again_take_the_place_of_those_before(results: Path) -> None:
    before = replace(
        RESULT, rows=[*RESULT.rows[:1], row("default", "default", WORSE), *RESULT.rows[1:]]
    )
    results.write_text(json.dumps({"families": [before.to_json()]}))
    better = replace(LEVEL, jct=Estimate(0.8, 0.7, 0.9))
    later = [row("default", "default", better), replace(row("das", "learned", better), seeds=3)]
    mine = "fifo?limit=3"
    later.append(row(mine, "candidate", better))
    files = [results.parent / f"{name}.json" for name in ("later", "learned", "mine")]
    for file, each in zip(files, later, strict=True):
        played = replace(RESULT, rows=[RESULT.rows[0], each])
        file.write_text(json.dumps({"families": [played.to_json()]}))
    out = ("--out", str(results.parent), "--commit", "a" * 40)
    made = {"default": "b" * 40, "das": "c" * 40, mine: "d" * 40}
    commits = [f"--commit-of={name}={commit}" for name, commit in made.items()]
    write([str(results), *out, *commits, "--again", *map(str, files)])
    page = (results.parent / "benchmark.md").read_text()
    assert "| default | 0.80 [0.70, 0.90] |" in page
    assert "| das | 3 | 0.800 [0.700, 0.900] |" in page
    assert "| rlpto | 1.30 [1.20, 1.40] |" in page, "the other rows stay"
    assert page.index("| default | 0.80") < page.index("| das | 0.80") < page.index("| rlpto | 1")
    assert f"(default by {'b' * 40}) (das by {'c' * 40})" in page
    assert "--policies default --json rigid-default.json" in page
    assert "--policies das $(das 3) --json rigid-das.json" in page
    again = "rigid-default.json rigid-das.json rigid-fifo.json"
    assert f"rigid.json --again {again} --into-cards" in page
    table, _, sections = page.partition("## Rigid\n")
    assert mine not in table, "its constants are those of one family"
    assert f"| {mine} | - | 0.800 [0.700, 0.900] |" in sections
    assert f"({mine} by {'d' * 40})" in sections
    assert f"--policies '{mine}' --json rigid-fifo.json" in sections

    # The page's own JSON can be continued.
    own = results.parent / "benchmark.json"
    write([str(own), *out, *commits, "--again", str(files[0])])
    assert "| das | 3 | 0.800 [0.700, 0.900] |" in (results.parent / "benchmark.md").read_text()

    # Other worlds, or worlds in which the baseline did otherwise.
    fine = replace(RESULT, rows=[RESULT.rows[0], later[0]])
    another = replace(RESULT.rows[0], overall=replace(LEVEL, p99_wait_seconds=5.0))
    for wrong in (replace(fine, jobs=449), replace(fine, rows=[another, later[0]])):
        files[0].write_text(json.dumps({"families": [wrong.to_json()]}))
        with pytest.raises(SystemExit, match="play the same worlds"):
            write([str(results), *out, "--again", str(files[0])])


def test_rows_go_into_cards_and_what_loses_is_called_research(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = results.parent / "checkpoints"
    copies = {
        name: Path(shutil.copytree(path, folder / name))
        for name, path in checkpoint_folders().items()
    }
    monkeypatch.setattr("benchmarks.contest.__main__.checkpoint_folders", lambda: copies)
    monkeypatch.setattr(listing, "checkpoint_folder", copies.get)
    commit, later = "b" * 40, "c" * 40
    commits = ("--commit", commit, "--commit-of", f"rigid={later}")
    write([str(results), "--out", str(results.parent), *commits, "--into-cards"])
    assert f"(rigid by {later})" in (results.parent / "benchmark.md").read_text()

    card, digest = read_card(folder / "das")
    assert card.benchmark is not None
    assert card.benchmark.rows[0].commit == later
    assert f"1 seed; commit {later[:12]}" in card_text(card, digest)
    assert (card.benchmark.commit, card.benchmark.loses) == (commit, ("rigid",))
    assert (card.benchmark.rows[0].interval, card.benchmark.rows[0].baseline) == ((1.2, 1.4), LAS)
    assert "Research: the best tuned rule is better in rigid." in card_text(card, digest)
    assert not read_card(folder / "learned-index")[0].is_research

    assert main(["policies"]) == 0
    listed = capsys.readouterr().out.splitlines()
    words = {tuple(line.split(maxsplit=2)[:2]): line.split(maxsplit=2)[2] for line in listed}
    assert words["orderer", "das"].startswith("research: ")
    assert words["placer", "das"].startswith("research: ")
    assert not words["orderer", "learned-index"].startswith("research: ")
    assert words["sizer", "rlpto"].startswith("research: ")
    assert not words["orderer", "rlpto"].startswith("research: "), "a rule of that name"
    assert not words["orderer", "fifo"].startswith("research: ")
