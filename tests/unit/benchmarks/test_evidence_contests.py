"""Contests on small windows: who is in them, and what the page says of who won."""

from pathlib import Path

import pytest

from benchmarks.simulations import contests, guardrails, placers, windows
from benchmarks.simulations.contests import DEFAULT, KNOWN, SEARCHING
from benchmarks.simulations.store import Store
from bireme import policy_names
from bireme_lab.simulator.loads import Window, make_window
from testbed.simulations import a_job, a_trace

ALL = contests.contenders()
NAMES = [DEFAULT, "smallest-first", "sjf" + KNOWN]


def a_window(number: int) -> Window:
    """A wide job and small ones that come a little later, more of them than fit."""
    jobs = [a_job("wide", 500, gpus=8), *(a_job(f"s{n}", 300, at=1.0 + 2 * n) for n in range(8))]
    return make_window(number, a_trace(*jobs))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, lambda _: None)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contests, "contenders", lambda: NAMES)
    monkeypatch.setattr(contests, "SEARCHING", ("rifling",))
    for source in ("muri", "openb", "training_weeks"):
        monkeypatch.setattr(windows, source, lambda *_, **__: [a_window(0), a_window(1)])


def test_every_orderer_takes_part_in_one_of_the_two_tables() -> None:
    whole = {name.removesuffix(KNOWN) for name in ALL}
    assert whole | set(SEARCHING) | {"fcfs"} == set(policy_names.class_paths("orderer"))
    assert ALL[0] == DEFAULT


def test_a_page_has_a_table_per_load_and_says_who_waited_least(store: Store) -> None:
    page = contests.build("muri", "Muri", windows.muri, Path(), store)
    titles = [table.title for table in page.tables]
    assert titles[:4] == ["The windows", *(f"Load {x}, whole windows" for x in (0.7, 0.9, 1.1))]
    assert [row[0] for row in page.tables[1].rows] == NAMES
    assert "of 2 that do not know run times" in page.findings[0]


def test_known_run_times_reach_the_order(store: Store) -> None:
    outcome = contests.carry_out(a_window(0), 1.1, "sjf" + KNOWN)
    assert all(record.job.estimated_seconds for record in outcome.jobs)


def test_a_page_on_rails_compares_each_order_with_itself(store: Store) -> None:
    page = guardrails.build(Path(), store)
    *rails, factors = page.tables
    assert len(rails) == len(guardrails.ORDERERS) == len(page.figures)
    assert {row[1] for row in factors.rows} >= {"no bound", "0", "8"}
    assert [row[0] for row in page.tables[0].rows] == [
        one.says for one in guardrails.GUARDRAILS.values()
    ]


def test_every_placer_is_on_its_page(store: Store) -> None:
    page = placers.build(Path(), store)
    assert {row[0] for row in page.tables[0].rows} == set(policy_names.class_paths("placer"))
