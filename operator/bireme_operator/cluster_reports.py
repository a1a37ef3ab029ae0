"""Statuses of the cluster-scoped kinds: Queue, SchedulingPolicy, NodePoolScaler.

At every sweep each status is computed and compared with what the object has. A condition that
changed is written at once, with an event; numbers alone now and then. What is not written now is
computed again at the next sweep. The gauges of the same facts are set beside it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

import structlog

from bireme.core.node_floor import STALE_AFTER_SECONDS
from bireme.core.obstacles import queue_obstacle
from bireme.core.queue_tree import QueueTree, names_units
from bireme.core.queues import Queue, with_those_above
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import HOUR, duration
from bireme.kube import quantities
from bireme.kube.api.node_pool_scaler import history_manifest, history_of
from bireme.kube.api.queues import QueueSpec
from bireme.kube.api.scheduling_policy import shadow_history
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.cluster_objects import ClusterFacts
from bireme.kube.cluster_state import ClusterState
from bireme.kube.conditions import cleaned, with_condition
from bireme.kube.node_pool_scalers import PoolFacts
from bireme.kube.policy_source import (
    MAX_CANARIES,
    MAX_SHADOWS,
    PROMOTED,
    PolicyFacts,
    Stage,
)
from bireme.tasks import Tasks
from bireme_operator.events import Events
from bireme_operator.metrics import GangMetrics, PolicyMetrics, PoolMetrics, show
from bireme_operator.node_pools import ManagedPool, ManagedPools
from bireme_operator.policies import Policies, PolicyStats, ShadowStats
from bireme_operator.rollout import in_words
from bireme_operator.stalls import stalled_gangs
from bireme_operator.status import Status
from bireme_operator.writes import Writes

_log = structlog.get_logger(__name__)


ReportedObject: TypeAlias = ClusterFacts[Any]


@dataclass(frozen=True, slots=True)
class ReportContext:
    """Collaborators of all reports; ``now`` gives POSIX seconds, ``clock`` monotonic ones."""

    writes: Writes
    events: Events
    refresh_seconds: float
    clock: Callable[[], float]
    now: Callable[[], float]


@dataclass
class StatusReports(ABC):
    """Writes the statuses of one cluster-scoped kind."""

    kind: ClassVar[str]
    news: ClassVar[tuple[str, ...]]
    """Fields of the status whose change is written at once, like that of a condition."""

    context: ReportContext
    _written: dict[str, float] = field(init=False, default_factory=dict)
    _tasks: Tasks = field(init=False, default_factory=Tasks)

    @abstractmethod
    def statuses(self) -> Iterator[tuple[ReportedObject, Status]]:
        """Yield every object with the status it should have."""
        # Lazily: each is computed when its turn to be written comes.

    @abstractmethod
    def show(self) -> None:
        """Bring the metrics up to date."""

    def submit(self) -> None:
        """Write what is new, unless the last statuses are still being written."""
        self.show()
        if not self._tasks:
            self._tasks.start(self._write_all())

    async def close(self) -> None:
        await self._tasks.close()

    async def _write_all(self) -> None:
        met = set()
        for facts, status in self.statuses():
            met.add(facts.name)
            if not self._is_due(facts, status):
                continue
            try:
                await self.write(facts, status)
            except ApiError as error:
                # Edited or deleted meanwhile: the next sweep works with what is there.
                if not (error.is_conflict or error.is_not_found):
                    _log.info(
                        "status not written", kind=self.kind, object=facts.name, error=str(error)
                    )
            except NotLeader:
                return
        self._written = {name: at for name, at in self._written.items() if name in met}

    def _is_due(self, facts: ReportedObject, status: Status) -> bool:
        if is_news(facts.status, status, self.news):
            return True
        age = self.context.clock() - self._written.get(facts.name, float("-inf"))
        return status != facts.status and age >= self.context.refresh_seconds

    async def write(self, facts: ReportedObject, status: Status) -> None:
        """Write one status, and an event for every reason in it that is new."""
        name, given = facts.name, self.context
        self._written[name] = given.clock()
        await given.writes.write_status(self.kind, name, facts.resource_version, status)
        before = {(c["type"], c["reason"]) for c in _conditions(facts.status)}
        for condition in _conditions(status):
            if (condition["type"], condition["reason"]) not in before:
                reason, message = Reason(condition["reason"]), condition["message"]
                await given.events.post(self.kind, ("", name), facts.uid, reason, message)


def is_news(before: Status, wanted: Status, names: tuple[str, ...]) -> bool:
    """Return whether a condition's status or reason differs, or a field of ``names``."""
    was, will_be = (
        {c["type"]: (c["status"], c["reason"]) for c in _conditions(s)} for s in (before, wanted)
    )
    return was != will_be or any(before.get(name) != wanted.get(name) for name in names)


