"""A training run: a folder in which a policy is learned, stage by stage, and what is seen of it.

    FOLDER/run.json                 what is being trained, and which stages are finished
    FOLDER/curves.csv, curves.png   the curves (:mod:`bireme.training.curves`)
    FOLDER/STAGE.safetensors        what that stage's algorithm has learned so far; likewise
    FOLDER/STAGE.stopping.safetensors  the best weights, where a validation score ends the stage
    FOLDER/checkpoint/              the finished checkpoint, as it is served

A run is the callback of its algorithms: it writes a row per update, saves now and then, and ends
the learning when the time is up. A run that was broken off goes on from what was last saved. Of
several processes the first writes all of this; to resume, all must see it.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from bireme.core.errors import SettingError
from bireme.training import storage
from bireme.training.algorithm import Callback, Progress
from bireme.training.curves import Curves
from bireme.training.distributed import least, process_seed, rank, world_size
from bireme.training.watching import Watcher, silent

Scale = Literal["full", "smoke"]
SECONDS_BETWEEN_SAVES: Final = 60.0


class Learner(storage.Storable, Protocol):
    """An algorithm, or what else learns step by step and can be interrupted."""

    def learn(self, total_steps: int, callback: Callback) -> object: ...


@dataclass(slots=True)
class _Stage:
    """What is being learned now."""

    name: str
    algorithm: Learner
    total_steps: int
    also: Callback | None
    watcher: Watcher
    saved_seconds: float


class TrainingRun:
    """One run in one folder.

    Attributes:
        seed: The same in all processes: for the first weights of networks.
        world_seed: This process's own: for worlds and for chance while learning.
        scale: ``smoke`` only shows that everything works, within a minute.
        time_limit_seconds: Of all starts of the run together.
        data: The folder of data sets, for recipes that learn from traces.
        command: What was typed, for the card of the checkpoint.
    """

    def __init__(
        self,
        recipe: str,
        folder: Path,
        *,
        seed: int = 0,
        scale: Scale = "full",
        time_limit_seconds: float = 1800.0,
        data: Path | None = None,
        resume: bool = False,
        command: str = "",
        watcher: Callable[[], Watcher] = silent,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.recipe, self.folder = recipe, folder
        self.seed, self.world_seed = seed, process_seed(seed)
        self.scale, self.time_limit_seconds = scale, time_limit_seconds
        self.data, self.command = data, command
        self._watcher, self._clock = watcher, clock
        self._open(resume)
        self._began = clock() - self._curves.seconds
        self._notes: dict[str, float] = {}
        self._stage: _Stage | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files and the checkpoint."""
        return rank() == 0

    @property
    def checkpoint_folder(self) -> Path:
        """Where the finished checkpoint goes."""
        return self.folder / "checkpoint"

    @property
    def seconds(self) -> float:
        """How long the run has taken, over all its starts."""
        return self._clock() - self._began

    @property
    def last_numbers(self) -> Mapping[str, float]:
        """What the curves tell last of everything."""
        return self._curves.last_numbers

    def note(self, name: str, value: float) -> None:
        """Tell a number that belongs to the next row of the curves: a validation score, say."""
        self._notes[name] = value

    def learn(
        self,
        stage: str,
        algorithm: Learner,
        total_steps: int,
        also: Callback | None = None,
    ) -> None:
        """Let ``algorithm`` learn for ``total_steps`` of its own, unless time or ``also`` ends it.

        A stage that an earlier start of the run finished is loaded instead, and one that it began
        goes on. The names of a run's stages must differ.
        """
        now = _Stage(stage, algorithm, total_steps, also, self._watcher(), self.seconds)
        if self._resumes:
            self._load(now)
        if stage in self._finished:
            return
        self._stage = now
        with now.watcher:
            algorithm.learn(total_steps, self)
        self._stage = None
        self._finished.append(stage)
        self._save(now)

    def __call__(self, progress: Progress) -> bool:
        """Take note of an update; whether learning goes on."""
        stage = self._stage
        if stage is None:
            raise SettingError("a TrainingRun is a callback only inside its learn(); call that")
        goes_on = stage.also is None or stage.also(progress)
        goes_on = bool(least(float(goes_on and self.seconds < self.time_limit_seconds)))
        numbers, self._notes = {**progress.metrics, **self._notes}, {}
        if self.is_first:
            step = progress.steps * world_size()
            self._curves.add(stage.name, step, self.seconds, numbers)
            stage.watcher.show(stage.name, progress.steps, stage.total_steps, numbers)
            if self.seconds - stage.saved_seconds >= SECONDS_BETWEEN_SAVES:
                self._save(stage)
        return goes_on

    def finish(self) -> None:
        """Draw the curves."""
        if self.is_first and self._curves.rows:
            self._curves.plot(self.folder / "curves.png")

    def _open(self, resume: bool) -> None:
        file = self.folder / "run.json"
        if file.exists() and not resume:
            raise SettingError(
                f"{str(self.folder)!r} already holds a run; go on with --resume or name another "
                "folder with --out"
            )
        self._resumes = file.exists()
        told = json.loads(file.read_text(encoding="utf-8")) if self._resumes else {}
        for key, now in self._identity().items():
            if told.get(key, now) != now:
                raise SettingError(
                    f"{str(self.folder)!r} holds a run with {key} {told[key]!r}, not {now!r}; "
                    "resume it with the same, or name another folder with --out"
                )
        self._finished: list[str] = told.get("finished", [])
        self.folder.mkdir(parents=True, exist_ok=True)
        self._curves = Curves.read(self.folder / "curves.csv", told.get("rows", 0))
        least(0.0)  # all have read before the first writes
        if self.is_first:
            self._note_down()

    def _identity(self) -> dict[str, object]:
        return {"recipe": self.recipe, "seed": self.seed, "scale": self.scale}

    def _save(self, stage: _Stage) -> None:
        stage.saved_seconds = self.seconds
        if self.is_first:
            for file, part in self._files(stage):
                storage.save(file, part)
            self._note_down()

    def _load(self, stage: _Stage) -> None:
        """Go on where ``stage`` was saved, if it was."""
        files = self._files(stage)
        is_there = all(file.exists() for file, _ in files)
        if is_there != bool(least(float(is_there))):
            raise SettingError(
                f"--out {str(self.folder)!r}: this process sees what stage {stage.name!r} saved, "
                "another does not; to resume, give all processes a folder that they share"
            )
        for file, part in files if is_there else ():
            storage.load(file, part)

    def _files(self, stage: _Stage) -> list[tuple[Path, storage.Storable]]:
        files: list[tuple[Path, storage.Storable]] = [
            (self.folder / f"{stage.name}.safetensors", stage.algorithm)
        ]
        if isinstance(stage.also, storage.Storable):
            files.append((self.folder / f"{stage.name}.stopping.safetensors", stage.also))
        return files

    def _note_down(self) -> None:
        state = {**self._identity(), "finished": self._finished, "rows": len(self._curves.rows)}
        draft = self.folder / "run.json.new"
        draft.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        draft.replace(self.folder / "run.json")
