"""Statuses of the cluster-scoped kinds: Queue, SchedulingPolicy, NodePoolScaler.

Every sweep computes each status and compares it with that of the object. It writes a changed
condition at once, with an event, and changed numbers at intervals. The next sweep computes
postponed statuses again. It also sets the gauges of the same facts.
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
from bireme_operator.stalls import stall_counts
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
    """Status fields whose change is written at once, as for a condition."""

    context: ReportContext
    _write_times: dict[str, float] = field(init=False, default_factory=dict)
    _tasks: Tasks = field(init=False, default_factory=Tasks)

    @abstractmethod
    def statuses(self) -> Iterator[tuple[ReportedObject, Status]]:
        """Yield every object with the status it should have."""
        # Lazily: each status is computed just before it is written.

    @abstractmethod
    def show(self) -> None:
        """Bring the metrics up to date."""

    def submit(self) -> None:
        """Write changed statuses, unless the previous writes are still running."""
        self.show()
        if not self._tasks:
            self._tasks.start(self._write_all())

    async def close(self) -> None:
        await self._tasks.close()

    async def _write_all(self) -> None:
        names = set()
        for facts, status in self.statuses():
            names.add(facts.name)
            if not self._is_due(facts, status):
                continue
            try:
                await self.write(facts, status)
            except ApiError as error:
                # Edited or deleted meanwhile: the next sweep sees the present object.
                if not (error.is_conflict or error.is_not_found):
                    _log.info(
                        "status not written", kind=self.kind, object=facts.name, error=str(error)
                    )
            except NotLeader:
                return
        self._write_times = {
            name: time for name, time in self._write_times.items() if name in names
        }

    def _is_due(self, facts: ReportedObject, status: Status) -> bool:
        if is_news(facts.status, status, self.news):
            return True
        age = self.context.clock() - self._write_times.get(facts.name, float("-inf"))
        return status != facts.status and age >= self.context.refresh_seconds

    async def write(self, facts: ReportedObject, status: Status) -> None:
        """Write one status, and an event for every new reason in it."""
        name, context = facts.name, self.context
        self._write_times[name] = context.clock()
        await context.writes.write_status(self.kind, name, facts.resource_version, status)
        previous = {(c["type"], c["reason"]) for c in _conditions(facts.status)}
        for condition in _conditions(status):
            if (condition["type"], condition["reason"]) not in previous:
                reason, message = Reason(condition["reason"]), condition["message"]
                await context.events.post(self.kind, ("", name), facts.uid, reason, message)


def is_news(previous: Status, status: Status, names: tuple[str, ...]) -> bool:
    """Return whether the status or reason of a condition differs, or a field of ``names``."""
    was, will_be = (
        {c["type"]: (c["status"], c["reason"]) for c in _conditions(s)} for s in (previous, status)
    )
    return was != will_be or any(previous.get(name) != status.get(name) for name in names)


def _conditions(status: Status) -> list[dict[str, Any]]:
    return list(status.get("conditions") or ())


# --- Queue: numbers of running and waiting gangs, their usage, whether any may start ------

ADMITTING = "Admitting"


@dataclass
class QueueReports(StatusReports):
    """Writes ``Queue.status``, with the condition Admitting."""

    kind = "Queue"
    news = ("admitted", "pending", "usage")

    state: ClusterState
    metrics: GangMetrics
    _counts: dict[str, Status] = field(init=False, default_factory=dict)
    _verdicts: dict[str, tuple[Reason, str] | None] = field(init=False, default_factory=dict)

    def observe(self, snapshot: ClusterSnapshot) -> None:
        """Count the gangs of ``snapshot`` by queue, and submit the counts."""
        self._counts = self._count(snapshot)
        tree = QueueTree(
            snapshot.queues, snapshot.queue_usage, snapshot.total, snapshot.nodes.accelerators
        )
        self._verdicts = {name: self._obstacle(q, tree) for name, q in snapshot.queues.items()}
        self.metrics.show_limits(tree, snapshot.queues)
        self.submit()

    def _obstacle(self, queue: Queue, tree: QueueTree) -> tuple[Reason, str] | None:
        manifest = self.state.tenancy.queue_manifests.get(queue.name)
        if manifest is not None and not queue.is_open:  # an unreadable queue is closed, too
            _, problem = QueueSpec.read(manifest.fields)
            if problem:
                return Reason.QUEUE_INVALID, problem
        return queue_obstacle(queue, tree)

    def show(self) -> None:
        self.metrics.show_queues(self._counts)

    def statuses(self) -> Iterator[tuple[ReportedObject, Status]]:
        for name, counts in self._counts.items():
            queue = self.state.tenancy.queue_manifests.get(name)
            if queue is not None:
                meta, previous = queue.metadata, queue.status
                version = meta.resource_version
                facts: ReportedObject
                facts = ClusterFacts(name, meta.uid, 0, version, "", None, "", previous)
                status = {**previous, **counts}
                reason, message = self._verdicts[name] or (Reason.ADMITTING, "gangs start in it")
                is_admitting, now = reason is Reason.ADMITTING, self.context.now()
                with_condition(status, ADMITTING, is_admitting, reason, cleaned(message), now)
                yield facts, status

    def _count(self, snapshot: ClusterSnapshot) -> dict[str, Status]:
        statuses: dict[str, Status] = {
            name: {"admitted": 0, "pending": 0, "usage": {}} for name in snapshot.queues
        }
        for _, view in self.state.views.of_gangs():
            if view.plan.queue in statuses:
                statuses[view.plan.queue]["admitted"] += 1
        for gang in snapshot.waiting:
            if gang.queue in statuses:
                statuses[gang.queue]["pending"] += 1
        accelerators = snapshot.nodes.accelerators
        is_in_units = bool(accelerators.milli_units) or names_units(snapshot.queues)
        for name, usage in snapshot.queue_usage.items():
            used = accelerators.with_units(usage) if is_in_units else usage
            if name in statuses:
                statuses[name]["usage"] = {
                    resource: quantities.format_quantity(resource, min(amount, quantities.LARGEST))
                    for resource, amount in sorted(used.items())
                    if amount
                }
        return statuses


# --- SchedulingPolicy: whether it decides, how well, or why not ----------------------------

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
    conditions = {c["type"]: c for c in policy.status.get("conditions") or ()}
    status: Status = {
        "conditions": list(conditions.values()),
        "observedGeneration": policy.generation,
    }
    status["stage"] = str(policies.known.effective_stage(policy).stage)
    with_condition(status, LOADED, is_loaded, reason, cleaned(message), now)
    _add_rollout(status, policy, policies, now)
    decider = policies.decider(policy)
    if decider is None:
        status["conditions"] = [c for c in status["conditions"] if c["type"] != DEGRADED]
        return status
    if decider.source.sha256:
        status["checkpointSha256"] = decider.source.sha256
    _add_stats(status, policy, decider.stats, policies, now)
    return status


def _verdict(
    policy: PolicyFacts, policies: Policies, queues: Mapping[str, Queue]
) -> tuple[bool, Reason, str] | None:
    """Return whether ``policy`` is loaded, the reason and a message; None while it loads."""
    stage, specs = policies.known.effective_stage(policy).stage, policies.known
    match stage:
        case Stage.ROLLED_BACK:
            message = "it was rolled back and decides nothing; change its spec to begin anew"
            return False, Reason.ROLLED_BACK, message
        case Stage.ACTIVE:
            if (active := specs.active) is not None and active.uid != policy.uid:
                return False, Reason.SUPERSEDED, _rival_message(active, policies)
        case Stage.CANARY if policy.name not in {p.name for p in specs.canaries}:
            message = f"only the {MAX_CANARIES} oldest canaries are loaded"
            return False, Reason.TOO_MANY_SHADOWS, message
        case Stage.SHADOW if policy.name not in {p.name for p in specs.shadows}:
            message = f"only the {MAX_SHADOWS} oldest shadows are loaded"
            return False, Reason.TOO_MANY_SHADOWS, message
    outcome = policies.outcome(policy)
    if outcome is None:
        return None
    if outcome.fault:
        return False, Reason.LOAD_FAILED, f"{outcome.fault}; {_meanwhile(stage, policies)}"
    if stage is Stage.CANARY:
        is_deciding, scope = _scope(policy, policies, queues)
        return is_deciding, Reason.POLICY_LOADED if is_deciding else Reason.SUPERSEDED, scope
    message = "it is compared as a shadow" if stage is Stage.SHADOW else "it decides"
    return True, Reason.POLICY_LOADED, message


def _rival_message(active: PolicyFacts, policies: Policies) -> str:
    if policies.known.effective_stage(active).promoted:
        return f"SchedulingPolicy {active.name} was promoted, and decides"
    return f"SchedulingPolicy {active.name} is Active too and older; delete one of them"


def _scope(
    policy: PolicyFacts, policies: Policies, queues: Mapping[str, Queue]
) -> tuple[bool, str]:
    """Return whether a canary decides for any queue, and a message that lists its queues."""
    canaries = policies.known.canaries
    older = canaries[: [canary.uid for canary in canaries].index(policy.uid)]
    queues_by_decider: dict[str, list[str]] = {}
    for name in policy.queues:
        path = with_those_above(name, queues)
        first = next((canary for canary in older if not set(path).isdisjoint(canary.queues)), None)
        queues_by_decider.setdefault("" if first is None else first.name, []).append(name)
    for canary in older:
        ancestors = {name: with_those_above(name, queues)[1:] for name in canary.queues}
        inner_queues = [
            name
            for name, path in ancestors.items()
            if not set(path).isdisjoint(queues_by_decider.get("", ()))
        ]
        queues_by_decider.setdefault(canary.name, []).extend(inner_queues)
    own_queues = queues_by_decider.pop("", [])
    parts = [f"it decides for {', '.join(own_queues)}"] if own_queues else []
    parts += [
        f"SchedulingPolicy {name}, an older canary, decides for {', '.join(theirs)}"
        for name, theirs in queues_by_decider.items()
        if theirs
    ]
    return bool(own_queues), "; ".join(parts)


def _meanwhile(stage: Stage, policies: Policies) -> str:
    if stage is Stage.SHADOW:
        return "meanwhile it is not compared"
    name = policies.deciding.name
    if stage is Stage.CANARY:
        decider = f"SchedulingPolicy {name} decides" if name else "the settings decide"
        return f"{decider} for its queues"
    return f"SchedulingPolicy {name}, as last loaded, decides" if name else "the settings decide"


def _add_rollout(status: Status, policy: PolicyFacts, policies: Policies, now: float) -> None:
    """Set the conditions Promoted and RolledBack if ``policy`` asks for a step or has taken it."""
    effective_stage, step = policies.known.effective_stage(policy), policies.rollouts.step(policy)
    stage, rollout = effective_stage.stage, policy.rollout
    # Drop conditions of another generation. Keep the message of a step by a previous leader.
    is_told = policy.status.get("observedGeneration") == policy.generation
    done = (
        ROLLED_BACK if stage is Stage.ROLLED_BACK else PROMOTED if effective_stage.promoted else ""
    )
    status["conditions"] = [
        condition
        for condition in status["conditions"]
        if condition["type"] not in (PROMOTED, ROLLED_BACK)
        or (is_told and condition["type"] == done)
    ]
    if step is not None:
        outcome = True, step.reason, cleaned(step.message), now
        if done == ROLLED_BACK:
            with_condition(status, ROLLED_BACK, *outcome)
        elif done:
            with_condition(status, PROMOTED, *outcome)
    may_promote = stage in (Stage.SHADOW, Stage.CANARY) and rollout.promote == "Automatic"
    is_deciding = stage is Stage.CANARY or policies.deciding.uid == policy.uid
    may_roll_back = is_deciding and rollout.roll_back == "Automatic"
    evidence = policies.evidence(policy) if may_promote or may_roll_back else None
    if evidence is None:
        return
    message = in_words(evidence[1].outcome, rollout)
    if evidence[0].uid != policy.uid:
        message = f"compared with {evidence[0].name or 'the policy of the settings'}: {message}"
    still_open = False, Reason.COMPARISON_OPEN, cleaned(message), now
    if may_promote:
        with_condition(status, PROMOTED, *still_open)
    if may_roll_back:
        with_condition(status, ROLLED_BACK, *still_open)


def _add_stats(
    status: Status, policy: PolicyFacts, stats: PolicyStats, policies: Policies, now: float
) -> None:
    is_degraded = stats.is_degraded
    reason = Reason.POLICY_OVERRULED if is_degraded else Reason.ANSWERS_VALID
    message = f"the rules answered in its place: {stats.latest_fault}" if is_degraded else ""
    with_condition(status, DEGRADED, is_degraded, reason, cleaned(message), now)
    status["fallbacks"] = stats.fallbacks
    if policies.known.effective_stage(policy).stage is not Stage.SHADOW:
        status["decisions"] = stats.decisions
    evidence = policies.evidence(policy)
    if evidence is not None and (shadow_status := _shadow_status(evidence[1])):
        shadow, comparison = evidence
        if shadow.uid != policy.uid:
            shadow_status["of"] = shadow.name
        if samples := comparison.samples:
            shadow_status["history"] = shadow_history(policies.between(shadow), samples)
        status["shadow"] = shadow_status


def _shadow_status(shadow: ShadowStats) -> Status:
    status: Status = {}
    if shadow.cycles:
        status["decisions"] = shadow.cycles
        status["agreement"] = round(shadow.agreement, 4)
    if shadow.size_agreement is not None:
        status["sizeAgreement"] = round(shadow.size_agreement, 4)
    if (outcome := shadow.outcome) is not None:
        status["samples"] = outcome.samples
        status["regret"] = round(outcome.regret_seconds, 1)
        status["regretShare"] = round(outcome.share, 4)
        if outcome.low_seconds is not None and outcome.high_seconds is not None:
            bounds = outcome.low_seconds, outcome.high_seconds
            status["regretLow"], status["regretHigh"] = (round(seconds, 1) for seconds in bounds)
    return status


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
        stats = {name: policy.stats for name, policy in deciders.items() if policy is not None}
        # The policy that decides reports the comparison with a rival, in words.
        evidence = {n: policies.evidence(p) for n, p in policies.known.known.items()}
        shadows = {n: pair[1] for n, pair in evidence.items() if pair and pair[0].name == n}
        effective_stage = policies.known.effective_stage
        metrics.show_stages(
            {n: str(effective_stage(p).stage) for n, p in policies.known.known.items()}
        )
        compared = {name: shadow for name, shadow in shadows.items() if shadow.cycles}
        sizes = {name: shadow.size_agreement for name, shadow in shadows.items()}
        outcomes = {n: o for n, shadow in shadows.items() if (o := shadow.outcome) is not None}
        low = {name: outcome.low_seconds for name, outcome in outcomes.items()}
        high = {name: outcome.high_seconds for name, outcome in outcomes.items()}
        show(
            {
                metrics.deciding: {n: float(n == policies.deciding.name) for n in deciders},
                metrics.degraded: {n: float(t.is_degraded) for n, t in stats.items()},
                metrics.agreement: {n: s.agreement for n, s in compared.items()},
                metrics.regret: {n: o.regret_seconds for n, o in outcomes.items()},
                metrics.regret_low: {
                    n: seconds for n, seconds in low.items() if seconds is not None
                },
                metrics.regret_high: {
                    n: seconds for n, seconds in high.items() if seconds is not None
                },
                metrics.regret_share: {n: o.share for n, o in outcomes.items()},
                metrics.regret_samples: {n: float(o.samples) for n, o in outcomes.items()},
                metrics.compared: {n: float(s.cycles) for n, s in compared.items()},
                metrics.size_agreement: {n: f for n, f in sizes.items() if f is not None},
            }
        )


# --- NodePoolScaler: its floor, the scaling state, and the hourly demand -------------------
#
# A nightly job writes the forecast in the status; these functions only mark it as stale.

FORECAST, SCALING = "Forecast", "Scaling"
_SCALES: Final = (Reason.AT_FLOOR, Reason.RAISED, Reason.LOWERED, Reason.AT_MAX)


def pool_status(facts: PoolFacts, pool: ManagedPool | None, now: float) -> Status | None:
    """Return the status of a scaler; None before its first decision. ``now`` is POSIX seconds."""
    status: Status = {**facts.status, "observedGeneration": facts.generation}
    if pool is None:
        with_condition(status, SCALING, False, Reason.SPEC_INVALID, cleaned(facts.fault), now)
        return {**status, "why": cleaned(facts.fault)}
    if pool.decided is None:
        return None
    reason, message = _pool_verdict(pool, now)
    status |= {"nodes": pool.nodes.ready, "needed": pool.needed, "floor": pool.decided.floor}
    status["why"] = cleaned(message)
    status.pop("replicas", None)
    if pool.requester is not None and pool.requester.scale is not None:
        status["replicas"] = pool.requester.scale.replicas
    if pool.hourly.over:
        history = history_of(facts.status)
        for begin, (demand, tasks) in sorted(pool.hourly.over.items()):
            history = history.with_hour(begin, demand, tasks)
        status["history"] = history_manifest(history)
    with_condition(status, SCALING, reason in _SCALES, reason, status["why"], now)
    _mark_stale(status, now)
    return status


def _pool_verdict(pool: ManagedPool, now: float) -> tuple[Reason, str]:
    """Return the reason of condition Scaling and the text of ``status.why``."""
    assert pool.decided is not None  # noqa: S101  # the caller checked
    message = pool.decided.message
    fault = pool.fault or (pool.requester.fault if pool.requester is not None else None)
    if fault is not None:
        return fault.reason, f"{fault}; the floor is {pool.decided.floor}: {message}"
    if pool.spec.mode == "ForecastOnly":
        return Reason.FORECAST_ONLY, f"mode ForecastOnly does not change the target; {message}"
    coming = pool.coming(now)
    if coming:
        return Reason.RAISED, f"{message}; {coming} nodes are coming"
    if pool.is_shrinking(now):
        return Reason.LOWERED, f"{message}; empty nodes are being removed"
    is_more = pool.replicas is not None and pool.decided.floor < pool.replicas
    if pool.blocked_by_finished_pods and is_more and pool.spec.scale_in.policy != "Never":
        count = pool.blocked_by_finished_pods
        blockers = f"{count} empty nodes stay until the ended pods on them are deleted"
        message = f"{message}; {blockers} (see ttlSecondsAfterFinished)"
    return Reason(pool.decided.reason), message


def _mark_stale(status: Status, now: float) -> None:
    """Set the condition Forecast to False in ``status`` if the forecast is too old to count."""
    forecast_time = quantities.parse_timestamp(status.get("forecastTime"))
    if forecast_time is not None and now - forecast_time > STALE_AFTER_SECONDS:
        message = (
            f"made {duration(now - forecast_time)} ago and no longer used; see why no newer "
            "forecast was made"
        )
        reasons = {c["type"]: c["reason"] for c in status["conditions"]}
        if reasons.get(FORECAST) != Reason.FORECAST_STALE:
            with_condition(status, FORECAST, False, Reason.FORECAST_STALE, message, now)


@dataclass
class PoolReports(StatusReports):
    """Writes ``NodePoolScaler.status``."""

    kind = "NodePoolScaler"
    news = ("observedGeneration", "floor", "replicas", "history")

    pools: ManagedPools
    metrics: PoolMetrics

    def statuses(self) -> Iterator[tuple[PoolFacts, Status]]:
        for name, facts in sorted(self.pools.scalers.known.items()):
            pool = self.pools.by_name.get(name)
            if pool is None and facts.spec is not None:
                continue  # it has just been created
            valid_pool = pool if facts.spec is not None else None
            status = pool_status(facts, valid_pool, self.context.now())
            if status is not None:
                yield facts, status

    async def write(self, facts: ReportedObject, status: Status) -> None:
        """Write one status; drop the hours that it contains."""
        await super().write(facts, status)
        pool = self.pools.by_name.get(facts.name)
        if pool is not None and "history" in status:
            end = history_of(status).end
            for begin in [begin for begin in pool.hourly.over if begin + HOUR <= end]:
                del pool.hourly.over[begin]

    def show(self) -> None:
        metrics, pools = self.metrics, self.pools.by_name
        decisions = {name: p.decided for name, p in pools.items() if p.decided is not None}
        forecast_times = {name: pool.forecast_made for name, pool in pools.items()}
        show(
            {
                metrics.nodes: {name: float(pool.nodes.ready) for name, pool in pools.items()},
                metrics.floor: {
                    name: float(decision.floor) for name, decision in decisions.items()
                },
                metrics.needed: {name: float(pool.needed) for name, pool in pools.items()},
                metrics.demand: {name: pool.demand for name, pool in pools.items()},
                metrics.forecast_made: {
                    name: time for name, time in forecast_times.items() if time is not None
                },
            }
        )
        now = self.context.now()
        metrics.show_forecast({name: pool.forecast_demand(now) for name, pool in pools.items()})


# --- all of them ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterReports:
    """Reports for administrators: statuses of the cluster-scoped kinds, stalled gangs."""

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
        stalled = stall_counts(self.state, snapshot.now, self.stalled_after_seconds)
        self.metrics.show_stalled(stalled)

    async def close(self) -> None:
        for reports in (self.queues, self.policies, self.pools):
            await reports.close()
