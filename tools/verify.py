"""``make verify``: what is long and no evidence for a single change, step by step.

Each step's last result is kept in ``docs/results/verify/results.json`` with the revision it ran on,
so that a run that was cut off goes on; ``docs/results/verify.md`` shows them. Logs are in
``.run/verify``.
"""

import argparse
import datetime
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.machine import revision
from bireme_lab.simulator.reports.terminal import markdown_table
from testbed.controlplane.binaries import OLDER, RELEASE_VARIABLE
from tools.kind import confined
from tools.release import rehearsal

ROOT: Final = Path(__file__).parents[1]
LOGS: Final = ROOT / ".run" / "verify"
PAGE: Final = ROOT / "docs" / "results" / "verify.md"
# Not beside the page: every JSON file there is a case of the benchmark, and in its index.
RESULTS: Final = PAGE.parent / "verify" / "results.json"
# Simulated clusters in all, and per step: a few minutes, what a cut costs at most.
_ALL_SEEDS: Final = 10_000
_SEEDS: Final = 1000
_LIMIT_SECONDS: Final = 3 * 3600.0
# Tests that between them use every kind, verb and field that Bireme asks of Kubernetes.
_ASKED: Final = (
    "main_path",
    "api_server_parity",
    "crd_bounds",
    "hostile_tenants",
    "install",
    "preemption",
    "elastic",
    "foreign_gangs",
    "guests",
    "volumes",
    "devices",
    "resource_quotas",
)


def _no_obstacle() -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Step:
    """One command; ``environment`` is added to that of the process."""

    name: str
    shows: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    obstacle: Callable[[], str | None] = _no_obstacle
    """Says why it cannot run on this machine, where it is then left out."""

    def __str__(self) -> str:
        return " ".join([*(f"{k}={v}" for k, v in self.environment), shlex.join(self.command)])


class Result(msgspec.Struct, frozen=True, kw_only=True):
    revision: str
    date: str
    seconds: float
    passed: bool
    last_line: str


STEPS: Final = (
    Step(
        "properties",
        "1000 examples of every property, and tenfold for those that state a number",
        ("python", "-m", "pytest", "-q", "-m", "not cluster", "--hypothesis-profile", "verify"),
    ),
    Step(
        "model",
        "2000 random clusters, each followed through its life, against the reference model",
        (
            *("python", "-m", "pytest", "-q", "tests/unit/core/test_model.py"),
            *("--hypothesis-profile", "verify"),
        ),
        (("BIREME_MODEL_RUNS", "2000"),),
    ),
    Step(
        "lives",
        "2000 whole lives of small clusters, with gangs that may not be stopped",
        ("python", "-m", "pytest", "-q", "tests/unit/core/test_whole_lives.py"),
        (("BIREME_WHOLE_LIVES", "2000"),),
    ),
    *(
        Step(
            f"simulation-{first}-{first + _SEEDS - 1}",
            f"whole clusters under faults, seeds {first} to {first + _SEEDS - 1}",
            (
                *("python", "-m", "testbed.simcluster"),
                *("--seeds", f"{first}:{first + _SEEDS}", "--processes", "2"),
            ),
        )
        for first in range(0, _ALL_SEEDS, _SEEDS)
    ),
    Step(
        "filters",
        "the planner against kube-scheduler's filter plugins, 20,000 random clusters",
        ("python", "-m", "testbed.filters", "--seeds", "0:20000"),
    ),
    *(
        Step(
            f"kubernetes-{release}",
            f"what Bireme asks of a cluster, on a real control plane of Kubernetes {release}",
            ("python", "-m", "pytest", "-q", *(f"tests/cluster/test_{name}.py" for name in _ASKED)),
            ((RELEASE_VARIABLE, release), ("BIREME_CLUSTERS", "real")),
        )
        for release in OLDER
    ),
    Step(
        "stories",
        "on the real control plane, what `make test` plays on the embedded cluster",
        ("python", "-m", "pytest", "-q", "-m", "embedded", "tests/cluster"),
        (("BIREME_CLUSTERS", "real"),),
    ),
    Step(
        "mutants",
        "what such a story finds in one of the two worlds, it finds in the other",
        ("python", "-m", "tools.mutants"),
    ),
    Step(
        "kind",
        "the chart and a gang of four on a cluster that kind makes of kind-config.yaml",
        ("python", "-m", "pytest", "-q", "tests/kind"),
        (("BIREME_KIND", "1"),),
        confined.obstacle,
    ),
    Step(
        "differential",
        "the simulator against the real control plane, 50 seeds",
        ("python", "-m", "benchmarks.differential"),
    ),
    Step(
        "parity",
        "random scripts on a real and on an embedded cluster, 200 seeds",
        ("python", "-m", "testbed.parity", "--seeds", "0:200"),
    ),
    Step(
        "restarts",
        "10,000 starts of one job: nothing grows",
        ("python", "-m", "pytest", "-q", "tests/simulation/test_restarts.py"),
        (("BIREME_RESTARTS", "10000"),),
    ),
    Step(
        "release",
        "a release from its sources to a running installation, without the internet",
        ("python", "-m", "tools.release", "rehearse"),
        obstacle=rehearsal.obstacle,
    ),
    Step("refind", "bugs of the past, found again", ("python", "-m", "tools.refind")),
    Step(
        "soak",
        "two hours of faults on a real cluster: nothing grows",
        ("python", "-m", "benchmarks.soak"),
    ),
)


