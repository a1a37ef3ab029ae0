"""Runs buildah with a storage of its own, below the cache: what it keeps goes with that folder."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.controlplane.binaries import output

COMMAND_TIMEOUT_SECONDS: Final = 1200.0


def run(command: Sequence[str], given: str = "") -> str:
    return output(command, timeout_seconds=COMMAND_TIMEOUT_SECONDS, given=given)


@dataclass(frozen=True, slots=True)
class Buildah:
    """Buildah as root; its images and layers are in ``folder``."""

    folder: Path

    def run(self, *arguments: str, given: str = "") -> str:
        storage = [f"--root={self.folder / 'storage'}", f"--runroot={self.folder / 'run'}"]
        return run(["buildah", *storage, *arguments], given=given)

    def build(self, name: str, context: Path, *options: str, recipe: str = "") -> None:
        """Make image ``name`` from a Dockerfile of ``context``, or from the text ``recipe``.

        Steps use the network, the certificates and the pip configuration of this machine.
        """
        certificates = "/etc/ssl/certs"
        self.run(
            *("bud", "--layers", "--pull-never", "--isolation=chroot", "--network=host"),
            *([f"--volume={certificates}:{certificates}:ro"] if not recipe else []),
            *options,
            *(["--file=-"] if recipe else []),
            f"--tag={name}",
            str(context),
            given=recipe,
        )

    def save(self, name: str, archive: Path) -> None:
        """Write image ``name`` as an OCI archive that carries the name."""
        unfinished = archive.with_suffix(".partial")
        unfinished.unlink(missing_ok=True)  # of a build that was broken off
        self.run("push", "--quiet", name, f"oci-archive:{unfinished}:{name}")
        unfinished.rename(archive)

    @contextmanager
    def files(self, name: str) -> Iterator[Path]:
        """Yield the root of image ``name``'s file system, to read."""
        container = self.run("from", "--pull-never", name).strip()
        try:
            yield Path(self.run("mount", container).strip())
        finally:
            self.run("rm", container)


def pip_configuration(python: Path, target: Path) -> None:
    """Write the configuration of pip on this machine, by files and environment, as one file."""
    options: dict[str, str] = {}
    listed = run([str(python), "-m", "pip", "config", "list"]).splitlines()
    for line in sorted(listed, reverse=True):  # the environment, ":env:", last: it prevails
        name, _, value = line.partition("=")
        options[name.rpartition(".")[2]] = value.strip("'")
    for folder in ("find-links", "prefix", "target", "user"):  # of this machine, not of a build
        options.pop(folder, None)
    lines = ["[global]", *(f"{option} = {value}" for option, value in options.items())]
    # It may have a password: nobody else may read it, not even for a moment.
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write("\n".join(lines) + "\n")
