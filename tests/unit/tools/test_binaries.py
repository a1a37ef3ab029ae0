"""Building and caching: the key, what is kept, what a broken-off build leaves."""

import shutil
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tools.controlplane import binaries
from tools.controlplane.binaries import (
    CONTROL_PLANE,
    COSCHEDULING,
    KARPENTER,
    KUBEFLOW,
    KUEUE,
    NODE,
    Binary,
    Bundle,
    build,
    cache_key,
    cache_root,
    is_built,
    module_version,
)
from tools.controlplane.errors import ControlPlaneError

BINARIES = CONTROL_PLANE.binaries


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BIREME_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "controlplane"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``go`` that notes the package it is given and fails for those listed in ``broken``.

    Every module lies in ``module``.
    """
    go = tmp_path / "go"
    go.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = list ]; then echo "go: downloading" >&2; echo {tmp_path}/module; exit; fi\n'
        f'for last; do :; done; echo "$last" >> {tmp_path}/calls\n'
        f'if grep -qxF "$last" {tmp_path}/broken; then echo "cannot find it"; exit 1; fi\n'
        'while [ "$1" != -o ]; do shift; done; sleep 0.05; echo built > "$2"\n'
    )
    go.chmod(go.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "broken").touch()
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
    with pytest.raises(
        ControlPlaneError, match=r"go/kwok/go\.mod does not require k8s\.io/nothing"
    ):
        module_version("kwok", "k8s.io/nothing")


def test_every_binary_is_static_trimmed_and_knows_its_version() -> None:
    commands = {b.name: b.command(Path("go"), Path("out")) for b in BINARIES}
    commands |= {b.name: b.command(Path("go"), Path("out")) for b in KARPENTER.binaries}
    assert len(commands) == 9
    assert all("-trimpath" in command for command in commands.values())
    assert "gitVersion=v1.37.1" in commands["kube-apiserver"][3]
    assert "consts.Version=v0.8.0" in commands["kwokctl"][3]


def test_what_a_node_runs_is_static_but_runc_which_filters_system_calls() -> None:
    dynamic = [b.name for b in NODE.binaries if b.environment()["CGO_ENABLED"] == "1"]
    assert dynamic == ["runc"]
    (runc,) = (b for b in NODE.binaries if b.name == "runc")
    assert "-tags=seccomp" in runc.command(Path("go"), Path("out"))
    assert not any(flag.startswith("-tags") for flag in BINARIES[0].command(Path(), Path()))


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
    flagged = (*BINARIES[:-1], Binary("helm", "helm", "x", (("a", "b"),)))
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
    lines: list[str] = []
    build(report=lines.append)
    assert sum("kept from an earlier run" in line for line in lines) == 3
    packages = (stand_in / "calls").read_text().split()
    assert sorted(packages) == sorted([*(b.package for b in BINARIES), BINARIES[3].package])


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
