"""One page as Markdown: the bars, in words what was tried, a table per setting."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.learning.bars import BARS, Reached, measured
from bireme_lab.simulator.reports.terminal import markdown_table, number
from bireme_lab.training.evaluation import EvaluationResult
from bireme_lab.training.recipes import Results

_PROSE: Final = Path(__file__).parent / "prose"
_SPLIT: Final = "\n---\n"
_COLUMNS: Final = ("setting", "metric", "baseline", "value", "95 % interval", "bar", "reached")
_CONTENDERS: Final = ("only", "beside")
"""Options that name who is judged, not how."""
_ASIDE: Final = ("--json", "--markdown", "--jobs")


def page(
    name: str,
    results: Sequence[EvaluationResult],
    commands: Sequence[str],
    figures: Sequence[str] = (),
) -> str:
    """Write the page ``name``; the first result of a setting is held to its bars.

    Results that differ in their contenders alone become one. The prose of the page has two parts
    around a line of three dashes: title and reasons; and how it was measured.
    """
    opening, method = (_PROSE / f"{name}.md").read_text(encoding="utf-8").split(_SPLIT)
    results = joined(results)
    held = {result.setting: result for result in reversed(results)}
    reached = [measured(bar, held[bar.setting]) for bar in BARS[name] if bar.setting in held]
    lines = [opening.strip(), "", *markdown_table(_COLUMNS, map(_cells, reached)), ""]
    for figure in figures:
        lines += [f"![{Path(figure).stem.replace('-', ' ')}]({figure})", ""]
    for result in results:
        lines += [f"## {_title(result)}", "", *markdown_table(*result.table()), ""]
    lines += ["## What was measured", "", method.strip(), "", "Commands:", ""]
    shown = dict.fromkeys(map(measuring, commands))
    return "\n".join([*lines, "```sh", *shown, "```"]) + "\n"


def measuring(command: str) -> str:
    """Drop the options for output and number of processes from ``command``."""
    words = iter(shlex.split(command))
    kept = []
    for word in words:
        if word in _ASIDE:
            next(words, None)
        elif word != "--into-card":
            kept.append(word)
    return shlex.join(kept)


def joined(results: Sequence[EvaluationResult]) -> list[EvaluationResult]:
    """Merge results of equal setting, options and seeds into one with all contenders.

    Baselines do not depend on the checkpoint beside them; the checkpoint of the first result stays.
    """
    found: dict[object, EvaluationResult] = {}
    for each in results:
        how = {key: value for key, value in each.options.items() if key not in _CONTENDERS}
        key = (each.recipe, each.setting, tuple(sorted(how.items())), each.seeds)
        first = found.setdefault(key, replace(each, options=how))
        runs = {seed: {**_baselines(each, seed), **first.runs[seed]} for seed in each.seeds}
        found[key] = replace(first, runs=runs)
    return list(found.values())


def _baselines(result: EvaluationResult, seed: int) -> Results:
    results = result.runs[seed]
    return {name: row for name, row in results.items() if name != result.checkpoint}


def _cells(each: Reached) -> list[str]:
    bar, low, high = each.bar, each.found.low, each.found.high
    metric = bar.metric.replace("_", " ")
    metric = f"{bar.own}: {metric}" if bar.own else metric
    return [
        bar.setting,
        f"{metric}, ratio to {bar.among}" if each.baseline else metric,
        each.baseline,
        number(each.found.mean),
        f"[{number(low)}, {number(high)}]" if low is not None and high is not None else "",
        f"{'<=' if bar.is_less_better else '>='} {bar.limit}",
        "yes" if each.is_reached else "**no**",
    ]


def _title(result: EvaluationResult) -> str:
    options = ", ".join(f"{key} {value}" for key, value in result.options.items())
    extra = f" ({options})" if options else ""
    return f"{result.setting.capitalize()}{extra}: means over {len(result.runs)} seeds"
