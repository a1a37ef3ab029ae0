"""The benchmark: every policy compared with the best tuned rule, on worlds that chose nothing.

In each family the constants of every rule are tuned on training worlds, and the best rule there
becomes the baseline. Then all policies play the test worlds. Stops cost everywhere.

A user's own constants are chosen on the training and validation parts, which can be played too.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from bireme.contender import Contender, parts_at
from bireme.core.errors import SettingError
from bireme.core.policy import PARTS, PartName
from bireme.core.settings import SchedulingSettings
from bireme.registry import CHECKPOINT, shipped_parts
from bireme_lab.contest.candidates import ORACLES
from bireme_lab.contest.families import LOADS, Family, tuning_worlds
from bireme_lab.contest.sealed import test_worlds
from bireme_lab.contest.tuning import PlayAll, tune
from bireme_lab.contest.verdicts import Verdict, verdict
from bireme_lab.contest.worlds import Part, World

Kind = Literal["baseline", "default", "learned", "ceiling", "candidate"]

DEFAULT: Final = "default"
CEILING: Final = "ceiling"

_SHIPPED: Final = shipped_parts()
LEARNED: Final = {name: parts for name, parts in _SHIPPED.items() if "sizer" not in parts}
"""Learned policies for gangs of fixed size, by the parts that they decide; rules of the baseline
decide the others."""
LEARNED_ELASTIC: Final = {
    name: parts for name, parts in _SHIPPED.items() if "sizer" in parts or name == "learned-index"
}
"""Learned policies for elastic gangs, by the parts that they decide; an index orders them too."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of each family that is played.

    Attributes:
        training_blocks: Blocks that the rules are tuned on, each at three loads.
        part: Part that is judged; on any but the test, the rules may have been tuned on the same.
        blocks: Number of its blocks, each at three loads.
        skipped_blocks: Number of blocks before those that are not played.
        rules: Orderers that are tuned; empty for all of the family.
        policies: Policies that are judged: :data:`DEFAULT`, :data:`CEILING`, learned policies that
            come with Bireme, candidates as of :meth:`Contender.read`; None for all but candidates.
        checkpoints: Folders of trainings by name. Those of a learned policy that comes with Bireme
            are judged in its place, so name all seeds, the shipped one too. Any other name gets a
            row of its own, and decides the parts that its first checkpoint has.
    """

    training_blocks: int = 4
    part: Part = "test"
    blocks: int = 12
    skipped_blocks: int = 0
    rules: Sequence[str] = ()
    policies: Sequence[str] | None = None
    checkpoints: Mapping[str, Sequence[Path]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One policy in one family.

    Attributes:
        policy: The policy as candidates are written.
        seeds: Number of trainings in the row; 0 for policies that are not learned.
        overall: The verdict over all loads.
        by_load: The verdict at each load.
    """

    name: str
    policy: str
    kind: Kind
    seeds: int
    overall: Verdict
    by_load: Mapping[str, Verdict]


