"""Records on a disk: numbered files of bounded size, the oldest deleted, never above the bound.

A line is one write, so that a process that is killed leaves at most one torn line, the last of its
file. Whatever goes wrong ends the file after its last whole line; the next write begins another,
which tells everything again.
"""

import os
import re
from contextlib import suppress
from importlib.metadata import version
from io import FileIO
from pathlib import Path
from typing import Final

from bireme.core.decision import Decision
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.records.encoding import Encoder, encode_header
from bireme.records.errors import RecordError
from bireme.records.lines import FORMAT, SETTINGS, VERSION, Header, Source

_NAME: Final = re.compile(r"record-(\d{8})\.jsonl")


class RecordWriter:
    """Writes one operator's term into ``folder``, beside the files of terms before it.

    All of them together hold at most ``most_files * file_bytes`` bytes. ``lost`` counts cycles
    that could not be recorded since the last line; the next line tells it.
    """

    def __init__(
        self,
        folder: Path,
        run: str,
        settings: SchedulingSettings,
        *,
        file_bytes: int,
        most_files: int,
    ) -> None:
        self.lost = 0
        self._folder = folder
        self._run = run
        self._settings = settings
        self._file_bytes = file_bytes
        self._most_files = most_files
        self._encoder = Encoder()
        self._file: FileIO | None = None
        self._size = 0

    def write(
        self,
        snapshot: ClusterSnapshot,
        decision: Decision,
        source: Source = SETTINGS,
    ) -> bool:
        """Record one cycle, which ``source`` decided; whether it had anything to say.

        Raises OSError when the disk is full or the folder cannot be used, and RecordError for
        what no record can hold or a line longer than a file may be.
        """
        try:
            return self._write(snapshot, decision, source)
        except BaseException:
            self.close()
            raise

    def _write(self, snapshot: ClusterSnapshot, decision: Decision, source: Source) -> bool:
        if self._file is not None:
            line = self._encoder.encode(snapshot, decision, self.lost, source)
            if line is None:
                return False
            if self._size + len(line) <= self._file_bytes:
                self._append(self._file, line)
                return True
            self.close()
        self._begin(snapshot, decision, source)
        return True

    def _begin(self, snapshot: ClusterSnapshot, decision: Decision, source: Source) -> None:
        """Another file, whose first line tells everything."""
        self._encoder = Encoder()
        line = self._encoder.encode(snapshot, decision, self.lost, source) or b""
        number = max(map(number_of, record_files(self._folder)), default=0) + 1
        header = encode_header(
            Header(FORMAT, VERSION, version("bireme"), self._run, number, self._settings)
        )
        if len(header) + len(line) > self._file_bytes:
            raise RecordError(
                f"record_file_bytes is {self._file_bytes}, and telling this cluster once takes "
                f"{len(header) + len(line)}; raise it"
            )
        self._make_room()
        self._size = 0
        self._file = _create(self._folder / f"record-{number:08}.jsonl")
        self._append(self._file, header + line)

    def _make_room(self) -> None:
        """Delete the oldest files until another one may grow to its full size."""
        files = record_files(self._folder)
        sizes = [path.stat().st_size for path in files]
        most_bytes = (self._most_files - 1) * self._file_bytes
        while files and (len(files) >= self._most_files or sum(sizes) > most_bytes):
            files.pop(0).unlink()
            sizes.pop(0)

    def _append(self, file: FileIO, text: bytes) -> None:
        left = memoryview(text)
        while left:
            left = left[file.write(left) :]
        self._size += len(text)
        self.lost = 0

    def close(self) -> None:
        """End the file after its last whole line; another write begins a new one."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError), file:
                file.truncate(self._size)
                if not self._size:
                    Path(file.name).unlink()


def record_files(folder: Path) -> list[Path]:
    """The files of a record in ``folder``, oldest first; raises OSError where it cannot be read."""
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name)), key=number_of)


def number_of(path: Path) -> int:
    """The number in the name of a record's file; 0 where there is none."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def _create(path: Path) -> FileIO:
    """A new file for its owner alone: names of jobs and namespaces are tenants' data."""
    return FileIO(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))
