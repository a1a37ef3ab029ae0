"""Score mode: the feasible nodes of a verified pod, and their scores in whole points.

The first step applies the operator's hard rules: constraints, readiness, and the capacity that is
free of bound pods and of plans of other gangs. The pod's own gang reserves nothing here, because in
score mode its planned nodes are only a first proposal. The second step ranks the feasible nodes.
The scorer is the network of the Active SchedulingPolicy's placer if that is a learned one, else the
default rule. The default rule also answers when the network fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, repeat

import msgspec
import numpy as np
import structlog

from bireme import registry
from bireme.core.errors import error_text
from bireme.core.gangs import Key, Role, Task
from bireme.core.placement import FreeCapacity
from bireme.core.policy import ScoreQuestion, Scorer, fault_of
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.kube import pods, wire
from bireme.kube.cluster_state import ClusterState
from bireme.kube.policy_source import LoadOutcome, PolicyFacts, PolicyLoads, SchedulingPolicies
from bireme_extender.membership import Membership, Refusal, RefusalReason
from bireme_extender.metrics import Metrics
from bireme_extender.protocol import ExtenderArgs

# The top of the protocol's range; the scheduler multiplies scores but does not check them.
HIGHEST_SCORE = 10

# Number of best nodes that get a score; nodes outside of the reply get none.
SCORED_NODES = 16

# Cached kinds of replicas (request and constraints) of a gang.
_KEPT_KINDS = 16
# Cached lists of names: the candidates and the answer of filter, for two pods.
_KEPT_LISTS = 4
_NO_ROWS: IntArray = np.zeros(0, dtype=np.int64)

_DEFAULT_SCORER = registry.default_scorer()
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class NamedNodes:
    """Distinct nodes by name, with their rows in the node table; -1 for unknown nodes."""

    names: list[str]
    rows: IntArray

    @classmethod
    def of(cls, candidates: Sequence[str], row: Mapping[str, int]) -> "NamedNodes":
        names = list(dict.fromkeys(candidates))
        rows = np.fromiter(map(row.get, names, repeat(-1)), np.int64, len(names))
        return cls(names, rows)


@dataclass(frozen=True, slots=True, eq=False)
class FeasibleNodes:
    """The feasible nodes of one pod: ``takes`` by row, and the scorer's question without rows."""

    takes: BoolArray
    question: ScoreQuestion

    def among(self, nodes: NamedNodes) -> NamedNodes:
        """Return the feasible nodes among ``nodes``, in that order."""
        is_feasible = (nodes.rows >= 0) & self.takes[nodes.rows]
        if is_feasible.all():
            return nodes
        names = list(compress(nodes.names, is_feasible.tolist()))
        return NamedNodes(names, nodes.rows[is_feasible])


