"""``python -m benchmarks.contest RESULTS.json... [--commit ID] [--into-cards]``: write the page.

A policy that has changed since is played alone (``python -m bireme_lab.contest --policies NAMES``),
and its results are named with ``--again``: its rows take the place of those in RESULTS. RESULTS may
be the page's own JSON.

The files are those of ``python -m bireme_lab.contest --json``, one or more families each; the page
and its JSON go to docs/results/learning, the rows of learned policies into the cards of the
checkpoints that come with Bireme.
"""

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from benchmarks import RESULTS, machine
from benchmarks.contest.page import command_of, in_table, markdown, name_of
from bireme.onnx.cards import CARD_FILE, Benchmark, BenchmarkRow, encode
from bireme.onnx.checkpoints import read_card
from bireme.policy_names import checkpoint_folders
from bireme.registry import CHECKPOINT
from bireme_lab.contest.benchmark import FamilyResult

_PACKAGES: Final = ("bireme", "numpy", "onnxruntime")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    found = _read(options.files)
    later = _read(options.again)
    for each in later:
        put_rows(found, each)
    now = datetime.datetime.now(datetime.UTC)  # noqa: TID251  # the date of the page
    made = Benchmark(
        made=f"{now:%Y-%m-%d}",
        commit=options.commit or machine.revision(),
        versions={name: importlib.metadata.version(name) for name in _PACKAGES},
        rows=(),
    )
    others = dict(options.commit_of)
    for name in sorted({row.name for each in later for row in each.rows[1:]} - set(others)):
        others[name] = machine.revision()
    page = markdown(found, made, others, later)
    (options.out / "benchmark.md").write_text(page, encoding="utf-8")
    numbers = {
        "commit": made.commit,
        "date": made.made,
        "versions": made.versions,
        "commits": others,
        "families": [{"command": command_of(each), **each.to_json()} for each in found],
        "commands_again": [command_of(each) for each in later],
    }
    text = json.dumps(numbers, indent=1, allow_nan=False) + "\n"
    (options.out / "benchmark.json").write_text(text, encoding="utf-8")
    if options.into_cards:
        into_cards(checkpoint_folders(), found, made, others)


def put_rows(found: list[FamilyResult], later: FamilyResult) -> None:
    """Put the rows of ``later`` into the result of the same worlds in ``found``.

    Raises SystemExit where there is none, or where its baseline did otherwise in those worlds.
    """
    name = name_of(later)
    at = next((at for at, each in enumerate(found) if name_of(each) == name), None)
    if at is None:
        raise SystemExit(f"--again: there is no other result of {name}; give it among RESULTS")
    before, after = _played(found[at]), _played(later)
    if before != after:
        raise SystemExit(
            f"--again: {name} has {after}, and the other result {before}; play the same worlds"
        )
    rows = {row.name: row for row in found[at].rows} | {row.name: row for row in later.rows[1:]}
    found[at] = dataclasses.replace(found[at], rows=list(rows.values()))


def _played(found: FamilyResult) -> str:
    """Return what tells whether two results are of the same worlds, played alike."""
    row = found.rows[0]
    return (
        f"{found.jobs} jobs that {row.policy} stops {row.overall.stops:g} times a world, with a "
        f"p99 wait of {row.overall.p99_wait_seconds:g} s"
    )


def _read(files: Sequence[Path]) -> list[FamilyResult]:
    return [
        _named(msgspec.convert(_without_finding(each), FamilyResult))
        for file in files
        for each in json.loads(file.read_text("utf-8"))["families"]
    ]


def into_cards(
    folders: Mapping[str, Path],
    found: Sequence[FamilyResult],
    made: Benchmark,
    commits: Mapping[str, str],
) -> None:
    """Write the rows of every learned policy with a folder of ``folders`` into the card there.

    Only of those in one table, one a family. ``commits`` has that of the sources that
    measured a family, or the rows of a policy, where it is not that of ``made``.
    """
    rows: dict[str, list[BenchmarkRow]] = {}
    for each in found:
        for row in each.rows if in_table(each) else ():
            if row.kind == "learned" and row.name in folders:
                made_by = commits.get(row.name) or commits.get(each.family)
                card_row = replace(_card_row(each, row.name), commit=made_by)
                rows.setdefault(row.name, []).append(card_row)
    for name, of_policy in rows.items():
        card, _ = read_card(folders[name])
        benchmark = replace(made, rows=tuple(of_policy))
        judged = replace(card, benchmark=benchmark)
        (folders[name] / CARD_FILE).write_bytes(encode(judged))


def _card_row(found: FamilyResult, policy: str) -> BenchmarkRow:
    row = next(each for each in found.rows if each.name == policy)
    jct, wait = row.overall.jct, row.overall.p99_wait
    has_interval = jct.low is not None and jct.high is not None
    return BenchmarkRow(
        family=found.family,
        split=found.split,
        baseline=found.rows[0].policy,
        jct=jct.mean,
        interval=(jct.low or 0.0, jct.high or 0.0) if has_interval else None,
        p99_wait=None if wait is None else wait.mean,
        finding=row.overall.finding,
        worlds=found.worlds,
        blocks=found.blocks,
        seeds=row.seeds,
    )


def _without_finding(family: dict[str, object]) -> dict[str, object]:
    """Return ``family`` as the benchmark made it: findings follow from the rest."""
    return {name: value for name, value in family.items() if name != "command"}


def _named(found: FamilyResult) -> FamilyResult:
    """Return ``found`` without the folders of checkpoints, which are those of one machine."""
    rows = [
        dataclasses.replace(row, policy=row.name) if CHECKPOINT in row.policy else row
        for row in found.rows
    ]
    return dataclasses.replace(found, rows=rows)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.contest", description="Write the page of the benchmark."
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="RESULTS.json")
    parser.add_argument("--commit", help="of the sources that measured; default: this one")
    parser.add_argument(
        "--commit-of",
        action="append",
        default=[],
        type=lambda text: tuple(text.rsplit("=", 1)),
        metavar="NAME=ID",
        help="of the sources that measured NAME.json, or policy NAME with --again",
    )
    parser.add_argument(
        "--again",
        nargs="+",
        default=[],
        type=Path,
        metavar="RESULTS.json",
        help="results of the same worlds whose rows count",
    )
    parser.add_argument("--into-cards", action="store_true", help="write the cards' rows as well")
    parser.add_argument(
        "--out", type=Path, default=RESULTS / "learning", help="folder for the page"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
