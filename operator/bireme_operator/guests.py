"""Stops pods of other controllers, which count against them what becomes of their pods.

A pod that is merely deleted counts as a failure of its own with a Job. So a Job or JobSet all of
whose pods go is suspended for a moment (:mod:`bireme_operator.suspensions`), and all other pods are
evicted: the API server asks their PodDisruptionBudgets and sets the condition DisruptionTarget, by
which a Job's ``podFailurePolicy`` tells a disruption from a failure.

What a budget keeps is waited for, with all other pods of the stop, because half a gang trains
nothing. Past a time limit, and on nodes that are lost, no budget is asked: the condition is set
first, as kube-scheduler does before it deletes a victim.
"""

import asyncio
from collections.abc import Callable, Container, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from bireme.core.gangs import Key
from bireme.kube import disruption_budgets, wire
from bireme.kube.allocations import Orphans
from bireme.kube.client import ApiError
from bireme.kube.conditions import disruption_target
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts
from bireme_operator.actuator import grace_override
from bireme_operator.budget_claims import BudgetClaims
from bireme_operator.lifecycle import EVICTING_SECONDS
from bireme_operator.suspensions import Owner, Suspensions
from bireme_operator.writes import Writes

# Of the API server's words, which are 429 like those of an overload.
_IS_KEPT = "disruption budget"
_TOO_MANY_REQUESTS = 429
# An error that lasts for so long is told in the words of the API server.
_LASTING_SECONDS = 10.0
_log = structlog.get_logger(__name__)


