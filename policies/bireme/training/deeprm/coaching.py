"""What both recipes of DeepRM's world share: how a policy is watched, and how it is judged.

While it learns, the policy plays the same validation worlds again and again, always its likeliest
choice; the weights with the least cost there are kept, and the curves tell its slowdown, completion
and waiting time at the paper's rate of 0.7. The learning rate falls linearly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final

from bireme.training.algorithm import Algorithm, Progress
from bireme.training.deeprm.baselines import Rule, carry_out, rules
from bireme.training.deeprm.environment import DeepRmWorld, Setting, View, measure
from bireme.training.networks import ActorCritic, predict
from bireme.training.recipes import Results
from bireme.training.rollouts import play
from bireme.training.runs import EarlyStopping, TrainingRun

RATES: Final = (0.6, 0.7, 0.8, 0.9)
SETTINGS: Final[Mapping[str, str]] = {
    f"rate-{rate}": f"a job comes in {100 * rate:.0f} % of 50 steps; then the machine is drained"
    for rate in RATES
}
PRIMARY: Final = ("slowdown", True)
FIRST_SEED: Final = 1_000_000
"""Of the validation worlds: far from the seeds of evaluations, which begin at 0."""
RATE: Final = 0.7
"""That of the paper's figure 3."""
_VALIDATED: Final = {"validation": RATE, "busy_validation": 0.9}
_LEAST_SHARE: Final = 0.03
"""Of the learning rate, at the end."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done of everything.

    Attributes:
        worlds: That are played together.
        steps: Decisions in all.
        every: Updates between validations.
        validated: Worlds in each validation.
    """

    worlds: int
    steps: int
    every: int
    validated: int


class Coach(EarlyStopping):
    """Validates, keeps the best, and lets the learning rate fall."""

    def __init__(
        self, algorithm: Algorithm[Any], run: TrainingRun, setting: Setting, view: View, plan: Plan
    ) -> None:
        worlds = {
            name: DeepRmWorld(plan.validated, replace(setting, rates=(rate,)), view)
            for name, rate in _VALIDATED.items()
        }
        score = partial(_validate, algorithm.policy, worlds, run)
        patience = max(1, plan.steps)
        super().__init__(
            algorithm.policy, score, every=plan.every, patience=patience, is_less_better=True
        )
        self._algorithm, self._total = algorithm, plan.steps
        self._rate = algorithm.config.learning_rate

    def __call__(self, progress: Progress) -> bool:
        """Judge, if it is time; learning always goes on."""
        self._slow_down(progress.steps)
        return super().__call__(progress)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the algorithm goes on."""
        super().load_state_dict(state)
        self._slow_down(self._algorithm.steps)

    def _slow_down(self, steps: int) -> None:
        share = max(_LEAST_SHARE, 1 - steps / self._total)
        algorithm = self._algorithm
        algorithm.config = replace(algorithm.config, learning_rate=share * self._rate)


def _validate(policy: ActorCritic, worlds: Mapping[str, DeepRmWorld], run: TrainingRun) -> float:
    """The mean cost of an episode; the measures go into the next row of the curves."""
    cost = 0.0
    for name, world in worlds.items():
        seeds = range(FIRST_SEED, FIRST_SEED + world.count)
        cost -= float(play(world, seeds, partial(predict, policy)).mean()) / len(worlds)
        found = measure(world.state)
        for each in fields(found):
            run.note(f"{name}_{each.name}", float(getattr(found, each.name).mean()))
    return cost


def contest(name: str, rule: Rule, setting: Setting, seed: int) -> Results:
    """``rule`` beside the paper's baselines, all with the jobs of ``seed``."""
    world = DeepRmWorld(1, setting)
    results = {}
    for contender, decide in {name: rule, **rules(seed)}.items():
        world.reset([seed])
        found = measure(carry_out(world, decide))
        results[contender] = {
            each.name: float(getattr(found, each.name)[0]) for each in fields(found)
        }
    return results


def rate_of(setting: str) -> float:
    """The rate of an evaluation setting, ``rate-0.7`` say."""
    return float(setting.removeprefix("rate-"))
