"""Files of results: a case renews its own, the index shows all, failures are not hidden."""

import json
import shutil
from pathlib import Path

import msgspec

from benchmarks import RESULTS
from benchmarks.report import Report, Result, Row, Sample, Table, at_most, case_markdown, write_case
from bireme_lab.simulator.reports.terminal import number

MACHINE = {"machine": "2 cores", "versions": "Python 3"}


def a_report(case: str, *rows: Row, failure: str = "") -> Report:
    table = Table(title="Seconds", columns=("process", "bireme"), rows=(("etcd", 0.5),))
    result = None if failure else Result(rows=rows, baseline="stock", tables=(table,))
    return Report(
        case=case,
        question=f"What about {case}?",
        command=f"python -m benchmarks.timings {case}",
        date="2030-01-01 00:00 UTC",
        took_seconds=12.0,
        repetitions=3,
        machine=MACHINE,
        result=result,
        failure=failure,
    )


def a_row(ours: float, theirs: float | None, bound: float) -> Row:
    baseline = None if theirs is None else Sample.of([theirs])
    aim = at_most(bound, "value" if theirs is None else "ratio")
    return Row(what="time", unit="s", bireme=Sample.of([ours]), baseline=baseline, aim=aim)


def test_a_comparison_shows_both_sides_the_ratio_and_the_aim() -> None:
    text = case_markdown(a_report("gangs", a_row(3.0, 2.0, 1.1)))
    assert "| time | s | 3.00 |  | 2.00 |  | 1.50 | <= 1.1x | **no** |" in text
    assert "| etcd | 0.500 |" in text
    assert "`python -m benchmarks.timings gangs`" in text


def test_without_a_baseline_there_are_no_empty_columns_for_one() -> None:
    text = case_markdown(a_report("verdict", a_row(0.2, None, 0.3)))
    assert "| time | s | 0.200 |  | <= 0.3 | yes |" in text
    assert "ratio" not in text


def test_one_case_renews_its_files_and_the_index_keeps_the_others(tmp_path: Path) -> None:
    write_case(tmp_path, a_report("gangs", a_row(3.0, 2.0, 1.1)))
    write_case(tmp_path, a_report("verdict", a_row(0.2, None, 0.3)))
    before = (tmp_path / "verdict.md").read_text()
    write_case(tmp_path, a_report("gangs", a_row(2.0, 2.0, 1.1)))
    index = (tmp_path / "README.md").read_text()
    assert "[gangs](gangs.md) | time | 1.00x (2.00 s) | <= 1.1x | yes" in index
    assert "[verdict](verdict.md) | time | 0.200 s | <= 0.3 | yes" in index
    assert (tmp_path / "verdict.md").read_text() == before


def test_a_case_can_be_renewed_beside_the_results_that_are_there(tmp_path: Path) -> None:
    for path in RESULTS.glob("*.json"):
        shutil.copy(path, tmp_path)
    write_case(tmp_path, a_report("new", a_row(2.0, 1.0, 1.0)))
    assert "[new](new.md)" in (tmp_path / "README.md").read_text()


def test_a_failed_case_says_so_everywhere(tmp_path: Path) -> None:
    write_case(tmp_path, a_report("gangs", failure="ControlPlaneError: no nodes"))
    assert "no nodes" in (tmp_path / "gangs.md").read_text()
    assert "| [gangs](gangs.md) | failed |" in (tmp_path / "README.md").read_text()


def test_every_number_is_in_the_json_and_comes_back_whole(tmp_path: Path) -> None:
    report = a_report("gangs", a_row(3.25, 2.0, 1.1))
    write_case(tmp_path, report)
    raw = (tmp_path / "gangs.json").read_bytes()
    assert json.loads(raw)["result"]["rows"][0]["bireme"]["values"] == [3.25]
    assert msgspec.json.decode(raw, type=Report) == report


def test_numbers_keep_three_digits() -> None:
    shown = [number(value) for value in (0.0, 0.0123, 0.5, 1.234, 12.34, 123.4, 4567.8)]
    assert shown == ["0", "0.012", "0.500", "1.23", "12.3", "123", "4568"]
