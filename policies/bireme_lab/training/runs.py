"""A training run: a folder for the stages of a training, its curves and progress.

    FOLDER/run.json                 the recipe, its seed and scale, and the finished stages
    FOLDER/curves.csv, curves.png   the curves
    FOLDER/STAGE.safetensors        the state of that stage's algorithm
    FOLDER/STAGE.stopping.safetensors  the best weights, if a validation score ends the stage
    FOLDER/checkpoint/              the finished checkpoint for serving

A run writes a row per update, saves periodically, and ends the learning at its time limit. An
interrupted run continues from its last save. The first process writes all files; to resume, all
processes must see them.
"""

import csv
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TextIO, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor, nn

from bireme.core.errors import SettingError
from bireme_lab.training import storage
from bireme_lab.training.algorithm import Callback, LearningProgress
from bireme_lab.training.distributed import least, process_seed, rank, world_size
from bireme_lab.training.networks import device_called

# --- curves -------------------------------------------------------------------------------------

_KEYS: Final = ("stage", "step", "seconds")
_ACROSS: Final = 3
_PANEL_INCHES: Final = (4.0, 2.6)


class LearningCurves:
    """The rows of one ``curves.csv``, in memory and on disk alike.

    Columns are ``stage``, ``step`` (samples of that stage, over all processes) and ``seconds`` (of
    the whole run, over all its starts), then one per number. A new number adds a column; cells
    without a value are empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, str]] = []
        self._columns = list(_KEYS)
        self._is_on_disk = False

    @classmethod
    def read(cls, path: Path, rows: int) -> "LearningCurves":
        """Read the first ``rows`` of ``path``; adding a row drops the others from the file."""
        # A resumed run repeats the updates after the last save, so drop their rows.
        curves = cls(path)
        if path.exists():
            with path.open(newline="", encoding="utf-8") as lines:
                reader = csv.DictReader(lines)
                curves.rows = list(reader)[:rows]
                curves._columns = list(reader.fieldnames or _KEYS)
        return curves

    @property
    def seconds(self) -> float:
        """The seconds of the last row."""
        return float(self.rows[-1]["seconds"]) if self.rows else 0.0

    @property
    def last_numbers(self) -> dict[str, float]:
        """The last value of every number, in the order of the columns."""
        latest = {name: row[name] for row in self.rows for name in self._names if row.get(name)}
        return {name: float(latest[name]) for name in self._names if name in latest}

    @property
    def _names(self) -> list[str]:
        return [name for name in self._columns if name not in _KEYS]

    def add(self, stage: str, step: int, seconds: float, numbers: Mapping[str, float]) -> None:
        """Write a row; a new number rewrites the table."""
        cells = {key: f"{number:.6g}" for key, number in numbers.items()}
        row = {"stage": stage, "step": str(step), "seconds": f"{seconds:.3f}", **cells}
        new = [key for key in row if key not in self._columns]
        self.rows.append(row)
        if new or not self._is_on_disk:
            self._columns += new
            self._write()
            return
        with self.path.open("a", newline="", encoding="utf-8") as lines:
            csv.DictWriter(lines, self._columns).writerow(row)

    def plot(self, target: Path) -> None:
        """Draw a panel per number, over the seconds of the run, with a line per stage."""
        from matplotlib.figure import Figure  # slow to import, and needed only at the end

        down = max(1, math.ceil(len(self._names) / _ACROSS))
        size = (_ACROSS * _PANEL_INCHES[0], down * _PANEL_INCHES[1])
        figure = Figure(figsize=size, layout="constrained")
        for index, name in enumerate(self._names):
            self._draw(figure.add_subplot(down, _ACROSS, index + 1), name)
        figure.savefig(target)

    def _draw(self, axes: Any, name: str) -> None:
        for number, stage in enumerate(dict.fromkeys(row["stage"] for row in self.rows)):
            points = [
                (float(row["seconds"]), float(row[name]))
                for row in self.rows
                if row["stage"] == stage and row.get(name)
            ]
            if points:
                line = {"label": stage, "color": f"C{number}", "marker": ".", "markersize": 3}
                axes.plot(*zip(*points, strict=True), **line)
        axes.set_title(name.replace("_", " "), fontsize=9)
        axes.set_xlabel("seconds", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.legend(fontsize=7)

    def _write(self) -> None:
        with self.path.open("w", newline="", encoding="utf-8") as lines:
            writer = csv.DictWriter(lines, self._columns)
            writer.writeheader()
            writer.writerows(self.rows)
        self._is_on_disk = True


# --- progress: a bar on a terminal, elsewhere periodic lines -------------------------------------

SECONDS_BETWEEN_LINES: Final = 15.0
_NUMBERS_SHOWN: Final = 4
Show: TypeAlias = Callable[[str, int, int, Mapping[str, float]], None]
"""Shows the stage, its steps so far and in all, and its metrics."""


def display(
    stream: TextIO | None, clock: Callable[[], float] = time.monotonic
) -> AbstractContextManager[Show]:
    """Return a context manager that shows one stage on ``stream``; without a stream, nothing."""
    if stream is None:
        return nullcontext(lambda *_: None)
    return _bar(stream) if stream.isatty() else nullcontext(_lines(stream, clock))


def _lines(stream: TextIO, clock: Callable[[], float]) -> Show:
    """Show a line at the first step, then every few seconds."""
    due = clock()

    def show(stage: str, done: int, total: int, numbers: Mapping[str, float]) -> None:
        nonlocal due
        if clock() < due:
            return
        due = clock() + SECONDS_BETWEEN_LINES
        stream.write(f"{stage}: {done:,} of {total:,} steps; {format_numbers(numbers)}\n")
        stream.flush()  # so that a reader of the log sees it at once

    return show


@contextmanager
def _bar(stream: TextIO) -> Iterator[Show]:
    """Show a progress bar of the stage, with its metrics."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[numbers]}"),
        console=Console(file=stream),
    ) as bars:
        bar = bars.add_task("starting", total=None, numbers="")

        def show(stage: str, done: int, total: int, numbers: Mapping[str, float]) -> None:
            text = format_numbers(numbers)
            bars.update(bar, description=stage, completed=done, total=total, numbers=text)

        yield show


