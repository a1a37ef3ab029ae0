"""Debian packages that tests with a real node need: installed by apt where they are missing.

Only root can do that, and only a system with apt. ``obstacle`` says beforehand, without touching
anything, why it could not be done.
"""

import os
import shutil
import subprocess
from typing import Final

from tools.controlplane.errors import ControlPlaneError, tail

INSTALL_TIMEOUT_SECONDS: Final = 600.0
LOCK_TIMEOUT_SECONDS: Final = 300  # for another apt at work


def require(*names: str) -> None:
    """Installs those of the packages ``names`` that are missing; nothing happens when none is.

    Raises:
        ControlPlaneError: not root, no apt, or apt could not install one.
    """
    missing = _missing(names)
    if not missing:
        return
    if reason := _hindrance(missing):
        raise ControlPlaneError(reason)
    install = ["install", "--yes", "--no-install-recommends", *missing]
    if _apt(install).returncode == 0:
        return
    _apt(["update"])  # the lists of a fresh image are empty or old
    done = _apt(install)
    if done.returncode != 0:
        raise ControlPlaneError(
            f"apt-get {' '.join(install)} failed: install these packages yourself\n"
            f"{tail(done.stdout)}"
        )


def obstacle(*names: str) -> str | None:
    """Why ``require(*names)`` cannot work here, in words; None when it can or need not."""
    missing = _missing(names)
    return _hindrance(missing) if missing else None


def _hindrance(missing: list[str]) -> str | None:
    listed = " ".join(missing)
    if not shutil.which("apt-get"):
        return f"packages {listed} are needed and there is no apt-get: use Debian or Ubuntu"
    if os.geteuid() != 0:
        return f"packages {listed} are missing: run `apt-get install {listed}` as root"
    return None


def _missing(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not _installed(name)]


def _installed(name: str) -> bool:
    if not shutil.which("dpkg-query"):
        return False
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", name]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return answer.stdout == "installed"


def _apt(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = ["apt-get", "--quiet", f"--option=DPkg::Lock::Timeout={LOCK_TIMEOUT_SECONDS}"]
    return subprocess.run(
        [*command, *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_TIMEOUT_SECONDS,
        check=False,
    )
