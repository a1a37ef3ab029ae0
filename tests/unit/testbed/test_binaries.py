"""Building and caching: the key, what is kept, what a broken-off build leaves."""

import re
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.controlplane import binaries
from testbed.controlplane.binaries import (
    CONTROL_PLANE,
    COSCHEDULING,
    JUDGE,
    KARPENTER,
    KIND,
    KUBEFLOW,
    KUEUE,
    NODE,
    OLDER,
    Bundle,
    build,
    cache_key,
    cache_root,
    is_built,
    module_version,
)
from testbed.controlplane.compiling import Report, run_build
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.installed import Program
from testbed.controlplane.releases import OFFICIAL, Sites

Collect = Callable[..., list[Path]]
BINARIES = CONTROL_PLANE.binaries
GO = """\
#!{python}
import pathlib, re, sys, time
folder, (verb, second, *rest) = pathlib.Path("{folder}"), sys.argv[1:]
if verb == "list":
    print("go: downloading", file=sys.stderr)
    if second == "-m":
        print(folder / "module")
    else:
        paths = rest[[one.startswith("-f=") for one in rest].index(True) + 1 :]
        print("\\n".join(path + "\\t{folder}\\t0\\tmain.go" for path in paths))
    sys.exit()
target, *paths = rest[rest.index("-o") + 1 :]
for path in paths:
    with (folder / "calls").open("a") as calls:
        calls.write(path + "\\n")
    if path in (folder / "broken").read_text().split():
        sys.exit("cannot find it")
    print(path, file=sys.stderr)
    time.sleep(0.05)
    (pathlib.Path(target) / re.sub("/v[0-9]+$", "", path).split("/")[-1]).write_text("built")
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BIREME_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "controlplane"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``go`` that notes the packages it is given and fails for those listed in ``broken``.

    Every module lies in ``module``; each program needs one package of its own, of one file. There
    is no program to copy or to download.
    """
    monkeypatch.setattr(binaries, "copy_installed", lambda *_: [])
    monkeypatch.setattr(binaries, "download", lambda *_, **__: [])
    go = tmp_path / "go"
    go.write_text(GO.format(python=sys.executable, folder=tmp_path))
    go.chmod(go.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "broken").touch()
    (tmp_path / "main.go").write_text("package main\n")
    monkeypatch.setattr(binaries, "find_go", lambda _cache: go)
    return tmp_path


def test_versions_come_from_the_wrapper_modules() -> None:
    assert module_version("kubernetes", "k8s.io/kubernetes") == "v1.37.1"
    assert module_version("etcd", "go.etcd.io/etcd/server/v3") == "v3.6.14"
    assert module_version("kwok", "sigs.k8s.io/kwok") == "v0.8.0"
    assert module_version("helm", "helm.sh/helm/v4") == "v4.3.1"
    assert module_version("karpenter", "sigs.k8s.io/karpenter") == "v1.14.1"
    assert KUBEFLOW.name == "kubeflow-v1.8.1"
    assert COSCHEDULING.name == "coscheduling-v0.34.7"
    assert KUEUE.name == "kueue-v0.19.2"
    assert module_version("containerd", "github.com/containerd/containerd/v2") == "v2.4.2"
    assert module_version("runc", "github.com/opencontainers/runc") == "v1.5.2"
    assert module_version("cni", "github.com/containernetworking/plugins") == "v1.9.1"
    assert module_version("node", "github.com/coredns/coredns") == "v1.15.0"
    assert KIND.name == "kind-v0.33.0"
    with pytest.raises(
        ControlPlaneError, match=r"go/kwok/go\.mod does not require k8s\.io/nothing"
    ):
        module_version("kwok", "k8s.io/nothing")


def test_modules_beside_kubernetes_have_its_versions_so_that_packages_are_compiled_once() -> None:
    kubernetes = required("kubernetes")
    # What is etcd's own stays together, and nobody but kubectl needs the other.
    for module, own in (("etcd", "go.etcd.io/"), ("kwok", "github.com/go-errors/errors")):
        versions = required(module)
        shared = {path for path in versions if path in kubernetes and not path.startswith(own)}
        assert "google.golang.org/grpc" in shared
        assert {path: versions[path] for path in shared} == {p: kubernetes[p] for p in shared}


def test_kubeadm_is_of_the_release_that_it_sets_up_down_to_every_package() -> None:
    kubeadm, kubernetes = required("kubeadm"), required("kubernetes")
    assert {path: kubeadm[path] for path in kubernetes} == kubernetes


