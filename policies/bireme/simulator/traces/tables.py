"""Tables of published traces: CSV text, plain, gzipped or a member of a tar archive.

A path may lead into an archive as if it were a folder: ``traces.tar.gz/workloads/one.csv``. What
a file is, is seen from its content, never from its name. Cells are read by column, because then a
bad one costs its message only when there is one; every message names file, line, field and value.
"""

import csv
import difflib
import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from itertools import chain
from math import inf, isfinite, nan
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final, cast

from bireme.simulator.errors import TraceError

MOST: Final = 1_000_000
"""A count above it is a damaged row, not a job."""

_BLANK: Final = frozenset({"", "None", "nan", "NaN", "NaT"})
_GZIP_MAGIC: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a file that a reader asked for, as text, in the order of the file.

    Attributes:
        file: What to call it in messages.
        header: All column names it has, also those nobody asked for.
        lines: Where each row ends in the file, counted from 1.
        columns: Column name to the cells of all rows.
    """

    file: str
    header: tuple[str, ...]
    lines: Sequence[int]
    columns: Mapping[str, Sequence[str]]

    def __len__(self) -> int:
        return len(self.lines)

    def texts(self, name: str, default: str = "") -> Sequence[str]:
        """Column ``name``; ``default`` in every row where the file has no such column."""
        if name not in self.columns:
            return [default] * len(self)
        return self.columns[name]

    def numbers(self, name: str, *, may_be_blank: bool = False, least: float = -inf) -> list[float]:
        """Column ``name`` as numbers from ``least`` on; NaN where it is blank and may be."""
        try:
            values = list(map(float, self.columns[name]))
        except ValueError:
            values = []
        if values and all(map(isfinite, values)) and min(values) >= least:
            return values
        cells = zip(self.lines, self.columns[name], strict=True)
        return [number(self.file, line, name, cell, may_be_blank, least) for line, cell in cells]

    def counts(self, name: str) -> list[int]:
        """Column ``name`` as whole numbers from 0 to ``MOST``."""
        known: dict[str, int] = {}
        for line, cell in zip(self.lines, self.columns[name], strict=True):
            if cell not in known:
                known[cell] = count(self.file, line, name, cell)
        return [known[cell] for cell in self.columns[name]]

    def times(self, name: str) -> list[float]:
        """Column ``name``, times of day, as POSIX seconds; NaN where it is blank.

        A time without a zone is read as UTC: only differences matter.
        """
        cells = zip(self.lines, self.columns[name], strict=True)
        return [_time(self.file, line, name, cell) for line, cell in cells]


def read_header(path: Path) -> tuple[str, ...]:
    """The column names in the first line of a file; TraceError when it has none."""
    with open_text(path) as text:
        _, names = next(_rows(path, text, ()))
    return tuple(names)


def read_table(
    path: Path, required: Sequence[str], optional: Sequence[str] = (), header: Sequence[str] = ()
) -> Table:
    """The columns ``required`` and, where the file has them, ``optional``.

    ``header`` names the columns of a file that comes without a header line. Raises
    :class:`TraceError` when the file cannot be read, a column is missing or a row is ragged.
    """
    names = tuple(header) or read_header(path)
    wanted = [*required, *(name for name in optional if name in names)]
    rows = list(each_row(path, wanted, header))
    columns = list(zip(*(cells for _, cells in rows), strict=True)) or [()] * len(wanted)
    lines = [line for line, _ in rows]
    return Table(str(path), names, lines, dict(zip(wanted, columns, strict=True)))


def each_row(
    path: Path, required: Sequence[str], header: Sequence[str] = ()
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Line and cells of the columns ``required`` (one or more), row by row.

    For tables too long to hold; raises as :func:`read_table`, at the row where it finds out.
    """
    with open_text(path) as text:
        rows = _rows(path, text, header)
        _, names = next(rows)
        _require(path, names, required)
        pick = _picker([names.index(name) for name in required])
        for line, row in rows:
            yield line, pick(row)


def _picker(columns: Sequence[int]) -> Callable[[list[str]], tuple[str, ...]]:
    """What takes the cells at ``columns`` of a row; of one alone itemgetter gives no tuple."""
    if len(columns) == 1:
        return lambda row: (row[columns[0]],)
    return itemgetter(*columns)


