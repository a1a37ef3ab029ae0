"""What arrives in DeepRM's world: at most one job a step, mostly short, with one main resource.

Four of five jobs run 1 to 3 steps, the others 10 to 15. A job asks 5 to 10 slots of its main
resource, drawn at random, and 1 or 2 of the other one. The paper of A2cScheduler leaves all of
this open; these are the numbers of Mao et al., "Resource Management with Deep Reinforcement
Learning", HotNets 2016, section 4.1, as its public program has them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bireme.core.resources import BoolArray, IntArray

RESOURCES = 2
SLOTS = 10
"""How much of each resource the machine has."""
SHORT = (1, 3)
LONG = (10, 15)
SHORT_SHARE = 0.8
MAIN = (5, 10)
OTHER = (1, 2)


@dataclass(frozen=True, slots=True)
class Setting:
    """One size of the world.

    Attributes:
        rates: Chance of an arrival in a step; each world draws one of them, with its seed.
        queue_slots: How many waiting jobs can be chosen from, the first that came.
        arrival_steps: Steps in which jobs arrive; then the world is drained.
        completion_weight: What a job in the system costs per step, beside one over its duration.
    """

    rates: tuple[float, ...] = (0.7,)
    queue_slots: int = 10
    arrival_steps: int = 50
    completion_weight: float = 0.0

    def __post_init__(self) -> None:
        if not self.rates or not all(0 < rate <= 1 for rate in self.rates):
            raise ValueError(f"rates is {self.rates}; give one or more above 0 and up to 1")
        if self.queue_slots < 1 or self.arrival_steps < 1:
            raise ValueError(
                f"queue_slots is {self.queue_slots} and arrival_steps {self.arrival_steps}; "
                "give at least 1 of each"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """The jobs of several worlds; job ``j`` of a world arrives at step ``j``, if it exists.

    Attributes:
        exists: Shape (worlds, arrival steps).
        durations: Steps, shape (worlds, arrival steps).
        demands: Slots, shape (worlds, arrival steps, resources).
    """

    exists: BoolArray
    durations: IntArray
    demands: IntArray


def draw(setting: Setting, seeds: Sequence[int]) -> Jobs:
    """The jobs of one world per seed; equal seeds give equal jobs.

    Chance is drawn in the same order at every rate: of the jobs at a low rate each also comes at a
    higher one, as far as both worlds have one rate to choose from.
    """
    exists, durations, demands = zip(*(_draw(setting, seed) for seed in seeds), strict=True)
    return Jobs(np.stack(exists), np.stack(durations), np.stack(demands))


def _draw(setting: Setting, seed: int) -> tuple[BoolArray, IntArray, IntArray]:
    chance, steps = np.random.default_rng(seed), setting.arrival_steps
    rate = setting.rates[chance.integers(len(setting.rates))]
    exists = chance.random(steps) < rate
    is_short = chance.random(steps) < SHORT_SHARE
    durations = np.where(is_short, _between(chance, SHORT, steps), _between(chance, LONG, steps))
    main = chance.integers(RESOURCES, size=steps)
    demands = np.where(
        main[:, None] == np.arange(RESOURCES),
        _between(chance, MAIN, steps)[:, None],
        _between(chance, OTHER, steps)[:, None],
    )
    return exists, durations, demands


def _between(chance: np.random.Generator, span: tuple[int, int], count: int) -> IntArray:
    """``count`` whole numbers from ``span``, both ends included."""
    return chance.integers(*span, size=count, endpoint=True)