class NodeChoice:
    """Feasible nodes of pods; only changed nodes are computed again.

    The scheduler calls twice for each pod of a gang, and little changes between two pods. So the
    free capacity for one gang is cached, and corrected on the nodes whose usage changed. The rows
    of the last lists of names are cached too: prioritize gets the nodes that filter passed.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._group: Key = ("", "")
        self._revision = -1
        self._used: IntArray = np.zeros((0, 0), dtype=np.int64)
        self._capacity = FreeCapacity(state.nodes.table, state.nodes.table.allocatable)
        self._bound: dict[Role, IntArray] = {}
        self._answers: dict[object, FeasibleNodes] = {}
        self._kinds: set[object] = set()
        self._named: list[tuple[msgspec.Raw, NamedNodes]] = []
        self._named_in = self._capacity.nodes

    def feasible(self, pod: wire.V1Pod, membership: Membership) -> FeasibleNodes | Refusal:
        """Return the feasible nodes of ``pod``, or a refusal if its constraints cannot be read."""
        try:
            constraints = pods.constraints_of_spec(pod.spec)
        except ValueError as error:
            return Refusal(RefusalReason.CONSTRAINTS_UNREADABLE, f"node affinity: {error}")
        self._refresh(membership)
        name = membership.member.task
        kind = name, membership.request, constraints
        cached = self._answers.get(kind)
        if cached is None:
            # A resource that no node offers is a device class: kube-scheduler counts it.
            axis = self._capacity.nodes.axis
            request = tuple(pair for pair in membership.request if axis.column(pair[0]) is not None)
            task = Task(name, 1, request, _role(membership, name), constraints=constraints)
            question = ScoreQuestion(task, self._capacity, _NO_ROWS, self._bound)
            cached = FeasibleNodes(self._capacity.replicas(task) > 0, question)
            self._answers[kind] = cached
            self._kinds.add(kind)
        return cached

    def _refresh(self, membership: Membership) -> None:
        state, group, table = self._state, membership.group, self._state.nodes.table
        is_kept = group == self._group and table is self._capacity.nodes
        # Tenants choose the number of kinds of pods in a gang, and each takes some memory.
        is_kept = is_kept and len(self._kinds) < _KEPT_KINDS
        if is_kept and self._revision == state.changes.revision:
            return
        used = state.usage.without(group)
        if is_kept:
            rows = np.flatnonzero((used != self._used).any(axis=1))
            if len(rows):
                self._capacity.correct(rows, table.allocatable[rows] - used[rows])
        else:
            self._capacity = FreeCapacity(table, used)
            self._kinds.clear()
        self._answers.clear()
        self._group, self._revision, self._used = group, state.changes.revision, used
        self._bound = _member_rows(membership, state)

    def nodes_of(self, args: ExtenderArgs) -> NamedNodes:
        """Return the candidate nodes of a request.

        Raises:
            one of protocol.MALFORMED: the names are no list of texts.
        """
        table = self._state.nodes.table
        if not args.has_names:
            return NamedNodes.of(args.candidates, table.row)
        if table is not self._named_in:
            self._named, self._named_in = [], table
        for cached, nodes in self._named:
            if cached == args.node_names:
                return nodes
        # A copy: the names are a part of the whole body.
        return self.remember(args.node_names.copy(), NamedNodes.of(args.candidates, table.row))

    def remember(self, text: msgspec.Raw, nodes: NamedNodes) -> NamedNodes:
        """Keep the nodes of a list of names, and return them."""
        if all(cached != text for cached, _ in self._named):
            self._named = [(text, nodes), *self._named[: _KEPT_LISTS - 1]]
        return nodes


def scores_for(
    feasible: FeasibleNodes, nodes: NamedNodes, scorer: Scorer
) -> tuple[FloatArray, str]:
    """Return a score from 0 to 1 per node, and the error of the scorer if the default rule answers.

    ``nodes`` come from :meth:`FeasibleNodes.among`.
    """
    question = replace(feasible.question, rows=nodes.rows)
    try:
        scores = scorer.score(question)
        fault = fault_of(scores, len(nodes.rows))
    except Exception as error:  # noqa: BLE001  # a learned scorer may fail in any way
        fault = error_text(error)
    if fault is None:
        return scores, ""
    return _DEFAULT_SCORER.score(question), fault


def points(names: Sequence[str], scores: FloatArray) -> list[tuple[str, int]]:
    """Return the best ``SCORED_NODES`` of ``names``, best first, with whole points from 0 to 10."""
    best = np.arange(len(scores))
    if len(scores) > SCORED_NODES:  # sorting thousands takes longer than scoring them
        best = np.flatnonzero(scores >= np.partition(scores, -SCORED_NODES)[-SCORED_NODES])
    # A stable sort: among equal nodes the scheduler's order decides.
    ranked = best[np.argsort(-scores[best], kind="stable")[:SCORED_NODES]].tolist()
    return [(names[index], round(float(scores[index]) * HIGHEST_SCORE)) for index in ranked]


def _member_rows(membership: Membership, state: ClusterState) -> dict[Role, IntArray]:
    """Return the rows of the nodes with members of the pod's gang, by role."""
    view, row = state.views.get(membership.group), state.nodes.table.row
    rows: dict[Role, list[int]] = {}
    for member, pod in view.members if view is not None else ():
        if pod is not None and pod.node in row and not pod.is_terminal:
            rows.setdefault(_role(membership, member.task), []).append(row[pod.node])
    return {role: np.array(node_rows, dtype=np.int64) for role, node_rows in rows.items()}


def _role(membership: Membership, task: str) -> Role:
    text = membership.plan.roles.get(task, "")
    return Role(text) if text in set(Role) else Role.WORKER


def scorer_of(facts: PolicyFacts, directory: str) -> Scorer:
    """Return the scorer of a SchedulingPolicy: its learned placer's, else the default rule.

    Raises:
        SettingError: the policy names an unknown placer or parameter.
        CheckpointError: its checkpoint, from ``directory`` or shipped, cannot be used.
    """
    names = facts.names
    learned = registry.learned_scorer(
        names["placer"],
        names["checkpoint"],
        directory,
        names["sha256"] or None,
        names["placer_parameters"],
    )
    return learned or _DEFAULT_SCORER


class ScorerLoader:
    """Scorer of the Active SchedulingPolicy, loaded outside the event loop.

    If a policy cannot be loaded, the previous scorer stays.

    Attributes:
        known: The SchedulingPolicies, to be fed by a watch.
        scorer: The scorer that ranks nodes now.
    """

    def __init__(self, directory: str, metrics: Metrics) -> None:
        self.known = SchedulingPolicies(self._reload)
        self.scorer: Scorer = _DEFAULT_SCORER
        self._metrics = metrics
        self._loads = PolicyLoads(lambda facts: scorer_of(facts, directory), self._on_load)

    async def close(self) -> None:
        await self._loads.close()

    def _reload(self) -> None:
        active = self.known.active
        self._loads.want([] if active is None else [active])
        if active is None:
            self._switch(_DEFAULT_SCORER)

    def _on_load(self, policy: PolicyFacts, outcome: LoadOutcome[Scorer]) -> None:
        self._metrics.policy_loads.labels("failed" if outcome.fault else "loaded").inc()
        active = self.known.active
        if outcome.value is None:
            _log.warning("policy not loaded", policy=policy.name, why=outcome.fault)
        # Another policy may have become active during the load.
        elif active is not None and active.demand == policy.demand:
            _log.info("another policy scores", policy=policy.name)
            self._switch(outcome.value)

    def _switch(self, scorer: Scorer) -> None:
        self._metrics.learned_scorer.set(scorer is not _DEFAULT_SCORER)
        self.scorer = scorer