def _conditions(status: Status) -> list[dict[str, Any]]:
    return list(status.get("conditions") or ())


# --- Queue: how many gangs hold places and wait, what they use, whether any may start ----

ADMITTING = "Admitting"


@dataclass
class QueueReports(StatusReports):
    """Writes ``Queue.status``, with the condition Admitting."""

    kind = "Queue"
    news = ("admitted", "pending", "usage")

    state: ClusterState
    metrics: GangMetrics
    _counted: dict[str, Status] = field(init=False, default_factory=dict)
    _verdicts: dict[str, tuple[Reason, str] | None] = field(init=False, default_factory=dict)

    def observe(self, snapshot: ClusterSnapshot) -> None:
        """Count the gangs of ``snapshot`` by queue, and submit the counts."""
        self._counted = self._count(snapshot)
        tree = QueueTree(
            snapshot.queues, snapshot.queue_usage, snapshot.total, snapshot.nodes.accelerators
        )
        self._verdicts = {name: self._obstacle(q, tree) for name, q in snapshot.queues.items()}
        self.metrics.show_limits(tree, snapshot.queues)
        self.submit()

    def _obstacle(self, queue: Queue, tree: QueueTree) -> tuple[Reason, str] | None:
        manifest = self.state.tenancy.queue_manifests.get(queue.name)
        if manifest is not None and not queue.is_open:  # so is one that cannot be read
            _, problem = QueueSpec.read(manifest.fields)
            if problem:
                return Reason.QUEUE_INVALID, problem
        return queue_obstacle(queue, tree)

    def show(self) -> None:
        self.metrics.show_queues(self._counted)

    def statuses(self) -> Iterator[tuple[ReportedObject, Status]]:
        for name, counted in self._counted.items():
            queue = self.state.tenancy.queue_manifests.get(name)
            if queue is not None:
                meta, before = queue.metadata, queue.status
                version = meta.resource_version
                facts: ReportedObject
                facts = ClusterFacts(name, meta.uid, 0, version, "", None, "", before)
                wanted = {**before, **counted}
                reason, words = self._verdicts[name] or (Reason.ADMITTING, "gangs start in it")
                is_admitting, now = reason is Reason.ADMITTING, self.context.now()
                with_condition(wanted, ADMITTING, is_admitting, reason, cleaned(words), now)
                yield facts, wanted

    def _count(self, snapshot: ClusterSnapshot) -> dict[str, Status]:
        wanted: dict[str, Status] = {
            name: {"admitted": 0, "pending": 0, "usage": {}} for name in snapshot.queues
        }
        for _, view in self.state.views():
            if view.plan.queue in wanted:
                wanted[view.plan.queue]["admitted"] += 1
        for gang in snapshot.waiting:
            if gang.queue in wanted:
                wanted[gang.queue]["pending"] += 1
        known = snapshot.nodes.accelerators
        is_in_units = bool(known.milli_units) or names_units(snapshot.queues)
        for name, held in snapshot.queue_usage.items():
            used = known.with_units(held) if is_in_units else held
            if name in wanted:
                wanted[name]["usage"] = {
                    resource: quantities.format_quantity(resource, min(amount, quantities.LARGEST))
                    for resource, amount in sorted(used.items())
                    if amount
                }
        return wanted


# --- SchedulingPolicy: whether it decides, how it does, or why not ------------------------

LOADED, DEGRADED, ROLLED_BACK = "Loaded", "Degraded", "RolledBack"
NO_QUEUES: Final[Mapping[str, Queue]] = {}


