"""Rollout: promotes a policy, or rolls it back, where its spec asks for that and outcomes say so.

    Shadow, Canary --promote--> Active --roll back--> RolledBack
            Canary ----------roll back--------------> RolledBack

* A Shadow or Canary is compared with the active policy. It is promoted once the interval of what
  it saves lies wholly above the margin.
* A policy that decides is compared with the one that would decide without it. It is rolled back
  once the interval of what that one saves lies wholly above the margin, and a canary once its own
  lies wholly below. It is too where the rules had to answer in its place in most of its latest
  cycles.

The spec is never written. A step changes the stage that counts at once, in memory; the status tells
it, and the next leader reads it there. It holds for one generation of the spec. Nothing leads out
of RolledBack and nothing back from Active, so a policy takes two steps at most for each spec.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from bireme.core.reasons import Reason
from bireme.kube.api.scheduling_policy import RolloutSpec
from bireme.kube.policy_source import EffectiveStage, PolicyFacts, Stage
from bireme.rl.shadow import Outcome

LATEST_CYCLES: Final = 20
"""Of so many cycles of a policy, the rules must have answered in fewer than MAX_OVERRULED."""
MAX_OVERRULED: Final = 11

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """A promotion or a rollback of one generation of a policy, and why it was taken."""

    generation: int
    effective_stage: EffectiveStage
    reason: Reason
    message: str


class Rollouts:
    """The steps that this leader has taken; ``on_step`` is called after each."""

    def __init__(self, on_step: Callable[[Step], None]) -> None:
        self._steps: dict[str, Step] = {}
        self._count = 0
        self._on_step = on_step

    def effective_stage(self, policy: PolicyFacts) -> EffectiveStage:
        """Return the stage that counts: by the last step, else as the status or the spec says."""
        step = self.step(policy)
        return policy.effective_stage if step is None else step.effective_stage

    def step(self, policy: PolicyFacts) -> Step | None:
        """Return the last step that this leader took with this spec; None without one."""
        step = self._steps.get(policy.uid)
        return step if step is not None and step.generation == policy.generation else None

    def forget_others(self, policies: Iterable[PolicyFacts]) -> None:
        """Forget the steps of policies that are not among ``policies``, or have another spec."""
        self._steps = {p.uid: s for p in policies if (s := self.step(p)) is not None}

    def promote(self, policy: PolicyFacts, message: str) -> None:
        """Let ``policy`` decide for all queues; raises ValueError unless it is Shadow or Canary."""
        self._require(policy, Stage.SHADOW, Stage.CANARY)
        self._count += 1
        # It sorts behind every time that a status tells, and behind those promoted before it.
        effective_stage = EffectiveStage(Stage.ACTIVE, f"~{self._count:09}")
        self._take(policy, effective_stage, Reason.OUTCOME_BETTER, message)

    def roll_back(self, policy: PolicyFacts, reason: Reason, message: str) -> None:
        """Let ``policy`` decide nothing more; raises ValueError unless it is Active or Canary."""
        self._require(policy, Stage.ACTIVE, Stage.CANARY)
        self._take(policy, EffectiveStage(Stage.ROLLED_BACK), reason, message)

    def _require(self, policy: PolicyFacts, *stages: Stage) -> None:
        if (stage := self.effective_stage(policy).stage) not in stages:
            raise ValueError(f"policy {policy.name!r} is {stage}, not {' or '.join(stages)}")

    def _take(
        self, policy: PolicyFacts, effective_stage: EffectiveStage, reason: Reason, message: str
    ) -> None:
        step = Step(policy.generation, effective_stage, reason, message)
        self._steps[policy.uid] = step
        _log.warning(
            "policy changes its stage",
            policy=policy.name,
            stage=str(effective_stage.stage),
            reason=str(reason),
            why=message,
        )
        self._on_step(step)


def is_better(found: Outcome | None, asked: RolloutSpec) -> bool:
    """Return whether the shadow's interval lies wholly above the margin, by enough samples."""
    if found is None or found.low_seconds is None or found.samples < asked.minimum_samples:
        return False
    return _share(found, found.low_seconds) > asked.margin


def is_worse(found: Outcome | None, asked: RolloutSpec) -> bool:
    """Return whether it lies as wholly below."""
    if found is None or found.high_seconds is None or found.samples < asked.minimum_samples:
        return False
    return -_share(found, found.high_seconds) > asked.margin


def in_words(found: Outcome | None, asked: RolloutSpec) -> str:
    """Return the numbers behind a verdict."""
    if found is None or not found.samples:
        return f"nothing has been compared yet; {asked.minimum_samples} samples are needed"
    change = "less" if found.regret_seconds >= 0 else "more"
    return (
        f"by its decisions gangs would take {abs(found.regret_seconds):.1f} s {change}"
        f" ({abs(found.share):.1%}) on average; the interval of what it saves is"
        f" {_interval(found)}, from {found.samples} samples of at least {asked.minimum_samples},"
        f" and the margin {asked.margin:.1%}"
    )


def _interval(found: Outcome) -> str:
    if found.low_seconds is None or found.high_seconds is None:
        return "not known yet"
    low, high = (_share(found, s) for s in (found.low_seconds, found.high_seconds))
    return f"{found.low_seconds:.1f} s to {found.high_seconds:.1f} s ({low:.1%} to {high:.1%})"


def _share(found: Outcome, seconds: float) -> float:
    """Return ``seconds`` as a share of the mean completion time by the active policy."""
    # Where the mean is nought the interval holds nought, so no bound of it is ever a verdict.
    return seconds * found.share / found.regret_seconds if found.regret_seconds else 0.0
