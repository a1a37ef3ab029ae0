"""Reading tables: every way to pack one, and every way to damage one."""

import gzip
import tarfile
from contextlib import suppress
from io import BytesIO
from math import isnan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.traces.tables import CsvTable, read_table, unpack

TEXT = "id,gpus,when,note\na,2,2020-01-01 00:00:10,x\nb,0,2020-01-01 00:00:00+00:00,y\n"


def written(folder: Path, content: str | bytes, name: str = "jobs.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def archive(folder: Path, **members: str) -> Path:
    path = folder / "tables.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name.replace("__", "/") + ".csv")
            info.size = len(text)
            tar.addfile(info, BytesIO(text.encode()))
    return path


def read(path: Path) -> CsvTable:
    return read_table(path, ("id", "gpus"), optional=("when", "missing"))


def test_a_plain_file_is_read_by_column(tmp_path: Path) -> None:
    table = read(written(tmp_path, TEXT))
    assert table.texts("id") == ("a", "b")
    assert table.counts("gpus") == [2, 0]
    assert table.header == ("id", "gpus", "when", "note")


def test_one_column_alone_is_read_whole(tmp_path: Path) -> None:
    assert read_table(written(tmp_path, TEXT), ["when"]).texts("when")[0] == "2020-01-01 00:00:10"


def test_a_gzipped_file_is_known_by_its_content_not_its_name(tmp_path: Path) -> None:
    assert read(written(tmp_path, gzip.compress(TEXT.encode()), "jobs.txt")).counts("gpus") == [
        2,
        0,
    ]


def test_an_archive_with_one_file_needs_no_member_name(tmp_path: Path) -> None:
    assert read(archive(tmp_path, jobs=TEXT)).texts("id") == ("a", "b")


def test_a_member_is_named_as_if_the_archive_were_a_folder(tmp_path: Path) -> None:
    path = archive(tmp_path, deep__one=TEXT, deep__two=TEXT.replace("a,2", "c,4"))
    assert read(path / "deep/two.csv").texts("id") == ("c", "b")


def test_an_archive_of_many_files_asks_for_one_and_names_the_nearest(tmp_path: Path) -> None:
    path = archive(tmp_path, deep__one=TEXT, deep__other=TEXT)
    with pytest.raises(TraceError, match=r"name one as in .*tables\.tar\.gz/deep/other\.csv"):
        read(path / "deep/othre.csv")


def test_an_unpacked_member_has_its_neighbours_beside_it(tmp_path: Path) -> None:
    path = archive(tmp_path, deep__one=TEXT, deep__two=TEXT)
    with unpack(path / "deep/one.csv") as member:
        assert (member.parent / "two.csv").read_text() == TEXT
    assert not member.exists()


def test_a_file_outside_an_archive_is_its_own_unpacked_self(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT)
    with unpack(path) as member:
        assert member == path


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_are_no_data(tmp_path: Path) -> None:
    text = "\ufeff" + TEXT.replace("\n", "\r\n") + "\r\n"
    table = read(written(tmp_path, text))
    assert table.texts("id") == ("a", "b")
    assert list(table.lines) == [2, 3]


def test_a_file_without_a_header_line_takes_the_names_given(tmp_path: Path) -> None:
    path = written(tmp_path, "a,2\nb,0\n")
    table = read_table(path, ("gpus", "id"), header=("id", "gpus"))
    assert (table.texts("id"), list(table.lines)) == (("a", "b"), [1, 2])


def test_a_column_the_file_lacks_is_blank_in_every_row(tmp_path: Path) -> None:
    assert read(written(tmp_path, TEXT)).texts("missing") == ["", ""]


def test_a_time_without_a_zone_is_utc(tmp_path: Path) -> None:
    first, second = read(written(tmp_path, TEXT)).times("when")
    assert first - second == 10


@pytest.mark.parametrize("blank", ["", "None", "nan", "NaN", "NaT"])
def test_a_blank_is_not_a_number_where_it_may_be_one(tmp_path: Path, blank: str) -> None:
    table = read(written(tmp_path, TEXT.replace("a,2", f"a,{blank}")))
    assert isnan(table.numbers("gpus", may_be_blank=True)[0])
    with pytest.raises(TraceError, match=r"jobs\.csv, line 2: gpus is .*must be a number"):
        table.numbers("gpus")


@pytest.mark.parametrize("cell", ["two", "inf", "1e999", "0x2", "2 GPUs"])
def test_what_is_no_number_is_refused_with_file_line_field_and_value(
    tmp_path: Path, cell: str
) -> None:
    table = read(written(tmp_path, TEXT.replace("a,2", f"a,{cell}")))
    with pytest.raises(TraceError, match=rf"jobs\.csv, line 2: gpus is '{cell}'; it must be"):
        table.numbers("gpus", may_be_blank=True)


@pytest.mark.parametrize("cell", ["-1", "1.5", "1000001"])
def test_what_is_no_count_is_refused(tmp_path: Path, cell: str) -> None:
    table = read(written(tmp_path, TEXT.replace("a,2", f"a,{cell}")))
    with pytest.raises(TraceError, match=rf"line 2: gpus is '{cell}'; it must be a whole number"):
        table.counts("gpus")


def test_what_is_no_time_is_refused(tmp_path: Path) -> None:
    table = read(written(tmp_path, TEXT.replace("2020-01-01 00:00:10", "yesterday")))
    with pytest.raises(TraceError, match="line 2: when is 'yesterday'; it must be a time such as"):
        table.times("when")


def test_a_missing_column_is_named_beside_those_there_are(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT.replace("gpus", "cards"))
    with pytest.raises(TraceError, match="line 1: no column 'gpus' among 'id,cards,when,note'"):
        read(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param("", "line 1: no header", id="empty"),
        pytest.param(TEXT[:-20], "line 3: 3 fields where the header has 4", id="cut-off-line"),
        pytest.param(TEXT + "c,1,2,3,4\n", "line 4: 5 fields where", id="too-wide"),
        pytest.param(b"id,gpus\n\xff\xfe,1\n", "is no UTF-8 text", id="no-text"),
        pytest.param(TEXT + '"' + "x" * 200_000, "line .* damaged or no CSV", id="open-quote"),
        pytest.param(gzip.compress(TEXT.encode())[:-12], "cut off or damaged", id="cut-gzip"),
        pytest.param(
            gzip.compress(TEXT.encode())[:-8] + bytes(8), "cut off or damaged", id="bad-checksum"
        ),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: str | bytes, problem: str) -> None:
    with pytest.raises(TraceError, match=problem):
        read(written(tmp_path, content))


def test_a_cut_off_archive_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path, one=TEXT, two="x" * 50_000)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TraceError, match="cut off or damaged"):
        read(path / "two.csv")


@pytest.mark.parametrize("name", ["nowhere.csv", "nowhere/jobs.csv", "."])
def test_a_path_that_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match=r"cannot be read \(.*\); check the path"):
        read(tmp_path / name)


@given(content=st.binary(max_size=200), begins_well=st.booleans())
def test_whatever_a_file_holds_the_answer_is_a_table_or_a_trace_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, begins_well: bool
) -> None:
    prefix = b"id,gpus\na,1\n" if begins_well else b""
    path = written(tmp_path_factory.mktemp("any"), prefix + content)
    with suppress(TraceError):
        table = read(path)
        assert len(table.texts("id")) == len(table)
        assert len(table.counts("gpus")) == len(table)


@given(kept=st.integers(0, len(gzip.compress(TEXT.encode(), mtime=0)) - 1))
def test_a_gzipped_file_cut_anywhere_is_refused(
    tmp_path_factory: pytest.TempPathFactory, kept: int
) -> None:
    path = written(tmp_path_factory.mktemp("cut"), gzip.compress(TEXT.encode(), mtime=0)[:kept])
    with pytest.raises(TraceError):
        read(path)


def test_a_path_through_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cut off or damaged"):
        read(written(tmp_path, TEXT) / "member.csv")
