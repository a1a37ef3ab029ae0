"""The simulation is tested itself: bugs put into the programs on purpose do not go unnoticed."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import pytest

from bireme.core.gangs import Key
from bireme.core.node_floor import FloorDecision, PoolBounds, PoolState
from bireme.core.queue_tree import QueueTree
from bireme.kube import allocations, pods
from bireme.kube.client import ApiError
from bireme.kube.plans import PlanFacts
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme.kube.watch import Reflector
from bireme_operator import lifecycle, node_pools, status
from bireme_operator.actuator import Actuator
from bireme_operator.lease import Lease
from bireme_operator.lifecycle import PendingAction, Transition
from bireme_operator.pod_groups import PodGroups
from bireme_operator.workqueue import BackOffs
from bireme_operator.writes import Writes
from tests.support.simcluster.scheduler import Scheduler
from tests.support.simcluster.simulation import run


@dataclass(frozen=True, slots=True)
class Bug:
    """``where`` and ``name`` say what is replaced, by what ``make`` makes of the original."""

    where: Any
    name: str
    make: Callable[[Any], Any]
    breaks: tuple[str, ...]
    is_found_in_kind_worlds: bool = True
    """Else it takes what makes worlds unkind; there, sound jobs may take longer than is waited."""
    also: "tuple[Bug, ...]" = ()
    """Guards that would keep the bug from doing harm, and are taken away too."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The bug is there for as long as the block lasts."""
        with ExitStack() as stack:
            for bug in (self, *self.also):
                made = bug.make(getattr(bug.where, bug.name))
                stack.enter_context(patch.object(bug.where, bug.name, made))
            yield


def _always(_: Any) -> Any:
    return lambda *_: True


def _creating_again(original: Any) -> Any:
    async def create(self: Writes, namespace: str, build: Callable[[], dict[str, Any]]) -> int:
        try:
            written: int = await original(self, namespace, build)
        except ApiError as error:
            if error.status:
                raise
            pod = build()
            again = {**pod["metadata"], "name": pod["metadata"]["name"] + "-again"}
            written = await original(self, namespace, lambda: {**pod, "metadata": again})
        return written

    return create


def _sparing_victims(original: Any) -> Any:
    async def delete(self: Actuator, pods: Iterable[PodFacts], *, evicts: bool = False) -> None:
        if not evicts:
            await original(self, pods)

    return delete


def _releasing_first(original: Any) -> Any:
    async def admit(self: PodGroups, group: Any, plan: PlanFacts, *rest: Any) -> None:
        await self._release(group.key, plan)
        await original(self, group, plan, *rest)

    return admit


def _deaf_to_gone(original: Any) -> Any:
    async def follow(self: Reflector[Any]) -> bool:
        try:
            followed: bool = await original(self)
        except ApiError:
            self._needs_list = not self.synced.is_set()
            raise
        return followed

    return follow


def _same_attempt(original: Any) -> Any:
    def moved(before: Any, job: Any, move: Transition, now: float) -> Any:
        changed = original(before, job, move, now)
        return {**changed, "attempt": job.attempt}

    return moved


def _never_again(_: Any) -> Any:
    def are_over(self: BackOffs, key: Key) -> bool:
        return key not in self._last

    return are_over


def _keeping_plans(original: Any) -> Any:
    async def clear(self: Actuator, job: JobFacts) -> None:
        if not job.is_finished:
            await original(self, job)

    return clear


def _without_max(original: Any) -> Any:
    def floor(bounds: PoolBounds, state: PoolState, now: float) -> FloorDecision:
        decided: FloorDecision = original(replace(bounds, maximum=99), state, now)
        return decided

    return floor


def _giving_all_up(original: Any) -> Any:
    def floor(bounds: PoolBounds, state: PoolState, now: float) -> FloorDecision:
        decided: FloorDecision = original(bounds, state, now)
        return replace(decided, replicas=0 if state.needed else decided.replicas)

    return floor


def _without_limits(_: Any) -> Any:
    return lambda *_, **__: None


def _however_full(original: Any) -> Any:
    def against(self: Scheduler, *asked: Any) -> str:
        words: str = original(self, *asked)
        return "" if words.startswith("Insufficient") else words

    return against


def _never(_: Any) -> Any:
    return lambda *_: None


def _without_the_rest(original: Any) -> Any:
    def pending(job: JobFacts, view: Any, *rest: Any) -> PendingAction:
        action: PendingAction = original(job, view, *rest)
        if not action.delete_pods or job.is_finished or job.is_leaving:
            return action
        if view is not None and view.plan.attempt == job.attempt:
            return PendingAction(create=view.missing)
        return PendingAction(clear_plan=job.plan is not None)

    return pending


BUGS: dict[str, Bug] = {
    "a gang goes on without those it lost": Bug(
        lifecycle, "_interrupted", _never, ("gang-partial",), is_found_in_kind_worlds=False
    ),
    "a gang starts beside pods of its last start": Bug(
        lifecycle,
        "pending_action",
        _without_the_rest,
        ("plans-mixed",),
        also=(Bug(allocations, "in_the_way", _never, ()),),
    ),
    "a pod that a kubelet rejects is taken for a failure": Bug(
        pods, "_is_rejected", _never, ("failed-unjustly",), is_found_in_kind_worlds=False
    ),
    "a gang may start for ever": Bug(
        lifecycle, "_late", _never, ("places-kept",), is_found_in_kind_worlds=False
    ),
    "queues have no limit": Bug(QueueTree, "excess", _without_limits, ("queue-limit-exceeded",)),
    "kube-scheduler fills nodes beyond their room": Bug(
        Scheduler, "_against", _however_full, ("node-overcommitted",)
    ),
    "the lease is taken from a living leader": Bug(
        Lease, "_is_free", _always, ("epoch-went-back", "job-stuck")
    ),
    "a lost answer is taken for a failure": Bug(
        Writes, "create_pod", _creating_again, ("replica-twice", "pod-left-over")
    ),
    "victims are not evicted": Bug(Actuator, "delete_pods", _sparing_victims, ("job-stuck",)),
    "gates are lifted before the plan is written": Bug(
        PodGroups, "_admit", _releasing_first, ("off-plan", "pod-left-over")
    ),
    "a history that is gone is not listed anew": Bug(
        Reflector, "_follow", _deaf_to_gone, ("job-stuck", "plan-left-over")
    ),
    "a new start keeps its number": Bug(
        status, "moved", _same_attempt, ("replica-twice", "job-stuck", "plan-left-over")
    ),
    "what failed once is never tried again": Bug(
        BackOffs, "are_over", _never_again, ("job-stuck", "plan-left-over")
    ),
    "plans of finished jobs are kept": Bug(
        Actuator, "clear_plan", _keeping_plans, ("plan-left-over",)
    ),
    "the max of a node pool is not kept": Bug(
        node_pools, "floor", _without_max, ("pool-above-max",)
    ),
    "nodes in use are given up": Bug(node_pools, "floor", _giving_all_up, ("pool-below-needed",)),
}


MOST_SEEDS = 40
CALM_SECONDS = 200.0
"""Shorter than for sound programs: some bugs keep the operator busy for ever."""


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found_within_a_few_seeds(name: str) -> None:
    bug, found = BUGS[name], set[str]()
    with bug.planted():
        for seed in range(MOST_SEEDS):
            broken = run(seed, is_kind=bug.is_found_in_kind_worlds, calm_seconds=CALM_SECONDS)
            found |= {one.partition(":")[0] for one in broken.violations}
            if found & set(bug.breaks):
                return
    pytest.fail(f"found {found or 'nothing'} in {MOST_SEEDS} seeds")