def format_numbers(numbers: Mapping[str, float]) -> str:
    """Format the last numbers, validation first."""
    last = list(numbers.items())[: -_NUMBERS_SHOWN - 1 : -1]
    return ", ".join(f"{name.replace('_', ' ')} {number:.4g}" for name, number in last)


# --- the run ------------------------------------------------------------------------------------

Scale = Literal["full", "smoke"]
SECONDS_BETWEEN_SAVES: Final = 60.0


class Learner(storage.Storable, Protocol):
    """An algorithm or another learner with steps that can be interrupted."""

    def learn(self, total_steps: int, callback: Callback) -> object: ...


class TrainingRun:
    """One run in one folder.

    Attributes:
        seed: Seed for the first weights of networks, equal in all processes.
        env_seed: Seed for envs and random numbers, different in each process.
        scale: ``smoke`` only tests the recipe, within a minute.
        time_limit_seconds: Limit over all starts of the run.
        data: The folder of data sets, for recipes that learn from traces.
        device: The device of networks; a run may resume on another one.
        command: The typed command, for the card of the checkpoint.
        curves: All numbers so far.
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
        device: str = "cpu",
        resume: bool = False,
        command: str = "",
        progress: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open the run in ``folder``; ``progress`` is the stream of its progress, None for none."""
        self.recipe, self.folder = recipe, folder
        self.seed, self.env_seed = seed, process_seed(seed)
        self.scale, self.time_limit_seconds = scale, time_limit_seconds
        self.data, self.command = data, command
        self.device = device_called(device)
        self._progress, self._clock = progress, clock
        self._open(resume)
        self._began = clock() - self.curves.seconds
        self._notes: dict[str, float] = {}

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and the checkpoint."""
        return rank() == 0

    @property
    def checkpoint_folder(self) -> Path:
        """The folder of the finished checkpoint."""
        return self.folder / "checkpoint"

    @property
    def seconds(self) -> float:
        """Elapsed seconds over all starts of the run."""
        return self._clock() - self._began

    def note(self, name: str, value: float) -> None:
        """Add a number, such as a validation score, to the next row of the curves."""
        self._notes[name] = value

    def learn(
        self, stage: str, algorithm: Learner, total_steps: int, also: Callback | None = None
    ) -> None:
        """Let ``algorithm`` learn for ``total_steps`` of its own, unless time or ``also`` ends it.

        A stage finished in an earlier start of the run is loaded instead; an interrupted one is
        resumed. The names of a run's stages must differ.
        """
        parts: dict[Path, storage.Storable] = {self.folder / f"{stage}.safetensors": algorithm}
        if isinstance(also, storage.Storable):
            parts[self.folder / f"{stage}.stopping.safetensors"] = also
        if self._resumes:
            self._load(stage, parts)
        if stage in self._finished:
            return
        saved_seconds = self.seconds

        def after_update(progress: LearningProgress) -> bool:
            nonlocal saved_seconds
            goes_on = also is None or also(progress)
            # All processes stop together: the others would wait for a missing gradient.
            goes_on = bool(least(float(goes_on and self.seconds < self.time_limit_seconds)))
            numbers, self._notes = {**progress.metrics, **self._notes}, {}
            if self.is_first:
                self.curves.add(stage, progress.steps * world_size(), self.seconds, numbers)
                show(stage, progress.steps, total_steps, numbers)
                if self.seconds - saved_seconds >= SECONDS_BETWEEN_SAVES:
                    saved_seconds = self.seconds
                    self._save(parts)
            return goes_on

        with display(self._progress) as show:
            algorithm.learn(total_steps, after_update)
        self._finished.append(stage)
        if self.is_first:
            self._save(parts)

    def finish(self) -> None:
        """Draw the curves."""
        if self.is_first and self.curves.rows:
            self.curves.plot(self.folder / "curves.png")

    def _open(self, resume: bool) -> None:
        file = self.folder / "run.json"
        if file.exists() and not resume:
            raise SettingError(
                f"{str(self.folder)!r} already holds a run; go on with --resume or name another "
                "folder with --out"
            )
        self._resumes = file.exists()
        saved = json.loads(file.read_text(encoding="utf-8")) if self._resumes else {}
        for key, now in self._identity().items():
            if saved.get(key, now) != now:
                raise SettingError(
                    f"{str(self.folder)!r} holds a run with {key} {saved[key]!r}, not {now!r}; "
                    "resume it with the same, or name another folder with --out"
                )
        self._finished: list[str] = saved.get("finished", [])
        self.folder.mkdir(parents=True, exist_ok=True)
        self.curves = LearningCurves.read(self.folder / "curves.csv", saved.get("rows", 0))
        least(0.0)  # a barrier: all processes read before the first one writes
        if self.is_first:
            self._note_down()

    def _identity(self) -> dict[str, object]:
        return {"recipe": self.recipe, "seed": self.seed, "scale": self.scale}

    def _save(self, parts: Mapping[Path, storage.Storable]) -> None:
        for file, part in parts.items():
            storage.save(file, part)
        self._note_down()  # last, so that counted rows are never newer than the saved state

    def _load(self, stage: str, parts: Mapping[Path, storage.Storable]) -> None:
        """Restore the saved state of ``stage``, if any."""
        is_there = all(file.exists() for file in parts)
        if is_there != bool(least(float(is_there))):
            raise SettingError(
                f"--out {str(self.folder)!r}: this process sees what stage {stage!r} saved, "
                "another does not; to resume, give all processes a folder that they share"
            )
        if is_there:
            for file, part in parts.items():
                storage.load(file, part)

    def _note_down(self) -> None:
        state = {**self._identity(), "finished": self._finished, "rows": len(self.curves.rows)}
        draft = self.folder / "run.json.new"
        draft.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        draft.replace(self.folder / "run.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Length of the stages of a training, and its validation.

    Attributes:
        envs: Environments of each setting, stepped together.
        jobs: Jobs of each environment; None: the setting's own number.
        copied: Decisions of behaviour cloning.
        steps: Decisions of reinforcement learning.
        validated: Environments of each setting in a validation, every ``every`` updates.
        patience: Validations without a gain that end the learning; None: only the steps end it.
    """

    envs: int
    jobs: int | None = None
    copied: int = 0
    steps: int
    validated: int
    every: int
    patience: int | None = None


