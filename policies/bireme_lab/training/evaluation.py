"""Evaluation of a checkpoint beside baselines: many seeds over all cores, means, ratios, the best.

A recipe evaluates one seed (:meth:`bireme_lab.training.recipes.Recipe.evaluate`), :func:`evaluate`
many. On a cluster each job takes a share of the seeds (``--shard I/N``), and :func:`merge` joins
the results. All policies have the same seeds, so their ratios are paired;
:mod:`bireme_lab.simulator.comparison` defines the intervals. Ratios are to the baseline with the
best mean of the recipe's primary metric.
"""

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
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
from bireme.rl.checkpoint import Checkpoint, load
from bireme_lab.simulator import comparison
from bireme_lab.simulator.comparison import Estimate
from bireme_lab.simulator.reports.terminal import number
from bireme_lab.training.recipes import Recipe, Results, load_recipe

_ABOUT: Final = ("recipe", "checkpoint", "sha256", "setting", "options", "metric", "is_less_better")
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class EvaluationError(BiremeError):
    """A seed could not be evaluated; the text names its fault."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The numbers of one checkpoint and its baselines in one setting.

    Attributes:
        checkpoint: The checkpoint's name, the key of its own numbers.
        sha256: Digest of the checkpoint's card.
        metric: The primary metric.
        runs: Results by seed.
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
        return tuple(sorted(self.runs))

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics, the primary one first."""
        first = next(iter(self.runs.values()))
        return tuple(dict.fromkeys([self.metric, *(key for row in first.values() for key in row)]))

    def means(self) -> dict[str, dict[str, Estimate]]:
        """Return the means by policy and metric, the best policy first, without missing metrics."""
        weights = comparison.draws(len(self.runs))
        estimates = {
            name: comparison.means(table, weights) for name, table in self._tables().items()
        }
        return {name: self._by_metric(estimates[name]) for name in self._best_first(estimates)}

    def ratios(self) -> dict[str, dict[str, Estimate]]:
        """Return ratios to the best baseline by policy and metric; empty without a baseline."""
        baseline = self.best_baseline
        if baseline is None:
            return {}
        tables, weights = self._tables(), comparison.draws(len(self.runs))
        return {
            name: self._by_metric(comparison.ratios(table, tables[baseline], weights))
            for name, table in tables.items()
        }

    @property
    def best_baseline(self) -> str | None:
        """The best policy other than the checkpoint; None without one."""
        return next((name for name in self.means() if name != self.checkpoint), None)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings and a row per policy, the best first."""
        means, ratios, baseline = self.means(), self.ratios(), self.best_baseline
        head = ["policy", *(metric.replace("_", " ") for metric in self.metrics)]
        rows = [[name, *(_cell(row.get(m)) for m in self.metrics)] for name, row in means.items()]
        if baseline is not None:
            head.append(f"{self.metric.replace('_', ' ')} to {baseline}'s")
            for row in rows:
                row.append(_cell(ratios[row[0]].get(self.metric)))
        return head, rows

    def to_json(self) -> dict[str, Any]:
        """Return all numbers as JSON values; :meth:`from_json` reads them back."""
        means, ratios = self.means(), self.ratios()
        return {
            **{key: getattr(self, key) for key in _ABOUT},
            "best_baseline": self.best_baseline,
            "means": {name: _plain(row) for name, row in means.items()},
            "ratios_to_best_baseline": {name: _plain(row) for name, row in ratios.items()},
            "runs": [{"seed": seed, "results": self.runs[seed]} for seed in self.seeds],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "EvaluationResult":
        """Read the output of :meth:`to_json`; KeyError or TypeError for anything else."""
        runs = {int(run["seed"]): run["results"] for run in content["runs"]}
        return cls(**{key: content[key] for key in _ABOUT}, runs=runs)

    def _tables(self) -> dict[str, FloatArray]:
        """Return arrays by policy, shape (seeds, metrics); nan for a missing value."""
        names = dict.fromkeys(name for results in self.runs.values() for name in results)
        for seed, results in self.runs.items():
            if missing := set(names) - set(results):
                raise SettingError(
                    f"setting {self.setting!r}: seed {seed} has no numbers of {min(missing)!r}, "
                    "other seeds have; the recipe must evaluate the same policies with every seed"
                )
        return {
            name: np.array(
                [[self.runs[s][name].get(m, np.nan) for m in self.metrics] for s in self.seeds]
            )
            for name in names
        }

    def _by_metric(self, estimates: Sequence[Estimate | None]) -> dict[str, Estimate]:
        pairs = zip(self.metrics, estimates, strict=True)
        return {metric: estimate for metric, estimate in pairs if estimate is not None}

    def _best_first(self, estimates: Mapping[str, Sequence[Estimate | None]]) -> list[str]:
        sign = 1 if self.is_less_better else -1
        means = {name: row[0].mean * sign for name, row in estimates.items() if row[0] is not None}
        return sorted(estimates, key=lambda name: means.get(name, np.inf))


def _cell(estimate: Estimate | None) -> str:
    if estimate is None:
        return "none"
    if estimate.low is None or estimate.high is None:
        return number(estimate.mean)
    return f"{number(estimate.mean)} [{number(estimate.low)}, {number(estimate.high)}]"


def _plain(row: Mapping[str, Estimate]) -> dict[str, object]:
    return {metric: asdict(estimate) for metric, estimate in row.items()}


def merge(shards: Sequence[EvaluationResult]) -> EvaluationResult:
    """Join the results of one checkpoint in one setting with different seeds.

    Raises:
        SettingError: the shards are of different evaluations, or share a seed.
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


