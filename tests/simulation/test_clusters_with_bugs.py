"""The simulation is tested itself: bugs put into the programs on purpose do not go unnoticed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import pytest

from bireme.core import candidates
from bireme.core.gangs import AffinityMode, Gang, Key
from bireme.core.node_floor import FloorDecision, PoolBounds, PoolState
from bireme.core.queue_tree import QueueTree
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.kube import allocations, nodes, pods, training_jobs, volume_objects
from bireme.kube.client import ApiError
from bireme.kube.plans import PlanFacts
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme.kube.volumes import Volumes
from bireme.kube.watch import Reflector
from bireme_operator import cluster_reports, lifecycle, node_pools, status
from bireme_operator.actuator import Actuator
from bireme_operator.adoptions import Adoptions
from bireme_operator.dry_runs import DryRuns
from bireme_operator.events import Events
from bireme_operator.leader_records import LeaderRecord
from bireme_operator.lifecycle import PendingAction, Transition
from bireme_operator.pod_groups import PodGroups
from bireme_operator.start_failures import StartFailures
from bireme_operator.status import Urgency
from bireme_operator.status_writer import StatusWriter
from bireme_operator.workqueue import BackOffs
from bireme_operator.writes import PrioritySemaphore, Writes
from testbed.history import observer
from testbed.history.observer import INVARIANTS
from testbed.simcluster.judge import PROMISES
from testbed.simcluster.scheduler import Scheduler
from testbed.simcluster.simulation import run
from testbed.simcluster.world import World

KIND = World()


@dataclass(frozen=True, slots=True)
class Bug:
    """``where`` and ``name`` say what is replaced, by what ``make`` makes of the original."""

    where: Any
    name: str
    make: Callable[[Any], Any]
    breaks: tuple[str, ...]
    world: World = KIND
    """What it takes besides faults to find it."""
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


def _keeping_the_first(original: Any) -> Any:
    async def evict(self: Writes, key: Key, uid: str, grace_seconds: int | None = None) -> None:
        if key[1].endswith("-0"):
            raise ApiError(429, "TooManyRequests", "it would violate the pod's disruption budget")
        await original(self, key, uid, grace_seconds)

    return evict


def _no_patience(_: float) -> float:
    return 0.0


def _always(_: Any) -> Any:
    return lambda *_: True


def _denying(_: Any) -> Any:
    return lambda *_: False


def _creating_again(original: Any) -> Any:
    async def create(self: Writes, namespace: str, build: Callable[[], dict[str, Any]]) -> bytes:
        try:
            written: bytes = await original(self, namespace, build)
        except ApiError as error:
            if error.status:
                raise
            pod = build()
            # What was sent, too, or the answer would differ from it.
            pod["metadata"] = {**pod["metadata"], "name": pod["metadata"]["name"] + "-again"}
            written = await original(self, namespace, lambda: pod)
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


def _none_at_all(_: Any) -> Any:
    return lambda *_: set[str]()


def _without_affinity(original: Any) -> Any:
    def affinity(_: Any, topology_key: str) -> Any:
        return original(AffinityMode.NONE, topology_key)

    return affinity


def _without_clean_up(original: Any) -> Any:
    def after_the_end(*asked: Any) -> PendingAction:
        action: PendingAction = original(*asked)
        return replace(action, delete_pods=())

    return after_the_end


def _suspending_whatever(original: Any) -> Any:
    def transition(job: JobFacts, *rest: Any) -> Transition | None:
        if job.is_suspended and job.is_finished:
            return Transition("Suspended", Reason.SUSPENDED, "suspended")
        move: Transition | None = original(job, *rest)
        return move

    return transition


def _counting_from_the_creation(original: Any) -> Any:
    def pending(job: JobFacts, view: Any, own: Any, now: float, *rest: Any) -> PendingAction:
        ttl = job.spec.run_policy.ttl_seconds_after_finished if job.spec else None
        if ttl is not None and now >= job.created + ttl:
            return PendingAction(delete_job=True)
        action: PendingAction = original(job, view, own, now, *rest)
        return action

    return pending


def _whatever_the_budget(original: Any) -> Any:
    def are_worn(snapshot: ClusterSnapshot) -> Any:
        settings = replace(snapshot.settings, eviction_budget=99)
        return original(replace(snapshot, settings=settings))

    return are_worn


def _silent_about_the_hopeless(original: Any) -> Any:
    def submit(self: StatusWriter, job: JobFacts, wanted: dict[str, Any]) -> Urgency:
        is_hopeless = wanted.get("reason") == Reason.NEVER_FITS.value
        return Urgency.EVENT if is_hopeless else original(self, job, wanted)

    return submit


def _silent_about_faults(original: Any) -> Any:
    def policy_status(*asked: Any) -> Any:
        found = original(*asked)
        is_loaded = found and found["conditions"][-1]["status"] == "True"
        return found if is_loaded else None

    return policy_status


def _keeping_slots_of_failed_writes(original: Any) -> Any:
    async def leave(self: PrioritySemaphore, kind: Any, *rest: Any) -> None:
        if kind is None:
            await original(self, kind, *rest)

    return leave


def _dying_of_gone(original: Any) -> Any:
    async def follow(self: Reflector[Any]) -> bool:
        try:
            followed: bool = await original(self)
        except ApiError as error:
            if error.status == 410:
                raise LookupError("no such version") from error
            raise
        return followed

    return follow


def _without_words_for_losses(original: Any) -> Any:
    async def post(self: Events, kind: str, key: Key, uid: str, reason: Reason, why: str) -> None:
        if reason is Reason.POD_LOST:
            raise LookupError(reason)
        await original(self, kind, key, uid, reason, why)

    return post


def _ending_twice(original: Any) -> Any:
    def end(self: DryRuns, *ended: Any) -> None:
        original(self, *ended)
        original(self, *ended)

    return end


def _latest_first(original: Any) -> Any:
    def order(self: CombinedPriority, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> Any:
        return sorted(original(self, gangs, snapshot), key=lambda ranked: -ranked.gang.arrived)

    return order


def _keeping_one_gate(original: Any) -> Any:
    async def release(self: PodGroups, key: Key, plan: PlanFacts) -> None:
        await original(self, key, replace(plan, members=plan.members[1:]))

    return release


def _counting_the_gone(original: Any) -> Any:
    def count(self: cluster_reports.QueueReports, snapshot: ClusterSnapshot) -> Any:
        counted = original(self, snapshot)
        for name, before in self._counts.items():
            if name in counted:
                counted[name]["admitted"] = max(before["admitted"], counted[name]["admitted"])
        return counted

    return count


def _silent_while_it_leaves(original: Any) -> Any:
    return lambda node: original(node) and node.metadata.deletion_timestamp is None


BUGS: dict[str, Bug] = {
    "a gang goes on without those it lost": Bug(
        lifecycle, "_interruption", _never, ("gang-partial",), world=World(has_long_jobs=True)
    ),
    "a stop that a budget interrupts is waited for without an end": Bug(
        lifecycle,
        "_override_budgets",
        _never,
        ("half-stopped",),
        world=World(some_are_urgent=True),
        also=(
            Bug(Writes, "evict_pod", _keeping_the_first, ()),
            # These histories are shorter than a budget may keep a pod.
            Bug(observer, "BUDGET_PATIENCE_SECONDS", _no_patience, ()),
        ),
    ),
    "a gang starts beside pods of its last start": Bug(
        lifecycle,
        "pending_action",
        _without_the_rest,
        ("plans-mixed",),
        world=World(others_schedule=True),
        also=(Bug(allocations, "in_the_way", _never, ()),),
    ),
    "a pod that a kubelet rejects is taken for a failure": Bug(
        pods, "_is_rejected", _never, ("failed-unjustly",), world=World(kubelets_reject=True)
    ),
    "a gang may start for ever": Bug(
        lifecycle, "_start_timeout", _never, ("places-kept",), world=World(images_hang=True)
    ),
    "claims for one pod are not told apart": Bug(
        volume_objects,
        "_ONCE_POD",
        lambda _: "",
        ("claim-twice",),
        world=World(jobs_have_volumes=True),
    ),
    "no node is taken to attach only so many volumes": Bug(
        Volumes,
        "drivers_with_limit",
        _none_at_all,
        ("attached-too-many",),
        world=World(jobs_have_volumes=True, nodes_attach_few=True),
    ),
    "role affinity is not read": Bug(
        training_jobs,
        "RoleAffinity",
        _without_affinity,
        ("role-affinity-broken",),
        world=World(roles_are_bound=True),
    ),
    "replicas of a finished job go on": Bug(
        lifecycle, "_after_the_end", _without_clean_up, ("replica-left-over", "pod-left-over")
    ),
    "a finished job can be suspended": Bug(
        lifecycle, "transition", _suspending_whatever, ("job-went-back",)
    ),
    "a job expires before it has finished": Bug(
        lifecycle, "pending_action", _counting_from_the_creation, ("job-lost",)
    ),
    "who came last starts first": Bug(
        CombinedPriority,
        "order",
        _latest_first,
        ("overtaken",),
        world=World(some_are_alike=True),
    ),
    "one gate of a gang is never lifted": Bug(
        PodGroups,
        "_release",
        _keeping_one_gate,
        ("gate-left-over",),
        also=(Bug(PodGroups, "_stuck", _never, ()),),
    ),
    "queues count gangs that are gone": Bug(
        cluster_reports.QueueReports, "_count", _counting_the_gone, ("usage-left-over",)
    ),
    "gangs are stopped again and again": Bug(
        candidates,
        "_are_worn",
        _whatever_the_budget,
        ("over-eviction-budget",),
        world=World(some_are_urgent=True),
    ),
    "a job that never fits is not told so": Bug(
        StatusWriter, "submit_job", _silent_about_the_hopeless, ("hopeless-silent",)
    ),
    "a policy that cannot be loaded is not told so": Bug(
        cluster_reports, "policy_status", _silent_about_faults, ("policy-silent",)
    ),
    "a write that fails keeps its slot": Bug(
        PrioritySemaphore, "__aexit__", _keeping_slots_of_failed_writes, ("leak",)
    ),
    "a history that is gone ends the process": Bug(Reflector, "_follow", _dying_of_gone, ("died",)),
    "an event about a lost pod cannot be written": Bug(
        Events, "post", _without_words_for_losses, ("error",)
    ),
    "a dry run ends twice": Bug(DryRuns, "_end", _ending_twice, ("unhandled",)),
    "queues have no limit": Bug(QueueTree, "excess", _without_limits, ("queue-limit-exceeded",)),
    "kube-scheduler fills nodes beyond their room": Bug(
        Scheduler, "_against", _however_full, ("node-overcommitted",)
    ),
    "the lease is taken from a living leader": Bug(
        LeaderRecord,
        "is_free",
        _always,
        ("epoch-went-back",),
    ),
    "a lost answer is taken for a failure": Bug(
        Writes, "create_pod", _creating_again, ("replica-twice",)
    ),
    "silence about one gang is taken for a dead scheduler": Bug(
        StartFailures, "serves_others", _denying, ("held-in-vain",), World(scheduler_is_silent=True)
    ),
    "victims are not evicted": Bug(Actuator, "delete_pods", _sparing_victims, ("job-stuck",)),
    "gates are lifted before the plan is written": Bug(
        PodGroups, "_admit", _releasing_first, ("off-plan",)
    ),
    "a history that is gone is not listed anew": Bug(
        Reflector, "_follow", _deaf_to_gone, ("job-stuck",)
    ),
    # Failures are counted by start, so that those of the start before would count again.
    "a new start keeps its number": Bug(
        status, "after_transition", _same_attempt, ("failed-unjustly",)
    ),
    "what failed once is never tried again": Bug(
        BackOffs, "are_over", _never_again, ("job-stuck", "late-to-rest")
    ),
    "plans of finished jobs are kept": Bug(
        Actuator, "clear_plan", _keeping_plans, ("plan-left-over",)
    ),
    "the max of a node pool is not kept": Bug(
        node_pools, "floor", _without_max, ("pool-above-max",)
    ),
    "nodes in use are given up": Bug(node_pools, "floor", _giving_all_up, ("pool-below-needed",)),
}


BUGS |= {
    "a replica that has ended is lost with its pod": Bug(
        allocations,
        "pod_of_record",
        _never,
        ("lost-though-ended",),
        world=World(ended_pods_vanish=True, has_long_jobs=True),
    ),
    "a node that is being deleted counts as silent": Bug(
        nodes,
        "_is_ready",
        _silent_while_it_leaves,
        ("lost-though-ready",),
        world=World(nodes_leave_slowly=True, has_long_jobs=True),
    ),
    "a PodGroup that is created again forgets its pods": Bug(
        Adoptions,
        "adopt",
        _never,
        ("gang-unadopted",),
        world=World(groups_are_applied_again=True, has_long_jobs=True),
    ),
}


FIRST_SEEDS = {
    "a gang goes on without those it lost": 68,
    "a node that is being deleted counts as silent": 50,
    "a stop that a budget interrupts is waited for without an end": 14,
    "claims for one pod are not told apart": 12,
    "no node is taken to attach only so many volumes": 3,
    "replicas of a finished job go on": 5,
    "a finished job can be suspended": 13,
    "who came last starts first": 5,
    "one gate of a gang is never lifted": 27,
    "a job that never fits is not told so": 5,
    "a write that fails keeps its slot": 4,
    "gangs are stopped again and again": 21,
    "queues have no limit": 20,
    "kube-scheduler fills nodes beyond their room": 19,
    "the lease is taken from a living leader": 2,
    "a lost answer is taken for a failure": 8,
    "silence about one gang is taken for a dead scheduler": 21,
    "a replica that has ended is lost with its pod": 9,
    "a history that is gone is not listed anew": 11,
}
"""Seeds that showed a bug, tried before all others: finding them takes most of the time."""
MAX_SEEDS = 40
CALM_SECONDS = 200.0
"""Shorter than for sound programs: some bugs keep the operator busy for ever."""


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found_within_a_few_seeds(name: str) -> None:
    bug, found = BUGS[name], set[str]()
    with bug.planted():
        for seed in dict.fromkeys((FIRST_SEEDS.get(name, 0), *range(MAX_SEEDS))):
            broken = run(seed, world=bug.world, calm_seconds=CALM_SECONDS)
            found |= {one.partition(":")[0] for one in broken.violations}
            if found >= set(bug.breaks):
                return
    pytest.fail(f"found {found or 'nothing'} in {MAX_SEEDS} seeds")


def test_every_invariant_is_broken_by_a_bug() -> None:
    # What waits is judged at the end of histories that are settled; in these nothing waits by then.
    # All jobs of a simulated cluster are of one namespace.
    judged = {*INVARIANTS, *PROMISES} - {"waits-in-vain", "names-leaked"}
    assert {name for bug in BUGS.values() for name in bug.breaks} == judged
