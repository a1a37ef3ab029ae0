"""Builds the control plane's eight binaries and those of other bundles, once, and caches them.

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
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.controlplane.commands import output
from tools.controlplane.errors import ControlPlaneError
from tools.controlplane.packages import require
from tools.controlplane.toolchain import find_go, go_environment

MODULES: Final = Path(__file__).parent / "go"
BUILD_TIMEOUT_SECONDS: Final = 3600.0
LOCK_TIMEOUT_SECONDS: Final = 7200.0

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Binary:
    """One program: its wrapper module, its Go package, and the variables the linker sets.

    A package that begins with ``./`` is the wrapper module's own. ``tags`` are build constraints;
    with ``c`` the program has parts in C, linked to the machine's libraries.
    """

    name: str
    module: str
    package: str
    variables: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    c: bool = False

    def command(self, go: Path, target: Path) -> list[str]:
        """The ``go build`` that writes this program to ``target``, run inside its module."""
        flags = " ".join(["-s -w", *(f"-X {key}={value}" for key, value in self.variables)])
        tags = [f"-tags={','.join(self.tags)}"] if self.tags else []
        command = [str(go), "build", "-trimpath", *tags, f"-ldflags={flags}"]
        return [*command, "-o", str(target), self.package]

    def environment(self) -> dict[str, str]:
        """What ``command`` runs with."""
        return go_environment() | ({"CGO_ENABLED": "1"} if self.c else {})


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


def _containerd(name: str) -> Binary:
    path = "github.com/containerd/containerd/v2"
    variables = ((f"{path}/version.Version", module_version("containerd", path)),)
    without = ("no_aufs", "no_btrfs", "no_devmapper", "no_zfs", "urfave_cli_no_docs")
    return Binary(name, "containerd", f"{path}/cmd/{name}", variables, without)


def _runc() -> Binary:
    path = "github.com/opencontainers/runc"
    variables = (("main.version", module_version("runc", path).removeprefix("v")),)
    return Binary("runc", "runc", path, variables, ("seccomp",), c=True)


def _cni(kind: str, name: str) -> Binary:
    return Binary(name, "cni", f"github.com/containernetworking/plugins/plugins/{kind}/{name}")


def _helm() -> Binary:
    path = "helm.sh/helm/v4"
    variables = ((f"{path}/internal/version.version", module_version("helm", path)),)
    return Binary("helm", "helm", f"{path}/cmd/helm", variables)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Programs that are built and cached together.

    ``manifests`` are folders inside the Go module ``source`` whose files are copied beside the
    programs, into ``manifests``. ``packages`` are of Debian, and needed to build, not to run.
    """

    name: str
    binaries: tuple[Binary, ...]
    source: str = ""
    manifests: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


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
    source="sigs.k8s.io/karpenter",
    manifests=("pkg/apis/crds", "kwok/apis/crds"),
)
_TRAINING_OPERATOR: Final = "github.com/kubeflow/training-operator"
KUBEFLOW: Final = Bundle(
    f"kubeflow-{module_version('kubeflow', _TRAINING_OPERATOR)}",
    (Binary("training-operator", "kubeflow", "./training-operator"),),
    source=_TRAINING_OPERATOR,
    manifests=("manifests/base/crds",),
)
NODE: Final = Bundle(
    f"node-{KUBERNETES_VERSION}",
    (
        _kubernetes("kubelet"),
        _kubernetes("kube-proxy"),
        _containerd("containerd"),
        _containerd("containerd-shim-runc-v2"),
        _containerd("ctr"),
        _runc(),
        _cni("main", "bridge"),
        _cni("main", "loopback"),
        _cni("ipam", "host-local"),
        _cni("meta", "portmap"),
        Binary("coredns", "node", "./coredns"),
        Binary("pause", "node", "./pause"),
    ),
    packages=("gcc", "libc6-dev", "libseccomp-dev", "pkg-config"),
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
        digest.update(b"c" if binary.c else b"")
    for module in sorted({binary.module for binary in bundle.binaries}):
        for file in ("go.mod", "go.sum"):
            digest.update((MODULES / module / file).read_bytes())
        for source in sorted((MODULES / module).glob("*/*.go")):
            digest.update(source.read_bytes())
    digest.update("".join(bundle.manifests).encode())
    return f"{bundle.name}-{digest.hexdigest()[:12]}"


def is_built(bundle: Bundle = CONTROL_PLANE) -> bool:
    """Whether ``build`` would find the bundle in the cache."""
    return (cache_root() / "controlplane" / cache_key(bundle)).is_dir()


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
    with locked(cache / f"{folder.name}.lock", report):
        if not folder.is_dir():
            partial = cache / f"{folder.name}.partial"
            partial.mkdir(exist_ok=True)
            require(*bundle.packages)
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
        _copy_manifests(bundle, manifests, go, folder)


def _build_one(binary: Binary, go: Path, folder: Path) -> None:
    unfinished = folder / f"{binary.name}.tmp"
    _run_go(binary.command(go, unfinished), binary)
    unfinished.rename(folder / binary.name)


def _copy_manifests(bundle: Bundle, manifests: str, go: Path, folder: Path) -> None:
    command = [str(go), "list", "-m", "-f", "{{.Dir}}", bundle.source]
    source = Path(_run_go(command, bundle.binaries[0]).strip()) / manifests
    (folder / "manifests").mkdir(exist_ok=True)
    for file in sorted(source.iterdir()):
        shutil.copyfile(file, folder / "manifests" / file.name)


def _run_go(command: list[str], binary: Binary) -> str:
    folder = MODULES / binary.module
    return output(
        command,
        timeout_seconds=BUILD_TIMEOUT_SECONDS,
        folder=folder,
        environment=binary.environment(),
        remedy=f"run it in {folder} to repeat it",
    )


@contextmanager
def locked(path: Path, report: Report) -> Iterator[None]:
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
