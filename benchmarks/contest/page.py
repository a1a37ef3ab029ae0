"""The page: a table for each family, what was tuned, how much was played, and how to play more."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bireme.onnx.cards import Benchmark
from bireme_lab.cli.benchmark import blocks, table
from bireme_lab.contest.benchmark import CEILING, DEFAULT, LEARNED, LEARNED_ELASTIC, FamilyResult
from bireme_lab.contest.families import LOADS, find
from bireme_lab.simulator.reports.terminal import markdown_table

_MORE: Final = (
    "The same commands with a larger `--blocks` and `--training-blocks`, and without `--rules`, "
    "play more;\nruns that are finished are kept in `--out` and not played again."
)
_SEVERAL: Final = (
    "`$(NAME N)` stands for `--checkpoint NAME=FOLDER` of N trainings. The first is the one that",
    "comes with Bireme; `bireme train NAME` makes the others with `--seed 1` to `--seed N - 1`.",
    "",
)
_OWN: Final = "Of {}, which does not come with Bireme, all are made, with `--seed 1` to `--seed N`."
_SHIPPED: Final = {**LEARNED, **LEARNED_ELASTIC}
_PROSE: Final = Path(__file__).parent / "prose.md"


def markdown(
    found: Sequence[FamilyResult],
    made: Benchmark,
    commits: Mapping[str, str],
    again: Sequence[FamilyResult] = (),
) -> str:
    """Return the page of ``found``: a section each, and a column of one table (:func:`in_table`).

    ``commits`` has that of the sources that measured a result (:func:`name_of`), where it is not
    that of ``made``, or the rows of a policy. Rows that were played later are those of ``again``.
    """
    versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    others = "".join(f" ({name} by {commit})" for name, commit in commits.items())
    files = " ".join(f"{name_of(each)}.json" for each in found)
    if again:
        files += " --again " + " ".join(map(_file_again, again))
    own = sorted({name for each in found for name in _trained(each)} - set(_SHIPPED))
    lines = [
        "# The benchmark: every policy beside the best tuned rule",
        "",
        "Written by `python -m benchmarks.contest` from the commands below; do not edit.",
        "",
        _PROSE.read_text("utf-8").strip(),
        "",
        "## In one table",
        "",
        "Mean completion time over that of the best tuned rule, with 95 % intervals.",
        "",
        *_overview([each for each in found if in_table(each)]),
        "",
    ]
    for each in found:
        lines += _family(each)
    lines += [
        "## Made by",
        "",
        f"Commit {made.commit}{others}, {versions}, {made.made}.",
        "`$DATA` is a folder with the traces:",
        "",
        "```sh",
        *(f"{command_of(each)} --json {name_of(each)}.json" for each in found),
        *(f"{command_of(each)} --json {_file_again(each)}" for each in again),
        f"python -m benchmarks.contest {files} --into-cards",
        "```",
        "",
        *(_SEVERAL if any(map(_trained, found)) else ()),
        *((_OWN.format(", ".join(own)), "") if own else ()),
        _MORE,
    ]
    return "\n".join(lines) + "\n"


def in_table(found: FamilyResult) -> bool:
    """Return whether ``found`` says what policies are worth: it is of the first test blocks."""
    return found.part == "test" and not found.skipped


def name_of(found: FamilyResult) -> str:
    """Return the name of a result: its family, its part, and how many blocks it skipped."""
    part = "" if found.part == "test" else f"-{found.part}"
    return f"{found.family}{part}" + (f"-after-{found.skipped}" if found.skipped else "")


def command_of(found: FamilyResult) -> str:
    """Return the command that measures ``found`` again."""
    scope = "" if found.part == "test" else f"--part {found.part} "
    scope += f"--blocks {found.blocks} --training-blocks {found.training_worlds // len(LOADS)}"
    scope += f" --skip-blocks {found.skipped}" if found.skipped else ""
    asked = dict.fromkeys(
        row.name if row.kind in {"learned", "candidate"} else row.kind for row in found.rows[1:]
    )
    learned = LEARNED_ELASTIC if find(found.family).is_elastic else LEARNED
    # Beside everything, candidates come from commands of their own.
    others = {row.name for row in found.rows if row.kind in {"learned", "candidate"}}
    is_all = asked.keys() - (others - set(_SHIPPED)) == {DEFAULT, *learned, CEILING}
    policies = "" if is_all else f" --policies {shlex.quote(','.join(asked))}"
    tuned = [each.rule for each in found.tunings]
    is_whole = tuned == [rule.orderer for rule in find(found.family).rules]
    rules = "" if is_whole else f" --rules {','.join(tuned)}"
    trained = "".join(f" $({name} {count})" for name, count in _trained(found).items())
    chosen = f"--family {found.family} {scope}{rules}{policies}{trained}"
    return f"python -m bireme_lab.contest --data $DATA {chosen}"


def _file_again(found: FamilyResult) -> str:
    names = (row.name.partition("?")[0] for row in found.rows[1:])
    return "-".join([name_of(found), *names]) + ".json"


def _trained(found: FamilyResult) -> dict[str, int]:
    """Return the learned policies whose checkpoints were named, with the number of trainings."""
    return {
        row.name: row.seeds
        for row in found.rows
        if row.seeds > 1 or (row.kind == "learned" and row.name not in _SHIPPED)
    }


def _overview(found: Sequence[FamilyResult]) -> list[str]:
    columns = ["policy", *(each.family for each in found)]
    # Constants of one's own are those of one family.
    every = [row for each in found for row in each.rows if row.kind != "candidate"]
    names = dict.fromkeys(_short(row.kind, row.name) for row in every)
    rows = []
    for name in names:
        cells = [name]
        for each in found:
            row = next((r for r in each.rows if _short(r.kind, r.name) == name), None)
            if row is None:
                cells.append("-")
                continue
            interval = row.overall.jct.interval
            bounds = f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else ""
            cells.append(f"{row.overall.jct.mean:.2f}{bounds}")
        rows.append(cells)
    return markdown_table(columns, rows)


def _short(kind: str, name: str) -> str:
    if kind == "ceiling":
        return f"{name.partition('/')[0].partition(',')[0]}, run times known"
    return "best tuned rule" if kind == "baseline" else name


def _family(found: FamilyResult) -> list[str]:
    head, rows = table(found)
    few, many = found.nodes
    part = "" if found.part == "test" else f", {found.part} part"
    again = f", {blocks(found)}" if found.skipped else ""
    tuned = [[t.rule, f"`{t.best}`", str(t.tried), f"{t.loss:.4f}"] for t in found.tunings]
    played = (
        f"{found.says[0].upper()}{found.says[1:]}. Split: {found.split}. Played: "
        f"{blocks(found)}, {found.worlds} {found.part} worlds, {found.jobs:,} jobs, {few} "
        f"to {many} nodes."
    )
    return [
        f"## {found.family.capitalize()}{part}{again}",
        "",
        played,
        "",
        *markdown_table(head, rows),
        "",
        f"Tuned on {found.training_worlds} training worlds, least loss best:",
        "",
        *markdown_table(["rule", "best constants", "tried", "loss"], tuned),
        "",
    ]
