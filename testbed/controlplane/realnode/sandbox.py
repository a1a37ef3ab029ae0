"""The sandbox of a real node: processes, mounts and a network apart from the machine's.

When its first process ends, however that comes, the kernel kills every other process inside, and
with the last of them go all mounts and interfaces. ``/var/lib`` and ``/var/log`` lie in the node's
own folder, and ``/run`` in memory, so that the machine's are not written to.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from testbed.controlplane.binaries import output
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.process import Process, kill, processes
from testbed.controlplane.waiting import wait_until

COVERED: Final = (Path("/run"), Path("/var/lib"), Path("/var/log"))
START_TIMEOUT_SECONDS: Final = 20.0

# Mounts are private to the sandbox when it begins; shared from then on, as hostPath volumes need.
# The shell waits for good, and collects the processes whose parents have ended.
_SCRIPT: Final = """
set -e
mkdir -p "$1/lib" "$1/log"
mount --bind "$1/lib" /var/lib
mount --bind "$1/log" /var/log
mount -t tmpfs -o mode=755 tmpfs /run
mount --make-rshared /
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables
touch /run/held
sleep infinity &
wait
"""
_MARK: Final = "bireme-node"


class Sandbox:
    """The sandbox whose files lie in ``folder``, whichever program started it.

    Unless ``detached``, what is started goes with this program.
    """

    def __init__(self, folder: Path, *, detached: bool = False) -> None:
        self.folder = folder
        self._detached = detached
        self._started: dict[str, Process] = {}

    @property
    def pid(self) -> int | None:
        """The first process inside; None when the sandbox does not run."""
        inner = [pid for pid, line in self._holders().items() if line[0] == "sh"]
        return inner[0] if inner else None

    def start(self) -> int:
        """Make the namespaces, with no way out yet; return ``pid``."""
        kinds = ["--pid", "--net", "--mount", "--fork", "--kill-child", "--mount-proc"]
        holder = self._process(
            "sandbox", ["unshare", *kinds, "sh", "-c", _SCRIPT, _MARK, str(self.folder)]
        ).start()

        def held() -> bool:
            if not holder.running:
                raise ControlPlaneError(f"no namespaces for a node: {holder.log_tail()}")
            pid = self.pid
            return pid is not None and Path("/proc", str(pid), "root/run/held").exists()

        wait_until(held, START_TIMEOUT_SECONDS, "a node's namespaces", holder.log_tail)
        return self._inside()

    def stop(self) -> None:
        """End every process inside and return when none is left; fine when it does not run."""
        for pid in self._holders():
            kill(pid, f"the sandbox in {self.folder}")
        for process in self._started.values():
            process.terminate()

    def spawn(self, name: str, command: Sequence[str], ready_url: str, path: str) -> Process:
        """Start a program inside, with ``path`` to find others by; its log is ``NAME.log``."""
        process = self._process(name, [*self._entry(), *command], ready_url)
        # Programs of a node speak with each other and the API server only, past any proxy.
        process.env |= {"PATH": path, "NO_PROXY": "*", "no_proxy": "*"}
        return process.start()

    def end(self, program: Path) -> None:
        """Kill the processes inside that run this program, as a machine that fails would."""
        # The same program of other clusters is in another namespace.
        space = _space(self._inside())
        for pid, line in processes().items():
            if line[0] == str(program) and _space(pid) == space:
                kill(pid, program.name)
        if started := self._started.pop(program.name, None):
            started.terminate()  # nsenter, which has nothing left to wait for

    def run(self, *command: str, timeout_seconds: float = 120.0) -> str:
        """Run a command inside to its end; return what it printed."""
        return output([*self._entry(), *command], timeout_seconds=timeout_seconds)

    def _entry(self) -> list[str]:
        return ["nsenter", f"--target={self._inside()}", "--pid", "--net", "--mount", "--"]

    def _inside(self) -> int:
        pid = self.pid
        if pid is None:
            raise ControlPlaneError(f"the real node in {self.folder} does not run: start it first")
        return pid

    def _holders(self) -> dict[int, list[str]]:
        """Return the holder and its parent, the innermost last."""
        mark = [_MARK, str(self.folder)]
        found = {pid: line for pid, line in processes().items() if line[-2:] == mark}
        return dict(sorted(found.items()))

    def _process(self, name: str, command: list[str], ready_url: str = "") -> Process:
        log = self.folder / f"{name}.log"
        process = Process(name, command, log, ready_url, outlives_starter=self._detached)
        self._started[name] = process
        return process


def _space(pid: int) -> str | None:
    """Return the PID namespace of a process; None when it has ended."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return None