@dataclass(frozen=True, slots=True)
class Tuning:
    """A rule's best constants, and their loss on the training worlds."""

    rule: str
    best: str
    loss: float
    tried: int


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """The benchmark's table of one family; the first of ``rows`` is the baseline.

    Attributes:
        part: The part that was played.
        skipped: Number of skipped blocks before those.
        jobs: Number of jobs in all played worlds.
        nodes: Minimum and maximum number of nodes of a world.
    """

    family: str
    says: str
    split: str
    tunings: Sequence[Tuning]
    training_worlds: int
    worlds: int
    blocks: int
    jobs: int
    nodes: tuple[int, int]
    rows: Sequence[Row]
    skipped: int = 0
    part: Part = "test"

    def to_json(self) -> dict[str, Any]:
        """Return everything, with the finding of each verdict."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        for row, entry in zip(self.rows, document["rows"], strict=True):
            entry["finding"] = row.overall.finding
        return document


def policy_names(checkpoints: Collection[str]) -> set[str]:
    """Return the names of policies, with those of ``checkpoints``; others are candidates."""
    return {DEFAULT, CEILING, *LEARNED, *LEARNED_ELASTIC, *checkpoints}


def judge(
    data: Path,
    family: Family,
    scope: Scope,
    players: PlayAll,
    on_stage: Callable[[str], object] = str,
) -> FamilyResult:
    """Return the table of ``family``; ``on_stage`` gets a text before each stage.

    Raises:
        SettingError: a file of the family is missing, all blocks of the part are skipped, or a
            checkpoint cannot be used.
        SimulationError: a run failed.
    """
    if scope.rules:
        rules = [rule for rule in family.rules if rule.orderer in scope.rules]
        if not rules:
            rule_names = ", ".join(rule.orderer for rule in family.rules)
            raise SettingError(
                f"none of {', '.join(scope.rules)} is a rule of family {family.name}; it has "
                f"{rule_names}"
            )
        family = replace(family, rules=rules)
    # Opened before hours of tuning, which these worlds have no part in.
    worlds = _worlds(data, family.name, scope)
    training = tuning_worlds(data, family.name, "training", scope.training_blocks)
    on_stage(f"{family.name}: {len(family.rules)} rules on {len(training)} training worlds")
    tunings, best = _tune_rules(family, training, players)
    contenders = _contenders(family, best, scope)
    on_stage(f"{family.name}: {len(contenders)} policies on {len(worlds)} {scope.part} worlds")
    baseline = list(players([(best, world) for world in worlds]))
    rows = []
    for name, kind, seeds in contenders:
        runs_by_seed = [list(players([(seed, world) for world in worlds])) for seed in seeds]
        loads = {f"{load}": [w.load == load for w in worlds] for load in LOADS}
        judged = {
            which: verdict(
                _where(worlds, mask) * len(seeds),
                [run for runs in runs_by_seed for run in _where(runs, mask)],
                _where(baseline, mask) * len(seeds),
            )
            for which, mask in {"": [True] * len(worlds), **loads}.items()
        }
        overall = judged.pop("")
        count = len(seeds) if kind == "learned" else 0
        rows.append(Row(name, seeds[0].name, kind, count, overall, judged))
    return FamilyResult(
        family=family.name,
        says=family.says,
        split=family.split,
        tunings=tunings,
        training_worlds=len(training),
        worlds=len(worlds),
        blocks=len({world.block for world in worlds}),
        jobs=sum(len(world.trace.jobs) for world in worlds),
        nodes=(min(len(w.nodes) for w in worlds), max(len(w.nodes) for w in worlds)),
        rows=rows,
        skipped=scope.skipped_blocks,
        part=scope.part,
    )


def _worlds(data: Path, family: str, scope: Scope) -> list[World]:
    count = scope.skipped_blocks + scope.blocks
    if scope.part == "test":
        worlds = test_worlds(data, family, count)
    else:
        worlds = tuning_worlds(data, family, scope.part, count)
    blocks = list(dict.fromkeys(world.block for world in worlds))
    remaining = blocks[scope.skipped_blocks :]
    if not remaining:
        raise SettingError(
            f"all {len(blocks)} {scope.part} blocks of family {family} are skipped; skip fewer "
            "than that"
        )
    return [world for world in worlds if world.block in remaining]


def _where(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    return [value for value, is_chosen in zip(values, mask, strict=True) if is_chosen]


def _tune_rules(
    family: Family, worlds: Sequence[World], players: PlayAll
) -> tuple[list[Tuning], Contender]:
    tunings, best = [], (float("inf"), Contender())
    for rule in family.rules:
        candidates = rule.candidates()
        tuned = tune(candidates, worlds, players, rungs=2 if len(candidates) > 2 else 1)
        loss = dict(tuned.rungs[-1].losses)[tuned.best]
        tunings.append(Tuning(rule.orderer, tuned.best.name, loss, len(candidates)))
        best = min(best, (loss, tuned.best), key=lambda pair: pair[0])
    return tunings, best[1]


def _contenders(
    family: Family, best: Contender, scope: Scope
) -> list[tuple[str, Kind, list[Contender]]]:
    rows: list[tuple[str, Kind, list[Contender]]] = [
        (best.name, "baseline", [best]),
        (DEFAULT, DEFAULT, [Contender()]),
    ]
    texts = {
        name: [f"{CHECKPOINT}{folder}" for folder in folders]
        for name, folders in scope.checkpoints.items()
    }
    shipped = {**LEARNED, **LEARNED_ELASTIC}
    extra_parts = {
        name: tuple(parts_at(checkpoint_names[0]))
        for name, checkpoint_names in texts.items()
        if name not in shipped
    }
    learned = LEARNED_ELASTIC if family.is_elastic else LEARNED
    for name, parts in {**learned, **extra_parts}.items():
        seeds = [_with_parts(best, parts, text) for text in texts.get(name, [name])]
        rows.append((name, "learned", seeds))
    for oracle in ORACLES:
        ceiling = replace(oracle, placer=best.placer, sizer=best.sizer)
        rows.append((ceiling.name, CEILING, [ceiling]))
    if scope.policies is None:
        return rows
    requested = {*scope.policies, *extra_parts}
    rows = [row for row in rows if row[1] == "baseline" or requested & {row[0], row[1]}]
    baseline_settings = best.settings(SchedulingSettings())  # the parts that a candidate leaves out
    for text in scope.policies:
        if text not in policy_names(scope.checkpoints):
            rows.append((text, "candidate", [Contender.read(text, baseline_settings)]))
    return rows


def _with_parts(best: Contender, parts: Sequence[PartName], name: str) -> Contender:
    """Return ``best`` with ``name`` for each of ``parts``."""
    of = {part: name if part in parts else getattr(best, part) for part in PARTS}
    return Contender(of["orderer"], of["placer"], of["sizer"])
