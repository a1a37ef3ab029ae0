"""SLAQ: replicas go where the loss is predicted to fall most in the next scheduling epoch.

Losses of different models do not compare, so every fall is divided by the largest fall the job
has made in one step. Both families of curves the paper fits fall ever more slowly, so that is
the first step: loss(0) - loss(1).

    value = (loss(k) - loss(k + epoch * steps per second)) / (loss(0) - loss(1))

k is the number of steps done so far. Every job first gets its minimum; then one replica at a
time goes to the largest gain in value per resource (the paper counts cores; here dominant share).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bireme.core.policy import Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import LossCurve
from bireme.heuristics.parameters import require
from bireme.heuristics.sizing import Allotment, Pool, Sizes, hand_out, steps_done


@dataclass(frozen=True, slots=True)
class Slaq:
    """Largest predicted fall of the normalised loss per resource first.

    Source: Zhang et al., "SLAQ: Quality-Driven Scheduling for Distributed Machine Learning",
    SoCC 2017, sections 3 and 4.
    """

    epoch_seconds: float = 600.0
    """How far the loss is predicted. SLAQ's own epochs are seconds; gangs cannot move so often."""

    def __post_init__(self) -> None:
        require("epoch_seconds", self.epoch_seconds, 1)

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """Gangs without a speed or a loss curve get what they ask for first."""
        pool = Pool(ranked, snapshot)
        measured = pool.measured(lambda gang: gang.speed is not None and gang.loss is not None)
        done = {entry.gang.uid: steps_done(entry.gang, snapshot) for entry in measured}

        def value(allotment: Allotment, sizes: Sizes) -> float:
            gang = allotment.gang
            steps = pool.steps_per_second(gang, sizes) * self.epoch_seconds
            return _normalised_fall(gang.loss, done[gang.uid], steps) if gang.loss else 0.0

        hand_out(pool, measured, value)
        return pool.proposal()


def _normalised_fall(curve: LossCurve, done: float, steps: float) -> float:
    largest = curve.loss(0.0) - curve.loss(1.0)
    if not largest > 0:
        return 0.0
    return (curve.loss(done) - curve.loss(done + steps)) / largest
