"""Score mode: which nodes a verified pod may use, and how good they are, in whole points.

Two steps answer a pod. First the hard rules, the same as the operator's: constraints, readiness,
and free capacity beside everything that is bound or planned for other gangs. The pod's own gang
reserves nothing here, because in score mode its planned nodes are only a first proposal. Then the
scorer ranks the feasible nodes: the network of the Active SchedulingPolicy's placer if that is a
learned one, else the default rule, which also answers when the network fails.
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

# Only this many of the best nodes get a score; a node left out of a reply simply gets none.
SCORED_NODES = 16

# Kinds of replicas (request and constraints) that a gang's free capacity is kept for.
_KEPT_KINDS = 16
# Lists of names: what filter was asked and what it answered, for two pods.
_KEPT_LISTS = 4
_NO_ROWS: IntArray = np.zeros(0, dtype=np.int64)

_DEFAULT_SCORER = registry.default_scorer()
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class NamedNodes:
    """Nodes by name, each once, with their rows in the node table; -1 for one that is not in it."""

    names: list[str]
    rows: IntArray

    @classmethod
    def of(cls, asked: Sequence[str], row: Mapping[str, int]) -> "NamedNodes":
        names = list(dict.fromkeys(asked))
        rows = np.fromiter(map(row.get, names, repeat(-1)), np.int64, len(names))
        return cls(names, rows)


@dataclass(frozen=True, slots=True, eq=False)
class FeasibleNodes:
    """The nodes one pod may use: ``takes`` by row, and the question to score them, without rows."""

    takes: BoolArray
    question: ScoreQuestion

    def among(self, asked: NamedNodes) -> NamedNodes:
        """Return those of ``asked`` that are feasible, in that order."""
        is_feasible = (asked.rows >= 0) & self.takes[asked.rows]
        if is_feasible.all():
            return asked
        names = list(compress(asked.names, is_feasible.tolist()))
        return NamedNodes(names, asked.rows[is_feasible])


class NodeChoice:
    """Where pods may go now, made anew only where the cluster has changed.

    The scheduler asks twice about each pod of a gang, and between two pods little changes: the free
    capacity beside one gang's plan is kept, and corrected on the nodes whose usage changed. Also
    kept are the rows of the last lists of names: what filter passes is what prioritize is asked
    about.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._group: Key = ("", "")
        self._revision = -1
        self._used: IntArray = np.zeros((0, 0), dtype=np.int64)
        self._capacity = FreeCapacity(state.node_table, state.node_table.allocatable)
        self._bound: dict[Role, IntArray] = {}
        self._answers: dict[object, FeasibleNodes] = {}
        self._kinds: set[object] = set()
        self._named: list[tuple[msgspec.Raw, NamedNodes]] = []
        self._named_in = self._capacity.nodes

    def feasible(self, pod: wire.V1Pod, found: Membership) -> FeasibleNodes | Refusal:
        """Return where ``pod`` may go now, or a refusal if its constraints cannot be read."""
        try:
            constraints = pods.constraints_of_spec(pod.spec)
        except ValueError as error:
            return Refusal(RefusalReason.CONSTRAINTS_UNREADABLE, f"node affinity: {error}")
        self._refresh(found)
        name = found.member.task
        asked = name, found.request, constraints
        known = self._answers.get(asked)
        if known is None:
            # A resource that no node offers is one of devices, which kube-scheduler counts.
            axis = self._capacity.nodes.axis
            request = tuple(pair for pair in found.request if axis.column(pair[0]) is not None)
            task = Task(name, 1, request, _role(found, name), constraints=constraints)
            question = ScoreQuestion(task, self._capacity, _NO_ROWS, self._bound)
            known = FeasibleNodes(self._capacity.replicas(task) > 0, question)
            self._answers[asked] = known
            self._kinds.add(asked)
        return known

    def _refresh(self, found: Membership) -> None:
        state, group, table = self._state, found.group, self._state.node_table
        is_kept = group == self._group and table is self._capacity.nodes
        # Tenants choose how many kinds of pods a gang has, and each takes some memory.
        is_kept = is_kept and len(self._kinds) < _KEPT_KINDS
        if is_kept and self._revision == state.revision:
            return
        used = state.usage_without(group)
        if is_kept:
            rows = np.flatnonzero((used != self._used).any(axis=1))
            if len(rows):
                self._capacity.correct(rows, table.allocatable[rows] - used[rows])
        else:
            self._capacity = FreeCapacity(table, used)
            self._kinds.clear()
        self._answers.clear()
        self._group, self._revision, self._used = group, state.revision, used
        self._bound = _bound_members(found, state)

    def named(self, args: ExtenderArgs) -> NamedNodes:
        """Return the nodes that are asked about.

        Raises:
            one of protocol.MALFORMED: the names are no list of texts.
        """
        table = self._state.node_table
        if not args.has_names:
            return NamedNodes.of(args.asked, table.row)
        if table is not self._named_in:
            self._named, self._named_in = [], table
        for known, nodes in self._named:
            if known == args.node_names:
                return nodes
        # A copy: the names are a part of the whole body.
        return self.remember(args.node_names.copy(), NamedNodes.of(args.asked, table.row))

    def remember(self, text: msgspec.Raw, nodes: NamedNodes) -> NamedNodes:
        """Keep the nodes of a list of names, and return them."""
        if all(known != text for known, _ in self._named):
            self._named = [(text, nodes), *self._named[: _KEPT_LISTS - 1]]
        return nodes


def scores_for(
    feasible: FeasibleNodes, nodes: NamedNodes, scorer: Scorer
) -> tuple[FloatArray, str]:
    """Return a score from 0 to 1 per node, and why the default rule had to answer, if it had to.

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
    if len(scores) > SCORED_NODES:  # to sort thousands takes longer than to score them
        best = np.flatnonzero(scores >= np.partition(scores, -SCORED_NODES)[-SCORED_NODES])
    # Stable: of equal nodes those count that the scheduler named first.
    ranked = best[np.argsort(-scores[best], kind="stable")[:SCORED_NODES]].tolist()
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
    named = facts.names
    learned = registry.learned_scorer(
        named["placer"],
        named["checkpoint"],
        directory,
        named["sha256"] or None,
        named["placer_parameters"],
    )
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
