"""The distributions of a release, and what proves them installable."""

import os
import shutil
import sys
import tarfile
import venv
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from testbed.controlplane.binaries import output
from testbed.controlplane.errors import ControlPlaneError
from tools.release import versions
from tools.release.errors import ReleaseError

ROOT: Final = versions.ROOT
SOURCES: Final = {
    "bireme": ROOT,
    "bireme-lab": ROOT / "policies",
    "bireme-report": ROOT / "report",
}
"""The folder with the pyproject.toml of each distribution, which have one version."""
PINS: Final = ROOT / "image" / "bireme.txt"
"""What the wheel is installed with, by hash: its extras operator, extender and serve."""
_STEP_SECONDS: Final = 900.0


def build(folder: Path) -> list[Path]:
    """Build sdist and wheel of each distribution into ``folder``; return the wheels, bireme first.

    A wheel is built from the sdist, as its users build it, never from the checkout.
    """
    folder = folder.resolve()  # each is built in its own source's folder
    version = versions.current()
    wheels = []
    for name, source in SOURCES.items():
        stem = f"{name.replace('-', '_')}-{version}"
        _hatchling(source, "sdist", folder)
        unpacked = folder / "unpacked"
        with tarfile.open(folder / f"{stem}.tar.gz") as archive:
            archive.extractall(unpacked, filter="data")
        _hatchling(unpacked / stem, "wheel", folder)
        shutil.rmtree(unpacked)
        wheel = folder / f"{stem}-py3-none-any.whl"
        if not wheel.is_file():
            raise ReleaseError(f"building {name} left no {wheel.name} in {folder}")
        wheels.append(wheel)
    return wheels


class Environment:
    """A virtual environment in ``folder`` that knows nothing of this checkout."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        venv.EnvBuilder(with_pip=False).create(folder)

    def install(self, wheel: Path, pins: Path | None = None) -> None:
        """Install a wheel, and what it needs by hash where ``pins`` lists that."""
        if pins is not None:
            self._pip("install", "--require-hashes", "--only-binary=:all:", "-r", str(pins))
        self._pip("install", "--no-deps", "--no-index", str(wheel))
        self._pip("check")

    def run(self, *command: str) -> str:
        """Run a program of the environment in its own folder; return what it printed."""
        # Nothing of the caller's Python: neither paths nor settings of Bireme.
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "BIREME"))}
        return output(
            command,
            timeout_seconds=_STEP_SECONDS,
            folder=self._folder,
            environment=kept | {"PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}"},
        )

    def strangers(self) -> list[str]:
        """Return what its Python would import from outside of it and of Python itself."""
        paths = self.run("python", "-c", "import sys; print(*sys.path[1:], sep='\\n')").split("\n")
        own = (str(self._folder), sys.base_prefix)
        return [path for path in paths if path and not path.startswith(own)]

    def start_without_cluster(self, program: str) -> None:
        """Run a program of a cluster until it says that it has no credentials for one.

        By then it has imported all that it needs to run.

        Raises:
            ReleaseError: it ended otherwise.
        """
        missing = self._folder / "no-kubeconfig"
        try:
            said = self.run("env", f"KUBECONFIG={missing}", str(self._bin / program))
        except ControlPlaneError as error:
            if f"cannot use {missing} as credentials" in str(error):
                return
            said = str(error)
        raise ReleaseError(f"{program} of the wheel does not start; it said: {said}")

    @property
    def _bin(self) -> Path:
        return self._folder / "bin"

    def installed(self) -> Iterable[Distribution]:
        return distributions(
            path=[str(p) for p in self._folder.glob("lib/python3.*/site-packages")]
        )

    def _pip(self, *arguments: str) -> None:
        # The pip of this environment: an empty one needs none of its own.
        python = str(self._bin / "python")
        command = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
        output([*command, *arguments], timeout_seconds=_STEP_SECONDS)


def _hatchling(source: Path, target: str, folder: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    output(command, timeout_seconds=_STEP_SECONDS, folder=source)
