"""The benchmark: every policy beside the best tuned rule, on worlds that nothing was chosen by.

Per family: the constants of every rule are tuned on training worlds, the best rule there becomes
the baseline, and all play the test worlds. Stops are charged for everywhere.

Constants of one's own are chosen on the training and validation parts, which can be played too.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from bireme.contest.candidates import ORACLES, Candidate, parts_at
from bireme.contest.families import LOADS, Family, tuning_worlds
from bireme.contest.sealed import test_worlds
from bireme.contest.tuning import PlayAll, tune
from bireme.contest.verdicts import Verdict, verdict
from bireme.contest.worlds import Part, World
from bireme.core.errors import SettingError
from bireme.core.policy import PARTS, PartName
from bireme.core.settings import SchedulingSettings
from bireme.registry import CHECKPOINT

Kind = Literal["baseline", "default", "learned", "ceiling", "candidate"]

DEFAULT: Final = "default"
CEILING: Final = "ceiling"

LEARNED: Final[Mapping[str, tuple[PartName, ...]]] = {
    "a2c": ("orderer",),
    "a2c-cnn": ("orderer",),
    "das": ("orderer", "placer"),
    "learned-index": ("orderer",),
}
"""Learned policies for gangs of fixed size, by the parts that they decide; the baseline's rules are
the others."""
LEARNED_ELASTIC: Final[Mapping[str, tuple[PartName, ...]]] = {
    "learned-index": ("orderer",),
    "rlpto": ("sizer",),
    "tapfinger": PARTS,
}
"""The same for elastic gangs."""


@dataclass(frozen=True, slots=True)
class Scope:
    """How much of each family is played.

    Attributes:
        training_blocks: Blocks that the rules are tuned on, each at three loads.
        part: What is played then; on any but the test, the rules may have been tuned on the same.
        blocks: Blocks of that, each at three loads.
        skipped_blocks: Those that come before them and are not played.
        rules: Orderers that are tuned; empty for all of the family.
        policies: What is judged: :data:`DEFAULT`, :data:`CEILING`, learned policies that come with
            Bireme, candidates as :meth:`Candidate.read` takes them; None for all but candidates.
        checkpoints: Folders of trainings by name. Those of a learned policy that comes with Bireme
            are judged in its place, so name all seeds, the shipped one too; any other name gets a
            row of its own in any case, and decides the parts that its first checkpoint has.
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
        policy: How it is written.
        seeds: Trainings that the row is over; 0 for what is not learned.
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
    """A rule's best constants, and the loss of that on the training worlds."""

    rule: str
    best: str
    loss: float
    tried: int


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """The benchmark's table of one family; the first of ``rows`` is the baseline.

    Attributes:
        part: What was played.
        skipped: Blocks of that before those that were played.
        jobs: In all worlds that were played.
        nodes: Fewest and most of one of them.
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
        """Return everything, with what each verdict finds."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        for row, written in zip(self.rows, found["rows"], strict=True):
            written["finding"] = row.overall.finding
        return found


def known(checkpoints: Collection[str]) -> set[str]:
    """Return the names of policies, with those of ``checkpoints``; others are candidates."""
    return {DEFAULT, CEILING, *LEARNED, *LEARNED_ELASTIC, *checkpoints}


