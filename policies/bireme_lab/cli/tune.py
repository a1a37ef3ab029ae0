"""``bireme tune``: rules, constants and the learned index, fitted to a cluster's own record.

The module :mod:`bireme_lab.tuning.search` describes the candidates. The folder of ``--out`` keeps
finished runs, so that the same command continues after an interruption. Once there is a verdict,
the command only prints it.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from math import exp
from pathlib import Path
from typing import Any, Final

import msgspec

from bireme.cli.arguments import (
    UsageError,
    add_record,
    check_target,
    naming,
    number,
    whole,
    write_results,
)
from bireme.cli.own_policies import find_own
from bireme.contender import Contender
from bireme.core.times import clock_time, duration
from bireme.replay.reader import open_record
from bireme.rl.index_weights import shipped_weights
from bireme.tables import align_columns
from bireme_lab.contest.runs import Runs
from bireme_lab.contest.worlds import World
from bireme_lab.simulator.metrics import SimulationMetrics
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.reports.terminal import ProgressLine, plural
from bireme_lab.tuning.judgement import MIN_DAYS, Judgement, interval_text, judgement_on
from bireme_lab.tuning.past import Past, read_past
from bireme_lab.tuning.result_files import write_files
from bireme_lab.tuning.search import SearchResult, is_fitted, judge, runs_expected, search

PLAN: Final = "plan.json"
VERDICT: Final = "verdict.json"
REPORT: Final = "verdict.txt"
_MAX_ROWS: Final = 12
_SECONDS_BETWEEN_LINES: Final = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_record(parser)
    add = parser.add_argument
    add(
        "--out",
        type=Path,
        default=Path("tuned"),
        metavar="FOLDER",
        help="folder for finished runs, the verdict and the winner; the same command continues "
        "there; default: %(default)s",
    )
    add(
        "--jobs",
        type=whole,
        default=os.cpu_count() or 1,
        metavar="N",
        help="simulations at a time; default: all cores",
    )
    add(
        "--generations",
        type=lambda text: whole(text, minimum=0),
        default=8,
        metavar="N",
        help="iterations of the search for the learned index's weights; 0 keeps the shipped "
        "weights; default: %(default)s",
    )
    add(
        "--restart-seconds",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="time that a stopped gang needs to restart; default: %(default)g",
    )
    add(
        "--checkpoint-seconds",
        type=_seconds,
        default=1800.0,
        metavar="SECONDS",
        help="time between two checkpoints of a gang, which a stop loses in part; default: "
        "%(default)g",
    )
    add(
        "--least-days",
        type=_seconds,
        default=MIN_DAYS,
        metavar="DAYS",
        help="minimum days of the test; in a shorter test nothing wins; default: %(default)g",
    )
    add("--json", metavar="FILE", help="write the verdict; - for standard output, and no table")


def _seconds(text: str) -> float:
    return number(text, lambda value: 0 <= value < float("inf"), "is not a number from 0 on")


class _Plan(msgspec.Struct, frozen=True):
    """The arguments with which a folder was begun; times in POSIX seconds."""

    bireme: str
    generations: int
    restart_seconds: float
    checkpoint_seconds: float
    least_days: float
    began: float
    ended: float


def run(options: argparse.Namespace) -> int:
    check_target("--json", options.json)
    with naming("RECORD"):
        record = open_record(options.record, options.policy_classes)
        span = record.span()
    with naming("--out"):
        options.out.mkdir(parents=True, exist_ok=True)
    plan = _plan(options, span or (0.0, 0.0))
    verdict_file = options.out / VERDICT
    if verdict_file.is_file():
        # The test serves one judgement: a second one would choose by it.
        numbers = msgspec.json.decode(verdict_file.read_bytes())
        write_results(options, numbers, (options.out / REPORT).read_text(encoding="utf-8"))
        return 0
    shipped_weights()  # fails now, not after an hour, without the extra that reads them
    progress = _Progress(sys.stderr.isatty())
    try:
        find_own([record.settings.orderer, record.settings.placer, record.settings.sizer])
        with naming("RECORD"):
            past = read_past(
                record,
                (plan.began, plan.ended),
                checkpoints=options.checkpoints,
                stops=Physics(
                    restart_seconds=options.restart_seconds,
                    checkpoint_interval_seconds=options.checkpoint_seconds,
                ),
                on_progress=progress.read,
            )
        # Written only now: a record that says nothing yet must not spoil the folder for ever.
        _keep(options, plan)
        numbers, text = _tune(options, past, progress)
    finally:
        progress.clear()
    (options.out / REPORT).write_text(text, encoding="utf-8")
    verdict_file.write_bytes(msgspec.json.format(msgspec.json.encode(numbers), indent=1) + b"\n")
    write_results(options, numbers, text)
    return 0


def _plan(options: argparse.Namespace, span: tuple[float, float]) -> _Plan:
    """Return the plan of ``--out``; a record that has grown since is used up to its old end."""
    plan = _Plan(
        version("bireme"),
        options.generations,
        options.restart_seconds,
        options.checkpoint_seconds,
        options.least_days,
        *span,
    )
    path = options.out / PLAN
    if not path.is_file():
        return plan
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=_Plan)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"argument --out: {path} is not a plan: {error}; name another folder"
        ) from error
    for name in _Plan.__struct_fields__:
        old_value, new_value = getattr(stored, name), getattr(plan, name)
        if old_value != new_value and not (name == "ended" and new_value > old_value):
            raise UsageError(
                f"argument --out: {str(options.out)!r} was begun with {name} {old_value} instead "
                f"of {new_value}; name another folder"
            )
    return stored


def _keep(options: argparse.Namespace, plan: _Plan) -> None:
    with naming("--out"):
        (options.out / PLAN).write_bytes(msgspec.json.encode(plan) + b"\n")


def _tune(
    options: argparse.Namespace, past: Past, progress: "_Progress"
) -> tuple[dict[str, Any], str]:
    """Search, judge, and write the files of a winner; return the numbers and the report."""
    progress.expected = runs_expected(past, options.generations)
    with naming("--out"):
        runs = Runs(options.out, options.jobs, progress.ran)
    players = progress.counting(runs.play_all)
    result = search(past, players, options.out / "index", options.generations)
    judgement = judgement_on(past, result, judge(past, result.best, players), options.least_days)
    files: list[Path] = []
    if judgement.wins:
        with naming("--out"):
            files = write_files(
                options.out, judgement, past, result, options.command, progress.minutes
            )
    numbers = {
        "record": {
            "began": past.begin,
            "ended": past.end,
            "windows": past.windows,
            "gangs": past.gangs,
            "left_out": past.left_out,
            "judged_from": past.judged_from,
            "judged_days": past.test_days,
        },
        "validation": {candidate.name: loss for candidate, loss in result.losses},
        "verdict": judgement.to_json(),
        "files": [str(file) for file in files],
    }
    return numbers, _report(past, result, judgement, files)


def _report(past: Past, result: SearchResult, judgement: Judgement, files: Sequence[Path]) -> str:
    counts = [len(worlds) for worlds in past.worlds.values()]
    baseline = past.baseline.name
    stretch, since = duration(past.end - past.begin), clock_time(past.judged_from)
    lines = [
        f"{stretch} of record in {past.windows} windows: {past.gangs} gangs, by {baseline}",
        f"Tuned on {counts[0]} of them, chosen on {counts[1]}, judged on {counts[2]}, from {since}",
    ]
    if past.left_out:
        lines.append(
            f"Left out: {plural(past.left_out, 'gang')} that never started and never could"
        )
    if not is_fitted(past):
        lines.append(
            f"The index is not fitted: {past.decided_by.name} has a checkpoint that places or "
            "sizes, and a SchedulingPolicy names one"
        )
    base = result.loss_of(past.baseline)
    rows = [
        (_short(candidate, result), f"{exp(loss - base):.3f}") for candidate, loss in result.losses
    ]
    lines += ["", *align_columns([("policy", "on the validation windows"), *rows[:_MAX_ROWS]]), ""]
    verdict = judgement.verdict
    if verdict.p99_wait is not None:
        wait = interval_text(verdict.p99_wait)
    elif verdict.p99_wait_seconds > 0:
        wait = f"{verdict.p99_wait_seconds:.3g} s, by {baseline} 0 s"
    else:
        wait = "none: no gang waited"
    lines += [
        f"Judged once: {_short(judgement.best, result)} beside {baseline}",
        f"  mean completion time {interval_text(verdict.jct)}",
        f"  p99 wait             {wait}",
        f"  stops a window       {verdict.stops:.3g}, by {baseline} {verdict.baseline_stops:.3g}",
        "",
    ]
    if judgement.wins:
        lines += ["It wins. Written:", *(f"  {file}" for file in files)]
    else:
        lines += ["It is refused:", *(f"  {reason}" for reason in judgement.reasons)]
    return "\n".join(lines) + "\n"


def _short(candidate: Contender, result: SearchResult) -> str:
    return "learned-index, fitted" if candidate == result.index else candidate.name


class _Progress:
    """Shows runs done and the time left: a line on a terminal, else one every half minute."""

    def __init__(self, is_terminal: bool) -> None:
        self.expected = 1
        self._line = ProgressLine(sys.stderr, time.monotonic)
        self._is_terminal = is_terminal
        self._next = time.monotonic() + _SECONDS_BETWEEN_LINES
        self._done = 0
        self._played, self._began = 0, time.monotonic()

    def read(self, share: float) -> None:
        self._show("reading the record", share)

    def counting(
        self, play_all: Callable[[Sequence[tuple[Contender, World]]], list[SimulationMetrics]]
    ) -> Callable[[Sequence[tuple[Contender, World]]], list[SimulationMetrics]]:
        """Return ``play_all`` with its runs counted."""
        self._began = time.monotonic()

        def play_and_count(pairs: Sequence[tuple[Contender, World]]) -> list[SimulationMetrics]:
            metrics = play_all(pairs)
            self._done += len(pairs)
            return metrics

        return play_and_count

    def ran(self, done: int, *_: float) -> None:
        """Count a finished run, the ``done``-th of its batch."""
        self._played += 1
        whole = min(self._done + done, self.expected)
        pace = (time.monotonic() - self._began) / self._played
        remaining = pace * (self.expected - whole)
        self._show(
            f"{whole} of about {self.expected} runs, {duration(remaining)} left",
            whole / self.expected,
        )

    @property
    def minutes(self) -> float:
        """Minutes since the first run."""
        return (time.monotonic() - self._began) / 60

    def clear(self) -> None:
        self._line.clear()

    def _show(self, what: str, share: float) -> None:
        self._line.show(what, round(1000 * share), 1000)
        if not self._is_terminal and time.monotonic() >= self._next:
            self._next = time.monotonic() + _SECONDS_BETWEEN_LINES
            sys.stderr.write(f"{what}\n")
            sys.stderr.flush()
