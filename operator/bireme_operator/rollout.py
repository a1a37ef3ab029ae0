"""Rollout: promotes or rolls back a policy if its spec asks for it and the outcomes call for it.

    Shadow, Canary --promote--> Active --roll back--> RolledBack
            Canary ----------roll back--------------> RolledBack

* A Shadow or Canary is compared with the active policy. It is promoted once the interval of its
  saving lies wholly above the margin.
* The active policy is compared with its rival, which would decide without it. It is rolled back
  once the interval of the rival's saving lies wholly above the margin. A canary is rolled back once
  the interval of its own saving lies wholly below the negative margin. Both are also rolled back if
  the rules had to decide in their place in most of the latest cycles.

The operator never writes the spec. A step changes the effective stage at once, in memory; the
status reports it, and the next leader reads it there. It holds for one generation of the spec. No
step leads out of RolledBack or back from Active, so a policy takes at most two steps per spec.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from bireme.core.reasons import Reason
from bireme.kube.api.scheduling_policy import RolloutSpec
from bireme.kube.policy_source import EffectiveStage, PolicyFacts, Stage
from bireme.rl.shadow import RegretEstimate

LATEST_CYCLES: Final = 20
"""Number of latest cycles in which the rules may decide fewer than MAX_OVERRULED times."""
MAX_OVERRULED: Final = 11

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """A promotion or a rollback of one generation of a policy, with its reason."""

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
        """Return the effective stage: by the last step, else by the status or the spec."""
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
        # This text sorts behind every time in a status, and behind earlier promotions.
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


def is_better(outcome: RegretEstimate | None, spec: RolloutSpec) -> bool:
    """Return whether the shadow's interval lies wholly above the margin, by enough samples."""
    if outcome is None or outcome.low_seconds is None or outcome.samples < spec.minimum_samples:
        return False
    return _share(outcome, outcome.low_seconds) > spec.margin


def is_worse(outcome: RegretEstimate | None, spec: RolloutSpec) -> bool:
    """Return whether the shadow's interval lies wholly below the negative margin."""
    if outcome is None or outcome.high_seconds is None or outcome.samples < spec.minimum_samples:
        return False
    return -_share(outcome, outcome.high_seconds) > spec.margin


def in_words(outcome: RegretEstimate | None, spec: RolloutSpec) -> str:
    """Return the numbers behind a verdict."""
    if outcome is None or not outcome.samples:
        return f"nothing has been compared yet; {spec.minimum_samples} samples are needed"
    change = "less" if outcome.regret_seconds >= 0 else "more"
    return (
        f"with its decisions gangs would take {abs(outcome.regret_seconds):.1f} s {change} "
        f"({abs(outcome.share):.1%}) on average; the interval of the saving is "
        f"{_interval(outcome)}, from {outcome.samples} samples (at least {spec.minimum_samples} "
        f"are needed); the margin is {spec.margin:.1%}"
    )


def _interval(outcome: RegretEstimate) -> str:
    if outcome.low_seconds is None or outcome.high_seconds is None:
        return "not known yet"
    low, high = (_share(outcome, s) for s in (outcome.low_seconds, outcome.high_seconds))
    return f"{outcome.low_seconds:.1f} s to {outcome.high_seconds:.1f} s ({low:.1%} to {high:.1%})"


def _share(outcome: RegretEstimate, seconds: float) -> float:
    """Return ``seconds`` as a share of the mean completion time by the active policy."""
    # With a zero mean the interval contains zero, so neither bound is a verdict.
    return seconds * outcome.share / outcome.regret_seconds if outcome.regret_seconds else 0.0
