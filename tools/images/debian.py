"""A base image made of Debian packages, in place of the Dockerfile's, which a registry would give.

As ``python:3.N-slim`` it is Debian without documents, with ``python`` and pip on PATH.
"""

import platform
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from testbed.controlplane.errors import ControlPlaneError
from tools.images.tool import Buildah, run

SUITE: Final = "bookworm"
PACKAGES: Final = ("ca-certificates", "python3", "python3-pip")
_CLEARED: Final = (
    *("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale"),
    *("var/cache/apt", "var/cache/debconf", "var/lib/apt/lists", "var/log"),
)


def is_here() -> bool:
    try:
        return platform.freedesktop_os_release()["ID"] == "debian"
    except (OSError, KeyError):
        return False


def make(buildah: Buildah, name: str) -> None:
    """Install Debian into an empty image and name it ``name``."""
    container = buildah.run("from", "scratch").strip()
    try:
        root = Path(buildah.run("mount", container).strip())
        install(root, PACKAGES)
        for program in ("python", "python3"):
            (root / "usr/local/bin" / program).symlink_to("/usr/bin/python3")
        buildah.run("umount", container)
        buildah.run("config", "--env=PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
        buildah.run("commit", "--quiet", container, name)
    finally:
        buildah.run("rm", container)


def install(root: Path, packages: Sequence[str]) -> None:
    """Install a least Debian with ``packages`` into the empty folder ``root``."""
    include = f"--include={','.join(packages)}"
    run(["debootstrap", "--variant=minbase", include, SUITE, str(root), mirror()])
    _clear(root)


def mirror() -> str:
    """Return where apt takes ``SUITE`` from; ControlPlaneError when from nowhere."""
    wanted = ["Identifier: Packages", "Origin: Debian", f"Codename: {SUITE}"]
    listed = ["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted]
    found = run(listed).split()
    if not found:
        run(["apt-get", "--quiet", "update"])  # the lists of a fresh image are empty
        found = run(listed).split()
    if not found:
        raise ControlPlaneError(f"apt of this machine knows no Debian {SUITE}: build where it does")
    return found[0]


def _clear(root: Path) -> None:
    """Remove what images leave out; the licences of the packages stay."""
    for folder in _CLEARED:
        for path in (root / folder).rglob("*"):
            if not path.is_dir() and path.name != "copyright":
                path.unlink()
    for bytecode in root.glob("usr/lib/python3*/**/__pycache__"):
        shutil.rmtree(bytecode)
