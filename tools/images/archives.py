"""The images as OCI archives in the cache, in a folder named by a hash of what is in them."""

import functools
import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.controlplane import binaries
from testbed.controlplane.binaries import KUBERNETES_VERSION
from testbed.controlplane.compiling import Report
from testbed.controlplane.errors import ControlPlaneError
from tools.images import debian, materials
from tools.images.tool import Buildah, pip_configuration

REPOSITORY: Final = Path(__file__).resolve().parents[2]
TOOLS: Final = Path(__file__).parent
PACKAGES: Final = ("buildah", "debootstrap")
# Builds that stay in the cache: 300 MB each, and up to three times that in layers.
KEPT: Final = 3
BASE_NAME: Final = f"localhost/bireme-base:{debian.SUITE}"
SCHEDULER_RECIPE: Final = """\
FROM scratch
ENV PATH=/usr/local/bin
COPY kube-scheduler /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["kube-scheduler"]
"""


@dataclass(frozen=True, slots=True)
class Archive:
    """One image: the name that containerd knows it by, and its OCI archive."""

    name: str
    path: Path

    @property
    def materials(self) -> Path:
        """The bill of materials, as CycloneDX JSON."""
        return self.path.with_suffix(".cdx.json")


@dataclass(frozen=True, slots=True)
class Images:
    """Images that the chart names with its default values, on a control plane of our version.

    The chart names ``lab`` where its values do: for policies of research.
    """

    bireme: Archive
    forecast: Archive
    lab: Archive
    scheduler: Archive

    @property
    def own(self) -> tuple[Archive, ...]:
        """The images of the Dockerfile."""
        return (self.bireme, self.forecast, self.lab)

    @property
    def all(self) -> tuple[Archive, ...]:
        return (*self.own, self.scheduler)


def obstacle() -> str | None:
    """Return why images cannot be built on this machine; None when they can."""
    if os.geteuid() != 0:
        return "images are built by buildah and debootstrap, which need root here"
    if not debian.is_here():
        return "images are built here of Debian's packages: use Debian, or the Dockerfile elsewhere"
    return binaries.obstacle(*PACKAGES)


def build(report: Report = print) -> Images:
    """Return the images of this checkout; made where the cache lacks them, which takes minutes.

    Raises:
        ControlPlaneError: this machine has an ``obstacle``, or a step failed.
    """
    folder = cache() / f"images-{digest(*_inputs(), KUBERNETES_VERSION.encode())}"
    if not folder.is_dir():
        programs = binaries.build(report=report)
        make(folder, functools.partial(_build, programs=programs), report)
    return images_in(folder)


def base(report: Report = print) -> Archive:
    """Return the base that ``build`` gives the Dockerfile: Debian with Python, runs as any user."""
    folder = cache() / f"base-{digest((TOOLS / 'debian.py').read_bytes())}"
    if not folder.is_dir():
        make(folder, _build_base, report)
    return Archive(BASE_NAME, folder / "base.tar")


def cache() -> Path:
    """Return the folder of archives and buildah's storage; it may be deleted."""
    return binaries.cache_root() / "images"


def images_in(folder: Path) -> Images:
    """Return the archives of one build, by the names that the chart's values give them."""
    values, version = chart("values.yaml"), chart("Chart.yaml")["appVersion"]
    forecast = values["forecast"]["image"]["repository"]
    scheduler = "{registry}/{repository}".format_map(values["scheduler"]["image"])
    return Images(
        Archive(
            f"docker.io/library/{values['operator']['image']['repository']}:{version}",
            folder / "bireme.tar",
        ),
        Archive(f"docker.io/library/{forecast}:{version}", folder / "bireme-forecast.tar"),
        Archive(f"docker.io/library/bireme-lab:{version}", folder / "bireme-lab.tar"),
        Archive(f"{scheduler}:{KUBERNETES_VERSION}", folder / "kube-scheduler.tar"),
    )


def chart(file: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((REPOSITORY / "charts/bireme" / file).read_text())
    return content


def make(folder: Path, work: Callable[[Buildah, Path, Report], None], report: Report) -> None:
    """Let ``work`` fill ``folder``, which is there when it is whole; one build at a time."""
    if reason := obstacle():
        raise ControlPlaneError(reason)
    binaries.require(*PACKAGES)
    cache().mkdir(parents=True, exist_ok=True)
    kind, _, _ = folder.name.partition("-")
    with binaries.locked(cache() / f"{kind}.lock", report):
        if folder.is_dir():  # built while this one waited for the lock
            return
        with tempfile.TemporaryDirectory(dir=cache(), prefix="partial-") as name:
            partial = Path(name) / folder.name
            partial.mkdir()
            work(Buildah(cache()), partial, report)
            partial.rename(folder)
        _forget(kind)


def _forget(kind: str) -> None:
    """Remove all but the latest builds, and with one of those the layers that no image has."""
    made = [path for path in cache().glob(f"{kind}-*") if path.is_dir()]
    made.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for folder in made[KEPT:]:
        shutil.rmtree(folder)
        Buildah(cache()).run("rmi", "--prune", "--force")


def _build_base(buildah: Buildah, folder: Path, report: Report) -> None:
    report(f"making a base image of Debian {debian.SUITE}: a minute, once")
    debian.make(buildah, BASE_NAME)
    buildah.save(BASE_NAME, folder / "base.tar")


def _build(buildah: Buildah, folder: Path, report: Report, programs: Path) -> None:
    base(report)
    images = images_in(folder)
    pip = folder.parent / "pip.conf"  # beside, not in, what is kept: it may have a password
    pip_configuration(Path(sys.executable), pip)
    for image in images.own:
        report(f"building {image.name}")
        buildah.build(
            image.name,
            REPOSITORY,
            f"--target={image.path.stem}",
            f"--build-arg=BASE={BASE_NAME}",
            f"--build-arg=VERSION={image.name.rpartition(':')[2]}",
            f"--secret=id=pip,src={pip}",
        )
    report(f"wrapping {images.scheduler.name}")
    buildah.build(images.scheduler.name, programs, recipe=SCHEDULER_RECIPE)
    for image in images.all:
        buildah.save(image.name, image.path)
    for image in images.own:
        with buildah.files(image.name) as root:
            image.materials.write_text(materials.describe(image.name, root))


def _inputs() -> Iterator[bytes]:
    """Yield what .dockerignore lets in, and what says how it is used, by name and content."""
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    let_in = [line[1:] for line in ignored if line.startswith("!")]
    files = [REPOSITORY / ".dockerignore", REPOSITORY / "Dockerfile", *sorted(TOOLS.glob("*.py"))]
    for name in let_in:
        path = REPOSITORY / name
        files += sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in files:
        if file.is_file() and file.suffix != ".pyc":
            yield f"{file.relative_to(REPOSITORY)}\n".encode()
            yield file.read_bytes()


def digest(*parts: bytes) -> str:
    """Return what tells builds apart that are made of different parts, or on other machines."""
    found = hashlib.sha256(platform.machine().encode())
    for part in parts:
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()[:12]
