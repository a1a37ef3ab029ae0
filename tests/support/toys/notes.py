"""A callback that takes note of everything and never ends learning."""

from bireme.training.algorithm import LearningProgress


class Notes:
    """What an algorithm told, update by update."""

    def __init__(self) -> None:
        self.told: list[LearningProgress] = []

    def __call__(self, progress: LearningProgress) -> bool:
        """Take note."""
        self.told.append(progress)
        return True

    def of(self, metric: str) -> list[float]:
        """One metric of every update."""
        return [progress.metrics[metric] for progress in self.told]
