"""Builds the control plane's eight binaries, and Karpenter, once and caches them.

Each wrapper module under ``go/`` pins one project and every sum it needs. The cache folder's name
is a bundle's version and a hash of its modules and flags: a changed version is a new folder, an
unchanged one is found at once. A build goes to a partial folder that is renamed when complete,
under a file lock; one that was broken off goes on with the binary it had reached.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controlplane.errors import ControlPlaneError, tail
from controlplane.toolchain import find_go, go_environment

MODULES: Final = Path(__file__).parent / "go"
BUILD_TIMEOUT_SECONDS: Final = 3600.0
LOCK_TIMEOUT_SECONDS: Final = 7200.0

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Binary:
    """One program: its wrapper module, its Go package, and the variables the linker sets."""

    name: str
    module: str
    package: str
    variables: tuple[tuple[str, str], ...] = ()

    def command(self, go: Path, target: Path) -> list[str]:
        """The ``go build`` that writes this program to ``target``, run inside its module."""
        flags = " ".join(["-s -w", *(f"-X {key}={value}" for key, value in self.variables)])
        return [str(go), "build", "-trimpath", f"-ldflags={flags}", "-o", str(target), self.package]


def module_version(module: str, path: str) -> str:
    """The version of Go module ``path`` that wrapper ``module`` requires, such as ``v1.37.1``."""
    text = (MODULES / module / "go.mod").read_text()
    match = re.search(rf"^\s*(?:require )?{re.escape(path)} (v\S+)", text, re.MULTILINE)
    if match is None:
        raise ControlPlaneError(f"go/{module}/go.mod does not require {path}: add it")
    return match[1]


KUBERNETES_VERSION: Final = module_version("kubernetes", "k8s.io/kubernetes")


def _kubernetes(name: str) -> Binary:
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    variables = (
        ("k8s.io/component-base/version.gitVersion", KUBERNETES_VERSION),
        ("k8s.io/component-base/version.gitMajor", major),
        ("k8s.io/component-base/version.gitMinor", minor),
        ("k8s.io/client-go/pkg/version.gitVersion", KUBERNETES_VERSION),
    )
    return Binary(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", variables)


def _kwok(name: str) -> Binary:
    version = module_version("kwok", "sigs.k8s.io/kwok")
    variables = (("sigs.k8s.io/kwok/pkg/consts.Version", version),)
    return Binary(name, "kwok", f"sigs.k8s.io/kwok/cmd/{name}", variables)


def _helm() -> Binary:
    path = "helm.sh/helm/v4"
    variables = ((f"{path}/internal/version.version", module_version("helm", path)),)
    return Binary("helm", "helm", f"{path}/cmd/helm", variables)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Programs that are built and cached together.

    ``manifests`` are folders, inside the Go module that the first binary's package belongs to,
    whose files are copied beside the programs, into ``manifests``.
    """

    name: str
    binaries: tuple[Binary, ...]
    manifests: tuple[str, ...] = ()


CONTROL_PLANE: Final = Bundle(
    f"kubernetes-{KUBERNETES_VERSION}",
    (
        Binary("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        _kubernetes("kubectl"),
        _kwok("kwok"),
        _kwok("kwokctl"),
        _helm(),
    ),
)
KARPENTER: Final = Bundle(
    f"karpenter-{module_version('karpenter', 'sigs.k8s.io/karpenter')}",
    (Binary("karpenter", "karpenter", "sigs.k8s.io/karpenter/kwok"),),
    manifests=("pkg/apis/crds", "kwok/apis/crds"),
)


def cache_root() -> Path:
    """Where everything is kept: BIREME_CACHE, else ``bireme`` in the user's cache folder."""
    if chosen := os.environ.get("BIREME_CACHE"):
        return Path(chosen).expanduser().resolve()
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(user).expanduser().resolve() / "bireme"


def cache_key(bundle: Bundle = CONTROL_PLANE) -> str:
    """Folder name for a bundle: it changes with every pinned sum, flag and platform."""
    digest = hashlib.sha256(f"{sys.platform} {platform.machine()}".encode())
    for binary in bundle.binaries:
        digest.update(repr(binary.command(Path("go"), Path(binary.name))).encode())
    for module in sorted({binary.module for binary in bundle.binaries}):
        for file in ("go.mod", "go.sum"):
            digest.update((MODULES / module / file).read_bytes())
    digest.update("".join(bundle.manifests).encode())
    return f"{bundle.name}-{digest.hexdigest()[:12]}"


def build(bundle: Bundle = CONTROL_PLANE, report: Report = print) -> Path:
    """Returns the folder that holds every binary; builds what the cache lacks.

    Raises:
        ControlPlaneError: no Go toolchain, a failed build, or another build that never ended.
    """
    cache = cache_root() / "controlplane"
    folder = cache / cache_key(bundle)
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache / f"{folder.name}.lock", report):
        if not folder.is_dir():
            partial = cache / f"{folder.name}.partial"
            partial.mkdir(exist_ok=True)
            _build_all(bundle, find_go(cache), partial, report)
            partial.rename(folder)
    return folder


def _build_all(bundle: Bundle, go: Path, folder: Path, report: Report) -> None:
    count = len(bundle.binaries)
    report(f"building {count} of {bundle.name} with {go}: minutes once, cached afterwards")
    for number, binary in enumerate(bundle.binaries, start=1):
        label = f"[{number}/{count}] {binary.name}"
        if (folder / binary.name).exists():
            report(f"{label}: kept from an earlier run")
            continue
        report(f"{label} ...")
        started_seconds = time.monotonic()
        _build_one(binary, go, folder)
        report(f"{label}: {time.monotonic() - started_seconds:.0f} s")
    for manifests in bundle.manifests:
        _copy_manifests(bundle.binaries[0], manifests, go, folder)


def _build_one(binary: Binary, go: Path, folder: Path) -> None:
    unfinished = folder / f"{binary.name}.tmp"
    _run_go(binary.command(go, unfinished), binary)
    unfinished.rename(folder / binary.name)


def _copy_manifests(binary: Binary, manifests: str, go: Path, folder: Path) -> None:
    command = [str(go), "list", "-f", "{{.Module.Dir}}", binary.package]
    # After what it may say about downloads.
    source = Path(_run_go(command, binary).splitlines()[-1]) / manifests
    (folder / "manifests").mkdir(exist_ok=True)
    for file in sorted(source.iterdir()):
        shutil.copyfile(file, folder / "manifests" / file.name)


def _run_go(command: list[str], binary: Binary) -> str:
    result = subprocess.run(
        command,
        cwd=MODULES / binary.module,
        env=go_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_SECONDS,
        check=False,
    )
    if result.returncode != 0:
        raise ControlPlaneError(
            f"go {command[1]} of {binary.package} in {MODULES / binary.module} ended with status "
            f"{result.returncode}; run the same command there to repeat it\n{tail(result.stdout)}"
        )
    return result.stdout


@contextmanager
def _lock(path: Path, report: Report) -> Iterator[None]:
    deadline_seconds = time.monotonic() + LOCK_TIMEOUT_SECONDS
    told = False
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_seconds:
                    raise ControlPlaneError(f"another build has held {path} too long") from None
                if not told:
                    report(f"waiting for another build of {path.stem}")
                    told = True
                time.sleep(0.5)
        yield
