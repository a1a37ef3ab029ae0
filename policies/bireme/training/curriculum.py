"""Curricula: a policy learns in easier worlds first.

A curriculum is a row of stages, each a world and a rule for leaving it: after a number of
decisions, or when the policy masters it, whichever comes first. It is a callback; the last stage
lasts until learning ends. Curriculum and algorithm are saved separately; when resuming, load the
curriculum first, since the algorithm replays its episode in the world of the stage.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bireme.core.errors import SettingError
from bireme.training.algorithm import Algorithm, Progress
from bireme.training.worlds import World


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a curriculum.

    Attributes:
        world: Makes the world.
        most_steps: Decisions after which the stage is left; None: only by mastery.
        is_mastered: Whether the policy has learned enough here, by the metrics of an update.
    """

    name: str
    world: Callable[[], World]
    most_steps: int | None = None
    is_mastered: Callable[[Mapping[str, float]], bool] | None = None


class Curriculum:
    """A callback that moves ``algorithm`` from stage to stage; it starts in the first.

    Raises:
        SettingError: there is no stage, or one before the last has no way out.
    """

    def __init__(self, algorithm: Algorithm[Any], stages: Sequence[Stage]) -> None:
        if not stages:
            raise SettingError("stages is empty; a curriculum needs at least one")
        for stage in stages[:-1]:
            if stage.most_steps is None and stage.is_mastered is None:
                raise SettingError(
                    f"stage {stage.name!r} never ends; give it most_steps or is_mastered"
                )
        self._algorithm, self._stages = algorithm, tuple(stages)
        self._enter(0, since=algorithm.steps)

    @property
    def stage(self) -> Stage:
        """The present one."""
        return self._stages[self._at]

    def __call__(self, progress: Progress) -> bool:
        """Go on to the next stage, if it is time; learning never ends by this."""
        stage, spent = self.stage, progress.steps - self._since
        is_long = stage.most_steps is not None and spent >= stage.most_steps
        is_mastered = stage.is_mastered is not None and stage.is_mastered(progress.metrics)
        if (is_long or is_mastered) and self._at + 1 < len(self._stages):
            self._enter(self._at + 1, since=progress.steps)
        return True

    def state_dict(self) -> dict[str, Any]:
        """Where it stands."""
        return {"stage": self._at, "since": self._since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self._enter(state["stage"], since=state["since"])

    def _enter(self, at: int, since: int) -> None:
        self._at, self._since = at, since
        self._algorithm.change_world(self.stage.world())
