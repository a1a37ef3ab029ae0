"""The scenarios that seeds stand for, and the page about many of them."""

from benchmarks.differential.course import Change, Course
from benchmarks.differential.drawing import scenario_of
from benchmarks.differential.simulations import as_planned, is_unambiguous
from benchmarks.differential.verdicts import Verdict, Word, line_of, result_of
from benchmarks.report import Sample

SEED = 4


def a_verdict(seed: int, word: Word, delay_seconds: float, *lines: str) -> Verdict:
    def course(at: float) -> Course:
        return Course((Change(at, "start", "a", {}), Change(at, "start", "b", {})), {}, {})

    return Verdict(seed, word, course(1.0), course(1.0 + delay_seconds), lines)


def test_a_seed_is_one_scenario_in_which_gangs_wait_and_all_that_ends_ends_in_time() -> None:
    drawn = scenario_of(SEED)
    assert drawn == scenario_of(SEED)
    assert 8 <= len(drawn.submissions) <= 10
    assert [s.seconds for s in drawn.submissions] == sorted(s.seconds for s in drawn.submissions)
    course = as_planned(drawn)
    assert set(course.ends) == {s.name for s in drawn.submissions if s.run_seconds is not None}
    assert any(change.seconds > course.arrivals[change.gang] for change in course.starts)
    assert is_unambiguous(drawn)


def test_the_page_counts_seeds_by_verdict_and_tells_what_differs() -> None:
    verdicts = [
        a_verdict(0, "same", 0.5),
        a_verdict(1, "late", 0.5, "after"),
        a_verdict(2, "same", 0.5),
    ]
    wrong = a_verdict(3, "differs", 1.5, "start of a on n1", "stop of b")
    result = result_of([*verdicts, wrong])
    rows = {row.what: row.bireme for row in result.rows}
    counted = (
        "seeds",
        "seeds, same",
        "seeds, late",
        "seeds that differ",
        "starts compared",
        "ties",
    )
    assert [rows[what] for what in counted] == [Sample((n,)) for n in (4, 2, 1, 1, 8, 8)]
    assert (rows["delay of a start, p50"].median, rows["delay of a start, p99"].median) == (
        0.5,
        1.5,
    )
    assert [row.is_reached for row in result.rows if row.aim is not None] == [False]
    assert result.notes[-1] == "Seed 3: start of a on n1; stop of b."
    assert line_of(wrong).splitlines()[1:] == ["    start of a on n1", "    stop of b"]
