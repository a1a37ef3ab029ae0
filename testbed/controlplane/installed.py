"""Programs that a machine already has: those of envtest's folder and those on PATH.

A bundle takes a program only in exactly the version that it pins, and takes a copy: the next
upgrade of the system does not change a cluster.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from testbed.controlplane.compiling import Report

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
"""The folder in which envtest keeps etcd, kube-apiserver and kubectl."""
VERSION_TIMEOUT_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Program:
    """A program in one version, such as ``v1.37.1``, and the project that publishes it."""

    name: str
    version: str
    project: Literal["kubernetes", "etcd", "kwok"]


def copy_installed(programs: Iterable[Program], folder: Path, report: Report) -> list[Path]:
    """Copy those of ``programs`` that this machine has into ``folder``, and say where they are."""
    copies = []
    for program in programs:
        for path in _candidates(program.name):
            if reason := _objection(program, path):
                report(f"{program.name} of this machine is not used: {path} {reason}")
                continue
            copies.append(shutil.copyfile(path, folder / program.name))
            copies[-1].chmod(0o755)
            report(f"{program.name} {_number(program.version)} is there: {path}")
            break
    return copies


def version_objection(program: Program, path: Path) -> str | None:
    """Return why the file is not ``program`` in its version; None when it is."""
    version = _version(program.name, path)
    if version is None:
        return "does not say its version"
    required = _number(program.version)
    return None if version == required else f"has version {version}, and {required} is needed"


def _candidates(name: str) -> Iterator[Path]:
    assets = os.environ.get(ASSETS_VARIABLE)
    for folder in (assets, os.environ.get("PATH")):
        if folder and (path := shutil.which(name, path=folder)):
            yield Path(path)


def _objection(program: Program, path: Path) -> str | None:
    # Version managers, snaps and k3s put such a file there. Its copy would start another program,
    # or another version, later.
    if path.resolve().name != program.name or _is_script(path):
        return "only starts another program"
    return version_objection(program, path)


def _is_script(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:  # a program that only root may read cannot be copied either
        return True


def _version(name: str, path: Path) -> str | None:
    """Return the version that a program says it has, such as ``1.37.1``."""
    is_kubectl = name == "kubectl"
    arguments = ["version", "--client", "--output=json"] if is_kubectl else ["--version"]
    try:
        completed = subprocess.run(
            [str(path), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_SECONDS,
            check=True,
        )
        text = completed.stdout
        if is_kubectl:
            text = str(json.loads(text)["clientVersion"]["gitVersion"])
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return None
    match = re.search(r"\bv?(\d+\.\d+\.\d+\S*)", text)
    return match[1] if match else None


def _number(version: str) -> str:
    return version.removeprefix("v")
