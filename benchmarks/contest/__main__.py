"""``python -m benchmarks.contest RESULTS.json... [--commit ID] [--into-cards]``: write the page.

The files are those of ``bireme benchmark --json``, one or more families each; the page and its JSON
go to docs/results/learning, the rows of learned policies into the cards of the checkpoints that
come with Bireme.
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
from benchmarks.contest.page import command_of, markdown
from bireme.contest.benchmark import FamilyResult
from bireme.onnx.cards import CARD_FILE, Benchmark, BenchmarkRow, encode
from bireme.onnx.checkpoints import read_card
from bireme.registry import CHECKPOINT
from bireme.rl.lookup import FOLDER

_PACKAGES: Final = ("bireme", "numpy", "onnxruntime")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    found = [
        _named(msgspec.convert(_without_finding(each), FamilyResult))
        for file in options.files
        for each in json.loads(file.read_text("utf-8"))["families"]
    ]
    now = datetime.datetime.now(datetime.UTC)  # noqa: TID251  # the date of the page
    made = Benchmark(
        made=f"{now:%Y-%m-%d}",
        commit=options.commit or machine.revision(),
        versions={name: importlib.metadata.version(name) for name in _PACKAGES},
        rows=(),
    )
    others = dict(options.commit_of)
    page = markdown(found, made, others)
    (options.out / "benchmark.md").write_text(page, encoding="utf-8")
    numbers = {
        "commit": made.commit,
        "date": made.made,
        "versions": made.versions,
        "commits": others,
        "families": [{"command": command_of(each), **each.to_json()} for each in found],
    }
    text = json.dumps(numbers, indent=1, allow_nan=False) + "\n"
    (options.out / "benchmark.json").write_text(text, encoding="utf-8")
    if options.into_cards:
        into_cards(FOLDER, found, made, others)


def into_cards(
    folder: Path,
    found: Sequence[FamilyResult],
    made: Benchmark,
    commits: Mapping[str, str],
) -> None:
    """Write the rows of every learned policy that has a card in ``folder`` into that.

    Only of results that skipped no blocks, one a family. ``commits`` has that of the sources that
    measured a family, where it is not that of ``made``.
    """
    rows: dict[str, list[BenchmarkRow]] = {}
    for each in found:
        for row in each.rows if not each.skipped else ():
            if row.kind == "learned" and (folder / row.name).is_dir():
                made_by = commits.get(each.family)
                card_row = replace(_card_row(each, row.name), commit=made_by)
                rows.setdefault(row.name, []).append(card_row)
    for name, of_policy in rows.items():
        card, _ = read_card(folder / name)
        benchmark = replace(made, rows=tuple(of_policy))
        judged = replace(card, benchmark=benchmark)
        (folder / name / CARD_FILE).write_bytes(encode(judged))


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
        type=lambda text: tuple(text.split("=", 1)),
        metavar="NAME=ID",
        help="of the sources that measured NAME.json, where they are others",
    )
    parser.add_argument("--into-cards", action="store_true", help="write the cards' rows as well")
    parser.add_argument(
        "--out", type=Path, default=RESULTS / "learning", help="folder for the page"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
