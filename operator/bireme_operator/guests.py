"""Stops pods owned by other controllers, which may count deletions as failures.

If all pods of a workload stop that can be suspended, this module suspends it for a moment
(:mod:`bireme_operator.suspensions`), and none counts as failed. It evicts all other pods: the API
server checks their PodDisruptionBudgets and sets the condition DisruptionTarget, by which a
``podFailurePolicy`` distinguishes a disruption from a failure.

If a budget protects a pod, the whole stop waits, because half a gang cannot train. Past a time
limit, and on lost nodes, pods are deleted without their budgets: this module sets the condition
first, as kube-scheduler does before it deletes a victim.
"""

import asyncio
from collections.abc import Callable, Container, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from bireme.core.gangs import Key
from bireme.kube import disruption_budgets, envelopes
from bireme.kube.allocations import Orphans
from bireme.kube.client import ApiError
from bireme.kube.conditions import disruption_target
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts
from bireme_operator.actuator import grace_override
from bireme_operator.budget_claims import BudgetClaims
from bireme_operator.lifecycle import EVICTING_SECONDS
from bireme_operator.suspensions import SuspendableOwner, Suspensions
from bireme_operator.writes import Writes

# Text that tells a budget's refusal from throttling; both have status 429.
_IS_KEPT = "disruption budget"
_TOO_MANY_REQUESTS = 429
# An error that lasts this long is reported with the API server's message.
_LASTING_SECONDS = 10.0
_log = structlog.get_logger(__name__)


class KeptByBudget(Exception):  # noqa: N818  # a state: the stop is tried again
    """A budget, or a lasting refusal, keeps a pod from stopping; the message names it."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Result of a stop: the uids of all stopping pods, and notes for users."""

    uids: frozenset[str]
    notes: tuple[str, ...]