# --- running an evaluation -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EvaluationTask:
    """An evaluation without its seeds."""

    recipe: str
    folder: Path
    setting: str
    options: Mapping[str, str]


def evaluate(
    task: EvaluationTask, seeds: Sequence[int], jobs: int, on_progress: Callable[[int, int], None]
) -> EvaluationResult:
    """Evaluate ``task`` with each of ``seeds``, in ``jobs`` processes.

    Raises:
        EvaluationError: a seed failed, or a process died.
    """
    _load_once.cache_clear()  # the folder may have another checkpoint than before
    checkpoint, recipe = _load_once(task.recipe, task.folder)
    runs: dict[int, Results] = {}
    for seed, results in _all_seeds(task, seeds, min(jobs, len(seeds))):
        runs[seed] = results
        on_progress(len(runs), len(seeds))
    return EvaluationResult(
        task.recipe,
        checkpoint.card.name,
        checkpoint.sha256,
        task.setting,
        task.options,
        *recipe.primary,
        runs=dict(sorted(runs.items())),
    )


def _all_seeds(
    task: EvaluationTask, seeds: Sequence[int], jobs: int
) -> Iterator[tuple[int, Results]]:
    if jobs == 1:
        for seed in seeds:
            yield seed, _one_seed(task, seed)
        return
    spawn = multiprocessing.get_context("spawn")  # forks of a process with threads may hang
    # One thread per process, because the seeds keep all cores busy.
    with _environment(_ONE_THREAD), ProcessPoolExecutor(jobs, spawn) as pool:
        try:
            waiting = {pool.submit(_one_seed, task, seed): seed for seed in seeds}
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BrokenProcessPool as error:
            raise EvaluationError(
                "a process died, perhaps for want of memory; try again with a smaller --jobs"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _one_seed(task: EvaluationTask, seed: int) -> Results:
    checkpoint, recipe = _load_once(task.recipe, task.folder)
    try:
        results = recipe.evaluate(checkpoint, task.setting, seed, task.options)
    except BiremeError as error:
        raise EvaluationError(f"seed {seed} of setting {task.setting!r}: {error}") from error
    return {
        name: {key: float(value) for key, value in row.items() if math.isfinite(value)}
        for name, row in results.items()
    }


@lru_cache(maxsize=1)
def _load_once(recipe: str, folder: Path) -> tuple[Checkpoint, Recipe]:
    """Load once per process, not once per seed."""
    return load(folder), load_recipe(recipe)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the context, for its child processes."""
    previous = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# --- the card ------------------------------------------------------------------------------------


def write_to_card(folder: Path, results: Sequence[EvaluationResult], command: str) -> None:
    """Replace the card's results of the same settings by ``results``, measured by ``command``.

    This changes the sha256 of the card, and so the name of the checkpoint in records.

    Raises:
        CheckpointError: ``folder`` has no card.
        SettingError: ``results`` are of another checkpoint.
    """
    card, digest = read_card(folder)
    for new_result in results:
        if new_result.sha256 != digest:
            raise SettingError(
                f"setting {new_result.setting!r} was measured of the checkpoint with sha256 "
                f"{new_result.sha256}, {str(folder)!r} has {digest}; measure it again"
            )
    measured = {new_result.setting for new_result in results}
    other_results = [result for result in card.results if result.setting not in measured]
    rows = (
        *other_results,
        *(row for new_result in results for row in _card_rows(new_result, command)),
    )
    (folder / CARD_FILE).write_bytes(encode(msgspec.structs.replace(card, results=rows)))


def _card_rows(result: EvaluationResult, command: str) -> Iterator[Result]:
    means, baseline = result.means(), result.best_baseline
    baseline_means = means[baseline] if baseline is not None else {}
    for metric, mean in means[result.checkpoint].items():
        if baseline is None or metric in baseline_means:
            low, high = (mean.mean if value is None else value for value in (mean.low, mean.high))
            yield Result(
                setting=result.setting,
                metric=metric,
                value=mean.mean,
                interval=(low, high),
                rival=baseline or "",
                rival_value=baseline_means[metric].mean if baseline is not None else mean.mean,
                command=command,
            )


# --- helpers of recipes for the evaluation of a checkpoint ---------------------------------------


def session_of(checkpoint: Checkpoint, part: PartName) -> Session:
    """Return the network of ``part`` of ``checkpoint``; CheckpointError without one."""
    network = getattr(checkpoint, part)
    if network is None:
        raise CheckpointError(
            f"checkpoint {checkpoint.card.name!r} has no {part} to be evaluated; name one that has"
        )
    session: Session = network.session
    return session


def check_finished(policy: str, unfinished: int, fallbacks: int = 0) -> None:
    """Raise EvaluationError unless ``policy`` finished every job and gave only valid answers."""
    if unfinished or fallbacks:
        raise EvaluationError(
            f"{policy}: {unfinished} jobs did not finish, {fallbacks} cycles fell back on the "
            "rules, so that its times compare with no others; correct it, or leave it out"
        )