def policy_status(
    policy: PolicyFacts, policies: Policies, now: float, queues: Mapping[str, Queue] = NO_QUEUES
) -> Status | None:
    """Return the status of ``policy``; None while it loads. ``now`` is POSIX seconds."""
    verdict = _verdict(policy, policies, queues)
    if verdict is None:
        return None
    is_loaded, reason, message = verdict
    before = {c["type"]: c for c in policy.status.get("conditions") or ()}
    wanted: Status = {"conditions": list(before.values()), "observedGeneration": policy.generation}
    wanted["stage"] = str(policies.known.effective_stage(policy).stage)
    with_condition(wanted, LOADED, is_loaded, reason, cleaned(message), now)
    _add_rollout(wanted, policy, policies, now)
    decider = policies.decider(policy)
    if decider is None:
        wanted["conditions"] = [c for c in wanted["conditions"] if c["type"] != DEGRADED]
        return wanted
    if decider.source.sha256:
        wanted["checkpointSha256"] = decider.source.sha256
    _add_stats(wanted, policy, decider.stats, policies, now)
    return wanted


def _verdict(
    policy: PolicyFacts, policies: Policies, queues: Mapping[str, Queue]
) -> tuple[bool, Reason, str] | None:
    """Return whether it is loaded, why, and what that means; None while it loads."""
    stage, known = policies.known.effective_stage(policy).stage, policies.known
    match stage:
        case Stage.ROLLED_BACK:
            message = "it was rolled back and decides nothing; change its spec to begin anew"
            return False, Reason.ROLLED_BACK, message
        case Stage.ACTIVE:
            if (active := known.active) is not None and active.uid != policy.uid:
                return False, Reason.SUPERSEDED, _superseded(active, policies)
        case Stage.CANARY if policy.name not in {p.name for p in known.canaries}:
            message = f"only the {MAX_CANARIES} oldest canaries are loaded"
            return False, Reason.TOO_MANY_SHADOWS, message
        case Stage.SHADOW if policy.name not in {p.name for p in known.shadows}:
            message = f"only the {MAX_SHADOWS} oldest shadows are loaded"
            return False, Reason.TOO_MANY_SHADOWS, message
    outcome = policies.outcome(policy)
    if outcome is None:
        return None
    if outcome.fault:
        return False, Reason.LOAD_FAILED, f"{outcome.fault}; {_meanwhile(stage, policies)}"
    if stage is Stage.CANARY:
        own, told = _scope(policy, policies, queues)
        return own, Reason.POLICY_LOADED if own else Reason.SUPERSEDED, told
    message = "it is compared" if stage is Stage.SHADOW else "it decides"
    return True, Reason.POLICY_LOADED, message


def _superseded(active: PolicyFacts, policies: Policies) -> str:
    if policies.known.effective_stage(active).promoted:
        return f"SchedulingPolicy {active.name} was promoted, and decides"
    return f"SchedulingPolicy {active.name} is Active too and older; delete one of them"


def _scope(
    policy: PolicyFacts, policies: Policies, queues: Mapping[str, Queue]
) -> tuple[bool, str]:
    """Return whether a canary decides for any queue, and for which it does and does not."""
    known = policies.known.canaries
    older = known[: [each.uid for each in known].index(policy.uid)]
    taken: dict[str, list[str]] = {}
    for name in policy.queues:
        path = with_those_above(name, queues)
        first = next((each for each in older if not set(path).isdisjoint(each.queues)), None)
        taken.setdefault("" if first is None else first.name, []).append(name)
    for each in older:
        above = {name: with_those_above(name, queues)[1:] for name in each.queues}
        below = [
            name for name, path in above.items() if not set(path).isdisjoint(taken.get("", ()))
        ]
        taken.setdefault(each.name, []).extend(below)
    own = taken.pop("", [])
    told = [f"it decides for {', '.join(own)}"] if own else []
    told += [
        f"SchedulingPolicy {name}, an older canary, decides for {', '.join(theirs)}"
        for name, theirs in taken.items()
        if theirs
    ]
    return bool(own), "; ".join(told)


