"""A checkpoint and its rivals with many seeds, over all cores.

A seed is one task; each process loads the checkpoint once and uses one thread. A cluster takes a
share of the seeds per job (``--shard I/N``), and :func:`bireme.training.judgement.merged` joins
what they found.
"""

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from bireme.core.errors import BiremeError
from bireme.rl.checkpoint import Checkpoint, load
from bireme.training.judgement import EvaluationError, Judgement
from bireme.training.recipes import Recipe, Results, load_recipe

_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Task:
    """What is judged, for all seeds alike."""

    recipe: str
    folder: Path
    setting: str
    options: Mapping[str, str]


def judge(
    task: Task, seeds: Sequence[int], jobs: int, on_progress: Callable[[int, int], None]
) -> Judgement:
    """``task`` with each of ``seeds``, in ``jobs`` processes.

    Raises:
        EvaluationError: a seed failed, or a process died.
    """
    _loaded.cache_clear()  # the folder may hold another checkpoint by now
    checkpoint, recipe = _loaded(task.recipe, task.folder)
    runs: dict[int, Results] = {}
    for seed, results in _results(task, seeds, min(jobs, len(seeds))):
        runs[seed] = results
        on_progress(len(runs), len(seeds))
    return Judgement(
        task.recipe,
        checkpoint.card.name,
        checkpoint.sha256,
        task.setting,
        task.options,
        *recipe.primary,
        runs=dict(sorted(runs.items())),
    )


def _results(task: Task, seeds: Sequence[int], jobs: int) -> Iterator[tuple[int, Results]]:
    if jobs == 1:
        for seed in seeds:
            yield seed, _judge(task, seed)
        return
    afresh = multiprocessing.get_context("spawn")  # forks of a process with threads may hang
    with _environment(_ONE_THREAD), ProcessPoolExecutor(jobs, afresh) as pool:
        try:
            waiting = {pool.submit(_judge, task, seed): seed for seed in seeds}
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BrokenProcessPool as error:
            raise EvaluationError(
                "a process died, perhaps for want of memory; try again with a smaller --jobs"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _judge(task: Task, seed: int) -> Results:
    checkpoint, recipe = _loaded(task.recipe, task.folder)
    try:
        found = recipe.evaluate(checkpoint, task.setting, seed, task.options)
    except BiremeError as error:
        raise EvaluationError(f"seed {seed} of setting {task.setting!r}: {error}") from error
    return {
        name: {key: float(value) for key, value in row.items() if math.isfinite(value)}
        for name, row in found.items()
    }


@lru_cache(maxsize=1)
def _loaded(recipe: str, folder: Path) -> tuple[Checkpoint, Recipe]:
    return load(folder), load_recipe(recipe)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Processes that are started inside see ``values``."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
