"""Finished runs in a file, one line of JSON each, so that a stopped contest can continue.

The key of a line identifies its candidate and world, the contents of the world, and the deciding
code: the version and code of Bireme, the bytes of learned parts and of a user's own module. A line
with another key is not used again.
"""

import hashlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

import bireme
import bireme_lab
from bireme import registry
from bireme.contender import Contender
from bireme.core.errors import BiremeError, error_text
from bireme.core.policy import PARTS
from bireme.onnx.cards import CARD_FILE
from bireme.onnx.checkpoints import read_card
from bireme.policy_names import checkpoint_folder
from bireme_lab.contest.tuning import play
from bireme_lab.contest.worlds import World
from bireme_lab.simulator.errors import SimulationError
from bireme_lab.simulator.metrics import SimulationMetrics

RUNS_FILE: Final = "runs.jsonl"
_ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

OnProgress: TypeAlias = Callable[[int, int, float], None]
"""Called with the number of finished runs, of all requested ones, and the expected remaining
seconds."""


class _Line(msgspec.Struct, frozen=True):
    key: str
    seconds: float
    metrics: SimulationMetrics


class Runs:
    """Plays pairs of candidate and world, each once per folder: see :meth:`play_all`."""

    def __init__(self, folder: Path, jobs: int = 1, on_progress: OnProgress | None = None) -> None:
        """``folder`` is created if needed; ``jobs`` is the number of processes.

        Raises:
            SimulationError: the file in ``folder`` holds something else.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / RUNS_FILE
        self._jobs, self._on_progress = jobs, on_progress
        self._kept = self._read()
        self._digests: dict[int, tuple[World, str]] = {}

    def play_all(self, pairs: Sequence[tuple[Contender, World]]) -> list[SimulationMetrics]:
        """Return the metrics of every pair, in order; finished runs are not played again.

        Raises:
            SimulationError: a run failed, or a process died.
        """
        keys = [self._key(candidate, world) for candidate, world in pairs]
        missing = {
            key: pair for key, pair in zip(keys, pairs, strict=True) if key not in self._kept
        }
        began = time.monotonic()
        with self._file.open("a", encoding="utf-8") as file:
            for done, (key, took, metrics) in enumerate(self._play_missing(missing), start=1):
                line = _Line(key, round(took, 2), metrics)
                self._kept[key] = line
                file.write(msgspec.json.encode(line).decode() + "\n")
                file.flush()
                if self._on_progress is not None:
                    remaining = (time.monotonic() - began) / done * (len(missing) - done)
                    self._on_progress(done, len(missing), remaining)
        return [self._kept[key].metrics for key in keys]

    def seconds(self, candidate: Contender, world: World) -> float:
        """Return the duration of that run in seconds of one process; 0 if it was not played."""
        line = self._kept.get(self._key(candidate, world))
        return line.seconds if line else 0.0

    def _read(self) -> dict[str, _Line]:
        if not self._file.is_file():
            return {}
        text = self._file.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]  # a line that was cut off is played again
        if whole != text:
            self._file.write_bytes(whole)
        try:
            lines = [msgspec.json.decode(line, type=_Line) for line in whole.splitlines()]
        except msgspec.DecodeError as error:
            raise SimulationError(
                f"{self._file} holds what is no run: {error}; name another folder, or move the "
                "file away"
            ) from error
        return {line.key: line for line in lines}

    def _key(self, candidate: Contender, world: World) -> str:
        cached = self._digests.get(id(world))
        if cached is None or cached[0] is not world:
            cached = self._digests[id(world)] = (world, _digest(world))
        return f"{candidate.name} | {world.name} | {cached[1]} {_deciding(candidate)}"

    def _play_missing(
        self, missing: Mapping[str, tuple[Contender, World]]
    ) -> Iterator[tuple[str, float, SimulationMetrics]]:
        if self._jobs == 1 or len(missing) < 2:
            for key, pair in missing.items():
                yield key, *_measure_play(*pair)
            return
        spawn = multiprocessing.get_context("spawn")  # forks of a process with threads may hang
        # One thread per process: all cores are busy with runs already.
        os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
        with ProcessPoolExecutor(self._jobs, spawn) as pool:
            try:
                waiting = {pool.submit(_measure_play, *pair): key for key, pair in missing.items()}
                for done in as_completed(waiting):
                    yield waiting[done], *done.result()
            except BrokenProcessPool as error:
                raise SimulationError(
                    "a process died, perhaps for want of memory; try again with a smaller --jobs"
                ) from error
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def _measure_play(candidate: Contender, world: World) -> tuple[float, SimulationMetrics]:
    began = time.monotonic()
    try:
        metrics = play(candidate, world)
    except BiremeError as error:
        raise SimulationError(f"{candidate.name} in {world.name}: {error_text(error)}") from error
    return time.monotonic() - began, metrics


def _digest(world: World) -> str:
    """Return a digest of the contents of ``world``, except for its history, which has a name."""
    jobs = [
        (job.name, job.submitted, job.duration_seconds, job.gpus, job.is_elastic, job.steps)
        for job in world.trace.jobs
    ]
    nodes = [(node.name, sorted(node.allocatable.items())) for node in world.nodes]
    rest = (world.seed, world.part, repr(world.physics), repr(world.settings))
    return hashlib.blake2b(repr((jobs, nodes, rest)).encode(), digest_size=8).hexdigest()


@cache
def _deciding(candidate: Contender) -> str:
    """Return the version of Bireme, and digests of its code and of the parts of ``candidate``."""
    packages = (bireme, bireme_lab)
    identities = [version("bireme"), *(_code_of(Path(one.__path__[0])) for one in packages)]
    for part in PARTS:
        name = getattr(candidate, part).partition("?")[0]
        bare_name = name.removeprefix(registry.CHECKPOINT)
        folder = Path(bare_name) if bare_name != name else checkpoint_folder(name)
        if folder is not None and (folder / CARD_FILE).is_file():
            card, _ = read_card(folder)
            network = card.parts.by_name().get(part)
            identities += [network.sha256[:16]] if network else []
        elif ":" in name and bare_name == name and (spec := find_spec(name.partition(":")[0])):
            identities.append(_code_of(Path(spec.origin or "")))
    return " ".join(identities)


def _code_of(path: Path) -> str:
    """Return a digest of a file, or of the Python files below a folder."""
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        digest.update(file.relative_to(path.parent).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
