"""False reports in simulations: what they gain those who send them, and what is on the page."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.simulations import misreporting as study
from benchmarks.simulations.__main__ import PAGES
from benchmarks.simulations.store import Run, run_of
from bireme.core.resources import FloatArray

MAX_GAIN = 0.1
"""What docs/progress.md says that a lie gains, or costs the others, at most: of the mean JCT."""


def runs(contest: str, lie: str) -> list[Run]:
    reporting = study.LIES.get(lie, study.HONEST)
    found = (
        study.carry_out(study.CONTESTS[contest], seed, reporting) for seed in range(study.SEEDS)
    )
    return [run_of(replace(outcome, seed=seed)) for seed, outcome in enumerate(found)]


def ratio(means: FloatArray) -> float:
    honest, lied = means.mean(axis=0)
    return float(lied / honest)


def test_lie_gains_little_and_costs_the_others_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the order that looks at what is left: the one in which a lie should pay."""
    monkeypatch.setattr(study, "JOBS", 18)
    honest = runs("srtf", "honest")
    theirs, others = study.changes(honest, runs("srtf", "nearly done"))
    assert len(theirs) == study.SEEDS
    assert (theirs[:, 0] != theirs[:, 1]).any(), "the lie is heard"
    assert ratio(theirs) >= 1 - MAX_GAIN
    assert ratio(others) <= 1 + MAX_GAIN


def test_the_page_says_no_more_than_the_bound() -> None:
    page = json.loads((PAGES / "misreporting.json").read_text())
    rows: Sequence[Sequence[str]] = page["tables"][0]["rows"]
    assert {row[0] for row in rows} == set(study.CONTESTS)
    stated: Sequence[Sequence[str]] = page["tables"][1]["rows"]
    assert len(stated) == len(study.STATED_TO) * len(study.STATEMENTS)
    bounded = [row for row in rows if "without" not in row[0]]
    bounded += [row for row in stated if row[0] == "combined-priority"]
    assert min(float(row[2].split()[0]) for row in bounded) >= 1 - MAX_GAIN
    assert max(float(row[3].split()[0]) for row in bounded) <= 1 + MAX_GAIN
