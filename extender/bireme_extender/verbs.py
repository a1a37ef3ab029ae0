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
from dataclasses import dataclass
from typing import TypeAlias

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

Answer: TypeAlias = tuple[str, bytes]
"""The outcome, as a metric label, and the reply."""

_NODES_NOT_NAMES = Refusal(
    RefusalReason.NODES_NOT_NAMES,
    "set nodeCacheCapable: true for this extender in the scheduler's configuration",
)
# Half of the scheduler's timeout; needed only after the first plan in score mode.
_NODES_WAIT_SECONDS = 1.0
_NO_POD = wire.V1Pod(metadata=wire.V1ObjectMeta())
_log = structlog.get_logger(__name__)


class CacheBehind(Exception):  # noqa: N818  # a state, not an error
    """The verdict depends on objects that the cache has not read yet."""


@dataclass(frozen=True, slots=True)
class Verbs:
    """Answers both verbs from ``state``.

    ``cache`` knows how current the state is; ``scorer`` returns the scorer of one call.
    """

    state: ClusterState
    waits: PlanWaits
    metrics: Metrics
    cache: ClusterCache
    scorer: Callable[[], Scorer] = default_scorer

    async def filter(self, body: bytes) -> bytes:
        """Return the reply to a filter request.

        Raises:
            CacheBehind: no verdict before the cache has caught up.
            one of protocol.MALFORMED: ``body`` is no such request.
        """
        began = time.perf_counter()
        args = protocol.decode(body)
        try:
            answer = await self._filter(args)
        except (CacheBehind, *protocol.MALFORMED):
            raise
        except Exception:  # noqa: BLE001  # a failed call would let the pod through unverified
            _log.exception("filter failed, the pod gets no node")
            refusal = Refusal(RefusalReason.INTERNAL_ERROR, "see the extender's log")
            answer = self._refused(args.asked, refusal)
        return self._counted("filter", answer, began)

    async def prioritize(self, body: bytes) -> bytes:
        """Return the reply to a prioritize request.

        Raises:
            one of protocol.MALFORMED: ``body`` is no such request.
        """
        began = time.perf_counter()
        args = protocol.decode(body)
        try:
            answer = await self._prioritize(args)
        except protocol.MALFORMED:
            raise
        except Exception:  # noqa: BLE001  # never a 500
            _log.exception("prioritize failed, no node is preferred")
            answer = ("failed", protocol.encode_scores([]))
        return self._counted("prioritize", answer, began)

    async def _filter(self, args: ExtenderArgs) -> Answer:
        pod = args.pod or _NO_POD
        # 1. Which planned member is the pod?
        found = _NODES_NOT_NAMES if args.has_only_nodes else membership(pod, self.state)
        # Only an open watch can still deliver the plan.
        if isinstance(found, Refusal) and found.may_heal and self.cache.is_live:
            found = await self._after_wait(pod, found)
        if isinstance(found, Refusal):
            if found.may_heal and not self.cache.is_live:
                raise CacheBehind(f"{found.message}; but the watches are not open")
            return self._refused(args.asked, found)
        # 2. Pinned: the planned node passes, if the scheduler asks about it.
        if found.plan.mode == "Pinned":
            node = found.member.node
            if args.asks_about(node):
                return "pinned", protocol.encode_names([node])
            return self._refused(args.asked, _not_offered(node))
        # 3. Score mode: every feasible node passes.
        if not await self.cache.has_nodes(_NODES_WAIT_SECONDS):
            raise CacheBehind("nodes and pods have not been read yet")
        feasible, asked = scoring.feasible_nodes(pod, found, self.state), args.asked
        if isinstance(feasible, Refusal):
            return self._refused(asked, feasible)
        if names := feasible.among(asked):
            return "scored", protocol.encode_names(names)
        return self._refused(asked, _NO_FEASIBLE_NODE)

    async def _prioritize(self, args: ExtenderArgs) -> Answer:
        pod = args.pod or _NO_POD
        found = membership(pod, self.state)
        if isinstance(found, Refusal):
            return "refused", protocol.encode_scores([])
        if found.plan.mode == "Pinned":
            node = found.member.node
            planned = [(node, scoring.HIGHEST_SCORE)] if args.asks_about(node) else []
            return "pinned", protocol.encode_scores(planned)
        # No wait here: without scores the scheduler goes on with its own.
        if not await self.cache.has_nodes(0):
            return "refused", protocol.encode_scores([])
        feasible = scoring.feasible_nodes(pod, found, self.state)
        if isinstance(feasible, Refusal):
            return "refused", protocol.encode_scores([])
        names = feasible.among(args.asked)
        scores, fault = scoring.scores_for(feasible, names, self.scorer())
        if fault:
            _log.warning("the scorer failed, the rules answered", fault=fault)
            self.metrics.fallbacks.inc()
        return "scored", protocol.encode_scores(scoring.points(names, scores))

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

    def _refused(self, asked: list[str], refusal: Refusal) -> Answer:
        self.metrics.refusals[refusal.reason].inc()
        return "refused", protocol.encode_refusal(asked, refusal.message)

    def _counted(self, verb: str, answer: Answer, began: float) -> bytes:
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
