"""How a checkpoint did in one setting: every seed's numbers, means, and who was best.

All contenders meet the same seeds, so their ratios are paired; what intervals mean is said in
:mod:`bireme.simulator.comparison`. The best rival is the contender, other than the checkpoint, with
the best mean of the recipe's primary metric; ratios are to that one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from bireme.core.errors import BiremeError, SettingError
from bireme.core.policy import PartName
from bireme.core.resources import FloatArray
from bireme.onnx.cards import CARD_FILE, Result, encode
from bireme.onnx.checkpoints import read_card
from bireme.onnx.errors import CheckpointError
from bireme.onnx.sessions import Session
from bireme.rl.checkpoint import Checkpoint
from bireme.simulator import comparison
from bireme.simulator.comparison import Estimate
from bireme.simulator.reports.terminal import number
from bireme.training.recipes import Results

_ABOUT: Final = ("recipe", "checkpoint", "sha256", "setting", "options", "metric", "is_less_better")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The numbers of one checkpoint and its rivals.

    Attributes:
        checkpoint: Its name, which is that of its contender.
        sha256: Of its card.
        metric: The primary one.
        runs: By seed.
    """

    recipe: str
    checkpoint: str
    sha256: str
    setting: str
    options: Mapping[str, str]
    metric: str
    is_less_better: bool
    runs: Mapping[int, Results]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Ascending."""
        return tuple(sorted(self.runs))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The primary one first."""
        first = next(iter(self.runs.values()))
        every = dict.fromkeys([self.metric, *(key for one in first.values() for key in one)])
        return tuple(every)

    def means(self) -> dict[str, dict[str, Estimate]]:
        """By contender and metric, the best contender first; metrics without a value left out."""
        drawn = comparison.draws(len(self.runs))
        found = {name: comparison.means(table, drawn) for name, table in self._tables().items()}
        return {name: self._by_metric(found[name]) for name in self._best_first(found)}

    def ratios(self) -> dict[str, dict[str, Estimate]]:
        """By contender and metric, to the best rival; empty without one."""
        rival = self.best_rival
        if rival is None:
            return {}
        tables, drawn = self._tables(), comparison.draws(len(self.runs))
        return {
            name: self._by_metric(comparison.ratios(table, tables[rival], drawn))
            for name, table in tables.items()
        }

    @property
    def best_rival(self) -> str | None:
        """The best contender that is not the checkpoint; None when there is none."""
        return next((name for name in self.means() if name != self.checkpoint), None)

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Headings, and a row per contender, the best first."""
        means, ratios, rival = self.means(), self.ratios(), self.best_rival
        head = ["contender", *(metric.replace("_", " ") for metric in self.metrics)]
        rows = [[name, *(_cell(row.get(m)) for m in self.metrics)] for name, row in means.items()]
        if rival is not None:
            head.append(f"{self.metric.replace('_', ' ')} to {rival}'s")
            for row in rows:
                row.append(_cell(ratios[row[0]].get(self.metric)))
        return head, rows

    def to_json(self) -> dict[str, Any]:
        """Everything; :meth:`from_json` reads it back."""
        means, ratios = self.means(), self.ratios()
        return {
            **{key: getattr(self, key) for key in _ABOUT},
            "best_rival": self.best_rival,
            "means": {name: _plain(row) for name, row in means.items()},
            "ratios_to_best_rival": {name: _plain(row) for name, row in ratios.items()},
            "runs": [{"seed": seed, "results": self.runs[seed]} for seed in self.seeds],
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "Judgement":
        """What :meth:`to_json` wrote; KeyError or TypeError for anything else."""
        runs = {int(run["seed"]): run["results"] for run in told["runs"]}
        return cls(**{key: told[key] for key in _ABOUT}, runs=runs)

    def _tables(self) -> dict[str, FloatArray]:
        """By contender, shape (seeds, metrics); nan where a seed has no value."""
        names = dict.fromkeys(name for results in self.runs.values() for name in results)
        for seed, results in self.runs.items():
            if missing := set(names) - set(results):
                raise SettingError(
                    f"setting {self.setting!r}: seed {seed} has no numbers of {min(missing)!r}, "
                    "other seeds have; the recipe must judge the same contenders with every seed"
                )
        return {
            name: np.array(
                [[self.runs[s][name].get(m, np.nan) for m in self.metrics] for s in self.seeds]
            )
            for name in names
        }

    def _by_metric(self, estimates: Sequence[Estimate | None]) -> dict[str, Estimate]:
        pairs = zip(self.metrics, estimates, strict=True)
        return {metric: found for metric, found in pairs if found is not None}

    def _best_first(self, found: Mapping[str, Sequence[Estimate | None]]) -> list[str]:
        sign = 1 if self.is_less_better else -1
        means = {name: row[0].mean * sign for name, row in found.items() if row[0] is not None}
        return sorted(found, key=lambda name: means.get(name, np.inf))


def merged(shards: Sequence[Judgement]) -> Judgement:
    """One judgement from several of the same checkpoint in the same setting, with other seeds.

    Raises:
        SettingError: they are not of the same, or have a seed in common.
    """
    first = shards[0]
    runs: dict[int, Results] = {}
    for shard in shards:
        for key in _ABOUT:
            if getattr(shard, key) != getattr(first, key):
                raise SettingError(
                    f"shards differ in {key}: {getattr(first, key)!r} and {getattr(shard, key)!r};"
                    " merge shards of one evaluation"
                )
        if twice := runs.keys() & shard.runs.keys():
            raise SettingError(f"seed {min(twice)} is in two shards; merge each shard once")
        runs |= shard.runs
    return replace(first, runs=runs)


def _cell(estimate: Estimate | None) -> str:
    if estimate is None:
        return "none"
    if estimate.low is None or estimate.high is None:
        return number(estimate.mean)
    return f"{number(estimate.mean)} [{number(estimate.low)}, {number(estimate.high)}]"


def _plain(row: Mapping[str, Estimate]) -> dict[str, object]:
    return {metric: asdict(estimate) for metric, estimate in row.items()}


# What a checkpoint reached, into its card, with the command that measures it again.
#
# The sha256 of the card, and so the name of the checkpoint in records, is another afterwards.


def into_card(folder: Path, found: Sequence[Judgement], command: str) -> None:
    """Put ``found`` in place of older results of the same settings.

    Raises:
        CheckpointError: there is no card in ``folder``.
        SettingError: ``found`` is about another checkpoint.
    """
    card, digest = read_card(folder)
    for each in found:
        if each.sha256 != digest:
            raise SettingError(
                f"setting {each.setting!r} was measured of the checkpoint with sha256 "
                f"{each.sha256}, {str(folder)!r} has {digest}; measure it again"
            )
    measured = {each.setting for each in found}
    kept = [result for result in card.results if result.setting not in measured]
    results = (*kept, *(result for each in found for result in _results(each, command)))
    (folder / CARD_FILE).write_bytes(encode(msgspec.structs.replace(card, results=results)))


def _results(found: Judgement, command: str) -> Iterator[Result]:
    means, rival = found.means(), found.best_rival
    beside = means[rival] if rival is not None else {}
    for metric, own in means[found.checkpoint].items():
        if rival is None or metric in beside:
            yield Result(
                setting=found.setting,
                metric=metric,
                value=own.mean,
                interval=(_or(own.low, own.mean), _or(own.high, own.mean)),
                rival=rival or "",
                rival_value=beside[metric].mean if rival is not None else own.mean,
                command=command,
            )


def _or(bound: float | None, mean: float) -> float:
    return mean if bound is None else bound


# What recipes need to judge a checkpoint: a network to ask, and runs that came to their end.


class EvaluationError(BiremeError):
    """A seed could not be judged; the text says what went wrong in it."""


def session_of(checkpoint: Checkpoint, part: PartName) -> Session:
    """The network of ``part`` of ``checkpoint``; CheckpointError where it has none."""
    found = {
        "orderer": checkpoint.orderer,
        "placer": checkpoint.placer,
        "sizer": checkpoint.sizer,
    }[part]
    if found is None:
        raise CheckpointError(
            f"checkpoint {checkpoint.card.name!r} has no {part} to be judged; name one that has"
        )
    return found.session


def check_ended(contender: str, unfinished: int, fallbacks: int = 0) -> None:
    """EvaluationError unless ``contender`` finished every job and gave only valid answers."""
    if unfinished or fallbacks:
        raise EvaluationError(
            f"{contender}: {unfinished} jobs did not finish, {fallbacks} cycles fell back on the "
            "rules, so that its times compare with no others; correct it, or leave it out"
        )
