"""The two verbs, filter and prioritize: bytes of a request in, bytes of a reply out.

Both only read the cache: nothing is reserved, and a pod that is never bound leaves no trace. For a
pinned pod filter passes its planned node, or none.

An internal error becomes a refusal and not a failed call, because the scheduler continues without
the extender when a call fails. There is one exception: without open watches the plan is unknown,
and the call fails. The pod's pin (node affinity) then still protects it. A refusal would make the
gang wait until something else changes in the cluster.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec
import structlog

from bireme.core.policy import Scorer
from bireme.kube import wire
from bireme.kube.cluster_state import ClusterState
from bireme.registry import default_scorer
from bireme_extender import protocol, scoring
from bireme_extender.cache import ClusterCache, PlanWaits
from bireme_extender.membership import Membership, Refusal, RefusalReason, group_of, membership
from bireme_extender.metrics import Metrics
from bireme_extender.protocol import ExtenderArgs
from bireme_extender.scoring import FeasibleNodes, NamedNodes, NodeChoice

Verb: TypeAlias = Literal["filter", "prioritize"]
Answer: TypeAlias = tuple[str, bytes]
"""The outcome, as a metric label, and the reply."""

_NODES_NOT_NAMES = Refusal(
    RefusalReason.NODES_NOT_NAMES,
    "set nodeCacheCapable: true for this extender in the scheduler's configuration",
)
# Half of the scheduler's timeout; needed only after the first plan in score mode.
_NODES_WAIT_SECONDS = 1.0
_NODES_UNREAD = Refusal(RefusalReason.NO_FEASIBLE_NODE, "nodes and pods have not been read yet")
_NO_POD = wire.V1Pod(metadata=wire.PodMeta())
_NO_SCORES = protocol.encode_scores([])
_log = structlog.get_logger(__name__)


class CacheBehind(Exception):  # noqa: N818  # a state, not an error
    """The verdict depends on objects that the cache has not read yet."""


@dataclass(slots=True)
class Verbs:
    """Answers both verbs from ``state``.

    ``cache`` tells whether the state is current; ``scorer`` returns the scorer of one call.
    """

    state: ClusterState
    waits: PlanWaits
    metrics: Metrics
    cache: ClusterCache
    scorer: Callable[[], Scorer] = default_scorer
    choice: NodeChoice = field(init=False)
    _last: dict[Verb, tuple[FeasibleNodes, NamedNodes, Scorer | None, Answer]] = field(
        init=False, default_factory=dict
    )
    """The last answer of score mode by verb, with its inputs."""

    def __post_init__(self) -> None:
        self.choice = NodeChoice(self.state)

    def at_once(self, verb: Verb, body: bytes | memoryview) -> bytes | None:
        """Return the reply if it is known now; None if only :meth:`call` can answer.

        None has no side effects: no metric is counted and no wait is used up.
        """
        began = time.perf_counter()
        try:
            args = protocol.decode(body)
            verdict = self._verdict(verb, args)
            if isinstance(verdict, Refusal):
                # After a refusal that may heal, the call waits or fails.
                if verb == "filter" and verdict.may_heal:
                    return None
            elif verdict.plan.mode != "Pinned" and not self.cache.knows_nodes:
                return None
            answer = self._answer(verb, args, verdict)
        except Exception:  # noqa: BLE001  # call() raises it again, and reports it
            return None
        return self._count(verb, answer, began)

    async def call(self, verb: Verb, body: bytes) -> bytes:
        """Return the reply, after a short wait if the cache lags.

        Raises:
            CacheBehind: a filter call has no verdict until the cache has caught up.
            one of protocol.MALFORMED: ``body`` is no such request.
        """
        began = time.perf_counter()
        args = protocol.decode(body)
        try:
            verdict = self._verdict(verb, args)
            if verb == "filter":
                verdict = await self._final_verdict(args, verdict)
            elif not isinstance(verdict, Refusal) and verdict.plan.mode != "Pinned":
                # No wait here: without scores the scheduler continues with its own.
                verdict = verdict if await self.cache.has_nodes(0) else _NODES_UNREAD
            answer = self._answer(verb, args, verdict)
        except (CacheBehind, *protocol.MALFORMED):
            raise
        except Exception:  # noqa: BLE001  # never a 500
            _log.exception("a call failed, the pod gets no node or no scores", verb=verb)
            # A failed filter call would let the pod through unverified.
            refusal = Refusal(RefusalReason.INTERNAL_ERROR, "see the extender's log")
            is_filter = verb == "filter"
            answer = self._refuse(args, refusal) if is_filter else ("failed", _NO_SCORES)
        return self._count(verb, answer, began)

    def _verdict(self, verb: Verb, args: ExtenderArgs) -> Membership | Refusal:
        """Return the membership of the pod by the current cache, or the refusal."""
        if verb == "filter" and args.has_only_nodes:
            return _NODES_NOT_NAMES
        return membership(args.pod or _NO_POD, self.state)

    async def _final_verdict(
        self, args: ExtenderArgs, verdict: Membership | Refusal
    ) -> Membership | Refusal:
        """Return the verdict on a filter call once the cache has all its inputs.

        Raises:
            CacheBehind: that takes too long.
        """
        # Only an open watch can still deliver the plan.
        if isinstance(verdict, Refusal) and verdict.may_heal and self.cache.is_live:
            verdict = await self._after_wait(args.pod or _NO_POD, verdict)
        if isinstance(verdict, Refusal):
            if verdict.may_heal and not self.cache.is_live:
                raise CacheBehind(f"{verdict.message}; but the watches are not open")
            return verdict
        if verdict.plan.mode == "Pinned" or await self.cache.has_nodes(_NODES_WAIT_SECONDS):
            return verdict
        raise CacheBehind("nodes and pods have not been read yet")

    def _answer(self, verb: Verb, args: ExtenderArgs, verdict: Membership | Refusal) -> Answer:
        return self._filter(args, verdict) if verb == "filter" else self._prioritize(args, verdict)

    def _filter(self, args: ExtenderArgs, verdict: Membership | Refusal) -> Answer:
        if isinstance(verdict, Refusal):
            return self._refuse(args, verdict)
        # 1. Pinned: the planned node passes if it is a candidate of the scheduler.
        if verdict.plan.mode == "Pinned":
            node = verdict.member.node
            if args.asks_about(node):
                return "pinned", protocol.encode_passed(protocol.encode_list([node]))
            return self._refuse(args, _not_offered(node))
        # 2. Score mode: every feasible node passes.
        feasible = self.choice.feasible(args.pod or _NO_POD, verdict)
        if isinstance(feasible, Refusal):
            return self._refuse(args, feasible)
        candidates = self.choice.nodes_of(args)
        if (cached := self._last_answer("filter", feasible, candidates, None)) is not None:
            return cached
        suitable = feasible.among(candidates)
        if not suitable.names:
            return self._refuse(args, _NO_FEASIBLE_NODE)
        encoded = protocol.encode_list(suitable.names)
        self.choice.remember(msgspec.Raw(encoded), suitable)  # the candidates of prioritize
        answer = "scored", protocol.encode_passed(encoded)
        self._last["filter"] = feasible, candidates, None, answer
        return answer

    def _prioritize(self, args: ExtenderArgs, verdict: Membership | Refusal) -> Answer:
        if isinstance(verdict, Refusal):
            return "refused", _NO_SCORES
        if verdict.plan.mode == "Pinned":
            node = verdict.member.node
            planned = [(node, scoring.HIGHEST_SCORE)] if args.asks_about(node) else []
            return "pinned", protocol.encode_scores(planned)
        feasible = self.choice.feasible(args.pod or _NO_POD, verdict)
        if isinstance(feasible, Refusal):
            return "refused", _NO_SCORES
        candidates, scorer = self.choice.nodes_of(args), self.scorer()
        if (cached := self._last_answer("prioritize", feasible, candidates, scorer)) is not None:
            return cached
        nodes = feasible.among(candidates)
        scores, fault = scoring.scores_for(feasible, nodes, scorer)
        answer = "scored", protocol.encode_scores(scoring.points(nodes.names, scores))
        if fault:
            _log.warning("the scorer failed, the rules answered", fault=fault)
            self.metrics.fallbacks.inc()
        else:
            self._last["prioritize"] = feasible, candidates, scorer, answer
        return answer

    def _last_answer(
        self, verb: Verb, feasible: FeasibleNodes, candidates: NamedNodes, scorer: Scorer | None
    ) -> Answer | None:
        """Return the last answer if it has the same inputs and the cluster is unchanged."""
        last = self._last.get(verb)
        if (
            last is None
            or last[0] is not feasible
            or last[1] is not candidates
            or last[2] is not scorer
        ):
            return None
        return last[3]

    async def _after_wait(self, pod: wire.V1Pod, refusal: Refusal) -> Membership | Refusal:
        """Return the verdict after a short wait for the cache, if the pod may still wait."""
        key = group_of(pod)
        if key is None or not self.waits.may_wait(pod.metadata.uid):
            return refusal
        verdict: Membership | Refusal = refusal

        def is_settled() -> bool:
            nonlocal verdict
            verdict = membership(pod, self.state)
            return not (isinstance(verdict, Refusal) and verdict.may_heal)

        arrived = await self.waits.until(is_settled, key)
        self.metrics.plan_waits.labels("arrived" if arrived else "expired").inc()
        return verdict

    def _refuse(self, args: ExtenderArgs, refusal: Refusal) -> Answer:
        reply = protocol.encode_refusal(args.candidates, refusal.message)
        self.metrics.refusals[refusal.reason].inc()
        return "refused", reply

    def _count(self, verb: Verb, answer: Answer, began: float) -> bytes:
        outcome, reply = answer
        self.metrics.count(verb, outcome)
        self.metrics.seconds[verb].observe(time.perf_counter() - began)
        return reply


_NO_FEASIBLE_NODE = Refusal(
    RefusalReason.NO_FEASIBLE_NODE, "no offered node has room beside bound and planned pods"
)


def _not_offered(node: str) -> Refusal:
    return Refusal(
        RefusalReason.PLANNED_NODE_NOT_OFFERED,
        f"planned node {node} was not among the nodes that passed the scheduler's own filters",
    )
