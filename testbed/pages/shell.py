"""A shell that runs the commands of a page one by one, as its reader types them."""

import os
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import psutil

_LIMIT_SECONDS: Final = 90.0
_END_SECONDS: Final = 20.0


class ShellError(Exception):
    """A command of a page failed, or took too long."""


class Shell:
    """One bash, with all that it starts; ``with`` ends it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._output = folder / ".output"
        self._statement = folder / ".statement"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self._folder,
            env=dict(self._environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._send("set -u -o pipefail")
        return self

    def __exit__(self, *_: object) -> None:
        # Programs that a page pauses would not end.
        children = psutil.Process(self._process.pid).children(recursive=True)
        for number in (signal.SIGCONT, signal.SIGTERM):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
        self._process.communicate()
        for each in psutil.wait_procs(children, timeout=_END_SECONDS)[1]:
            each.kill()

    def run(self, statement: str) -> tuple[int, str]:
        """Run a statement, and return its status and all that it printed.

        Raises:
            ShellError: it does not end, or it ended the shell.
        """
        self._statement.write_text(f"{statement}\n")
        files = f"</dev/null >{shlex.quote(str(self._output))} 2>&1"
        self._send(f"source {shlex.quote(str(self._statement))} {files}; echo $?")
        assert self._process.stdout is not None
        limit = threading.Timer(_LIMIT_SECONDS, self._process.kill)
        limit.start()
        status = self._process.stdout.readline()
        limit.cancel()
        text = self._output.read_text(errors="replace")
        if not status:
            raise ShellError(f"{statement}\nended the shell or took {_LIMIT_SECONDS:g} s:\n{text}")
        return int(status), text

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()


def statements_of(script: str) -> Iterator[str]:
    """Yield the statements of a script: the fewest lines that bash takes as whole commands."""
    lines: list[str] = []
    for line in script.splitlines():
        lines.append(line)
        statement = "\n".join(lines)
        if not line.endswith("\\") and _is_whole(statement):
            lines.clear()
            if _has_command(statement):
                yield statement
    if lines:
        raise ShellError(f"bash does not take this as commands:\n{script}")


def _is_whole(statement: str) -> bool:
    # Bash only warns of a here-document without its end.
    check = subprocess.run(
        ["bash", "-n", "-c", statement], capture_output=True, text=True, check=False
    )
    return check.returncode == 0 and not check.stderr


def _has_command(statement: str) -> bool:
    return any(re.match(r"\s*[^\s#]", line) for line in statement.splitlines())