def required(module: str) -> dict[str, str]:
    """Return the versions of a wrapper module's requirements, by path; a replacement counts."""
    text = (binaries.MODULES / module / "go.mod").read_text()
    found = dict(re.findall(r"^\t(\S+) (v\S+)", text, re.MULTILINE))
    return found | dict(re.findall(r"=> (\S+) (v\S+)$", text, re.MULTILINE))


def test_every_binary_is_trimmed_and_knows_its_version() -> None:
    flags = {each.name: each.flags for each in (*BINARIES, *KARPENTER.binaries)}
    assert len(flags) == 8
    assert all("-trimpath" in each for each in flags.values())
    assert "gitVersion=v1.37.1" in flags["kube-apiserver"][-1]
    assert "consts.Version=v0.8.0" in flags["kwokctl"][-1]


def test_what_a_node_runs_is_static_but_runc_which_filters_system_calls() -> None:
    dynamic = [b.name for b in NODE.binaries if b.environment()["CGO_ENABLED"] == "1"]
    assert dynamic == ["runc"]
    (runc,) = (b for b in NODE.binaries if b.name == "runc")
    assert "-tags=seccomp" in runc.flags
    assert not any(flag.startswith("-tags") for flag in BINARIES[0].flags)


def test_key_changes_with_a_source_of_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "go"
    shutil.copytree(binaries.MODULES, modules)
    monkeypatch.setattr(binaries, "MODULES", modules)
    key, other = cache_key(NODE), cache_key()
    with (modules / "node" / "pause" / "main.go").open("a") as source:
        source.write("// more\n")
    assert cache_key(NODE) != key
    assert cache_key() == other
    judge = cache_key(JUDGE)
    with (modules / "kubernetes" / "judge" / "main.go").open("a") as source:
        source.write("// more\n")
    assert cache_key(JUDGE) != judge
    assert cache_key() == other, "the control plane shares the module, and is built of none of it"