def _rows(path: Path, text: IO[str], header: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The header, then every row with its line; a row of another width is refused."""
    reader = csv.reader(text)
    try:
        names = list(header) or [name.strip() for name in next(reader, [])]
        if not names:
            raise TraceError(f"{path}, line 1: no header; the file is empty or begins blank")
        yield reader.line_num, names
        for row in filter(None, reader):  # blank lines are no rows
            if len(row) != len(names):
                raise TraceError(
                    f"{path}, line {reader.line_num}: {len(row)} fields where the header has "
                    f"{len(names)}; the line is cut off or not of this table"
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise TraceError(
            f"{path}, line {reader.line_num}: {error}; the file is damaged or no CSV text"
        ) from None


def _require(path: Path, names: Sequence[str], required: Sequence[str]) -> None:
    missing = [name for name in required if name not in names]
    if missing:
        raise TraceError(
            f"{path}, line 1: no column {', '.join(map(repr, missing))} among "
            f"{shown(','.join(names))}; is it a file of this format?"
        )


def number(
    file: str,
    line: int,
    name: str,
    cell: str,
    may_be_blank: bool = False,
    least: float = -inf,
) -> float:
    """``cell`` as a finite number from ``least`` on; NaN for a blank that may be."""
    try:
        value = float(cell)
    except ValueError:
        value = nan
    if (isfinite(value) and value >= least) or (may_be_blank and cell.strip() in _BLANK):
        return value
    limit = "" if least == -inf else f" from {least:g} on"
    raise TraceError(f"{file}, line {line}: {name} is {shown(cell)}; it must be a number{limit}")


def count(file: str, line: int, name: str, cell: str) -> int:
    """``cell`` as a whole number from 0 to ``MOST``."""
    value = number(file, line, name, cell)
    if value.is_integer() and 0 <= value <= MOST:
        return int(value)
    raise TraceError(
        f"{file}, line {line}: {name} is {shown(cell)}; it must be a whole number from 0 to {MOST}"
    )


def _time(file: str, line: int, name: str, cell: str) -> float:
    try:
        moment = datetime.fromisoformat(cell)
    except ValueError:
        if cell.strip() in _BLANK:
            return nan
        raise TraceError(
            f"{file}, line {line}: {name} is {shown(cell)}; it must be a time such as "
            "2017-10-09 07:01:55"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def shown(text: str) -> str:
    """``text`` as a message quotes it: escaped, and short."""
    quoted = ascii(text)
    return quoted if len(quoted) <= 120 else f"{quoted[:117]}..."


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """The text of a file, of a gzipped file or of a member of an archive, as a stream.

    Raises :class:`TraceError` naming ``path`` when it does not exist, is damaged or is no text.
    """
    with (
        _readable(path),
        _open_bytes(path) as raw,
        TextIOWrapper(raw, "utf-8-sig", newline="") as text,
    ):
        yield text


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """``path`` with its neighbours around it: the archive it leads into is unpacked meanwhile."""
    archive = _archive(path)
    if archive is None:
        yield path
        return
    with TemporaryDirectory() as folder:
        with _readable(path), tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        yield Path(folder) / path.relative_to(archive)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """What can go wrong with a file, as a TraceError with the remedy."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise TraceError(
            f"{path}: the compressed data is cut off or damaged ({error}); fetch the file again"
        ) from None
    except UnicodeDecodeError as error:
        raise TraceError(
            f"{path}: byte {error.start} is no UTF-8 text; give CSV text, plain, gzipped or in tar"
        ) from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror}); check the path") from None


def _archive(path: Path) -> Path | None:
    """The tar archive that ``path`` is or leads into; None where there is none on the way."""
    file = next((p for p in chain([path], path.parents) if p.is_file()), None)
    return file if file and (file != path or tarfile.is_tarfile(file)) else None


@contextmanager
def _open_bytes(path: Path) -> Iterator[IO[bytes]]:
    archive = _archive(path)
    if archive is not None:
        with tarfile.open(archive) as tar, _member(tar, archive, path) as raw:
            yield raw
        return
    with path.open("rb") as raw:
        is_gzip = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    with cast(IO[bytes], gzip.open(path)) if is_gzip else path.open("rb") as raw:
        yield raw


def _member(tar: tarfile.TarFile, archive: Path, path: Path) -> IO[bytes]:
    """The member that ``path`` names, or the only one when it names the archive alone."""
    files = {info.name.removeprefix("./"): info for info in tar if info.isfile()}
    wanted = path.relative_to(archive).as_posix()
    if path == archive and len(files) == 1:
        (wanted,) = files
    if wanted not in files:
        tables = [name for name in files if name.endswith(".csv")] or [*files, "FILE"]
        near = difflib.get_close_matches(wanted, tables, n=1) or tables
        raise TraceError(
            f"{path}: {archive.name} has no one file of that name among its {len(files)}; name one "
            f"as in {archive}/{near[0]}"
        )
    return cast(IO[bytes], tar.extractfile(files[wanted]))
