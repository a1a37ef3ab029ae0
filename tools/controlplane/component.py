"""One program of a running cluster, for tests that take it away and give it back.

kwokctl starts the programs; their exact command lines are in the ``kwok.yaml`` it saves. Stopping
is SIGKILL, as a machine that fails: what survives that survives a polite stop, too.
"""

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tools.controlplane.errors import ControlPlaneError, tail
from tools.controlplane.process import answers, command_line, ended, processes_from
from tools.controlplane.waiting import wait_until

STOP_TIMEOUT_SECONDS: Final = 30.0

# Programs started again by this interpreter: held so that their end can be collected.
_children: Final[dict[int, subprocess.Popen[bytes]]] = {}


def collect(pid: int, timeout_seconds: float) -> None:
    """Waits for the end of a program that was killed, if it is a child of this interpreter.

    Who kills one has to: the interpreter complains at its own end of children it knows nothing of.
    """
    child = _children.pop(pid, None)
    if child is not None:
        child.wait(timeout_seconds)


def kill_from(folder: Path) -> None:
    """Kills all programs that lie in ``folder``; returns when they are gone."""
    while running := processes_from(folder):  # again, should one have started another
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid, line in running.items():
            collect(pid, STOP_TIMEOUT_SECONDS)
            wait_until(partial(ended, pid), STOP_TIMEOUT_SECONDS, f"{line[0]} to end")


@dataclass(frozen=True, slots=True)
class Component:
    """A program of a cluster: name, command line, kwokctl's folder, and where it tells health."""

    name: str
    command: list[str]
    folder: Path
    health_url: str

    @classmethod
    def from_saved(cls, saved: dict[str, Any], folder: Path, health_url: str) -> "Component":
        """From an entry of ``components`` in kwokctl's saved configuration."""
        return cls(saved["name"], [saved["binary"], *saved.get("args", [])], folder, health_url)

    @property
    def log_path(self) -> Path:
        """Everything the program printed, over all of its starts."""
        return self.folder / "logs" / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """The pid of the running program, None when it is stopped."""
        if not self._pid_path.exists():
            return None
        pid = int(self._pid_path.read_text())
        return pid if command_line(pid)[:1] == self.command[:1] else None

    def stop(self, timeout_seconds: float = 30.0) -> None:
        """Kills the program and returns when it is gone; nothing to do when it is stopped."""
        pid = self.pid
        if pid is None:
            return
        os.kill(pid, signal.SIGKILL)
        collect(pid, timeout_seconds)
        wait_until(lambda: ended(pid), timeout_seconds, f"{self.name} (pid {pid}) to end")

    def start(self, timeout_seconds: float = 60.0) -> None:
        """Starts the stopped program as kwokctl did and returns when it is healthy."""
        if self.pid is not None:
            raise ControlPlaneError(f"{self.name} runs already (pid {self.pid}): stop it first")
        with self.log_path.open("ab") as log:
            child = subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _children[child.pid] = child
        self._pid_path.write_text(str(child.pid))
        # For a moment a new program has no command line yet, and would be taken for ended.
        wait_until(lambda: self.pid is not None or child.poll() is not None, 5, self.name)
        self.wait_healthy(timeout_seconds)

    def wait_healthy(self, timeout_seconds: float = 60.0) -> None:
        """Returns when the program runs and its health URL answers 200."""
        what = f"{self.name} at {self.health_url}"
        wait_until(self._healthy, timeout_seconds, what, lambda: tail(self.log()))

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        os.kill(self._running(), signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after ``pause``."""
        os.kill(self._running(), signal.SIGCONT)

    def log(self) -> str:
        """The whole log."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    @property
    def _pid_path(self) -> Path:
        return self.folder / "pids" / f"{self.name}.pid"

    def _running(self) -> int:
        pid = self.pid
        if pid is None:
            raise ControlPlaneError(f"{self.name} does not run: start it first\n{tail(self.log())}")
        return pid

    def _healthy(self) -> bool:
        if self.pid is None:
            raise ControlPlaneError(f"{self.name} ended while it was starting\n{tail(self.log())}")
        return answers(self.health_url)
