"""A callback that takes note of everything and never ends learning."""

from bireme_lab.training.algorithm import LearningProgress


class Notes:
    def __init__(self) -> None:
        self.told: list[LearningProgress] = []

    def __call__(self, progress: LearningProgress) -> bool:
        self.told.append(progress)
        return True

    def of(self, metric: str) -> list[float]:
        return [progress.metrics[metric] for progress in self.told]
