"""Score mode: which nodes a verified pod may use, and how good they are, in whole points.

Two steps answer a pod. First the hard rules, the same as the operator's: constraints, readiness,
and free capacity beside everything that is bound or planned for other gangs. The pod's own gang
reserves nothing here, because in score mode its planned nodes are only a first proposal. Then the
scorer ranks the feasible nodes: the network of the Active SchedulingPolicy's placer if that is a
learned one, else the default rule, which also answers when the network fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import structlog

from bireme import registry
from bireme.core.errors import error_text
from bireme.core.gangs import Role, Task
from bireme.core.placement import FreeCapacity
from bireme.core.policy import ScoreQuestion, Scorer, fault_of
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.kube import pods, wire
from bireme.kube.cluster_state import ClusterState
from bireme.kube.policy_source import LoadOutcome, PolicyFacts, PolicyLoads, SchedulingPolicies
from bireme_extender.membership import Membership, Refusal, RefusalReason
from bireme_extender.metrics import Metrics

# The top of the protocol's range; the scheduler multiplies scores but does not check them.
HIGHEST_SCORE = 10

# Only this many of the best nodes get a score; a node left out of a reply simply gets none.
SCORED_NODES = 16

_DEFAULT_SCORER = registry.default_scorer()
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FeasibleNodes:
    """The nodes one pod may use: ``takes`` by row, and the question to score them, without rows."""

    takes: BoolArray
    question: ScoreQuestion

    def among(self, asked: Sequence[str]) -> list[str]:
        """Return the names of ``asked`` that are feasible, in that order, each once."""
        row, takes = self.question.capacity.nodes.row, self.takes
        known = ((name, row.get(name)) for name in dict.fromkeys(asked))
        return [name for name, at in known if at is not None and takes[at]]


def feasible_nodes(
    pod: wire.V1Pod, found: Membership, state: ClusterState
) -> FeasibleNodes | Refusal:
    """Return where ``pod`` may go now, or a refusal if its constraints cannot be read."""
    try:
        constraints = pods.constraints_of_spec(pod.spec)
    except ValueError as error:
        return Refusal(RefusalReason.CONSTRAINTS_UNREADABLE, f"node affinity: {error}")
    name = found.member.task
    task = Task(name, 1, found.request, _role(found, name), constraints=constraints)
    capacity = FreeCapacity(state.node_table, state.used(found.group))
    no_rows = np.zeros(0, dtype=np.int64)
    question = ScoreQuestion(task, capacity, no_rows, _bound_members(found, state))
    return FeasibleNodes(capacity.replicas(task) > 0, question)


def scores_for(
    feasible: FeasibleNodes, names: Sequence[str], scorer: Scorer
) -> tuple[FloatArray, str]:
    """Return a score from 0 to 1 per name, and why the default rule had to answer, if it had to.

    ``names`` come from :meth:`FeasibleNodes.among`.
    """
    row = feasible.question.capacity.nodes.row
    rows = np.array([row[name] for name in names], dtype=np.int64)
    question = replace(feasible.question, rows=rows)
    try:
        scores = scorer.score(question)
        fault = fault_of(scores, len(rows))
    except Exception as error:  # noqa: BLE001  # a learned scorer may fail in any way
        fault = error_text(error)
    if fault is None:
        return scores, ""
    return _DEFAULT_SCORER.score(question), fault


def points(names: Sequence[str], scores: FloatArray) -> list[tuple[str, int]]:
    """Return the best ``SCORED_NODES`` of ``names``, best first, with whole points from 0 to 10."""
    # Stable: of equal nodes those count that the scheduler named first.
    ranked = np.argsort(-scores, kind="stable")[:SCORED_NODES].tolist()
    return [(names[at], round(float(scores[at]) * HIGHEST_SCORE)) for at in ranked]


def _bound_members(found: Membership, state: ClusterState) -> dict[Role, IntArray]:
    """Rows of the nodes that hold members of the pod's gang, by role."""
    view, row = state.view(found.group), state.node_table.row
    rows: dict[Role, list[int]] = {}
    for member, pod in view.members if view is not None else ():
        if pod is not None and pod.node in row and not pod.is_terminal:
            rows.setdefault(_role(found, member.task), []).append(row[pod.node])
    return {role: np.array(taken, dtype=np.int64) for role, taken in rows.items()}


def _role(found: Membership, task: str) -> Role:
    text = found.plan.roles.get(task, "")
    return Role(text) if text in set(Role) else Role.WORKER


def scorer_of(facts: PolicyFacts, directory: str) -> Scorer:
    """Return the scorer of a SchedulingPolicy: its learned placer's, else the default rule.

    Raises:
        SettingError: the policy names what does not exist.
        CheckpointError: its checkpoint, from ``directory`` or shipped, cannot be used.
    """
    spec = facts.spec
    assert spec is not None  # noqa: S101  # PolicyLoads never loads a spec that cannot be read
    name, sha256 = "", None
    if spec.checkpoint is not None:
        name, sha256 = spec.checkpoint.name, spec.checkpoint.sha256
    learned = registry.learned_scorer(spec.placer or "", name, directory, sha256)
    return learned or _DEFAULT_SCORER


class ScorerLoader:
    """Scorer of the Active SchedulingPolicy, loaded beside the event loop.

    A policy that cannot be loaded takes over nothing: the scorer before it stays.

    Attributes:
        known: The SchedulingPolicies, to be fed by a watch.
        scorer: The scorer that ranks nodes now.
    """

    def __init__(self, directory: str, metrics: Metrics) -> None:
        self.known = SchedulingPolicies(self._reload)
        self.scorer: Scorer = _DEFAULT_SCORER
        self._metrics = metrics
        self._loads = PolicyLoads(lambda facts: scorer_of(facts, directory), self._loaded)

    async def close(self) -> None:
        await self._loads.close()

    def _reload(self) -> None:
        active = self.known.active
        self._loads.want([] if active is None else [active])
        if active is None:
            self._switch(_DEFAULT_SCORER)

    def _loaded(self, policy: PolicyFacts, outcome: LoadOutcome[Scorer]) -> None:
        self._metrics.policy_loads.labels("failed" if outcome.fault else "loaded").inc()
        active = self.known.active
        if outcome.value is None:
            _log.warning("policy not loaded", policy=policy.name, why=outcome.fault)
        # Another policy may have become active while this one was loaded.
        elif active is not None and active.demand == policy.demand:
            _log.info("another policy scores", policy=policy.name)
            self._switch(outcome.value)

    def _switch(self, scorer: Scorer) -> None:
        self._metrics.learned_scorer.set(scorer is not _DEFAULT_SCORER)
        self.scorer = scorer