def _meanwhile(stage: Stage, policies: Policies) -> str:
    if stage is Stage.SHADOW:
        return "it is not compared"
    name = policies.deciding.name
    if stage is Stage.CANARY:
        by = f"SchedulingPolicy {name} decides" if name else "the settings decide"
        return f"{by} for its queues"
    return f"SchedulingPolicy {name}, as last loaded, decides" if name else "the settings decide"


def _add_rollout(wanted: Status, policy: PolicyFacts, policies: Policies, now: float) -> None:
    """Set the conditions Promoted and RolledBack where ``policy`` asks for it, or it was done."""
    effective_stage, step = policies.known.effective_stage(policy), policies.rollouts.step(policy)
    stage, asked = effective_stage.stage, policy.rollout
    # Of another generation they say nothing; what a leader before has done stays as it told it.
    is_told = policy.status.get("observedGeneration") == policy.generation
    done = (
        ROLLED_BACK if stage is Stage.ROLLED_BACK else PROMOTED if effective_stage.promoted else ""
    )
    wanted["conditions"] = [
        each
        for each in wanted["conditions"]
        if each["type"] not in (PROMOTED, ROLLED_BACK) or (is_told and each["type"] == done)
    ]
    if step is not None:
        told = True, step.reason, cleaned(step.message), now
        if done == ROLLED_BACK:
            with_condition(wanted, ROLLED_BACK, *told)
        elif done:
            with_condition(wanted, PROMOTED, *told)
    may_promote = stage in (Stage.SHADOW, Stage.CANARY) and asked.promote == "Automatic"
    is_deciding = stage is Stage.CANARY or policies.deciding.uid == policy.uid
    may_roll_back = is_deciding and asked.roll_back == "Automatic"
    evidence = policies.evidence(policy) if may_promote or may_roll_back else None
    if evidence is None:
        return
    words = in_words(evidence[1].outcome, asked)
    if evidence[0].uid != policy.uid:
        words = f"compared with {evidence[0].name or 'the policy of the settings'}: {words}"
    still_open = False, Reason.COMPARISON_OPEN, cleaned(words), now
    if may_promote:
        with_condition(wanted, PROMOTED, *still_open)
    if may_roll_back:
        with_condition(wanted, ROLLED_BACK, *still_open)


def _add_stats(
    wanted: Status, policy: PolicyFacts, stats: PolicyStats, policies: Policies, now: float
) -> None:
    is_degraded = stats.is_degraded
    reason = Reason.POLICY_OVERRULED if is_degraded else Reason.ANSWERS_VALID
    message = f"the rules answered in its place: {stats.why}" if is_degraded else ""
    with_condition(wanted, DEGRADED, is_degraded, reason, cleaned(message), now)
    wanted["fallbacks"] = stats.fallbacks
    if policies.known.effective_stage(policy).stage is not Stage.SHADOW:
        wanted["decisions"] = stats.decisions
    evidence = policies.evidence(policy)
    if evidence is not None and (shown := _shadow_status(evidence[1])):
        played, compared = evidence
        if played.uid != policy.uid:
            shown["of"] = played.name
        if samples := compared.samples:
            shown["history"] = shadow_history(policies.between(played), samples)
        wanted["shadow"] = shown


def _shadow_status(shadow: ShadowStats) -> Status:
    shown: Status = {}
    if shadow.cycles:
        shown["decisions"] = shadow.cycles
        shown["agreement"] = round(shadow.agreement, 4)
    if shadow.size_agreement is not None:
        shown["sizeAgreement"] = round(shadow.size_agreement, 4)
    if (outcome := shadow.outcome) is not None:
        shown["samples"] = outcome.samples
        shown["regret"] = round(outcome.regret_seconds, 1)
        shown["regretShare"] = round(outcome.share, 4)
        if outcome.low_seconds is not None and outcome.high_seconds is not None:
            bounds = outcome.low_seconds, outcome.high_seconds
            shown["regretLow"], shown["regretHigh"] = (round(each, 1) for each in bounds)
    return shown


