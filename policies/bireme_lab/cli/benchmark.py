"""``python -m bireme_lab.contest``: compare every policy with the best tuned rule, on unseen data.

The tables go to standard output, all numbers to ``--json``. ``--out`` keeps finished runs, so that
the same command continues where it was stopped.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import get_args

from bireme import registry
from bireme.cli.arguments import UsageError, check_target, naming, pair, whole, write_results
from bireme.contender import Contender, parts_at
from bireme.core.errors import SettingError, nearest
from bireme.tables import align_columns
from bireme_lab.contest.benchmark import (
    CEILING,
    DEFAULT,
    FamilyResult,
    Scope,
    judge,
    policy_names,
)
from bireme_lab.contest.families import FAMILIES, LOADS, Family, find
from bireme_lab.contest.runs import Runs
from bireme_lab.contest.verdicts import Verdict
from bireme_lab.contest.worlds import Part
from bireme_lab.simulator.comparison import Estimate
from bireme_lab.simulator.reports import terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="folder with the public traces")
    add(
        "--out",
        type=Path,
        default=Path("benchmark"),
        metavar="DIR",
        help="file for finished runs, a line each; default: %(default)s",
    )
    add(
        "--family",
        default=",".join(FAMILIES),
        metavar="NAMES",
        help="families of worlds, with commas between; default: %(default)s",
    )
    _add_scope(parser)
    add("--jobs", type=whole, default=1, metavar="N", help="processes; default: 1")
    add("--json", metavar="FILE", help="write all numbers; - for standard output, and no table")


def _add_scope(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the worlds of each family, and the policies."""
    add = parser.add_argument
    add(
        "--part",
        choices=get_args(Part),
        default=Scope().part,
        help="part of a family to play: test judges policies that were chosen on the other "
        "parts; default: %(default)s",
    )
    add(
        "--blocks",
        type=whole,
        default=Scope().blocks,
        metavar="N",
        help="play the first N blocks of that part, each at three loads; default: %(default)s",
    )
    add(
        "--skip-blocks",
        type=partial(whole, minimum=0),
        default=0,
        metavar="N",
        help="leave out the first N of them, such as those of an earlier run; default: 0",
    )
    add(
        "--training-blocks",
        type=whole,
        default=Scope().training_blocks,
        metavar="N",
        help="tune the rules on this many blocks of the training part; default: %(default)s",
    )
    add(
        "--rules",
        default="",
        metavar="NAMES",
        help="tune only these orderers, with commas between; default: all of a family",
    )
    add(
        "--policies",
        metavar="NAMES",
        help=f"judge only these, with commas between: {DEFAULT}, {CEILING} (run times known), "
        "learned policies that come with Bireme, and ORDERER[/PLACER[/SIZER]] with parameters, as "
        "in 'tiresias-las?promote_knob=8', whose other parts are the baseline's; default: all but "
        "the last",
    )
    add(
        "--checkpoint",
        action="append",
        default=[],
        type=pair,
        metavar="NAME=DIR",
        help="judge the checkpoint in DIR as NAME, in place of the learned policy of that name "
        "that comes with Bireme, if there is one; once for each training seed",
    )


def run(options: argparse.Namespace) -> int:
    check_target("--json", options.json)
    families, scope = _families(options), _scope(options)
    progress = terminal.ProgressLine(sys.stderr, time.monotonic)
    stage = ""

    def tell(what: str) -> None:
        nonlocal stage
        stage = what
        progress.clear()
        sys.stderr.write(f"{what}\n")

    def show(done: int, total: int, seconds_left: float) -> None:
        remaining = terminal.duration(seconds_left)
        progress.show(f"{done} of {total} runs, {remaining} left: {stage}", done, total)

    with naming("--out"):
        runs = Runs(options.out, options.jobs, show)
    try:
        data = options.data or Path("data")
        results = [judge(data, family, scope, runs.play_all, tell) for family in families]
    finally:
        progress.clear()
    numbers = {"families": [result.to_json() for result in results]}
    write_results(options, numbers, "\n\n".join(map(_text, results)) + "\n")
    return 0


