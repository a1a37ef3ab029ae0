"""Compiling Go programs: what is said of the work that is left, and how a build ends."""

import os
import sys
import time
from pathlib import Path

import pytest

from testbed.controlplane import compiling
from testbed.controlplane.compiling import Packages, Progress, minutes, packages, run_build
from testbed.controlplane.errors import ControlPlaneError


def test_packages_are_as_large_as_their_files(tmp_path: Path) -> None:
    (tmp_path / "a.go").write_text("12345")
    (tmp_path / "b.go").write_text("678")
    listed = f"example.org/one\t{tmp_path}\ta.go\tb.go\n"
    found = packages(listed)
    assert found.folders == {"example.org/one": str(tmp_path)}
    assert found.size_bytes == {str(tmp_path): 8}
    assert packages("") == Packages({}, {})


def test_what_is_left_is_estimated_from_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    shared = {"/std": 20}
    progress = Progress([Packages({}, {**shared, "/a": 30}), Packages({}, {**shared, "/b": 50})])
    assert progress.count == 3
    now += 70
    assert progress.text() == "  0% of the source is compiled, 1:10 so far"
    progress.compiled(["/std", "/std", "/unknown"])
    assert progress.text() == " 20% of the source is compiled, 1:10 so far, about 4:40 left"
    progress.compiled(["/a", "/b"])
    assert progress.text() == "100% of the source is compiled, 1:10 so far"


def test_nothing_to_compile_is_all_compiled() -> None:
    assert Progress([]).text().startswith("100%")


def test_minutes_have_two_digits_of_seconds() -> None:
    assert [minutes(seconds) for seconds in (0, 9.9, 60, 754)] == ["0:00", "0:09", "1:00", "12:34"]


def run(script: str, folder: Path, told: list[str], ticks: list[str], limit: float = 30) -> None:
    command = [sys.executable, "-c", script]
    run_build(command, folder, os.environ, limit, told.append, lambda: ticks.append("tick"))


def test_every_line_is_told_and_a_long_build_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "REPORT_SECONDS", 0.05)
    told: list[str] = []
    ticks: list[str] = []
    run(
        "import time; print('one', flush=True); time.sleep(0.5); print('two')",
        tmp_path,
        told,
        ticks,
    )
    assert told == ["one", "two"]
    assert ticks


def test_a_build_that_fails_says_what_it_printed(tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match=r"(?s)failed with status 3; run it in .*no module"):
        run("print('no module'); raise SystemExit(3)", tmp_path, [], [])


def test_a_build_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "REPORT_SECONDS", 0.05)
    began_seconds = time.monotonic()
    with pytest.raises(ControlPlaneError, match=r"takes longer than 0\.1 s"):
        run("import time; time.sleep(60)", tmp_path, [], [], limit=0.1)
    assert time.monotonic() - began_seconds < 30