class KeptByBudget(Exception):  # noqa: N818  # a state: the stop is tried again
    """A budget, or a lasting refusal, keeps a pod that is to go; the message says which and how."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """What a stop came to: the uids of all pods that go, and what users should know."""

    uids: frozenset[str]
    notes: tuple[str, ...]


@dataclass(slots=True)
class Guests:
    """Stops pods of PodGroups; ``clock`` is monotonic seconds, ``now`` POSIX ones."""

    writes: Writes
    suspensions: Suspensions
    claims: BudgetClaims
    lost_node: Callable[[str], str]
    """Gives the reason for which a node counts as lost; empty when it does not."""
    clock: Callable[[], float]
    now: Callable[[], float]
    max_grace_seconds: int = 2**31 - 1
    """The most grace that a pod gets which is stopped."""
    _kept_since: dict[str, float] = field(default_factory=dict)

    async def stop(
        self,
        group: GroupFacts | Orphans,
        pods: Sequence[PodFacts],
        spare: Sequence[PodFacts],
        why: str,
        *,
        overrides_budgets: bool = False,
    ) -> Stopped:
        """Stop ``pods`` of ``group``, all of them or none as far as budgets can tell.

        Those in ``spare`` stay, unless an owner can only be suspended with them. Where it
        ``overrides_budgets``, these are not asked.

        Raises:
            KeptByBudget: a budget keeps one. To be tried again.
            ApiError: one stays, after all have been tried.
        """
        # 1. On a lost node nothing runs that a budget could keep, and no kubelet confirms an end.
        lost = [pod for pod in pods if pod.node and self.lost_node(pod.node)]
        others = [pod for pod in pods if pod not in lost and not pod.is_leaving]
        notes: list[str] = []
        owners = await self.suspensions.owners(group.key, (*lost, *others), spare, notes)

        # 2. Budgets are asked about all pods before one is touched.
        with_owners = [p for owner in owners for p in owner.pods if p not in (*lost, *others)]
        is_overdue = overrides_budgets or self._is_overdue(group.uid)
        kept = await self._kept(group, [*others, *with_owners], may_ignore=is_overdue)
        if kept:
            self._kept_since.setdefault(group.uid, self.clock())
        if kept and not is_overdue:
            raise KeptByBudget(kept)

        # 3. Through their owners, which counts against nobody.
        went = await self._suspend(group.key, owners, notes)
        others = [pod for pod in others if pod.uid not in went]

        # 4. One by one; where a budget is overridden, or the API server has refused evictions for
        #    as long whatever budgets say, marked first.
        works = [self._delete(pod, "NodeLost", self.lost_node(pod.node), 0) for pod in lost]
        if is_overdue:
            reason, message = "PreemptionByScheduler", f"Bireme takes the gang's places back: {why}"
            works += [self._delete(pod, reason, message, self._grace(pod)) for pod in others]
        else:
            works += [self.writes.evict_pod(pod.key, pod.uid, self._grace(pod)) for pod in others]
        await self._all(group.uid, works)
        self._kept_since.pop(group.uid, None)
        return Stopped(went | {pod.uid for pod in pods}, tuple(notes))

    async def cut_short(self, pods: Sequence[PodFacts]) -> None:
        """Delete pods again that are ending and have more grace than stops grant."""
        for pod in pods:
            await self.writes.delete_pod(pod.key, pod.uid, self.max_grace_seconds)

    def _grace(self, pod: PodFacts) -> int | None:
        return grace_override(pod, self.max_grace_seconds)

    async def _suspend(
        self, group: Key, owners: Sequence[Owner], notes: list[str]
    ) -> frozenset[str]:
        """Suspend ``owners`` for a moment; return the uids of the pods that went with them."""
        stops = (self.suspensions.stop(owner, group) for owner in owners)
        results = await asyncio.gather(*stops, return_exceptions=True)
        went: set[str] = set()
        for owner, result in zip(owners, results, strict=True):
            if isinstance(result, ApiError) and result.is_forbidden:
                notes.append(f"{owner.name} may not be suspended ({result.message})")
            elif isinstance(result, BaseException):
                raise result
            elif result:
                went |= {pod.uid for pod in owner.pods}
            else:
                notes.append(f"{owner.name} did not act on its suspension")
        return frozenset(went)

    async def _kept(
        self, group: GroupFacts | Orphans, pods: Sequence[PodFacts], *, may_ignore: bool
    ) -> str:
        """Return which budget keeps one of ``pods`` and how; empty if none does, and all may go.

        Where ``may_ignore``, budgets that cannot be read keep none.
        """
        if not any(pod.phase == "Running" for pod in pods):
            return ""  # no budget counts the others
        namespace = group.key[0]
        async with self.claims.lock:
            try:
                budgets = disruption_budgets.read(await self.writes.list_budgets(namespace))
            except (ApiError, *wire.UNDECODABLE) as error:
                if not may_ignore:
                    raise
                _log.info("budgets not read", namespace=namespace, error=str(error))
                return ""
            going = self.claims.pending(namespace, without=(group.uid,))
            kept = disruption_budgets.refusal(budgets, pods, going)
            if not kept:
                self.claims.add(group.uid, pods)
        return kept

    def _is_overdue(self, uid: str) -> bool:
        """Return whether pods of the group have been kept for as long as budgets are asked."""
        since = self._kept_since.get(uid)
        return since is not None and self.clock() - since >= EVICTING_SECONDS

    async def _delete(
        self, pod: PodFacts, reason: str, message: str, grace_seconds: int | None = None
    ) -> None:
        if not pod.is_disrupted:
            condition = disruption_target(reason, message, self.now())
            try:
                await self.writes.set_condition(pod.key, pod.uid, condition)
            except ApiError as error:  # it costs the pod's Job a retry at worst
                _log.info("condition not set", pod=pod.key, error=str(error))
        await self.writes.delete_pod(pod.key, pod.uid, grace_seconds)

    async def _all(self, uid: str, works: Sequence[Coroutine[Any, Any, None]]) -> None:
        for result in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(result, ApiError) and result.status:
                # A budget has shrunk meanwhile, or the API server or a webhook refuses for another
                # reason: it does not matter to half a gang which. No answer at all is no refusal.
                since = self._kept_since.setdefault(uid, self.clock())
                is_kept = result.status == _TOO_MANY_REQUESTS and _IS_KEPT in result.message
                if is_kept or self.clock() - since >= _LASTING_SECONDS:
                    raise KeptByBudget(result.message) from result
            if isinstance(result, BaseException):
                raise result

    def forget(self, uids: Container[str]) -> None:
        """Drop what is remembered of groups that are gone; ``uids`` are those that exist."""
        self._kept_since = {uid: at for uid, at in self._kept_since.items() if uid in uids}
