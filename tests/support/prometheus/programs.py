"""Finds ``prometheus`` and ``promtool``, or takes them from Debian's package.

Programs on PATH are used as they are. Otherwise the package goes into a folder of the cache that
is named by its version; nothing is installed, so nobody has to be root.
"""

import platform
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.controlplane.binaries import cache_root
from tools.controlplane.errors import tail

PACKAGE: Final = "prometheus"
_SECONDS: Final = 300.0


class Unavailable(RuntimeError):  # noqa: N818  # what it is, as a test that skips says it
    """There is no Prometheus here and none can be had; says why."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The server, and the tool that checks rules and fills in history."""

    prometheus: Path
    promtool: Path


def find_programs() -> Programs:
    """From PATH, the cache, or the machine's package archive, in this order.

    Raises:
        Unavailable: not on PATH, and apt cannot give it.
    """
    on_path = [shutil.which(name) for name in ("prometheus", "promtool")]
    if all(on_path):
        return Programs(*(Path(found) for found in on_path if found))
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable("neither prometheus and promtool nor apt-get are on PATH")
    folder = cache_root() / "debian" / f"{PACKAGE}-{_candidate()}-{platform.machine()}"
    if not folder.is_dir():
        _unpack(folder)
    return Programs(folder / "usr/bin/prometheus", folder / "usr/bin/promtool")


def _candidate() -> str:
    """The version that the archive has."""
    found = re.search(r"Candidate: ([^\s()]+)", _run(["apt-cache", "policy", PACKAGE], None))
    if found is None:
        raise Unavailable(f"apt knows no package {PACKAGE}: run apt-get update, or install it")
    return re.sub(r"[^\w.+~-]", "_", found[1])


def _unpack(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        partial = Path(name)
        _run(["apt-get", "download", PACKAGE], partial)
        (archive,) = partial.glob("*.deb")
        _run(["dpkg-deb", "--extract", str(archive), str(partial / "files")], partial)
        if not folder.is_dir():  # another test session may have been quicker
            (partial / "files").rename(folder)


def _run(command: list[str], folder: Path | None) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]} does not work here: {error}") from error
    if done.returncode:
        raise Unavailable(f"{' '.join(command[:3])} failed: {tail(done.stdout + done.stderr)}")
    return done.stdout
