"""Runs a program to its end: what it says, or an error that quotes it."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.controlplane.errors import ControlPlaneError, tail


def output(
    command: Sequence[str],
    *,
    timeout_seconds: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    given: str = "",
    remedy: str = "",
) -> str:
    """What a program writes to standard output; it reads ``given`` and runs in ``folder``.

    Raises:
        ControlPlaneError: it is not there, failed or took too long; carries the end of all it
            said, and ``remedy``.
    """
    line = " ".join(command)
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ControlPlaneError(f"{command[0]} does not work here: {error}") from error
    if done.returncode != 0:
        what = f"{line} failed with status {done.returncode}"
        what += f"; {remedy}" if remedy else ""
        raise ControlPlaneError(f"{what}\n{tail(done.stdout + done.stderr)}")
    return done.stdout