def run(step: Step) -> Result:
    """Run a step to its end, or to the limit; its output goes to a file."""
    began = time.monotonic()
    log = LOGS / f"{step.name}.log"
    command = [sys.executable if word == "python" else word for word in step.command]
    with log.open("wb") as output:
        try:
            status = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, **dict(step.environment)},
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_LIMIT_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = 124  # as timeout(1) says it
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    now = datetime.datetime.now(datetime.UTC)  # noqa: TID251  # the date of the run
    return Result(
        revision=revision(),
        date=f"{now:%Y-%m-%d}",
        seconds=time.monotonic() - began,
        passed=status == 0,
        last_line=lines[-1] if lines else f"exit status {status}",
    )


def kept() -> dict[str, Result]:
    """Return the last result of each step that has ever run, of whatever revision."""
    if not RESULTS.is_file():
        return {}
    return msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, Result])


def page(results: Mapping[str, Result]) -> str:
    rows = []
    for step in STEPS:
        last = results.get(step.name)
        ended = ("never run", "", "", "")
        if last is not None:
            word = "passed" if last.passed else "**failed**"
            ended = (word, last.revision, last.date, f"{last.seconds / 60:.0f} min")
        rows.append((step.shows, f"`{step}`", *ended))
    lines = [
        "# Verification",
        "",
        "Written by `make verify`; do not edit. These steps take hours and are not part of",
        "`make test`.",
        "",
        *markdown_table(("", "command", "result", "revision", "date", "took"), rows),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps that this revision has not passed; 1 if one of them fails."""
    names = [step.name for step in STEPS]
    parser = argparse.ArgumentParser(prog="verify", description="Run the long checks; resumes.")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(names))
    parser.add_argument("--fresh", action="store_true", help="forget what was passed")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.steps) - set(names)):
        parser.error(f"no step {unknown[0]!r}; there are {', '.join(names)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    results = kept()
    failed = False
    for step in STEPS:
        if options.steps and step.name not in options.steps:
            continue
        last = results.get(step.name)
        if last and last.passed and last.revision == revision() and not options.fresh:
            print(f"{step.name}: passed on this revision")
            continue
        if reason := step.obstacle():
            print(f"{step.name}: not on this machine: {reason}")
            continue
        print(f"{step.name}: {step}", flush=True)
        result = run(step)
        # Read again: another process may have passed another step in these hours.
        results = kept() | {step.name: result}
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
        PAGE.write_text(page(results), encoding="utf-8")
        print(f"  {'passed' if result.passed else 'FAILED'}: {result.last_line}", flush=True)
        failed |= not result.passed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
