"""Tables of published traces and their conversion to jobs: the common part of every reader.

:func:`read_table` reads CSV text, plain, gzipped or a member of a tar archive; :func:`trace_of`
puts its rows in order of submission. Every message names file, line, field and value.

A path may lead into an archive as if it were a folder: ``traces.tar.gz/workloads/one.csv``. The
content of a file decides its format, never its name.
"""

import csv
import difflib
import gzip
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from io import TextIOWrapper
from itertools import chain, pairwise
from math import inf, isfinite, isnan, nan
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final, TypeVar, cast

from bireme.core.errors import require
from bireme.core.gangs import Task
from bireme.core.gpus import GPU
from bireme.core.nodes import Node
from bireme.core.queues import Queue
from bireme.core.resources import CPU, MEMORY, PODS, request_of
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.workload import Trace, TraceJob

MAX_COUNT: Final = 1_000_000
"""A larger count is a damaged row, not a job."""

SpeedT = TypeVar("SpeedT")

_BLANK: Final = frozenset({"", "None", "nan", "NaN", "NaT"})
_GZIP_MAGIC: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class CsvTable:
    """The columns of a file that a reader selected, as text, in the order of the file.

    Attributes:
        file: Its name in messages.
        header: The names of all columns of the file.
        lines: The last line of each row in the file, counted from 1.
        columns: The cells of all rows by column name.
    """

    file: str
    header: tuple[str, ...]
    lines: Sequence[int]
    columns: Mapping[str, Sequence[str]]

    def __len__(self) -> int:
        return len(self.lines)

    def texts(self, name: str) -> Sequence[str]:
        """Return column ``name``; all blank if the file has no such column."""
        return self.columns.get(name) or [""] * len(self)

    def numbers(
        self, name: str, *, may_be_blank: bool = False, minimum: float = -inf
    ) -> list[float]:
        """Return column ``name`` as numbers from ``minimum`` on; NaN for an allowed blank."""
        # Convert all cells at once; only a column with a bad cell is read again for its message.
        try:
            values = list(map(float, self.columns[name]))
        except ValueError:
            values = []
        if values and all(map(isfinite, values)) and min(values) >= minimum:
            return values
        cells = zip(self.lines, self.columns[name], strict=True)
        return [number(self.file, line, name, cell, may_be_blank, minimum) for line, cell in cells]

    def counts(self, name: str) -> list[int]:
        """Return column ``name`` as whole numbers from 0 to ``MAX_COUNT``."""
        values: dict[str, int] = {}  # a column has millions of cells and few different ones
        for line, cell in zip(self.lines, self.columns[name], strict=True):
            if cell not in values:
                values[cell] = count(self.file, line, name, cell)
        return [values[cell] for cell in self.columns[name]]

    def times(self, name: str) -> list[float]:
        """Return column ``name``, dates with times, as POSIX seconds; NaN for a blank."""
        cells = zip(self.lines, self.columns[name], strict=True)
        return [_time(self.file, line, name, cell) for line, cell in cells]


def read_header(path: Path) -> tuple[str, ...]:
    """Return the column names in the first line of a file; TraceError when it has none."""
    with open_text(path) as text:
        _, names = next(_rows(path, text, ()))
    return tuple(names)


def read_table(
    path: Path, required: Sequence[str], optional: Sequence[str] = (), header: Sequence[str] = ()
) -> CsvTable:
    """Read the columns ``required``, and ``optional`` ones that the file has.

    ``header`` names the columns of a file without a header line. Raises
    :class:`TraceError` when the file cannot be read, a column is missing or a row is ragged.
    """
    names = tuple(header) or read_header(path)
    selected = [*required, *(name for name in optional if name in names)]
    rows = list(each_row(path, selected, header))
    columns = list(zip(*(cells for _, cells in rows), strict=True)) or [()] * len(selected)
    lines = [line for line, _ in rows]
    return CsvTable(str(path), names, lines, dict(zip(selected, columns, strict=True)))


