"""False reports in simulations: what they gain those who tell them, and what is on the page."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.simulations import liars
from benchmarks.simulations.__main__ import RESULTS
from benchmarks.simulations.store import Run, run_of
from bireme.core.resources import FloatArray

MOST_GAIN = 0.1
"""What docs/progress.md says that a lie gains, or costs the others, at most: of the mean JCT."""


def runs(contest: str, lie: str) -> list[Run]:
    told = liars.LIES.get(lie, liars.HONEST)
    found = (liars.carry_out(liars.CONTESTS[contest], seed, told) for seed in range(liars.SEEDS))
    return [run_of(replace(outcome, seed=seed)) for seed, outcome in enumerate(found)]


def ratio(means: FloatArray) -> float:
    honest, lied = means.mean(axis=0)
    return float(lied / honest)


def test_lie_gains_little_and_costs_the_others_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the order that looks at what is left: the one in which a lie should pay."""
    monkeypatch.setattr(liars, "JOBS", 18)
    honest = runs("srtf", "honest")
    theirs, others = liars.changes(honest, runs("srtf", "nearly done"))
    assert len(theirs) == liars.SEEDS
    assert (theirs[:, 0] != theirs[:, 1]).any(), "the lie is heard"
    assert ratio(theirs) >= 1 - MOST_GAIN
    assert ratio(others) <= 1 + MOST_GAIN


def test_the_page_says_no_more_than_the_bound() -> None:
    page = json.loads((RESULTS / "liars.json").read_text())
    rows: Sequence[Sequence[str]] = page["tables"][0]["rows"]
    assert {row[0] for row in rows} == set(liars.CONTESTS)
    stated: Sequence[Sequence[str]] = page["tables"][1]["rows"]
    assert len(stated) == len(liars.STATED_TO) * len(liars.STATEMENTS)
    bounded = [row for row in rows if "without" not in row[0]]
    bounded += [row for row in stated if row[0] == "combined-priority"]
    assert min(float(row[2].split()[0]) for row in bounded) >= 1 - MOST_GAIN
    assert max(float(row[3].split()[0]) for row in bounded) <= 1 + MOST_GAIN