def test_packages_to_build_with_are_asked_for_when_something_is_built(
    cache: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(binaries, "require", lambda *names: asked.extend(names))
    assert not is_built(NODE)
    build(NODE, report=lambda _line: None)
    assert asked == list(NODE.packages)
    assert is_built(NODE)
    build(NODE, report=lambda _line: None)
    assert asked == list(NODE.packages)


def test_key_changes_with_a_sum_and_with_a_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = cache_key()
    assert key.startswith("kubernetes-v1.37.1-")
    flagged = (*BINARIES[:-1], replace(BINARIES[-1], variables=(("a", "b"),)))
    assert cache_key(replace(CONTROL_PLANE, binaries=flagged)) != key

    modules = tmp_path / "go"
    shutil.copytree(binaries.MODULES, modules)
    monkeypatch.setattr(binaries, "MODULES", modules)
    assert cache_key() == key
    with (modules / "etcd" / "go.sum").open("a") as sums:
        sums.write("one more\n")
    assert cache_key() != key


def test_cache_folder_is_chosen_by_bireme_then_xdg_then_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("BIREME_CACHE", str(tmp_path / "own"))
    assert cache_root() == tmp_path / "own"
    monkeypatch.delenv("BIREME_CACHE")
    assert cache_root() == tmp_path / "xdg" / "bireme"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == tmp_path / "home" / ".cache" / "bireme"


def test_second_build_builds_nothing(cache: Path, stand_in: Path) -> None:
    folder = build(report=lambda _line: None)
    assert sorted(path.name for path in folder.iterdir()) == sorted(b.name for b in BINARIES)
    calls = (stand_in / "calls").read_text()
    lines: list[str] = []
    assert build(report=lines.append) == folder
    assert (stand_in / "calls").read_text() == calls
    assert lines == []


def test_failed_build_says_why_and_the_next_one_goes_on_from_there(
    cache: Path, stand_in: Path
) -> None:
    (stand_in / "broken").write_text(f"{BINARIES[3].package}\n")
    with pytest.raises(ControlPlaneError, match=r"(?s)kube-scheduler .*status 1.*cannot find it"):
        build(report=lambda _line: None)
    assert not (cache / cache_key()).exists()

    (stand_in / "broken").write_text("")
    build(report=lambda _line: None)
    # Again what comes after the module that failed, and that module, but not etcd.
    packages = (stand_in / "calls").read_text().split()
    assert packages.count(BINARIES[0].package) == 1
    assert packages.count(BINARIES[3].package) == 2
    assert set(packages) == {each.package for each in BINARIES}


def test_programs_of_one_module_are_built_at_once_and_get_their_names(
    cache: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def noted(command: list[str], *rest: Any) -> None:
        commands.append(command)
        run_build(command, *rest)

    monkeypatch.setattr("testbed.controlplane.binaries.run_build", noted)
    folder = build(report=lambda _line: None)
    asked = [[one for one in line if one in {b.package for b in BINARIES}] for line in commands]
    assert [len(paths) for paths in asked] == [1, 4, 2]
    assert (folder / "etcd").read_text() == "built"
    assert not (folder / "server").exists()


def take(*names: str) -> Collect:
    """Return a function that puts those programs into a folder, as far as they are missing."""

    def collect(
        programs: Sequence[Program], folder: Path, report: Report, sites: Sites = OFFICIAL
    ) -> list[Path]:
        (folder / "half.download").touch()
        files = [folder / each.name for each in programs if each.name in names]
        for file in files:
            file.write_text("taken")
        return files

    return collect


def test_only_programs_that_are_nowhere_else_are_compiled(
    cache: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "copy_installed", take("etcd", "kubectl"))
    monkeypatch.setattr(binaries, "download", take("kwok", "kwokctl", "kube-scheduler"))
    folder = build(report=lambda _line: None)
    assert folder.name == cache_key()
    assert {file.name: file.read_text() for file in folder.iterdir()} == {
        each.name: "built" if "er-m" in each.name or "api" in each.name else "taken"
        for each in BINARIES
    }
    assert (stand_in / "calls").read_text().split() == [each.package for each in BINARIES[1:3]]


def test_no_go_is_needed_where_nothing_is_compiled(
    cache: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "download", take(*(each.name for each in BINARIES)))
    monkeypatch.setattr(binaries, "find_go", lambda _cache: pytest.fail("looked for Go"))
    partial = cache / f"{cache_key()}.partial"
    (partial / "unfinished").mkdir(parents=True)
    (partial / "unfinished" / "half").touch()
    folder = build(report=lambda _line: None)
    assert {file.name for file in folder.iterdir()} == {each.name for each in BINARIES}


def test_releases_are_of_the_versions_that_would_be_compiled() -> None:
    assert [each.name for each in CONTROL_PLANE.releases] == [each.name for each in BINARIES]
    versions = {each.project: each.version for each in CONTROL_PLANE.releases}
    assert versions == {"etcd": "v3.6.14", "kubernetes": "v1.37.1", "kwok": "v0.8.0"}
    others = (JUDGE, KARPENTER, KIND, KUBEFLOW, NODE, *OLDER.values())
    assert not any(bundle.releases for bundle in others)


def test_a_build_says_how_much_is_compiled(cache: Path, stand_in: Path) -> None:
    lines: list[str] = []
    build(NODE, report=lines.append)
    assert lines[0].startswith("building node-v1.37.1 with ")
    assert lines[1].startswith("the sources are there after 0:0")
    assert lines[-1].startswith("100% of the source is compiled, 0:0")
    assert lines[-1].endswith(": coredns, pause")


@pytest.mark.parametrize(
    "bundle", [KARPENTER, KUBEFLOW, COSCHEDULING, KUEUE], ids=lambda bundle: bundle.name
)
def test_bundle_carries_the_manifests_of_its_module(
    cache: Path, stand_in: Path, bundle: Bundle
) -> None:
    for folder in bundle.manifests:
        (stand_in / "module" / folder).mkdir(parents=True)
        (stand_in / "module" / folder / f"{folder.replace('/', '-')}.yaml").write_text(folder)
    built = build(bundle, report=lambda _line: None)
    assert built.name.startswith(f"{bundle.name}-")
    copied = {file.name: file.read_text() for file in (built / "manifests").iterdir()}
    assert copied == {f"{f.replace('/', '-')}.yaml": f for f in bundle.manifests}


def test_two_builders_at_once_build_everything_once(cache: Path, stand_in: Path) -> None:
    folders: list[Path] = []
    threads = [
        threading.Thread(target=lambda: folders.append(build(report=lambda _line: None)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert folders == [cache / cache_key()] * 2
    assert len((stand_in / "calls").read_text().split()) == len(BINARIES)