def each_row(
    path: Path, required: Sequence[str], header: Sequence[str] = ()
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield line and cells of the columns ``required`` (one or more), row by row.

    For tables too large for memory. Raises as :func:`read_table` does, at the faulty row.
    """
    with open_text(path) as text:
        rows = _rows(path, text, header)
        _, names = next(rows)
        missing = [name for name in required if name not in names]
        if missing:
            raise TraceError(
                f"{path}, line 1: no column {', '.join(map(repr, missing))} among "
                f"{quote(','.join(names))}; is it a file of this format?"
            )
        indices = [names.index(name) for name in required]
        # itemgetter returns no tuple for one column.
        pick = itemgetter(*indices) if len(indices) > 1 else lambda row: (row[indices[0]],)
        for line, row in rows:
            yield line, pick(row)


def _rows(path: Path, text: IO[str], header: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the header, then every row with its line; TraceError for a row of another width."""
    reader = csv.reader(text)
    try:
        names = list(header) or [name.strip() for name in next(reader, [])]
        if not names:
            raise TraceError(f"{path}, line 1: no header; the file is empty or begins blank")
        yield reader.line_num, names
        for row in filter(None, reader):  # skip blank lines
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


def number(
    file: str, line: int, name: str, cell: str, may_be_blank: bool = False, minimum: float = -inf
) -> float:
    """Return ``cell`` as a finite number from ``minimum`` on; NaN for an allowed blank."""
    try:
        value = float(cell)
    except ValueError:
        value = nan
    if (isfinite(value) and value >= minimum) or (may_be_blank and cell.strip() in _BLANK):
        return value
    limit = "" if minimum == -inf else f" from {minimum:g} on"
    raise TraceError(f"{file}, line {line}: {name} is {quote(cell)}; it must be a number{limit}")


def count(file: str, line: int, name: str, cell: str) -> int:
    """Return ``cell`` as a whole number from 0 to ``MAX_COUNT``."""
    value = number(file, line, name, cell)
    if value.is_integer() and 0 <= value <= MAX_COUNT:
        return int(value)
    raise TraceError(
        f"{file}, line {line}: {name} is {quote(cell)}; "
        f"it must be a whole number from 0 to {MAX_COUNT}"
    )


def _time(file: str, line: int, name: str, cell: str) -> float:
    try:
        moment = datetime.fromisoformat(cell)
    except ValueError:
        if cell.strip() in _BLANK:
            return nan
        raise TraceError(
            f"{file}, line {line}: {name} is {quote(cell)}; it must be a time such as "
            "2017-10-09 07:01:55"
        ) from None
    # A time without a zone counts as UTC: only differences matter.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def quote(text: str) -> str:
    """Return ``text`` for a message: quoted, escaped and short."""
    quoted = ascii(text)
    return quoted if len(quoted) <= 120 else f"{quoted[:117]}..."


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """Open a file, a gzipped file or a member of an archive as a stream of text.

    Raises :class:`TraceError` naming ``path`` when it does not exist, is damaged or is no text.
    """
    # utf-8-sig, because Excel writes a byte order mark; newline="", because csv splits lines.
    with (
        _readable(path),
        _open_bytes(path) as raw,
        TextIOWrapper(raw, "utf-8-sig", newline="") as text,
    ):
        yield text


@contextmanager
def unpack(path: Path) -> Iterator[Path]:
    """Unpack the archive that ``path`` leads into, if any; yield the unpacked path."""
    archive = _archive(path)
    if archive is None:
        yield path
        return
    with TemporaryDirectory() as folder:
        with _readable(path), tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")  # nothing outside the folder, no devices
        yield Path(folder) / path.relative_to(archive)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Convert the errors of a file into a TraceError with the remedy."""
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
    """Return the tar archive that ``path`` is or leads into; None without one."""
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
    """Open the member that ``path`` names, or the only member if it names the archive."""
    files = {info.name.removeprefix("./"): info for info in tar if info.isfile()}
    member = path.relative_to(archive).as_posix()
    if path == archive and len(files) == 1:
        (member,) = files
    if member not in files:
        tables = [name for name in files if name.endswith(".csv")] or [*files, "FILE"]
        matches = difflib.get_close_matches(member, tables, n=1) or tables
        raise TraceError(
            f"{path}: {archive.name} has no one file of that name among its {len(files)}; name one "
            f"as in {archive}/{matches[0]}"
        )
    return cast(IO[bytes], tar.extractfile(files[member]))


# --- From columns to a trace --------------------------------------------------------------------

NOT_SUBMITTED: Final = "no submission time, left out"
NOT_RUN: Final = "no start or no end, left out"
NO_RUN_TIME: Final = "run time not above zero, left out"
NO_GPUS: Final = "zero GPUs, left out"
UNSORTED: Final = "submitted before the row above, sorted in"


@dataclass(frozen=True, slots=True)
class JobColumns:
    """The jobs of a table: one entry a row, in the order of the file.

    Attributes:
        names: Unique in the table.
        submitted: Seconds from any origin; NaN if unknown.
        run_seconds: NaN if the job never started or never ended.
        tasks: The requested tasks of each job.
        gpus: GPUs of the whole job; None keeps jobs without GPUs.
        users, queues, applications: None if the table has none.
    """

    names: Sequence[str]
    submitted: Sequence[float]
    run_seconds: Sequence[float]
    tasks: Sequence[tuple[Task, ...]]
    gpus: Sequence[int] | None = None
    users: Sequence[str] | None = None
    queues: Sequence[str] | None = None
    applications: Sequence[str] | None = None


def trace_of(
    name: str,
    table: CsvTable,
    columns: JobColumns,
    *,
    nodes: Sequence[Node] = (),
    treatments: Counter[str] | None = None,
) -> Trace:
    """Return the trace of ``columns``: its jobs by submission, the first at 0.

    Rows that cannot be simulated are left out and counted, each under its first matching treatment.
    Raises TraceError when two rows have the same name or no row remains.
    """
    counts = Counter(treatments or {})
    rows = _usable_rows(table, columns, counts)
    start = columns.submitted[rows[0]]
    jobs = tuple(
        TraceJob(
            name=columns.names[row],
            submitted=columns.submitted[row] - start,
            tasks=columns.tasks[row],
            duration_seconds=columns.run_seconds[row],
            user=columns.users[row] if columns.users else "",
            queue=columns.queues[row] if columns.queues else "default",
            application=columns.applications[row] if columns.applications else "",
        )
        for row in rows
    )
    queues = tuple(Queue(queue) for queue in sorted({job.queue for job in jobs}))
    return Trace(name, jobs, dict(sorted(counts.items())), tuple(nodes), queues)


def _usable_rows(table: CsvTable, columns: JobColumns, counts: Counter[str]) -> list[int]:
    """Return the rows that can be simulated, by submission; count the others in ``counts``."""
    line_of: dict[str, int] = {}
    for line, name in zip(table.lines, columns.names, strict=True):
        if line_of.setdefault(name, line) != line:
            raise TraceError(
                f"{table.file}, line {line}: job {quote(name)} is on line {line_of[name]} already; "
                "take one of them out"
            )
    gpus = columns.gpus if columns.gpus is not None else [1] * len(table)
    flaws = list(map(_flaw, columns.submitted, columns.run_seconds, gpus))
    counts.update(flaw for flaw in flaws if flaw)
    rows = [row for row, flaw in enumerate(flaws) if not flaw]
    if not rows:
        reasons = ", ".join(f"{count} rows: {what}" for what, count in sorted(counts.items()))
        raise TraceError(
            f"{table.file}: no job is left of {len(table)} rows ({reasons}); name a file with a "
            "job that ran on GPUs"
        )
    submitted = columns.submitted
    unsorted = sum(
        submitted[following] < submitted[previous] for previous, following in pairwise(rows)
    )
    counts.update({UNSORTED: unsorted} if unsorted else {})
    return sorted(rows, key=submitted.__getitem__)


def _flaw(submitted: float, run_seconds: float, gpus: int) -> str:
    # The order matters: a row is counted under its first matching treatment.
    if gpus == 0:
        return NO_GPUS
    if isnan(run_seconds):
        return NOT_RUN
    if run_seconds <= 0:
        return NO_RUN_TIME
    return NOT_SUBMITTED if isnan(submitted) else ""


def laws_of(
    table: CsvTable,
    column: str,
    models: Collection[str],
    law: Callable[[str, int], SpeedT],
    folder: Path,
    option: str,
) -> list[SpeedT]:
    """Return each row's ``law`` at its model, in ``column``, and ``batch_size``.

    Raises TraceError for a model that is not in ``models``, those measured in ``folder``, and for
    an unmeasured batch size. The message names ``option``, which sets the folder.
    """
    laws = []
    rows = zip(table.texts(column), table.counts("batch_size"), table.lines, strict=True)
    for name, batch, line in rows:
        if name not in models:
            raise TraceError(
                f"{table.file}, line {line}: {column} is {quote(name)}, which {folder} has no "
                f"measurements of; name the folder that has, with ?{option}=FOLDER"
            )
        try:
            laws.append(law(name, batch))
        except TraceError as error:
            raise TraceError(f"{table.file}, line {line}: {error}") from None
    return laws


# --- From GPU counts to tasks -------------------------------------------------------------------

CPU_MILLIS_PER_GPU: Final = 4_000
MEMORY_BYTES_PER_GPU: Final = 16 * 2**30
"""Request per GPU if a trace does not state it: about half of the capacity of the machines of the
published traces (8 to 32 cores and 32 to 128 GiB a GPU), so that GPUs stay the scarce resource."""

PODS_PER_NODE: Final = 110
"""The kubelet's own default, for machines that a trace describes."""


@lru_cache(maxsize=65_536)  # a trace repeats a few hundred shapes; equal gangs share one object
def tasks_of_gpus(
    gpus: int, gpus_per_node: int, cpu_millis: int | None = None, memory_bytes: int | None = None
) -> tuple[Task, ...]:
    """Return one task of equal workers with ``gpus`` in all.

    Most traces state the GPUs of a job, not its replicas. The job becomes equal replicas, each of
    the largest divisor of ``gpus`` that fits a node of ``gpus_per_node``: 4 on nodes of 8 is one
    replica, 16 is two of 8, 12 is two of 6.

    ``cpu_millis`` and ``memory_bytes`` are totals of the job, split over the replicas and rounded
    up. None uses the amounts per GPU above. Raises TraceError when ``gpus_per_node`` is below 1.
    """
    require("gpus_per_node", gpus_per_node, 1, error=TraceError)
    size = next((s for s in range(min(gpus, gpus_per_node), 0, -1) if gpus % s == 0), 0)
    replicas = gpus // size if size else 1
    cpu = gpus * CPU_MILLIS_PER_GPU if cpu_millis is None else cpu_millis
    memory = gpus * MEMORY_BYTES_PER_GPU if memory_bytes is None else memory_bytes
    request = {GPU: size, CPU: -(-cpu // replicas), MEMORY: -(-memory // replicas), PODS: 1}
    return (Task("worker", replicas, request_of(request)),)
