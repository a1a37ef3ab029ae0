"""Local programs: what runs, whether it is healthy, and how to start, stop and freeze one.

A ``Process`` dies with the Python program that started it, however that ends; the programs of a
``Cluster`` outlive their starter on purpose.
"""

import atexit
import ctypes
import fcntl
import http.client
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, build_opener

import psutil

from testbed.controlplane.errors import ControlPlaneError, tail
from testbed.controlplane.waiting import wait_until

PR_SET_PDEATHSIG: Final = 1
HEALTH_TIMEOUT_SECONDS: Final = 2.0

# Linux sends the parent-death signal when the *thread* that started the child ends. This one lives
# as long as the interpreter, whichever thread asked for a start.
_starter: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="process-starter")
_libc: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


def command_line(pid: int) -> list[str]:
    """Return program and arguments of a running process; empty when there is none or a zombie."""
    try:
        return psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:  # as which psutil counts a zombie, too
        return []


def ended(pid: int) -> bool:
    """Return whether a process is gone for good, its sockets closed; a zombie counts as gone."""
    try:
        process = psutil.Process(pid)
        # A dying process loses its command line before its sockets, which its last thread closes.
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() == 1
    except psutil.NoSuchProcess:
        return True


def processes() -> dict[int, list[str]]:
    """Return command lines by pid of every running process of this machine."""
    found = {each.pid: each.info["cmdline"] for each in psutil.process_iter(["cmdline"])}
    return {pid: line for pid, line in found.items() if line}


def processes_from(folder: Path) -> dict[int, list[str]]:
    prefix = f"{folder}{os.sep}"
    return {pid: line for pid, line in processes().items() if line[0].startswith(prefix)}


def answers(url: str) -> bool:
    """Return whether ``GET url`` is answered with 200, whatever the server's certificate."""
    try:
        with _opener().open(url, timeout=HEALTH_TIMEOUT_SECONDS) as answer:
            return bool(answer.status == http.client.OK)
    except (OSError, http.client.HTTPException):
        return False


@cache
def _opener() -> OpenerDirector:
    """Past any proxy and any authority: kube-scheduler makes its certificate at start."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return build_opener(ProxyHandler({}), HTTPSHandler(context=context))


@dataclass(eq=False)
class Process:
    """One program with its log and health URL; it can be started again after it has ended.

    ``env`` is laid over the environment of this interpreter at every start, so a test may change
    it between two starts. With ``outlives_starter`` the end of this interpreter, or of its
    terminal, is not the program's.
    """

    name: str
    command: list[str]
    log_path: Path
    ready_url: str
    env: dict[str, str] = field(default_factory=dict)
    outlives_starter: bool = False
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def port(self) -> int:
        """Port of its health."""
        port = urlsplit(self.ready_url).port
        assert port is not None  # every health URL of a test names one
        return port

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def returncode(self) -> int | None:
        """Exit status of the last run (``-9`` for SIGKILL); None while it runs."""
        return None if self._child is None else self._child.poll()

    def start(self) -> Self:
        if self.running:
            raise ControlPlaneError(f"{self.name} runs already (pid {self.pid}): stop it first")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._child = _starter.submit(
            _spawn, self.command, self.env, self.log_path, self.outlives_starter
        ).result()
        return self

    def wait_ready(self, timeout_seconds: float = 30.0) -> Self:
        """Return when ``ready_url`` answers 200; an error carries the end of the log."""
        wait_until(self._ready, timeout_seconds, f"{self.name} at {self.ready_url}", self.log_tail)
        return self

    def terminate(self, timeout_seconds: float = 15.0) -> int:
        """SIGTERM, and SIGKILL when that is not obeyed in time; return the exit status."""
        if not self.running:
            return self.returncode or 0
        child = self._running()
        child.send_signal(signal.SIGCONT)  # a paused program cannot obey
        child.terminate()
        try:
            return child.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    def kill(self) -> int:
        child = self._running()
        child.kill()
        return child.wait(10)

    def pause(self) -> None:
        """SIGSTOP: the program keeps its memory and sockets and does nothing."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: a paused program goes on, unaware of the time that has passed."""
        self._running().send_signal(signal.SIGCONT)

    def log_tail(self) -> str:
        return _tail_of(self.log_path)

    def _ready(self) -> bool:
        if not self.running:
            raise ControlPlaneError(
                f"{self.name} ended with status {self.returncode} before it was ready\n"
                f"{self.log_tail()}"
            )
        return answers(self.ready_url)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            raise ControlPlaneError(f"{self.name} does not run: start it first\n{self.log_tail()}")
        return self._child


def _tail_of(log: Path) -> str:
    return f"{log}:\n{tail(log.read_text(errors='replace') if log.exists() else '(no log)')}"


