"""Score mode: which nodes a verified pod may use, and how good they are, in whole points.

The hard rules are the operator's own: constraints, readiness and free capacity beside everything
bound and everything planned for other gangs. The pod's own gang reserves nothing here, because in
score mode its planned nodes are only where it was first meant to go.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import structlog

from bireme.core.errors import told
from bireme.core.gangs import Role, Task
from bireme.core.placement import FreeCapacity
from bireme.core.policy import ScoreQuestion, Scorer, fault_of
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.heuristics.scoring import BestFit
from bireme.kube import pods, wire
from bireme.kube.cluster_state import ClusterState
from bireme.kube.policy_source import LoadOutcome, PolicyFacts, PolicyLoads, SchedulingPolicies
from bireme.registry import make_placer
from bireme.rl import lookup
from bireme.rl.checkpoint import Checkpoint
from bireme.rl.components import LearnedPlacer, LearnedScorer
from bireme_extender.membership import Membership, Refusal, RefusalReason
from bireme_extender.metrics import Metrics

HIGHEST_SCORE = 10
"""The end of the protocol's range; the scheduler multiplies it, but checks nothing."""

SCORED_NODES = 16
"""Only the best so many are scored: nodes left out of a reply simply get nothing added."""

_rules = BestFit()


@dataclass(frozen=True, slots=True)
class Choice:
    """A pod that may go to any node with ``takes[row]``; the question has no rows yet."""

    takes: BoolArray
    question: ScoreQuestion

    def among(self, asked: Sequence[str]) -> list[str]:
        """Names of ``asked`` that may take the pod, in that order, each once."""
        row, takes = self.question.capacity.nodes.row, self.takes
        known = ((name, row.get(name)) for name in dict.fromkeys(asked))
        return [name for name, at in known if at is not None and takes[at]]


def choice_for(pod: wire.V1Pod, found: Membership, state: ClusterState) -> Choice | Refusal:
    """Where ``pod`` may go now."""
    try:
        constraints = pods.constraints_of_spec(pod.spec)
    except ValueError as error:
        return Refusal(RefusalReason.CONSTRAINTS_UNREADABLE, f"node affinity: {error}")
    task = Task(
        found.member.task,
        1,
        found.request,
        _role(found.plan.roles.get(found.member.task, "")),
        constraints=constraints,
    )
    capacity = FreeCapacity(state.node_table, state.used(found.group))
    nobody = np.zeros(0, dtype=np.int64)
    question = ScoreQuestion(task, capacity, nobody, _peers(found, state))
    return Choice(capacity.replicas(task) > 0, question)


def scores_for(choice: Choice, names: Sequence[str], scorer: Scorer) -> tuple[FloatArray, str]:
    """A score from 0 to 1 per name, and why the rules had to step in for ``scorer``, if they had.

    ``names`` come from :meth:`Choice.among`.
    """
    row = choice.question.capacity.nodes.row
    rows = np.array([row[name] for name in names], dtype=np.int64)
    question = replace(choice.question, rows=rows)
    try:
        scores = scorer.score(question)
        fault = fault_of(scores, len(rows))
    except Exception as error:  # noqa: BLE001  # whatever a learned scorer does wrong, rules answer
        fault = told(error)
    if fault is None:
        return scores, ""
    return _rules.score(question), fault


def points(names: Sequence[str], scores: FloatArray) -> list[tuple[str, int]]:
    """The best few of ``names``, best first, with their scores in whole points from 0 to 10."""
    ranked = np.argsort(-scores, kind="stable")[:SCORED_NODES].tolist()
    return [(names[at], round(float(scores[at]) * HIGHEST_SCORE)) for at in ranked]


def _peers(found: Membership, state: ClusterState) -> dict[Role, IntArray]:
    view, row = state.view(found.group), state.node_table.row
    rows: dict[Role, list[int]] = {}
    for member, pod in view.members if view is not None else ():
        if pod is not None and pod.node in row and not pod.is_terminal:
            rows.setdefault(_role(found.plan.roles.get(member.task, "")), []).append(row[pod.node])
    return {role: np.array(taken, dtype=np.int64) for role, taken in rows.items()}


def _role(text: str) -> Role:
    return Role(text) if text in set(Role) else Role.WORKER


# Which scorer answers in score mode: that of the Active SchedulingPolicy's placer, or the rules.
#
# It is loaded beside the event loop and takes over between two calls. What cannot be loaded takes
# over nothing: what answered before goes on.

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
    return lookup.load_named(spec.checkpoint.name, directory, spec.checkpoint.sha256)


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

    def _loaded(self, policy: PolicyFacts, outcome: LoadOutcome[Scorer]) -> None:
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