@dataclass
class PolicyReports(StatusReports):
    """Writes ``SchedulingPolicy.status``."""

    kind = "SchedulingPolicy"
    news = ("observedGeneration", "checkpointSha256", "stage")

    policies: Policies
    metrics: PolicyMetrics
    queues: Mapping[str, Queue] = field(default_factory=dict)
    """The queues of the latest snapshot."""

    def statuses(self) -> Iterator[tuple[PolicyFacts, Status]]:
        for policy in list(self.policies.known.known.values()):
            status = policy_status(policy, self.policies, self.context.now(), self.queues)
            if status is not None:
                yield policy, status

    def show(self) -> None:
        policies, metrics = self.policies, self.metrics
        deciders = {name: policies.decider(p) for name, p in policies.known.known.items()}
        stats = {name: each.stats for name, each in deciders.items() if each is not None}
        # The comparison of a rival is told on the policy that decides, in words.
        found = {n: policies.evidence(p) for n, p in policies.known.known.items()}
        shadows = {n: each[1] for n, each in found.items() if each and each[0].name == n}
        effective_stage = policies.known.effective_stage
        metrics.show_stages(
            {n: str(effective_stage(p).stage) for n, p in policies.known.known.items()}
        )
        compared = {name: found for name, found in shadows.items() if found.cycles}
        sizes = {name: found.size_agreement for name, found in shadows.items()}
        outcomes = {name: o for name, each in shadows.items() if (o := each.outcome) is not None}
        low = {name: found.low_seconds for name, found in outcomes.items()}
        high = {name: found.high_seconds for name, found in outcomes.items()}
        show(
            {
                metrics.deciding: {n: float(n == policies.deciding.name) for n in deciders},
                metrics.degraded: {n: float(t.is_degraded) for n, t in stats.items()},
                metrics.agreement: {n: found.agreement for n, found in compared.items()},
                metrics.regret: {n: found.regret_seconds for n, found in outcomes.items()},
                metrics.regret_low: {n: at for n, at in low.items() if at is not None},
                metrics.regret_high: {n: at for n, at in high.items() if at is not None},
                metrics.regret_share: {n: found.share for n, found in outcomes.items()},
                metrics.regret_samples: {n: float(o.samples) for n, o in outcomes.items()},
                metrics.compared: {n: float(f.cycles) for n, f in compared.items()},
                metrics.size_agreement: {n: f for n, f in sizes.items() if f is not None},
            }
        )


# --- NodePoolScaler: its floor, what becomes of it, and the hours counted -----------------
#
# The forecast in the status is the nightly job's; here it is only marked as stale.

FORECAST, SCALING = "Forecast", "Scaling"
_SCALES: Final = (Reason.AT_FLOOR, Reason.RAISED, Reason.LOWERED, Reason.AT_MAX)


def pool_status(facts: PoolFacts, pool: ManagedPool | None, now: float) -> Status | None:
    """Return the status of a scaler; None before its first decision. ``now`` is POSIX seconds."""
    wanted: Status = {**facts.status, "observedGeneration": facts.generation}
    if pool is None:
        with_condition(wanted, SCALING, False, Reason.SPEC_INVALID, cleaned(facts.fault), now)
        return {**wanted, "why": cleaned(facts.fault)}
    if pool.decided is None:
        return None
    reason, why = _pool_verdict(pool, now)
    wanted |= {"nodes": pool.nodes.ready, "needed": pool.needed, "floor": pool.decided.floor}
    wanted["why"] = cleaned(why)
    wanted.pop("replicas", None)
    if pool.requester is not None and pool.requester.scale is not None:
        wanted["replicas"] = pool.requester.scale.replicas
    if pool.hourly.over:
        history = history_of(facts.status)
        for begin, (demand, tasks) in sorted(pool.hourly.over.items()):
            history = history.with_hour(begin, demand, tasks)
        wanted["history"] = history_manifest(history)
    with_condition(wanted, SCALING, reason in _SCALES, reason, wanted["why"], now)
    _mark_stale(wanted, now)
    return wanted


