"""Which scorer answers in score mode: that of the Active SchedulingPolicy's placer, or the rules.

It is loaded beside the event loop and takes over between two calls. What cannot be loaded takes
over nothing: what answered before goes on.
"""

from collections.abc import Callable

import structlog

from bireme.core.scores import Scorer
from bireme.heuristics.scoring import BestFit
from bireme.kube.policy_loads import Outcome, PolicyLoads
from bireme.kube.scheduling_policies import PolicyFacts, SchedulingPolicies
from bireme.registry import make_placer
from bireme.rl import named
from bireme.rl.checkpoints import Checkpoint
from bireme.rl.placers import LearnedPlacer
from bireme.rl.scorers import LearnedScorer
from bireme_extender.metrics import Metrics

_log = structlog.get_logger(__name__)


def scorer_of(facts: PolicyFacts, directory: str) -> Scorer:
    """How the placer of ``facts`` scores nodes; the rules where it is none that was learned.

    Raises:
        SettingError: it names what does not exist.
        CheckpointError: its checkpoint, from ``directory`` or shipped, cannot be used.
    """
    checkpoint = _checkpoint(facts, directory)
    if checkpoint is None or checkpoint.placer is None:
        return BestFit()
    return LearnedScorer(checkpoint)


def _checkpoint(facts: PolicyFacts, directory: str) -> Checkpoint | None:
    spec = facts.spec
    assert spec is not None  # noqa: S101  # a spec that cannot be read is never loaded
    if spec.placer is not None:
        # A class of the user's own scores nothing: only the operator has to have it installed.
        placer = None if ":" in spec.placer else make_placer(spec.placer)
        return placer.checkpoint if isinstance(placer, LearnedPlacer) else None
    if spec.checkpoint is None:
        return None
    return named.load(spec.checkpoint.name, directory, spec.checkpoint.sha256)


class Scorers:
    """Follows ``known`` and hands what counts to ``use``."""

    def __init__(
        self,
        known: SchedulingPolicies,
        directory: str,
        metrics: Metrics,
        use: Callable[[Scorer], None],
    ) -> None:
        self._known = known
        self._metrics = metrics
        self._use = use
        self._loads = PolicyLoads(lambda facts: scorer_of(facts, directory), self._loaded)
        known.on_change = self._look

    async def close(self) -> None:
        """Load nothing more."""
        await self._loads.close()

    def _look(self) -> None:
        active = self._known.active
        self._loads.want([] if active is None else [active])
        if active is None:
            self._switch(BestFit())

    def _loaded(self, policy: PolicyFacts, outcome: Outcome[Scorer]) -> None:
        self._metrics.policy_loads.labels("failed" if outcome.fault else "loaded").inc()
        active = self._known.active
        if outcome.value is None:
            _log.warning("policy not loaded", policy=policy.name, why=outcome.fault)
        elif active is not None and active.demand == policy.demand:
            _log.info("another policy scores", policy=policy.name)
            self._switch(outcome.value)

    def _switch(self, scorer: Scorer) -> None:
        self._metrics.learned_scorer.set(isinstance(scorer, LearnedScorer))
        self._use(scorer)