def judge(
    data: Path,
    family: Family,
    scope: Scope,
    players: PlayAll,
    on_stage: Callable[[str], object] = str,
) -> FamilyResult:
    """Return the table of ``family``; ``on_stage`` is told what is played next.

    Raises:
        SettingError: a file of the family is missing, all blocks of the part are skipped, or a
            checkpoint cannot be used.
        SimulationError: a run failed.
    """
    if scope.rules:
        rules = [rule for rule in family.rules if rule.orderer in scope.rules]
        if not rules:
            known = ", ".join(rule.orderer for rule in family.rules)
            raise SettingError(
                f"none of {', '.join(scope.rules)} is a rule of family {family.name}; it has "
                f"{known}"
            )
        family = replace(family, rules=rules)
    # before hours of tuning, which it has no part in
    worlds = _worlds(data, family.name, scope)
    training = tuning_worlds(data, family.name, "training", scope.training_blocks)
    on_stage(f"{family.name}: {len(family.rules)} rules on {len(training)} training worlds")
    tunings, best = _tuned(family, training, players)
    contenders = _contenders(family, best, scope)
    on_stage(f"{family.name}: {len(contenders)} policies on {len(worlds)} {scope.part} worlds")
    baseline = list(players([(best, world) for world in worlds]))
    rows = []
    for name, kind, seeds in contenders:
        played = [list(players([(each, world) for world in worlds])) for each in seeds]
        loads = {f"{load}": [w.load == load for w in worlds] for load in LOADS}
        judged = {
            which: verdict(
                _where(worlds, chosen) * len(seeds),
                [run for runs in played for run in _where(runs, chosen)],
                _where(baseline, chosen) * len(seeds),
            )
            for which, chosen in {"": [True] * len(worlds), **loads}.items()
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
    most = scope.skipped_blocks + scope.blocks
    if scope.part == "test":
        worlds = test_worlds(data, family, most)
    else:
        worlds = tuning_worlds(data, family, scope.part, most)
    blocks = list(dict.fromkeys(world.block for world in worlds))
    left = blocks[scope.skipped_blocks :]
    if not left:
        raise SettingError(
            f"all {len(blocks)} {scope.part} blocks of family {family} are skipped; skip fewer "
            "than that"
        )
    return [world for world in worlds if world.block in left]


def _where(values: Sequence[Any], chosen: Sequence[bool]) -> list[Any]:
    return [value for value, is_chosen in zip(values, chosen, strict=True) if is_chosen]


def _tuned(
    family: Family, worlds: Sequence[World], players: PlayAll
) -> tuple[list[Tuning], Candidate]:
    found, least = [], (float("inf"), Candidate())
    for rule in family.rules:
        candidates = rule.candidates()
        tuned = tune(candidates, worlds, players, rungs=2 if len(candidates) > 2 else 1)
        loss = dict(tuned.rungs[-1].losses)[tuned.best]
        found.append(Tuning(rule.orderer, tuned.best.name, loss, len(candidates)))
        least = min(least, (loss, tuned.best), key=lambda each: each[0])
    return found, least[1]


def _contenders(
    family: Family, best: Candidate, scope: Scope
) -> list[tuple[str, Kind, list[Candidate]]]:
    found: list[tuple[str, Kind, list[Candidate]]] = [
        (best.name, "baseline", [best]),
        (DEFAULT, DEFAULT, [Candidate()]),
    ]
    texts = {
        name: [f"{CHECKPOINT}{folder}" for folder in folders]
        for name, folders in scope.checkpoints.items()
    }
    shipped = {**LEARNED, **LEARNED_ELASTIC}
    own = {name: tuple(parts_at(at[0])) for name, at in texts.items() if name not in shipped}
    learned = LEARNED_ELASTIC if family.is_elastic else LEARNED
    for name, parts in {**learned, **own}.items():
        seeds = [_replaced(best, parts, text) for text in texts.get(name, [name])]
        found.append((name, "learned", seeds))
    for oracle in ORACLES:
        told = replace(oracle, placer=best.placer, sizer=best.sizer)
        found.append((told.name, CEILING, [told]))
    if scope.policies is None:
        return found
    asked = {*scope.policies, *own}
    found = [row for row in found if row[1] == "baseline" or asked & {row[0], row[1]}]
    others = best.settings(SchedulingSettings())  # the parts that a candidate leaves out
    for text in scope.policies:
        if text not in known(scope.checkpoints):
            found.append((text, "candidate", [Candidate.read(text, others)]))
    return found


def _replaced(best: Candidate, parts: Sequence[PartName], name: str) -> Candidate:
    """Return ``best`` with ``name`` for each of ``parts``."""
    of = {part: name if part in parts else getattr(best, part) for part in PARTS}
    return Candidate(of["orderer"], of["placer"], of["sizer"])
