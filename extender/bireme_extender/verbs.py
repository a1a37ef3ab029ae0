"""The two verbs, filter and prioritize: bytes of a request in, bytes of a reply out.

Both only read the cache: nothing is reserved, and a pod that is asked about but never bound leaves
no trace. For a planned pod filter passes its one node, or none.

An error inside is answered with a refusal, not with a failed call, because the scheduler goes on
without the extender when a call fails. There is one exception: while the watches are not open the
plan cannot be known, and the call does fail. The pod is then held by its pin (node affinity), while
a refusal would make the gang wait until something else changes in the cluster.
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

    ``cache`` knows how current the state is; ``scorer`` returns the scorer of one call.
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
    """Of score mode, by verb: what an answer was made from, and the answer."""

    def __post_init__(self) -> None:
        self.choice = NodeChoice(self.state)

    def at_once(self, verb: Verb, body: bytes | memoryview) -> bytes | None:
        """Return the reply if it is known now; None if only :meth:`call` can tell what to answer.

        Nothing has been counted or used up then.
        """
        began = time.perf_counter()
        try:
            args = protocol.decode(body)
            found = self._found(verb, args)
            if isinstance(found, Refusal):
                # A refusal that may heal waits, or fails the call.
                if verb == "filter" and found.may_heal:
                    return None
            elif found.plan.mode != "Pinned" and not self.cache.knows_nodes:
                return None
            answer = self._answer(verb, args, found)
        except Exception:  # noqa: BLE001  # the call meets it again, and says what it is
            return None
        return self._counted(verb, answer, began)

    async def call(self, verb: Verb, body: bytes) -> bytes:
        """Return the reply, after a short wait where the cache has yet to deliver something.

        Raises:
            CacheBehind: no verdict of a filter call before the cache has caught up.
            one of protocol.MALFORMED: ``body`` is no such request.
        """
        began = time.perf_counter()
        args = protocol.decode(body)
        try:
            found = self._found(verb, args)
            if verb == "filter":
                found = await self._settled(args, found)
            elif not isinstance(found, Refusal) and found.plan.mode != "Pinned":
                # No wait here: without scores the scheduler goes on with its own.
                found = found if await self.cache.has_nodes(0) else _NODES_UNREAD
            answer = self._answer(verb, args, found)
        except (CacheBehind, *protocol.MALFORMED):
            raise
        except Exception:  # noqa: BLE001  # never a 500
            _log.exception("a call failed, the pod gets no node or no scores", verb=verb)
            # A failed filter call would let the pod through unverified.
            refusal = Refusal(RefusalReason.INTERNAL_ERROR, "see the extender's log")
            is_filter = verb == "filter"
            answer = self._refused(args, refusal) if is_filter else ("failed", _NO_SCORES)
        return self._counted(verb, answer, began)

    def _found(self, verb: Verb, args: ExtenderArgs) -> Membership | Refusal:
        """Return which planned member the pod is, from the cache as it is."""
        if verb == "filter" and args.has_only_nodes:
            return _NODES_NOT_NAMES
        return membership(args.pod or _NO_POD, self.state)

    async def _settled(
        self, args: ExtenderArgs, found: Membership | Refusal
    ) -> Membership | Refusal:
        """Return the verdict on a filter call once everything it depends on has been read.

        Raises:
            CacheBehind: that takes too long.
        """
        # Only an open watch can still deliver the plan.
        if isinstance(found, Refusal) and found.may_heal and self.cache.is_live:
            found = await self._after_wait(args.pod or _NO_POD, found)
        if isinstance(found, Refusal):
            if found.may_heal and not self.cache.is_live:
                raise CacheBehind(f"{found.message}; but the watches are not open")
            return found
        if found.plan.mode == "Pinned" or await self.cache.has_nodes(_NODES_WAIT_SECONDS):
            return found
        raise CacheBehind("nodes and pods have not been read yet")

    def _answer(self, verb: Verb, args: ExtenderArgs, found: Membership | Refusal) -> Answer:
        return self._filter(args, found) if verb == "filter" else self._prioritize(args, found)

    def _filter(self, args: ExtenderArgs, found: Membership | Refusal) -> Answer:
        if isinstance(found, Refusal):
            return self._refused(args, found)
        # 1. Pinned: the planned node passes, if the scheduler asks about it.
        if found.plan.mode == "Pinned":
            node = found.member.node
            if args.asks_about(node):
                return "pinned", protocol.encode_passed(protocol.encode_list([node]))
            return self._refused(args, _not_offered(node))
        # 2. Score mode: every feasible node passes.
        feasible = self.choice.feasible(args.pod or _NO_POD, found)
        if isinstance(feasible, Refusal):
            return self._refused(args, feasible)
        asked = self.choice.named(args)
        if (known := self._known("filter", feasible, asked, None)) is not None:
            return known
        passed = feasible.among(asked)
        if not passed.names:
            return self._refused(args, _NO_FEASIBLE_NODE)
        encoded = protocol.encode_list(passed.names)
        self.choice.remember(msgspec.Raw(encoded), passed)  # prioritize is asked about them next
        answer = "scored", protocol.encode_passed(encoded)
        self._last["filter"] = feasible, asked, None, answer
        return answer

    def _prioritize(self, args: ExtenderArgs, found: Membership | Refusal) -> Answer:
        if isinstance(found, Refusal):
            return "refused", _NO_SCORES
        if found.plan.mode == "Pinned":
            node = found.member.node
            planned = [(node, scoring.HIGHEST_SCORE)] if args.asks_about(node) else []
            return "pinned", protocol.encode_scores(planned)
        feasible = self.choice.feasible(args.pod or _NO_POD, found)
        if isinstance(feasible, Refusal):
            return "refused", _NO_SCORES
        asked, scorer = self.choice.named(args), self.scorer()
        if (known := self._known("prioritize", feasible, asked, scorer)) is not None:
            return known
        nodes = feasible.among(asked)
        scores, fault = scoring.scores_for(feasible, nodes, scorer)
        answer = "scored", protocol.encode_scores(scoring.points(nodes.names, scores))
        if fault:
            _log.warning("the scorer failed, the rules answered", fault=fault)
            self.metrics.fallbacks.inc()
        else:
            self._last["prioritize"] = feasible, asked, scorer, answer
        return answer

    def _known(
        self, verb: Verb, feasible: FeasibleNodes, asked: NamedNodes, scorer: Scorer | None
    ) -> Answer | None:
        """Return the last answer if it was to the same question, in an unchanged cluster."""
        of = self._last.get(verb)
        if of is None or of[0] is not feasible or of[1] is not asked or of[2] is not scorer:
            return None
        return of[3]

    async def _after_wait(self, pod: wire.V1Pod, refusal: Refusal) -> Membership | Refusal:
        """Return the verdict after a short wait for the cache, if the pod may still wait."""
        key = group_of(pod)
        if key is None or not self.waits.may_wait(pod.metadata.uid):
            return refusal
        found: Membership | Refusal = refusal

        def is_settled() -> bool:
            nonlocal found
            found = membership(pod, self.state)
            return not (isinstance(found, Refusal) and found.may_heal)

        settled = await self.waits.until(is_settled, key)
        self.metrics.plan_waits.labels("arrived" if settled else "expired").inc()
        return found

    def _refused(self, args: ExtenderArgs, refusal: Refusal) -> Answer:
        reply = protocol.encode_refusal(args.asked, refusal.message)
        self.metrics.refusals[refusal.reason].inc()
        return "refused", reply

    def _counted(self, verb: Verb, answer: Answer, began: float) -> bytes:
        outcome, reply = answer
        self.metrics.count(verb, outcome)
        self.metrics.seconds[verb].observe(time.perf_counter() - began)
        return reply


_NO_FEASIBLE_NODE = Refusal(
    RefusalReason.NO_FEASIBLE_NODE, "no node asked about has room beside what is bound and planned"
)


def _not_offered(node: str) -> Refusal:
    return Refusal(
        RefusalReason.PLANNED_NODE_NOT_OFFERED,
        f"planned node {node} was not among the nodes that passed the scheduler's own filters",
    )
