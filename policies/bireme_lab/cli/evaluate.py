"""``bireme evaluate``: compare a checkpoint with its baselines, with many seeds.

A table per setting goes to standard output, progress to a terminal on standard error, every seed's
numbers to ``--json``. Shards (``--shard I/N``) may run anywhere; ``--merge`` joins them.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bireme.cli.arguments import (
    UsageError,
    check_target,
    naming,
    pair,
    seed_range,
    shard,
    whole,
    write_results,
    write_text,
)
from bireme.cli.own_policies import find_own
from bireme.core.errors import error_text, nearest
from bireme.onnx.checkpoints import read_card
from bireme.rl.lookup import find_folder
from bireme.tables import align_columns
from bireme_lab.simulator.reports import terminal
from bireme_lab.training import evaluation
from bireme_lab.training.recipes import RECIPES, Recipe, load_recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "name",
        nargs="?",
        metavar="NAME|FOLDER",
        help="a checkpoint that comes with Bireme, or the folder of one of yours",
    )
    add(
        "--setting",
        metavar="NAMES",
        help="settings of the recipe, several with commas between, or all",
    )
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument(
        "--seeds", type=whole, default=20, metavar="N", help="0 to N-1; default: %(default)s"
    )
    seeds.add_argument("--seed-range", type=seed_range, metavar="A:B", help="A to B-1")
    add("--shard", type=shard, default=(0, 1), metavar="I/N", help="every Nth seed from the Ith")
    add(
        "--jobs",
        type=whole,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes; default: all cores",
    )
    add(
        "--opt", type=pair, action="append", default=[], metavar="K=V", help="options of the recipe"
    )
    add(
        "--recipe",
        metavar="NAME",
        help="recipe that evaluates it; default: the recipe of the same name",
    )
    add(
        "--merge",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="join files that --json of shards wrote",
    )
    add("--json", metavar="FILE", help="write every seed's numbers; - for standard output")
    add("--markdown", metavar="FILE", help="write the tables as Markdown")
    add("--into-card", action="store_true", help="write the means into the checkpoint's card")


def run(options: argparse.Namespace) -> int:
    for argument, target in (("--json", options.json), ("--markdown", options.markdown)):
        check_target(argument, target)
    checkpoint = _checkpoint(options) if options.name else None
    if options.into_card and checkpoint is None:
        raise UsageError("argument --into-card: name the checkpoint's folder as well")
    results = _merge_shards(options.merge) if options.merge else _evaluate(options, checkpoint)
    if options.into_card and checkpoint is not None:
        with naming("NAME"):
            evaluation.write_to_card(checkpoint.folder, results, options.command)
    _report(options, results)
    return 0


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """The checkpoint, and the recipe that evaluates it."""

    folder: Path
    recipe_name: str
    recipe: Recipe


def _checkpoint(options: argparse.Namespace) -> _Checkpoint:
    with naming("NAME"):
        is_folder = os.sep in options.name or Path(options.name).is_dir()
        folder = Path(options.name) if is_folder else find_folder(options.name)
        name = options.recipe or read_card(folder)[0].name
        find_own([name])
    with naming("--recipe" if options.recipe else "NAME"):
        return _Checkpoint(folder, name, load_recipe(name))


def _evaluate(
    options: argparse.Namespace, checkpoint: _Checkpoint | None
) -> list[evaluation.EvaluationResult]:
    if checkpoint is None:
        recipe_names = ", ".join(RECIPES)
        raise UsageError(f"argument NAME: name one of {recipe_names}, or a folder")
    which, shards = options.shard
    seeds = list(options.seed_range or range(options.seeds))[which::shards]
    if not seeds:
        raise UsageError(f"argument --shard: {which}/{shards} leaves no seed; make fewer shards")
    progress = terminal.ProgressLine(sys.stderr, time.monotonic)
    try:
        return [
            evaluation.evaluate(
                evaluation.EvaluationTask(
                    checkpoint.recipe_name, checkpoint.folder, setting, dict(options.opt)
                ),
                seeds,
                options.jobs,
                partial(progress.show, f"{setting}, {terminal.plural(len(seeds), 'seed')}"),
            )
            for setting in _settings(options.setting, checkpoint)
        ]
    finally:
        progress.clear()


def _settings(selection: str | None, checkpoint: _Checkpoint) -> list[str]:
    settings = checkpoint.recipe.settings
    if selection is None:
        listed = "; ".join(f"{name}: {text}" for name, text in settings.items())
        raise UsageError(f"argument --setting: name one of {listed}, or all")
    if selection == "all":
        return list(settings)
    names = list(dict.fromkeys(selection.split(",")))
    for name in names:
        if name not in settings:
            raise UsageError(
                f"argument --setting: {checkpoint.recipe_name} has no setting {name!r}; "
                f"{nearest(name, sorted(settings))}"
            )
    return names


def _merge_shards(files: Sequence[Path]) -> list[evaluation.EvaluationResult]:
    shards: dict[str, list[evaluation.EvaluationResult]] = {}
    for file in files:
        with naming("--merge"):
            text = file.read_text(encoding="utf-8")
        try:
            results = [
                evaluation.EvaluationResult.from_json(item) for item in json.loads(text)["settings"]
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"argument --merge: {str(file)!r} is not an output of `bireme evaluate --json` "
                f"({error_text(error)}); name such files"
            ) from error
        for result in results:
            shards.setdefault(result.setting, []).append(result)
    with naming("--merge"):
        return [evaluation.merge(parts) for parts in shards.values()]


def _report(options: argparse.Namespace, results: Sequence[evaluation.EvaluationResult]) -> None:
    if options.markdown:
        with naming("--markdown"):
            write_text(options.markdown, _page(results, options.command))
    numbers = {"settings": [result.to_json() for result in results]}
    text = "\n".join(line for result in results for line in _table(result)) + "\n"
    write_results(options, numbers, text)


def _table(result: evaluation.EvaluationResult) -> list[str]:
    head, rows = result.table()
    return [_title(result), "", *align_columns([head, *rows]), ""]


def _page(results: Sequence[evaluation.EvaluationResult], command: str) -> str:
    lines = [f"`{command}`", ""]
    for result in results:
        head, rows = result.table()
        lines += [f"**{_title(result)}**", "", *terminal.markdown_table(head, rows), ""]
    return "\n".join(lines)


def _title(result: evaluation.EvaluationResult) -> str:
    seeds = terminal.plural(len(result.runs), "seed")
    spread = "; in brackets 95 % intervals" if len(result.runs) > 1 else ""
    return f"{result.checkpoint} in {result.setting}: means over {seeds}{spread}"
