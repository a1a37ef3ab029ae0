"""Compiling Go programs: what is said of the work that is left, and how a build ends."""

import csv
import heapq
import os
import re
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.controlplane import compiling
from testbed.controlplane.compiling import (
    LINK_COST,
    REPORT_SECONDS,
    Packages,
    Progress,
    minutes,
    package_cost,
    packages,
    run_build,
)
from testbed.controlplane.errors import ControlPlaneError

LOG = Path(__file__).with_name("control_plane_build.csv")


def test_packages_cost_by_their_files_and_by_what_they_import(tmp_path: Path) -> None:
    (tmp_path / "a.go").write_text("1" * 300_000)
    (tmp_path / "b.go").write_text("1" * 700_000)
    listed = f"example.org/one\t{tmp_path}\t250\ta.go\t\tb.go\n"
    listing = packages(listed)
    assert listing.folders == {"example.org/one": str(tmp_path)}
    assert listing.costs == {str(tmp_path): package_cost(1_000_000, 250)}
    assert package_cost(1_000_000, 0) > 2 * package_cost(400_000, 0)
    assert package_cost(0, 250) > 0
    assert packages("") == Packages({}, {})


def test_rest_is_estimated_from_the_rate_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    shared = {"/std": 2.0}
    needed = [Packages({}, {**shared, "/a": 3.0}), Packages({}, {**shared, "/b": 5.0 - LINK_COST})]
    progress = Progress(needed, ["etcd"])
    assert progress.count == 3
    progress.compile(["/std", "/std", "/unknown"])
    now += 59
    assert progress.text() == " 20% of the source is compiled, 0:59 so far"
    now += 11
    assert progress.text() == " 20% of the source is compiled, 1:10 so far, about 4:40 left"
    progress.compile(["/a", "/b"])
    assert progress.text().endswith("left"), "a program is still to be linked"
    progress.link(["etcd"])
    assert progress.text() == "100% of the source is compiled, 1:10 so far"


@dataclass(frozen=True)
class Step:
    """Packages that were compiled one after the other, or a program that was linked."""

    cost: float
    processor_seconds: float
    program: str


def recorded_steps() -> list[Step]:
    """Steps of a build of the control plane, in the order in which Go began them.

    Recorded with ``go build -v -debug-actiongraph`` and an empty build cache, ten packages a row.
    """
    with LOG.open(encoding="utf-8") as file:
        return [
            Step(
                package_cost(int(row["source_bytes"]), int(row["dependencies"])),
                int(row["processor_milliseconds"]) / 1000,
                f"program-{number}" if int(row["programs"]) else "",
            )
            for number, row in enumerate(csv.DictReader(file))
        ]


@pytest.mark.parametrize(
    ("processors", "slowness"), [(1, 1.0), (2, 1.0), (2, 2.0), (4, 2.0), (2, 5.0)]
)
def test_estimates_after_a_minute_are_near_the_truth_on_slow_and_fast_machines(
    monkeypatch: pytest.MonkeyPatch, processors: int, slowness: float
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    steps = recorded_steps()
    needed = Packages({}, {f"/{n}": s.cost for n, s in enumerate(steps) if not s.program})
    progress = Progress([needed], [step.program for step in steps if step.program])
    # go build says that a package is begun, and writes a program when it is linked.
    events: list[tuple[float, int]] = []
    idle_seconds = [0.0] * processors
    for number, step in enumerate(steps):
        begin_seconds = heapq.heappop(idle_seconds)
        end_seconds = begin_seconds + step.processor_seconds * slowness
        heapq.heappush(idle_seconds, end_seconds)
        events.append((end_seconds if step.program else begin_seconds, number))
    total_seconds = max(idle_seconds)
    errors: dict[int, float] = {}
    pending = deque(sorted(events))
    for now in range(0, int(total_seconds), int(REPORT_SECONDS)):
        while pending and pending[0][0] <= now:
            number = pending.popleft()[1]
            progress.compile([f"/{number}"])
            progress.link([steps[number].program])
        estimate = re.search(r"about (\d+):(\d+) left", progress.text())
        assert (estimate is not None) == (now >= 60)
        if estimate:
            remaining_seconds = total_seconds - now
            error_seconds = int(estimate[1]) * 60 + int(estimate[2]) - remaining_seconds
            if abs(error_seconds) > max(2 * REPORT_SECONDS, 0.3 * remaining_seconds):
                errors[now] = error_seconds / remaining_seconds
    assert errors == {}


def test_nothing_to_compile_is_all_compiled() -> None:
    assert Progress([], []).text().startswith("100%")


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