@dataclass(slots=True)
class Guests:
    """Stops pods of PodGroups; ``clock`` is monotonic seconds, ``now`` POSIX ones."""

    writes: Writes
    suspensions: Suspensions
    claims: BudgetClaims
    lost_node: Callable[[str], str]
    """Returns the reason why a node counts as lost; empty when it does not."""
    clock: Callable[[], float]
    now: Callable[[], float]
    max_grace_seconds: int = 2**31 - 1
    """Limit of the grace period of a stopped pod."""
    _kept_since: dict[str, float] = field(default_factory=dict)

    async def stop(
        self,
        group: GroupFacts | Orphans,
        pods: Sequence[PodFacts],
        spare: Sequence[PodFacts],
        cause: str,
        *,
        overrides_budgets: bool = False,
    ) -> Stopped:
        """Stop ``pods`` of ``group``, all or none as far as budgets can tell in advance.

        Pods in ``spare`` stay, unless an owner can only be suspended with them. With
        ``overrides_budgets`` a budget keeps no pod.

        Raises:
            KeptByBudget: a budget keeps a pod; try again.
            ApiError: a pod stays, after all have been tried.
        """
        # 1. A pod on a lost node needs no budget, and no kubelet confirms its end.
        lost = [pod for pod in pods if pod.node and self.lost_node(pod.node)]
        other_pods = [pod for pod in pods if pod not in lost and not pod.is_leaving]
        notes: list[str] = []
        owners = await self.suspensions.owners(group.key, (*lost, *other_pods), spare, notes)

        # 2. Check the budgets of all pods before stopping the first.
        with_owners = [p for owner in owners for p in owner.pods if p not in (*lost, *other_pods)]
        is_overdue = overrides_budgets or self._is_overdue(group.uid)
        refusal = await self._budget_refusal(
            group, [*other_pods, *with_owners], may_ignore=is_overdue
        )
        if refusal:
            self._kept_since.setdefault(group.uid, self.clock())
        if refusal and not is_overdue:
            raise KeptByBudget(refusal)

        # 3. Suspend the owners; then no stopped pod counts as failed.
        stopped_uids = await self._suspend(group.key, owners, notes)
        other_pods = [pod for pod in other_pods if pod.uid not in stopped_uids]

        # 4. Stop the other pods one by one. Mark them first if the stop overrides a budget, or if
        #    the API server has refused evictions for as long, for any cause.
        works = [self._delete(pod, "NodeLost", self.lost_node(pod.node), 0) for pod in lost]
        if is_overdue:
            reason, message = (
                "PreemptionByScheduler",
                f"Bireme takes the gang's places back: {cause}",
            )
            works += [self._delete(pod, reason, message, self._grace(pod)) for pod in other_pods]
        else:
            works += [
                self.writes.evict_pod(pod.key, pod.uid, self._grace(pod)) for pod in other_pods
            ]
        await self._run_all(group.uid, works)
        self._kept_since.pop(group.uid, None)
        return Stopped(stopped_uids | {pod.uid for pod in pods}, tuple(notes))

    async def cut_short(self, pods: Sequence[PodFacts]) -> None:
        """Delete ending pods again that have more grace than ``max_grace_seconds``."""
        for pod in pods:
            await self.writes.delete_pod(pod.key, pod.uid, self.max_grace_seconds)

    def _grace(self, pod: PodFacts) -> int | None:
        return grace_override(pod, self.max_grace_seconds)

    async def _suspend(
        self, group: Key, owners: Sequence[SuspendableOwner], notes: list[str]
    ) -> frozenset[str]:
        """Suspend ``owners`` for a moment; return the uids of the pods that stopped with them."""
        stops = (self.suspensions.stop(owner, group) for owner in owners)
        results = await asyncio.gather(*stops, return_exceptions=True)
        stopped_uids: set[str] = set()
        for owner, result in zip(owners, results, strict=True):
            if isinstance(result, ApiError) and result.is_forbidden:
                notes.append(f"{owner.name} may not be suspended ({result.message})")
            elif isinstance(result, BaseException):
                raise result
            elif result:
                stopped_uids |= {pod.uid for pod in owner.pods}
            else:
                notes.append(f"{owner.name} did not act on its suspension")
        return frozenset(stopped_uids)

    async def _budget_refusal(
        self, group: GroupFacts | Orphans, pods: Sequence[PodFacts], *, may_ignore: bool
    ) -> str:
        """Return the refusal of a budget that protects one of ``pods``; empty if all may stop.

        With ``may_ignore`` unreadable budgets protect no pod.
        """
        if not any(pod.phase == "Running" for pod in pods):
            return ""  # budgets count only running pods
        namespace = group.key[0]
        async with self.claims.lock:
            try:
                budgets = disruption_budgets.read(await self.writes.list_budgets(namespace))
            except (ApiError, *envelopes.UNDECODABLE) as error:
                if not may_ignore:
                    raise
                _log.info("budgets not read", namespace=namespace, error=str(error))
                return ""
            pending = self.claims.pending(namespace, without=(group.uid,))
            refusal = disruption_budgets.refusal(budgets, pods, pending)
            if not refusal:
                self.claims.add(group.uid, pods)
        return refusal

    def _is_overdue(self, uid: str) -> bool:
        """Return whether budgets have kept pods of the group past the time limit."""
        since = self._kept_since.get(uid)
        return since is not None and self.clock() - since >= EVICTING_SECONDS

    async def _delete(
        self, pod: PodFacts, reason: str, message: str, grace_seconds: int | None = None
    ) -> None:
        if not pod.is_disrupted:
            condition = disruption_target(reason, message, self.now())
            try:
                await self.writes.set_condition(pod.key, pod.uid, condition)
            except ApiError as error:  # it costs the pod's owner a retry at worst
                _log.info("condition not set", pod=pod.key, error=str(error))
        await self.writes.delete_pod(pod.key, pod.uid, grace_seconds)

    async def _run_all(self, uid: str, works: Sequence[Coroutine[Any, Any, None]]) -> None:
        for result in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(result, ApiError) and result.status:
                # A budget may have shrunk meanwhile, or the API server or a webhook refuses for
                # another reason; both leave half a gang. A missing answer is no refusal.
                since = self._kept_since.setdefault(uid, self.clock())
                is_kept = result.status == _TOO_MANY_REQUESTS and _IS_KEPT in result.message
                if is_kept or self.clock() - since >= _LASTING_SECONDS:
                    raise KeptByBudget(result.message) from result
            if isinstance(result, BaseException):
                raise result

    def forget(self, uids: Container[str]) -> None:
        """Drop the records of deleted groups; ``uids`` are those of the existing ones."""
        self._kept_since = {uid: since for uid, since in self._kept_since.items() if uid in uids}