# --- early stopping -----------------------------------------------------------------------------
#
# Learning continues past the best policy, into noise and overfitting. So every few updates the
# policy is scored on fixed validation environments.


class EarlyStopping:
    """A callback that validates, keeps the best weights, and ends learning.

    Args:
        policy: The policy with the weights to keep.
        score: Returns the validation score of the present policy, equal in all processes.
        every: The number of updates between validations.
        patience: The number of successive validations without a gain that ends learning; None:
            never.
        is_less_better: Whether a score is a cost.

    Attributes:
        best_score: None before the first validation.
    """

    def __init__(
        self,
        policy: nn.Module,
        score: Callable[[], float],
        *,
        every: int = 10,
        patience: int | None = 10,
        is_less_better: bool = False,
    ) -> None:
        if every < 1 or (patience is not None and patience < 1):
            raise SettingError(f"every={every} and patience={patience}: both must be at least 1")
        self._policy, self._score = policy, score
        self._every, self._patience, self._sign = every, patience, -1 if is_less_better else 1
        self.best_score: float | None = None
        self._misses = 0
        self._best: dict[str, Tensor] = {}

    def __call__(self, progress: LearningProgress) -> bool:
        """Validate if due; return whether learning should continue."""
        if progress.update % self._every == 0:
            self.evaluate()
        return self._patience is None or self._misses < self._patience

    def evaluate(self) -> None:
        """Validate now; a score of nan is never best."""
        score, best = self._score(), self.best_score
        is_best = not math.isnan(score) if best is None else self._sign * (score - best) > 0
        if is_best:
            self.best_score, self._misses = score, 0
            self._best = {n: part.detach().clone() for n, part in self._policy.state_dict().items()}
        else:
            self._misses += 1

    def restore(self) -> None:
        """Restore the policy's best weights.

        Raises:
            SettingError: the policy was never validated.
        """
        if self.best_score is None:
            raise SettingError(
                f"the policy was never validated; learn for at least every={self._every} updates, "
                "or call evaluate() first"
            )
        self._policy.load_state_dict(self._best)

    def state_dict(self) -> dict[str, Any]:
        best = self._best or dict(self._policy.state_dict())
        return {"policy": best, "best_score": self.best_score, "misses": self._misses}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._best = dict(state.get("policy", {}))
        self.best_score, self._misses = state["best_score"], state["misses"]