def _families(options: argparse.Namespace) -> list[Family]:
    with naming("--family"):
        families = [find(name.strip()) for name in options.family.split(",")]
    for family in families:
        if family.needs_data and options.data is None:
            raise UsageError(
                f"argument --data: the worlds of {family.name} are made of public traces; name "
                "their folder, or only families that are generated with --family"
            )
    return families


def _scope(options: argparse.Namespace) -> Scope:
    folders: dict[str, list[Path]] = {}
    for name, folder in options.checkpoint:  # checked here, not after hours of simulation
        with naming("--checkpoint"):
            parts = parts_at(f"{registry.CHECKPOINT}{folder}")
            seeds = folders.setdefault(name, [])
            first = parts_at(f"{registry.CHECKPOINT}{seeds[0]}") if seeds else parts
            if set(parts) != set(first):
                raise SettingError(
                    f"{name}={folder} decides {', '.join(parts)}, and {name}={seeds[0]} "
                    f"{', '.join(first)}; seeds decide the same parts, so give it another name"
                )
        seeds.append(Path(folder))
    policies = None if options.policies is None else _names(options.policies)
    names = policy_names(folders)
    orderers = registry.names("orderer")
    with naming("--policies"):
        for name in policies or ():
            if name not in {*names, *orderers} and not {"?", "/", ":"} & set(name):
                hint = nearest(name, sorted({*names, *orderers}))
                raise SettingError(f"no policy is called {name!r}; {hint}")
            if name not in names:
                Contender.read(name).policy()
    return Scope(
        training_blocks=options.training_blocks,
        part=options.part,
        blocks=options.blocks,
        skipped_blocks=options.skip_blocks,
        rules=_names(options.rules),
        policies=policies,
        checkpoints=folders,
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _text(result: FamilyResult) -> str:
    title = (
        f"{result.family}: {result.says}\n  {result.split}\n  {result.jobs:,} jobs in "
        f"{terminal.plural(result.worlds, f'{result.part} world')} of {blocks(result)}"
    )
    head, rows = table(result)
    return "\n".join([title, "", *align_columns([head, *rows])])


def blocks(result: FamilyResult) -> str:
    """Return how many blocks were simulated, and how many were skipped."""
    suffix = f" after the first {result.skipped}" if result.skipped else ""
    return f"{terminal.plural(result.blocks, 'block')}{suffix}"


def table(result: FamilyResult) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of a family's table, as people read them."""
    head = ["policy", "seeds", "mean JCT, ratio", *(f"at {load}" for load in LOADS)]
    head += ["p99 wait, ratio", "p99 wait, s", "stops", "of the baseline", "finding"]
    return head, [
        [
            row.name if row.kind != "default" else f"default ({row.policy})",
            str(row.seeds) if row.seeds else "-",
            _ratio(row.overall.jct),
            *(_ratio(row.by_load[str(load)].jct) for load in LOADS),
            _ratio(row.overall.p99_wait),
            _wait(row.overall),
            terminal.count(row.overall.stops),
            terminal.count(row.overall.baseline_stops),
            _finding(row.overall) if row.kind != "baseline" else "baseline",
        ]
        for row in result.rows
    ]


def _ratio(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    interval = estimate.interval
    bounds = f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
    return f"{estimate.mean:.3f}{bounds}"


def _wait(verdict: Verdict) -> str:
    """Return the seconds, and their difference from the baseline's."""
    change = verdict.p99_wait_change
    if change is None:
        return f"{verdict.p99_wait_seconds:,.0f}"
    bounds = "[{:+,.0f}, {:+,.0f}]".format(*change.interval) if change.interval else ""
    return f"{verdict.p99_wait_seconds:,.0f} ({' '.join([f'{change.mean:+,.0f}', bounds]).strip()})"


def _finding(verdict: Verdict) -> str:
    unfinished = f", {verdict.unfinished} jobs unfinished" if verdict.unfinished else ""
    back = f", {verdict.fallbacks} fallbacks" if verdict.fallbacks else ""
    return f"{verdict.finding}{unfinished}{back}"