def _spawn(
    command: list[str],
    env: Mapping[str, str],
    log: Path,
    outlives: bool,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=outlives,
            # One prctl call, nothing that could lock.
            preexec_fn=None if outlives else _die_with_parent,  # noqa: PLW1509
        )
    if not outlives:
        atexit.register(_end, child)
    return child


def _die_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(child: subprocess.Popen[Any]) -> None:
    if child.poll() is None:
        child.kill()
        child.wait(10)


# --- one program of a running cluster, which tests stop and start again -------------------------
# kwokctl starts the programs; their exact command lines are in the ``kwok.yaml`` it saves.

START_TIMEOUT_SECONDS: Final = 60.0
STOP_TIMEOUT_SECONDS: Final = 60.0

# Programs started again by this interpreter, which complains at its end of children that were never
# waited for.
_children: Final[dict[int, subprocess.Popen[bytes]]] = {}


def kill(pid: int, name: str) -> None:
    """Kill a program, as a machine that fails would, and return when it is gone.

    What survives that survives a polite stop, too.
    """
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    if child := _children.pop(pid, None):
        child.wait(STOP_TIMEOUT_SECONDS)
    wait_until(partial(ended, pid), STOP_TIMEOUT_SECONDS, f"{name} (pid {pid}) to end")


def kill_from(folder: Path) -> None:
    """Kill all programs that lie in ``folder``; return when they are gone."""
    while running := processes_from(folder):  # again, should one have started another
        for pid, line in running.items():
            kill(pid, line[0])


@dataclass(frozen=True, slots=True)
class Component:
    """A program of a cluster: name, command line, kwokctl's folder, and its health URL."""

    name: str
    command: list[str]
    folder: Path
    health_url: str

    @property
    def log_path(self) -> Path:
        return self.folder / "logs" / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        if not self._pid_path.exists():
            return None
        pid = int(self._pid_path.read_text())
        return pid if command_line(pid)[:1] == self.command[:1] else None

    def stop(self) -> None:
        """Kill the program and return when it is gone; nothing to do when it is stopped."""
        if (pid := self.pid) is not None:
            kill(pid, self.name)

    def start(self) -> None:
        """Start the stopped program as kwokctl did and return when it is healthy."""
        if self.pid is not None:
            raise ControlPlaneError(f"{self.name} runs already (pid {self.pid}): stop it first")
        child = _spawn(self.command, {}, self.log_path, outlives=True, folder=self.folder)
        _children[child.pid] = child
        self._pid_path.write_text(str(child.pid))
        # For a moment a new program has no command line yet, and would be taken for ended.
        wait_until(lambda: self.pid is not None or child.poll() is not None, 5, self.name)
        self.wait_healthy()

    def wait_healthy(self) -> None:
        what, log = f"{self.name} at {self.health_url}", partial(_tail_of, self.log_path)
        wait_until(self._healthy, START_TIMEOUT_SECONDS, what, log)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        os.kill(self._running(), signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._running(), signal.SIGCONT)

    @property
    def _pid_path(self) -> Path:
        return self.folder / "pids" / f"{self.name}.pid"

    def _running(self) -> int:
        pid = self.pid
        if pid is None:
            raise ControlPlaneError(
                f"{self.name} does not run: start it\n{_tail_of(self.log_path)}"
            )
        return pid

    def _healthy(self) -> bool:
        self._running()
        return answers(self.health_url)


# --- free TCP ports on loopback -----------------------------------------------------------------
# Ports lie below the range from which systems give outgoing connections their own port, so one
# that was free when chosen stays free until its server binds it; random choice keeps two choosers
# apart.

FIRST: Final = 20000
LAST: Final = 31999
TRIES: Final = 1000
_claims: Final[dict[int, int]] = {}
"""Descriptors of the locks that this interpreter holds, by port."""


def free_ports(count: int) -> list[int]:
    """Return ``count`` different ports that nothing listens on and nobody else has chosen."""
    found: list[int] = []
    generator = random.SystemRandom()
    for _ in range(TRIES):
        port = generator.randint(FIRST, LAST)
        if is_free(port) and _claim(port):
            found.append(port)
        if len(found) == count:
            return found
    raise ControlPlaneError(
        f"found {len(found)} of {count} free ports in {FIRST}-{LAST}: stop unused clusters "
        "(python -m testbed.controlplane list)"
    )


def _claim(port: int) -> bool:
    """Claim ``port`` until this interpreter ends; return False where it is claimed already."""
    if port in _claims:
        return False
    folder = Path(tempfile.gettempdir()) / f"bireme-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(folder / str(port), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    _claims[port] = lock
    return True


def is_free(port: int) -> bool:
    """Return whether a server could bind ``port``, on loopback and on all addresses."""
    for address in ("127.0.0.1", "0.0.0.0"):  # noqa: S104  # only asks; nothing listens
        with socket.socket() as probe:
            # As servers do: a port whose last connections are only fading out is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True
