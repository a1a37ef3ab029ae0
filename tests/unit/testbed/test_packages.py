"""System packages: installed only by root, only by apt, only what is missing."""

from pathlib import Path

import pytest

from testbed.controlplane import binaries
from testbed.controlplane.errors import ControlPlaneError


class Machine:
    """The packages of a machine, shown to ``packages`` by programs that stand in for Debian's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = monkeypatch
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.setattr("shutil.which", self._which)
        self.be(0)
        self.program("dpkg-query", f'[ -e {folder}/has-"$3" ] && printf installed || exit 1')
        self.program("apt-get", self._apt())

    def _which(self, name: str) -> str | None:
        path = self.folder / name
        return str(path) if path.exists() else None

    def _apt(self) -> str:
        return (
            f'echo "$@" >> {self.folder}/calls; shift 2\n'
            f'if [ "$1" = update ]; then touch {self.folder}/updated; exit; fi\n'
            f"if [ -e {self.folder}/stale ] && [ ! -e {self.folder}/updated ]; then exit 100; fi\n"
            f'shift 3; for name; do [ "$name" = nonsense ] && echo "no such package" && exit 100; '
            f"touch {self.folder}/has-$name; done; exit 0"
        )

    def program(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def be(self, user: int) -> None:
        self.patch.setattr("os.geteuid", lambda: user)

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_only_what_is_missing_is_installed_and_only_once(machine: Machine) -> None:
    (machine.folder / "has-first").touch()
    assert binaries.obstacle("first", "second") is None
    binaries.require("first", "second")
    (call,) = machine.calls()
    assert call.endswith("install --yes --no-install-recommends second")
    binaries.require("first", "second")
    assert len(machine.calls()) == 1


def test_old_lists_are_renewed(machine: Machine) -> None:
    (machine.folder / "stale").touch()
    binaries.require("second")
    assert [call.split()[2] for call in machine.calls()] == ["install", "update", "install"]


def test_a_package_that_apt_does_not_have_is_named_with_what_apt_says(machine: Machine) -> None:
    with pytest.raises(
        ControlPlaneError, match=r"(?s)nonsense failed .*; install .*no such package"
    ):
        binaries.require("nonsense")


def test_without_root_nothing_is_installed(machine: Machine) -> None:
    machine.be(1000)
    reason = "packages second are missing: run `apt-get install second` as root"
    assert binaries.obstacle("second") == reason
    with pytest.raises(ControlPlaneError, match="as root"):
        binaries.require("second")
    assert machine.calls() == []
    (machine.folder / "has-second").touch()
    assert binaries.obstacle("second") is None


def test_without_apt_the_packages_are_named(machine: Machine) -> None:
    (machine.folder / "apt-get").unlink()
    assert "there is no apt-get: use Debian" in (binaries.obstacle("second") or "")
