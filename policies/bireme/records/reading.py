"""Records from a disk: one file or several that follow each other, plain or gzipped.

What the files claim is checked before the first cycle is read: format, version, that none is
missing between them. A torn last line is what a killed operator leaves behind: it is counted.
Every message names file and line.
"""

import gzip
import zlib
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Final, cast

import msgspec

from bireme.core.settings import SchedulingSettings
from bireme.records.decoding import Decoder, Moment
from bireme.records.errors import RecordError
from bireme.records.lines import FORMAT, VERSION, Header
from bireme.records.writing import number_of, record_files

_GZIP_MAGIC: Final = b"\x1f\x8b"
_REMEDY: Final = "name the files that an operator wrote to its record directory"


class _Claim(msgspec.Struct):
    """What any header says, whatever its version."""

    format: str = ""
    version: int = 0


@dataclass(slots=True)
class Record:
    """The files of one record, oldest first.

    Attributes:
        torn: Last lines that were cut off, as far as the files were read.
        place: File and line of the moment read last.
        files_read: How many files were read to their end.
    """

    files: tuple[tuple[Path, Header], ...]
    torn: int = 0
    place: str = ""
    files_read: int = 0

    @property
    def settings(self) -> SchedulingSettings:
        """What all its decisions depended on besides the cluster."""
        return self.files[0][1].settings

    @property
    def runs(self) -> int:
        """How many operators wrote it, one after another."""
        return len({header.run for _, header in self.files})

    @property
    def versions(self) -> tuple[str, ...]:
        """Of Bireme, by which it was written."""
        return tuple(dict.fromkeys(header.bireme for _, header in self.files))

    def moments(self) -> Iterator[Moment]:
        """Every recorded cycle in turn. Raises RecordError where a line cannot be one."""
        for path, header in self.files:
            decoder = Decoder(header.settings)
            with _opened(path) as text:
                for number, line in _lines(path, text):
                    if number == 1:
                        continue
                    self.place = f"{path} line {number}"
                    try:
                        moment = decoder.decode(line)
                    except RecordError as error:
                        if line.endswith(b"\n"):
                            raise RecordError(f"{self.place}: {error}; {_REMEDY}") from error
                        self.torn += 1
                    else:
                        yield moment
            self.files_read += 1


def open_record(paths: Sequence[Path]) -> Record:
    """The record in ``paths``: files, or folders that hold them, in any order.

    Raises RecordError when one is no record, they have other settings, or one is missing.
    """
    files = {path: _header(path) for given in paths for path in _files(given)}
    torn = {number_of(path) for path, header in files.items() if header is None}
    found = [(path, header) for path, header in files.items() if header is not None]
    found.sort(key=lambda one: one[1].number)
    if not found:
        raise RecordError(f"{paths[0]} line 1: it ends before its first line does; {_REMEDY}")
    for (_, before), (path, header) in pairwise(found):
        _check_follows(path, header, before, torn)
    return Record(tuple(found), torn=len(torn))


def _check_follows(path: Path, header: Header, before: Header, torn: Container[int]) -> None:
    between = range(before.number + 1, header.number)
    if header.number <= before.number or not all(number in torn for number in between):
        raise RecordError(
            f"{path} line 1: it is file {header.number} of the record, and the one before it "
            f"is file {before.number}; name every file from the first to the last, each once"
        )
    if header.settings != before.settings:
        raise RecordError(
            f"{path} line 1: its settings are not those of file {before.number}; "
            "replay the files before it and those from it on apart"
        )


def _files(path: Path) -> list[Path]:
    with _naming(path):
        if not path.is_dir():
            return [path]
        files = record_files(path)
    if not files:
        raise RecordError(f"{path} holds no record-*.jsonl; {_REMEDY}")
    return files


def _header(path: Path) -> Header | None:
    """The claims of its first line; None where an operator was killed before it was whole."""
    with _opened(path) as text:
        _, line = next(_lines(path, text), (1, b""))
    if not line.endswith(b"\n"):
        return None
    where = f"{path} line 1"
    try:
        claim = msgspec.json.decode(line, type=_Claim)
        if claim.format != FORMAT:
            raise RecordError(f"{where}: format is {claim.format!r}, not {FORMAT!r}; {_REMEDY}")
        if claim.version != VERSION:
            raise RecordError(
                f"{where}: version is {claim.version}, and this Bireme reads {VERSION}; "
                "replay it with the Bireme that wrote it"
            )
        return msgspec.json.decode(line, type=Header)
    except msgspec.DecodeError as error:
        raise RecordError(f"{where}: no first line of a record: {error}; {_REMEDY}") from error


def _lines(path: Path, text: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Numbered from 1."""
    number = 0
    try:
        for number, line in enumerate(text, 1):
            yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RecordError(
            f"{path} line {number + 1}: the compressed file ends or is damaged here: {error}; "
            "copy it again"
        ) from error


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with _naming(path), path.open("rb") as file:
        is_gzipped = file.peek(2)[:2] == _GZIP_MAGIC
        yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if is_gzipped else file


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}; {_REMEDY}") from error
