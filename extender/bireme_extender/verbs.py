"""Filter and prioritize: bytes of a request in, bytes of a reply out.

Both are pure reads of the cache: nothing is reserved, the same request gets the same answer, and
a pod that is asked about and never bound leaves no trace. Filter decides for planned pods: one
node passes, or none. What goes wrong inside is a refusal, not a failed call: the scheduler takes a
failed call as leave to go on without the extender. Only an extender that cannot know the plan yet,
because its watches are not open, fails the call: the pod's pin then says where it belongs, while a
refusal would hold the gang until something else changes in the cluster.
"""

import time
from typing import Protocol, TypeAlias

import structlog

from bireme.core.policy import Scorer
from bireme.heuristics.scoring import BestFit
from bireme.kube import wire
from bireme.kube.cluster_state import ClusterState
from bireme_extender import protocol, scoring
from bireme_extender.membership import (
    Membership,
    PlanWaits,
    Refusal,
    RefusalReason,
    group_of,
    membership,
)
from bireme_extender.metrics import Metrics
from bireme_extender.protocol import ExtenderArgs

Answer: TypeAlias = tuple[str, bytes]
"""What happened, as a metric label, and the reply."""

_NODES_NOT_NAMES = Refusal(
    RefusalReason.NODES_NOT_NAMES,
    "set nodeCacheCapable: true for this extender in the scheduler's configuration",
)
_NODES_WAIT_SECONDS = 1.0
"""Half of what the scheduler allows a call; only ever spent after the first plan in score mode."""
_NOBODY = wire.V1Pod(metadata=wire.V1ObjectMeta())
_log = structlog.get_logger(__name__)


class CacheBehind(Exception):  # noqa: N818  # a state, not a mistake
    """The verdict depends on what the cache has not read."""


class Freshness(Protocol):
    """What the verbs need to know of how current their cache is."""

    @property
    def is_live(self) -> bool:
        """Whether all plans have been read and changes are being followed."""

    async def has_nodes(self, timeout_seconds: float) -> bool:
        """Whether all nodes and pods have been read; they are, from the first question on."""


class Verbs:
    """The two verbs over one cache, ``state``, which is as current as ``freshness`` says.

    ``scorer`` may be another one from any call on.
    """

    def __init__(
        self,
        state: ClusterState,
        waits: PlanWaits,
        metrics: Metrics,
        freshness: Freshness,
        scorer: Scorer | None = None,
    ) -> None:
        self._state = state
        self._waits = waits
        self._metrics = metrics
        self._freshness = freshness
        self.scorer = scorer or BestFit()

    async def filter(self, body: bytes) -> bytes:
        """The reply to a filter request.

        Raises:
            CacheBehind: no verdict before the cache has caught up.
            one of exchange.MALFORMED: ``body`` is no such request.
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
        """The reply to a prioritize request.

        Raises:
            one of exchange.MALFORMED: ``body`` is no such request.
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
        pod = args.pod or _NOBODY
        found = _NODES_NOT_NAMES if args.has_only_nodes else membership(pod, self._state)
        if isinstance(found, Refusal) and found.may_heal and self._freshness.is_live:
            found = await self._after_wait(pod, found)
        if isinstance(found, Refusal):
            if found.may_heal and not self._freshness.is_live:
                raise CacheBehind(f"{found.message}; but the watches are not open")
            return self._refused(args.asked, found)
        if found.plan.mode == "Pinned":
            node = found.member.node
            if args.asks_about(node):
                return "pinned", protocol.encode_names([node])
            return self._refused(args.asked, _not_offered(node))
        if not await self._freshness.has_nodes(_NODES_WAIT_SECONDS):
            raise CacheBehind("nodes and pods have not been read yet")
        options, asked = scoring.choice_for(pod, found, self._state), args.asked
        if isinstance(options, Refusal):
            return self._refused(asked, options)
        if names := options.among(asked):
            return "scored", protocol.encode_names(names)
        return self._refused(asked, _NO_FEASIBLE_NODE)

    async def _prioritize(self, args: ExtenderArgs) -> Answer:
        pod = args.pod or _NOBODY
        found = membership(pod, self._state)
        if isinstance(found, Refusal):
            return "refused", protocol.encode_scores([])
        if found.plan.mode == "Pinned":
            node = found.member.node
            planned = [(node, scoring.HIGHEST_SCORE)] if args.asks_about(node) else []
            return "pinned", protocol.encode_scores(planned)
        if not await self._freshness.has_nodes(0):
            return "refused", protocol.encode_scores([])
        options = scoring.choice_for(pod, found, self._state)
        if isinstance(options, Refusal):
            return "refused", protocol.encode_scores([])
        names = options.among(args.asked)
        scores, fault = scoring.scores_for(options, names, self.scorer)
        if fault:
            _log.warning("the scorer failed, the rules answered", fault=fault)
            self._metrics.fallbacks.inc()
        return "scored", protocol.encode_scores(scoring.points(names, scores))

    async def _after_wait(self, pod: wire.V1Pod, refusal: Refusal) -> Membership | Refusal:
        """The verdict once the cache has caught up, if the pod may wait and it does in time."""
        key = group_of(pod)
        if key is None or not self._waits.may_wait(pod.metadata.uid):
            return refusal
        found: Membership | Refusal = refusal

        def is_settled() -> bool:
            nonlocal found
            found = membership(pod, self._state)
            return not (isinstance(found, Refusal) and found.may_heal)

        settled = await self._waits.until(is_settled, key)
        self._metrics.plan_waits.labels("arrived" if settled else "expired").inc()
        return found

    def _refused(self, asked: list[str], refusal: Refusal) -> Answer:
        self._metrics.refusals[refusal.reason].inc()
        return "refused", protocol.encode_refusal(asked, refusal.message)

    def _counted(self, verb: str, answer: Answer, began: float) -> bytes:
        outcome, reply = answer
        self._metrics.count(verb, outcome)
        self._metrics.seconds[verb].observe(time.perf_counter() - began)
        return reply


_NO_FEASIBLE_NODE = Refusal(
    RefusalReason.NO_FEASIBLE_NODE,
    "no node asked about has room beside what is bound and planned",
)


def _not_offered(node: str) -> Refusal:
    return Refusal(
        RefusalReason.PLANNED_NODE_NOT_OFFERED,
        f"planned node {node} was not among the nodes that passed the scheduler's own filters",
    )
