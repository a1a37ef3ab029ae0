"""Sources of Prometheus, and the message where there is none."""

import platform
import shutil
from pathlib import Path

import pytest

from testbed import prometheus
from testbed.prometheus import Programs, Unavailable, find_programs


def on_path(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """PATH has just these."""
    found = {name: f"/opt/{name}" for name in names}
    monkeypatch.setattr(shutil, "which", found.get)


def archive_has(monkeypatch: pytest.MonkeyPatch, candidate: str) -> None:
    """The package archive names this version, and gives nothing."""

    def run(command: list[str], folder: Path | None) -> str:
        assert command[0] == "apt-cache", "nothing is downloaded"
        return f"prometheus:\n  Installed: (none)\n  Candidate: {candidate}\n"

    monkeypatch.setattr(prometheus, "_run", run)


def test_programs_on_the_path_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, "prometheus", "promtool")
    assert find_programs() == Programs(Path("/opt/prometheus"), Path("/opt/promtool"))


def test_without_them_and_without_apt_the_reason_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, "prometheus")
    with pytest.raises(Unavailable, match="neither prometheus and promtool nor apt-get"):
        find_programs()


def test_an_archive_without_the_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, "apt-get", "dpkg-deb")
    archive_has(monkeypatch, "(none)")
    with pytest.raises(Unavailable, match="run apt-get update"):
        find_programs()


def test_what_was_unpacked_before_is_found_by_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BIREME_CACHE", str(tmp_path))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    on_path(monkeypatch, "apt-get", "dpkg-deb")
    archive_has(monkeypatch, "2.42.0+ds-5+deb12u1")
    folder = tmp_path / "debian" / "prometheus-2.42.0+ds-5+deb12u1-x86_64"
    folder.mkdir(parents=True)
    assert find_programs().promtool == folder / "usr/bin/promtool"


def test_a_program_that_fails_is_reported_with_its_output() -> None:
    with pytest.raises(
        Unavailable, match=r"ls --no-such-option failed with status 2\nls: unrecognized"
    ):
        prometheus._run(["ls", "--no-such-option"], None)