def _pool_verdict(pool: ManagedPool, now: float) -> tuple[Reason, str]:
    """Return the reason of condition Scaling and the text of ``status.why``."""
    assert pool.decided is not None  # noqa: S101  # the caller looked
    message = pool.decided.message
    fault = pool.fault or (pool.requester.fault if pool.requester is not None else None)
    if fault is not None:
        return fault.reason, f"{fault}; the floor is {pool.decided.floor}: {message}"
    if pool.spec.mode == "ForecastOnly":
        return Reason.FORECAST_ONLY, f"nothing is asked for in this mode; {message}"
    coming = pool.coming(now)
    if coming:
        return Reason.RAISED, f"{message}; {coming} are coming"
    if pool.is_shrinking(now):
        return Reason.LOWERED, f"{message}; empty nodes are going"
    is_more = pool.replicas is not None and pool.decided.floor < pool.replicas
    if pool.littered and is_more and pool.spec.scale_in.policy != "Never":
        lying = f"ended pods lie on {pool.littered} empty nodes, which stay until they are deleted"
        message = f"{message}; {lying} (see ttlSecondsAfterFinished)"
    return Reason(pool.decided.reason), message


def _mark_stale(wanted: Status, now: float) -> None:
    """Set the condition Forecast to False in ``wanted`` where the forecast is too old to count."""
    made = quantities.parse_timestamp(wanted.get("forecastTime"))
    if made is not None and now - made > STALE_AFTER_SECONDS:
        words = f"made {duration(now - made)} ago and not used; see why no forecast came since"
        known = {c["type"]: c["reason"] for c in wanted["conditions"]}
        if known.get(FORECAST) != Reason.FORECAST_STALE:
            with_condition(wanted, FORECAST, False, Reason.FORECAST_STALE, words, now)


@dataclass
class PoolReports(StatusReports):
    """Writes ``NodePoolScaler.status``."""

    kind = "NodePoolScaler"
    news = ("observedGeneration", "floor", "replicas", "history")

    pools: ManagedPools
    metrics: PoolMetrics

    def statuses(self) -> Iterator[tuple[PoolFacts, Status]]:
        for name, facts in sorted(self.pools.scalers.known.items()):
            pool = self.pools.known.get(name)
            if pool is None and facts.spec is not None:
                continue  # it has just been created
            known = pool if facts.spec is not None else None
            status = pool_status(facts, known, self.context.now())
            if status is not None:
                yield facts, status

    async def write(self, facts: ReportedObject, status: Status) -> None:
        """Write one status; drop the hours that are in it."""
        await super().write(facts, status)
        pool = self.pools.known.get(facts.name)
        if pool is not None and "history" in status:
            end = history_of(status).end
            for begin in [begin for begin in pool.hourly.over if begin + HOUR <= end]:
                del pool.hourly.over[begin]

    def show(self) -> None:
        metrics, pools = self.metrics, self.pools.known
        decided = {name: p.decided for name, p in pools.items() if p.decided is not None}
        made = {name: pool.forecast_made for name, pool in pools.items()}
        show(
            {
                metrics.nodes: {name: float(pool.nodes.ready) for name, pool in pools.items()},
                metrics.floor: {name: float(each.floor) for name, each in decided.items()},
                metrics.needed: {name: float(pool.needed) for name, pool in pools.items()},
                metrics.demand: {name: pool.demand for name, pool in pools.items()},
                metrics.forecast_made: {name: at for name, at in made.items() if at is not None},
            }
        )
        now = self.context.now()
        metrics.show_forecast({name: pool.expected(now) for name, pool in pools.items()})


# --- all of them ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterReports:
    """All that administrators look at: statuses of the cluster-scoped kinds, gangs in trouble."""

    state: ClusterState
    queues: QueueReports
    policies: PolicyReports
    pools: PoolReports
    metrics: GangMetrics
    stalled_after_seconds: float

    def sweep(self, snapshot: ClusterSnapshot) -> None:
        """Bring all statuses and gauges up to date."""
        self.queues.observe(snapshot)
        self.policies.queues = snapshot.queues
        self.policies.submit()
        self.pools.submit()
        self.metrics.show_partial(self.state, snapshot.now)
        stalled = stalled_gangs(self.state, snapshot.now, self.stalled_after_seconds)
        self.metrics.show_stalled(stalled)

    async def close(self) -> None:
        for each in (self.queues, self.policies, self.pools):
            await each.close()
