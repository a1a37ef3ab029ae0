"""Series of numbers from files: what columns mean, how rows become intervals, what is refused."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.traces.series import ReadSeries, read_series

DATA = Path(__file__).parents[5] / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.exists(), reason="needs the publishers' files, which are not shipped"
)
HOUR, DAY = 3_600, 86_400
STAMPED = "time,load\n" + "".join(
    f"2026-11-0{1 + h // 24} {h % 24:02}:00:00,{h}\n" for h in range(96)
)


def read(folder: Path, text: str, column: str | None = None, **options: Any) -> ReadSeries:
    path = folder / "series.csv"
    path.write_text(text)
    return read_series(path, column, **options)


def test_a_plain_list_of_numbers_is_one_interval_a_line(tmp_path: Path) -> None:
    found = read(tmp_path, "3\n1.5\n\n4e2\n", step_seconds=300)
    assert found.series.values.tolist() == [3.0, 1.5, 400.0]
    assert found.series.start is None
    assert found.series.step_seconds == 300
    assert found.notes == ()


def test_a_list_under_a_heading_is_called_by_it(tmp_path: Path) -> None:
    assert read(tmp_path, "bits\n3\n1\n", step_seconds=HOUR).column == "bits"


def test_times_say_when_it_begins_and_how_long_an_interval_is(tmp_path: Path) -> None:
    found = read(tmp_path, STAMPED).series
    assert found.start == 1_793_491_200.0
    assert found.step_seconds == HOUR
    assert found.values.tolist() == list(range(96))


def test_day_and_week_are_seasons_where_the_file_has_three_of_them(tmp_path: Path) -> None:
    assert read(tmp_path, STAMPED).series.periods == (24,)
    assert read(tmp_path, "1\n2\n" * 300, step_seconds=HOUR).series.periods == (24, 168)
    assert read(tmp_path, "1\n2\n" * 300, step_seconds=DAY).series.periods == (7,)
    assert read(tmp_path, "1\n2\n" * 300, step_seconds=1000).series.periods == ()


def test_a_table_without_a_header_is_read_by_the_number_of_its_column(tmp_path: Path) -> None:
    text = "".join(f'"2026-11-01 0{h}:00:00",{h},{10 * h}\n' for h in range(5))
    assert read(tmp_path, text, "3").series.values.tolist() == [0, 10, 20, 30, 40]


def test_gzip_makes_no_difference(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_bytes(gzip.compress(STAMPED.encode()))
    assert len(read_series(path).series.values) == 96


@pytest.mark.parametrize(
    ("reduce", "first"), [("mean", 11.5), ("sum", 276.0), ("max", 23.0), ("count", 24.0)]
)
def test_rows_are_gathered_into_longer_intervals(reduce: str, first: float, tmp_path: Path) -> None:
    found = read(tmp_path, STAMPED, step_seconds=DAY, reduce=reduce)
    assert found.series.values[0] == first
    assert len(found.series.values) == 4
    assert found.notes == ()


def test_the_order_of_the_rows_does_not_matter(tmp_path: Path) -> None:
    head, *rows = STAMPED.splitlines()
    found = read(tmp_path, "\n".join([head, *reversed(rows)]))
    assert found.series.values.tolist() == list(range(96))


def test_intervals_at_the_ends_that_are_known_in_part_are_left_out(tmp_path: Path) -> None:
    head, *rows = STAMPED.splitlines()
    found = read(tmp_path, "\n".join([head, *rows[7:-5]]), step_seconds=DAY, reduce="sum")
    assert found.series.values.tolist() == [sum(range(24, 48)), sum(range(48, 72))]
    assert found.series.start == 1_793_491_200.0 + DAY
    assert found.notes == ("2 intervals known in part left out",)


def test_a_part_of_the_file_is_asked_for_by_time(tmp_path: Path) -> None:
    begin = 1_793_491_200.0
    found = read(tmp_path, STAMPED, since=begin + HOUR, until=begin + 5 * HOUR).series
    assert found.values.tolist() == [1, 2, 3, 4]
    days: dict[str, Any] = {"step_seconds": DAY, "reduce": "count"}
    part = read(tmp_path, STAMPED, since=begin + DAY, until=begin + 3 * DAY, **days)
    assert part.series.values.tolist() == [24, 24]
    inside = read(tmp_path, STAMPED, since=begin + DAY / 2, until=begin + 2.5 * DAY, **days)
    assert inside.series.values.tolist() == [24]


def test_no_row_is_nothing_for_a_count_and_a_gap_for_a_mean(tmp_path: Path) -> None:
    head, *rows = STAMPED.splitlines()
    text = "\n".join([head, *rows[:30], *rows[32:]])
    counted = read(tmp_path, text, step_seconds=HOUR, reduce="count").series.values
    assert counted[29:33].tolist() == [1, 0, 0, 1]
    fixed = read(tmp_path, text)
    assert fixed.series.values[29:33].tolist() == [29, 6, 7, 32]
    (note,) = fixed.notes
    assert note == "2 intervals without a value filled from the neighbours or one season before"


def test_blank_cells_are_gaps(tmp_path: Path) -> None:
    assert read(tmp_path, "load,x\n1,0\n,0\n3,0\n", "load", step_seconds=HOUR).series.values[1] == 2


def test_a_time_that_comes_late_still_is_that_of_its_interval(tmp_path: Path) -> None:
    text = "time,load\n" + "".join(f"2026-11-01 00:{m:02}:0{m % 7},{m}\n" for m in range(30))
    assert read(tmp_path, text, step_seconds=60).series.values.tolist() == list(range(30))


@pytest.mark.parametrize(
    ("text", "column", "options", "message"),
    [
        (
            "3\nx\n1\n",
            None,
            {"step_seconds": HOUR},
            r"line 2: column 1 is 'x'; it must be a number",
        ),
        ("3\n-2\n1\n", None, {"step_seconds": HOUR}, r"line 2: column 1 is '-2'.* from 0 on"),
        ("3\ninf\n1\n", None, {"step_seconds": HOUR}, "line 2: column 1 is 'inf'"),
        ("3\n2\n", None, {}, "no column holds times; say how long"),
        ("3\n2\n", None, {"reduce": "count"}, "no column holds times, so rows cannot be counted"),
        ("3\n2\n", None, {"step_seconds": 9, "since": 1.0}, "no part of it by time"),
        (
            STAMPED,
            None,
            {"since": 2e9},
            "0 rows in the part asked for; its times go from 2026-11-01",
        ),
        (STAMPED, None, {"step_seconds": 40 * DAY}, "fill no interval of 40 d; ask for shorter"),
        ("load,x\n,1\n,1\n", "load", {"step_seconds": 9}, "nothing is known of 2 .* from row 1 on"),
        ("load\n", None, {"step_seconds": HOUR}, "0 rows of values; a series needs at least two"),
        ("a,b\n1,2\n3,4\n", None, {}, r"which column\? name one of 'a, b'"),
        ("a,b\n1,2\n3,4\n", "c", {}, r"no column 'c'; name one of 'a, b'"),
        ("a,b\n1,2\n3,4\n", "3", {}, "no column '3'"),
        (STAMPED, "time", {}, r"line 2: time is '2026-11-01 00:00:00'; it must be a number"),
        (STAMPED + ",7\n", None, {}, "line 98: time is blank; every row needs a time"),
        (STAMPED + "soon,7\n", None, {}, "line 98: time is 'soon'; it must be a time such as"),
        (STAMPED + "2200-01-01,7\n", None, {}, "intervals of 60 min lie between .* wrong"),
        (STAMPED, None, {"step_seconds": 60}, "60 s are shorter than the 60 min between its rows"),
        (STAMPED, None, {"reduce": "count"}, "Say how long an interval is"),
        ("t,v\n2026-11-01,1\n2026-11-01,2\n", None, {}, "all rows have the same time"),
        (
            STAMPED + "2026-11-07 00:00:00,7\n",
            None,
            {},
            "nothing is known of 48 intervals from 2026-11-05 00:00 on",
        ),
    ],
)
def test_what_is_no_series_is_refused_with_the_remedy(
    text: str, column: str | None, options: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(TraceError, match=message):
        read(tmp_path, text, column, **options)


@needs_data
def test_the_series_of_the_lsp_paper_is_read_alike_from_every_form_it_is_published_in() -> None:
    folder = DATA / "tsdl"
    listed = read_series(folder / "A1H.txt", step_seconds=HOUR).series
    for name in ("A1H_timestamped.csv", "internet-traffic-data-in-bits-fr.csv"):
        stamped = read_series(folder / name).series
        assert np.array_equal(stamped.values, listed.values)
        assert stamped.periods == listed.periods == (24, 168)
    assert len(read_series(folder / "A5M_timestamped.csv.gz").series.values) == 14_772


@needs_data
def test_jobs_of_a_trace_are_counted_by_the_day() -> None:
    path = DATA / "philly" / "philly_2017-09-04_2017-11-14.csv.gz"
    found = read_series(path, step_seconds=DAY, reduce="count")
    assert found.series.values.sum() <= 64_483
    assert found.series.periods == (7,)
