"""Programs of this machine: which are taken, and the words for those that are not."""

import platform
import shutil
import sys
from pathlib import Path

import pytest

from testbed.controlplane.installed import Program, copy_installed, version_objection

# A program that is no script and says its version: Python, under the names of others.
VERSION = platform.python_version()
ETCD = Program("etcd", f"v{VERSION}", "etcd")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return folder


def install(file: Path) -> Path:
    file.parent.mkdir(exist_ok=True)
    shutil.copyfile(Path(sys.executable).resolve(), file)
    file.chmod(0o755)
    return file


def script(file: Path, text: str) -> Path:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def collect(program: Program, folder: Path) -> tuple[list[Path], list[str]]:
    lines: list[str] = []
    return copy_installed([program], folder, lines.append), lines


def test_program_on_path_is_copied(path: Path, tmp_path: Path) -> None:
    source = install(path / "etcd")
    copies, lines = collect(ETCD, tmp_path)
    assert lines == [f"etcd {VERSION} is there: {source}"]
    source.unlink()  # as the next upgrade of a system does
    assert copies == [tmp_path / "etcd"]
    assert version_objection(ETCD, copies[0]) is None


def test_folder_of_envtest_comes_first(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(path / "etcd")
    of_envtest = install(tmp_path / "assets" / "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(of_envtest.parent))
    assert collect(ETCD, tmp_path)[1] == [f"etcd {VERSION} is there: {of_envtest}"]


def test_another_version_is_named_and_the_next_folder_gives_the_program(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = install(path / "etcd")
    assets = tmp_path / "assets"
    assets.mkdir()
    older = assets / "etcd"
    # ELF's magic number and nothing else: no program, and no script.
    older.write_bytes(b"\x7fELF")
    older.chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert collect(ETCD, tmp_path)[1] == [
        f"etcd of this machine is not used: {older} does not say its version",
        f"etcd {VERSION} is there: {source}",
    ]


def test_program_of_another_version_is_not_copied(path: Path, tmp_path: Path) -> None:
    source = install(path / "etcd")
    copies, lines = collect(Program("etcd", "v3.6.14", "etcd"), tmp_path)
    assert copies == []
    assert lines == [
        f"etcd of this machine is not used: {source} has version {VERSION}, and 3.6.14 is needed"
    ]
    assert not (tmp_path / "etcd").exists()


def test_program_that_only_starts_another_is_not_copied(path: Path, tmp_path: Path) -> None:
    shim = script(path / "etcd", f"echo etcd Version: {VERSION}")
    refusal = [f"etcd of this machine is not used: {shim} only starts another program"]
    assert collect(ETCD, tmp_path) == ([], refusal)
    shim.unlink()
    shim.symlink_to(install(tmp_path / "snap"))
    assert collect(ETCD, tmp_path) == ([], refusal)


def test_machine_without_the_program_says_nothing(path: Path, tmp_path: Path) -> None:
    assert collect(ETCD, tmp_path) == ([], [])


@pytest.mark.parametrize(
    ("name", "answer", "objection"),
    [
        ("etcd", "etcd Version: 1.2.3\nGit SHA: 0123abc\nGo Version: go1.26.8", None),
        ("kube-apiserver", "Kubernetes v1.2.3", None),
        ("kwok", "kwok version v1.2.3 go1.26.8 (linux/amd64)", None),
        ("kubectl", '{"clientVersion": {"gitVersion": "v1.2.3"}, "kustomizeVersion": "v5"}', None),
        ("kube-apiserver", "Kubernetes v1.2.3+k3s1", "has version 1.2.3+k3s1"),
        ("kubectl", '{"clientVersion": {"gitVersion": "v1.2.4"}}', "has version 1.2.4"),
        ("kubectl", "Client Version: v1.2.3", "does not say its version"),
        ("kubectl", "[]", "does not say its version"),
        ("etcd", "", "does not say its version"),
    ],
)
def test_version_is_read_from_the_words_of_each_program(
    tmp_path: Path, name: str, answer: str, objection: str | None
) -> None:
    program = Program(name, "v1.2.3", "kubernetes")
    file = script(tmp_path / name, f"cat <<'END'\n{answer}\nEND")
    reason = version_objection(program, file)
    assert reason is None if objection is None else objection in str(reason)


def test_program_that_fails_has_no_version(tmp_path: Path) -> None:
    file = script(tmp_path / "etcd", "echo 1.2.3; exit 1")
    assert version_objection(ETCD, file) == "does not say its version"
