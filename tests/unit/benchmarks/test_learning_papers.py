"""The page on the papers' own rules: their numbers, Bireme's, and one column for each training."""

import json
from pathlib import Path

import pytest

from benchmarks.learning import papers
from benchmarks.learning.papers import PAPERS, main, page, read
from bireme_lab.training.evaluation import EvaluationResult
from bireme_lab.training.recipes import RECIPES


def a_file(folder: Path, name: str, checkpoint: str, *seeds: int) -> None:
    """Slowdowns of the seed plus 2, of SJF plus 4; completion times are ten times as much."""
    runs = {
        seed: {
            policy: dict.fromkeys(("slowdown",), seed + more)
            | dict.fromkeys(("completion_steps", "waiting_steps"), 10.0 * (seed + more))
            for policy, more in ((checkpoint, 2.0), ("sjf", 4.0))
        }
        for seed in seeds
    }
    found = EvaluationResult(
        checkpoint, checkpoint, "0" * 64, "rate-0.7", {}, "slowdown", True, runs
    )
    command = f"bireme evaluate {checkpoint} --setting rate-0.7 --jobs 1 --json {folder}/x.json"
    text = json.dumps({"command": command, "settings": [found.to_json()]})
    (folder / f"{name}.json").write_text(text)


def test_every_training_has_a_column_and_shards_are_joined(tmp_path: Path) -> None:
    a_file(tmp_path, "a2c.0", "a2c", 0, 1, 2, 3)
    a_file(tmp_path, "a2c-paper-0.0", "a2c-paper", 0, 1)
    a_file(tmp_path, "a2c-paper-0.1", "a2c-paper", 2, 3)
    a_file(tmp_path, "a2c-paper-1.0", "a2c-paper", 4)
    lines = page(read(list(tmp_path.glob("*.json")))).splitlines()
    assert "| setting | metric |  | paper | a2c | a2c-paper-0 | a2c-paper-1 |" in lines
    (row,) = [line for line in lines if line.startswith("| rate-0.7 | slowdown")]
    assert row.startswith("| rate-0.7 | slowdown |  | bar 3.2 | 3.50 [")
    assert row.count("3.50 [") == 2
    assert row.endswith("| 6.00 |")
    assert "bireme evaluate a2c --setting rate-0.7" in lines


def test_another_training_joins_those_that_are_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(papers, "PAGE", tmp_path / "papers.md")
    for name, checkpoint in (("a2c.0", "a2c"), ("a2c-paper-0.0", "a2c-paper")):
        a_file(tmp_path, name, checkpoint, 0, 1, 2, 3)
        main([str(tmp_path / f"{name}.json")])
    together = (tmp_path / "papers.md").read_text()
    assert together == page(read([tmp_path / "a2c.0.json", tmp_path / "a2c-paper-0.0.json"]))
    a_file(tmp_path, "a2c-paper-0.0", "a2c-paper", 4)
    main([str(tmp_path / "a2c-paper-0.0.json")])
    (row,) = [
        line
        for line in (tmp_path / "papers.md").read_text().splitlines()
        if line.startswith("| rate-0.7 | slowdown")
    ]
    assert "3.50 [" in row
    assert row.endswith("| 6.00 |"), "a training that is measured again"


def test_every_paper_has_a_recipe_by_its_own_rules() -> None:
    for paper in PAPERS:
        assert {*paper.own, *paper.variants} <= set(RECIPES)


def test_no_file_is_no_page() -> None:
    with pytest.raises(SystemExit, match="name at least one"):
        main([])
