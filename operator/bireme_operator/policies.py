"""The policy that decides, its canaries, their cycles, and the shadows that are compared with it.

The active SchedulingPolicy decides, or the settings if there is none. A new policy is loaded in a
thread and takes over between two cycles. Until then, or if it fails to load, the previous policy
decides. Canaries are loaded likewise and decide for their queues. If a canary fails to load, the
active policy decides for its queues.

Three kinds of policies run as shadows, on the snapshots of the active policy: those of stage
Shadow; the canaries, as if they decided for all queues; and, if the active policy may be rolled
back, its rival, which would decide without it. :mod:`bireme_operator.rollout` judges the results.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from statistics import fmean
from typing import Any, Final

import msgspec
import structlog

from bireme.core.canary import canary_of
from bireme.core.cycle import run_cycle
from bireme.core.cycle_trace import CycleTrace
from bireme.core.decision import Action, Decision
from bireme.core.policy import Policy
from bireme.core.reasons import Reason
from bireme.core.regret import RegretSample
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.turns import CycleBudget
from bireme.core.usage import UsageMeter, devices_held
from bireme.kube.api.scheduling_policy import samples_of
from bireme.kube.policy_source import (
    LoadOutcome,
    PolicyFacts,
    PolicyLoads,
    SchedulingPolicies,
    Stage,
)
from bireme.rl import shadow
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource, with_canaries
from bireme.rl.shadow import Difference, RegretEstimate, estimate_regret
from bireme.tasks import Tasks
from bireme_operator.debug_dump import LastCycles
from bireme_operator.metrics import OperatorMetrics, PolicyMetrics
from bireme_operator.outlooks import Outlooks
from bireme_operator.recording import Recording
from bireme_operator.regrets import Contestant, ShadowEvaluator
from bireme_operator.rollout import (
    LATEST_CYCLES,
    MAX_OVERRULED,
    Rollouts,
    Step,
    in_words,
    is_better,
    is_worse,
)

# An overruled policy counts as degraded until this many of its cycles were valid.
GOOD_CYCLES: Final = 20
# Cycles in the mean agreement, and samples in the mean regret.
_WINDOW: Final = 200
# After t seconds of decisions shadows rest _REST * t: they get a twentieth of a core. A setting
# bounds the time of their simulations.
_REST: Final = 19.0
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ShadowStats:
    """Recent agreement between a shadow and the policy that decides.

    ``cycles`` counts from the load of the shadow, or from the latest change of that policy.
    """

    cycles: int = 0
    _latest: deque[Difference] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _sizes: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _samples: deque[RegretSample] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _against: PolicySource = SETTINGS_SOURCE

    def add(self, difference: Difference) -> None:
        """Count a cycle in which either policy started a gang."""
        self.cycles += 1
        self._latest.append(difference)

    def add_sizes(self, difference: Difference) -> None:
        """Count a cycle in which both policies sized elastic gangs; ignore any other."""
        if difference.same_sizes is not None:
            self._sizes.append(difference.same_sizes)

    def add_samples(self, active: PolicySource, *samples: RegretSample) -> None:
        """Add samples against the policy ``active``; drop those against another policy."""
        if active != self._against:
            self._samples.clear()
            self._against = active
        self._samples.extend(samples)

    @property
    def samples(self) -> Sequence[RegretSample]:
        """The latest samples of regret, oldest first."""
        return tuple(self._samples)

    @property
    def outcome(self) -> RegretEstimate | None:
        """Estimated saving by the shadow; None before the first sample."""
        return estimate_regret(self._samples)

    @property
    def agreement(self) -> float:
        """Mean share of starts in common, from 0 to 1."""
        return fmean(difference.agreement for difference in self._latest)

    @property
    def size_agreement(self) -> float | None:
        """Mean share of elastic gangs with the same size; None before the first of them."""
        return fmean(self._sizes) if self._sizes else None


@dataclass(slots=True)
class PolicyStats:
    """Counts of a policy's cycles since it was loaded.

    Attributes:
        decisions: Cycles in which it started, stopped or resized a gang, or would have done so.
        fallbacks: Cycles in which the rules decided in its place.
        latest_fault: Fault of the policy at the latest fallback.
        good_cycles: Cycles since the latest fallback.
    """

    decisions: int = 0
    fallbacks: int = 0
    latest_fault: str = ""
    good_cycles: int = 0
    shadow: ShadowStats = field(default_factory=ShadowStats)
    _overruled: deque[bool] = field(default_factory=lambda: deque(maxlen=LATEST_CYCLES))

    def add(self, decision: Decision) -> None:
        """Count a cycle."""
        if decision.admitted or decision.preempted or decision.resized:
            self.decisions += 1
        self._overruled.append(bool(decision.fallback))
        if decision.fallback:
            self.fallbacks += 1
            self.latest_fault, self.good_cycles = decision.fallback, 0
        else:
            self.good_cycles += 1

    @property
    def is_degraded(self) -> bool:
        """True if it was overruled in one of its latest cycles."""
        return self.fallbacks > 0 and self.good_cycles < GOOD_CYCLES

    @property
    def lately_overruled(self) -> int:
        """Number of overruled cycles among the latest ``LATEST_CYCLES``."""
        return sum(self._overruled)


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy ready to decide, with its source.

    Attributes:
        uid: Uid of the SchedulingPolicy; empty for the policy of the settings.
        source: The SchedulingPolicy, as records name it.
    """

    policy: Policy
    uid: str = ""
    source: PolicySource = SETTINGS_SOURCE
    stats: PolicyStats = field(default_factory=PolicyStats, compare=False)

    @property
    def name(self) -> str:
        """The name of the SchedulingPolicy; empty for the policy of the settings."""
        return self.source.name


class Policies:
    """The policy that decides, its canaries, and the policies that are compared with it.

    Args:
        settings: Policy that decides if no SchedulingPolicy is active.
        load: Called in a thread; may raise anything.
        on_change: Called after every swap.
        is_automatic: True to promote and roll back policies whose specs ask for it.
        general: Influences on decisions outside the specs, as text: settings, Bireme's version.

    Attributes:
        known: The SchedulingPolicies, to be fed by a watch.
        deciding: The policy that decides now, for all queues except those of canaries.
        canaries: Policies that decide for their queues, oldest first.
        in_force: ``deciding`` with its canaries as one policy.
        shadows: Policies that run as shadows of ``deciding``; their counts refer to it alone.
    """

    def __init__(
        self,
        settings: Policy,
        load: Callable[[PolicyFacts], LoadedPolicy],
        metrics: PolicyMetrics,
        on_change: Callable[[], None],
        is_automatic: bool = True,
        general: str = "",
    ) -> None:
        self.known = SchedulingPolicies(self._observe)
        self.rollouts = Rollouts(self._count_step)
        self.known.effective_stage = self.rollouts.effective_stage
        self._settings = LoadedPolicy(settings)
        self.deciding = self.in_force = self._settings
        self.canaries: tuple[LoadedPolicy, ...] = ()
        self.shadows: Sequence[LoadedPolicy] = ()
        self._loads = PolicyLoads(load, self._on_load)
        self._metrics = metrics
        self._on_change = on_change
        self._is_automatic, self._general = is_automatic, general
        self._loaded_one = asyncio.Event()
        self._first_statuses: dict[tuple[str, int], Mapping[str, Any]] = {}

    def _observe(self) -> None:
        statuses = {(p.uid, p.generation): p.status for p in self.known.known.values()}
        # Keep each first status: by the time a policy is loaded, its status may be overwritten.
        self._first_statuses = {
            key: self._first_statuses.get(key, status) for key, status in statuses.items()
        }
        self.rollouts.forget_others(self.known.known.values())
        actives = self.known.actives
        # The second policy is the rival of the first, if the first may be rolled back.
        counting = actives[:2] if actives and self._may_roll_back(actives[0]) else actives[:1]
        self._loads.want([*counting, *self.known.canaries, *self.known.shadows])
        self._choose()

    def outcome(self, policy: PolicyFacts) -> LoadOutcome[LoadedPolicy] | None:
        """Return the outcome of loading ``policy``; None during the load, or if not requested."""
        return self._loads.outcome(policy)

    def decider(self, policy: PolicyFacts) -> LoadedPolicy | None:
        """Return the policy loaded for ``policy``, perhaps from an earlier spec; None without one.

        A policy that neither decides nor is a shadow has none.
        """
        if self.deciding.uid == policy.uid:
            return self.deciding
        match self.known.effective_stage(policy).stage:
            case Stage.CANARY:
                return self._value(policy)
            case Stage.SHADOW:
                return self._find_shadow(policy.uid)
        return None

    def evidence(self, policy: PolicyFacts) -> tuple[LoadedPolicy, ShadowStats] | None:
        """Return the shadow whose comparison judges ``policy``, with its statistics.

        A shadow or a canary is judged by itself, the policy that decides by its rival.
        """
        shadow = self._find_shadow(policy.uid)
        if self._is_watched(policy):
            shadow = self._find_shadow(self._rival.uid)
        return None if shadow is None else (shadow, shadow.stats.shadow)

    def judge(self) -> None:
        """Promote or roll back a policy if an outcome calls for it, from the next cycle on."""
        if self._is_automatic and (self._roll_back() or self._promote()):
            # At most one step: it changes the baseline of all other comparisons.
            self._observe()

    async def first_loaded(self, limit_seconds: float) -> None:
        """Return once the active policy is loaded or has failed to load, or after the limit."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_seconds):
                while (active := self.known.active) and self.outcome(active) is None:
                    self._loaded_one.clear()
                    await self._loaded_one.wait()

    async def close(self) -> None:
        await self._loads.close()

    def _on_load(self, policy: PolicyFacts, outcome: LoadOutcome[LoadedPolicy]) -> None:
        self._loaded_one.set()
        self._metrics.loads.labels("failed" if outcome.fault else "loaded").inc()
        if outcome.fault:
            _log.warning("policy not loaded", policy=policy.name, why=outcome.fault)
        self._choose()

    # --- choice of the policy that decides, and of the shadows --------------------------------

    def _choose(self) -> None:
        """Let the latest loaded version of the active policy decide; without one, the settings."""
        actives = self.known.actives
        deciding = self._pick_deciding(actives)
        scopes = [(p, v) for p in self.known.canaries if (v := self._value(p)) is not None]
        canaries = tuple(value for _, value in scopes)
        # A comparison with another policy says nothing about this one.
        shadows_by_uid = (
            {shadow.uid: shadow for shadow in self.shadows} if deciding is self.deciding else {}
        )
        in_force = _combine(deciding, scopes)
        # Compare by identity: a reloaded spec has counts of its own.
        new, old = (deciding, *canaries), (self.deciding, *self.canaries)
        is_same = len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))
        if not is_same or in_force.source != self.in_force.source:
            names = ", ".join(canary.name for canary in canaries)
            sha256 = deciding.source.sha256
            _log.info("another policy decides", policy=deciding.name, canaries=names, sha256=sha256)
            self.deciding, self.canaries, self.in_force = deciding, canaries, in_force
            self._on_change()
        compared = [v for p in self.known.shadows if (v := self._value(p)) is not None]
        if actives and self._is_watched(actives[0]):
            compared.append(self._rival)
        self.shadows = [
            previous
            if (previous := shadows_by_uid.get(shadow.uid)) is not None
            and previous.policy is shadow.policy
            else replace(shadow, stats=self._initial_stats(shadow))
            for shadow in (*canaries, *compared)
        ]

    def between(self, shadow: LoadedPolicy) -> str:
        """Return the digest that identifies the comparison of ``shadow`` with ``deciding``."""
        sources = msgspec.json.encode([self.deciding.source, shadow.source])
        return blake2b(self._general.encode() + sources, digest_size=8).hexdigest()

    def _initial_stats(self, shadow: LoadedPolicy) -> PolicyStats:
        """Return counts of ``shadow`` that continue those of the previous leader."""
        stats = PolicyStats()
        actives, policies = self.known.actives, self.known.known.values()
        judged = (
            actives[:1] if shadow is self._rival else [p for p in policies if p.uid == shadow.uid]
        )
        for policy in judged:
            key = policy.uid, policy.generation
            status = self._first_statuses.get(key, {})
            # Any change of the spec resets the counts, even if it changes no decision.
            is_of_spec = status.get("observedGeneration") == policy.generation
            if is_of_spec and (samples := samples_of(status, self.between(shadow))):
                stats.shadow.add_samples(self.deciding.source, *samples)
                self._first_statuses[key] = {}  # once
        return stats

    def _pick_deciding(self, actives: Sequence[PolicyFacts]) -> LoadedPolicy:
        if not actives:
            return self._settings
        first = self._value(actives[0])
        if first is not None:
            return first
        stages = {
            policy.uid: self.known.effective_stage(policy).stage
            for policy in self.known.known.values()
        }
        if stages.get(self.deciding.uid) is not Stage.ROLLED_BACK:
            return self.deciding  # until the active policy is loaded
        return next(filter(None, map(self._value, actives[1:])), self._settings)

    def _value(self, policy: PolicyFacts) -> LoadedPolicy | None:
        outcome = self._loads.outcome(policy)
        return outcome.value if outcome is not None else None

    def _find_shadow(self, uid: str) -> LoadedPolicy | None:
        return next((shadow for shadow in self.shadows if shadow.uid == uid), None)

    def _may_roll_back(self, policy: PolicyFacts) -> bool:
        return self._is_automatic and policy.rollout.roll_back == "Automatic"

    def _is_watched(self, policy: PolicyFacts) -> bool:
        """Return whether ``policy`` decides by its present spec and may be rolled back."""
        return self._may_roll_back(policy) and self._value(policy) is self.deciding

    @property
    def _rival(self) -> LoadedPolicy:
        """The policy that would decide without the active one."""
        return next(filter(None, map(self._value, self.known.actives[1:])), self._settings)

    # --- promotion and rollback ---------------------------------------------------------------

    def _roll_back(self) -> bool:
        active = self.known.active
        watched = [active] if active is not None and self._is_watched(active) else []
        canaries = [canary for canary in self.known.canaries if self._may_roll_back(canary)]
        for policy in (*watched, *canaries):
            decider = self.decider(policy)
            if decider is not None and (fault := self._fault_of(policy, decider.stats)) is not None:
                self.rollouts.roll_back(policy, *fault)
                return True
        return False

    def _fault_of(self, policy: PolicyFacts, stats: PolicyStats) -> tuple[Reason, str] | None:
        """Return why the deciding ``policy`` should be rolled back; None if it should not."""
        is_canary = self.known.effective_stage(policy).stage is Stage.CANARY
        instead = (self.deciding if is_canary else self._rival).name
        next_one = f"SchedulingPolicy {instead} decides" if instead else "the settings decide"
        if stats.lately_overruled >= MAX_OVERRULED:
            return Reason.RULES_ANSWERED, (
                f"the rules answered in its place in {stats.lately_overruled} of its latest "
                f"{LATEST_CYCLES} cycles; the latest fault: {stats.latest_fault}; {next_one} now"
            )
        evidence, rollout = self.evidence(policy), policy.rollout
        if evidence is None:
            return None
        outcome = evidence[1].outcome
        if not (is_worse if is_canary else is_better)(outcome, rollout):
            return None
        numbers = in_words(outcome, rollout)
        if not is_canary:
            rival = f"SchedulingPolicy {instead}" if instead else "the policy of the settings"
            numbers = f"compared with {rival}: {numbers}"
        return Reason.OUTCOME_WORSE, f"{numbers}; {next_one} now"

    def _promote(self) -> bool:
        for policy in (*self.known.canaries, *self.known.shadows):
            evidence, rollout = self.evidence(policy), policy.rollout
            if rollout.promote != "Automatic" or evidence is None:
                continue
            if is_better(outcome := evidence[1].outcome, rollout):
                instead = self.deciding.name
                predecessor = (
                    f"SchedulingPolicy {instead}" if instead else "the policy of the settings"
                )
                message = f"{in_words(outcome, rollout)}; it decides in place of {predecessor}"
                self.rollouts.promote(policy, message)
                return True
        return False

    def _count_step(self, step: Step) -> None:
        is_rollback = step.effective_stage.stage is Stage.ROLLED_BACK
        counter = self._metrics.rollbacks if is_rollback else self._metrics.promotions
        counter.labels(step.reason.value).inc()


def _combine(
    active: LoadedPolicy, canaries: Sequence[tuple[PolicyFacts, LoadedPolicy]]
) -> LoadedPolicy:
    """Return ``active`` and ``canaries`` combined into one policy."""
    if not canaries:
        return active
    scopes = [(v.policy, msgspec.structs.replace(v.source, queues=p.queues)) for p, v in canaries]
    policy, source = with_canaries(active.policy, active.source, scopes)
    return replace(active, policy=policy, source=source)


@dataclass(slots=True)
class Shadows:
    """Compares the shadows of ``policies``, in a thread; ``clock`` gives monotonic seconds."""

    policies: Policies
    metrics: PolicyMetrics
    clock: Callable[[], float]
    regrets: ShadowEvaluator | None = None
    _tasks: Tasks = field(default_factory=Tasks)
    _rest_until: float = float("-inf")

    def submit(self, snapshot: ClusterSnapshot, decision: Decision) -> None:
        """Let the shadows decide on ``snapshot`` too; skip it while they are busy or rest."""
        shadows = self.policies.shadows
        if self.regrets is not None:
            contestants = [self._contestant(shadow) for shadow in shadows]
            self.regrets.submit(snapshot, decision, self.policies.deciding.source, contestants)
        if not shadows:
            return
        if self._tasks or self.clock() < self._rest_until:
            self.metrics.shadow_cycles.labels("skipped").inc()
            return
        self._tasks.start(self._compare(snapshot, decision))

    async def close(self) -> None:
        await self._tasks.close()
        if self.regrets is not None:
            await self.regrets.close()

    def _contestant(self, shadow: LoadedPolicy) -> Contestant:
        def count(sample: RegretSample, active: PolicySource) -> None:
            # Another policy may decide by now; the sample does not apply to it.
            if active == self.policies.deciding.source:
                shadow.stats.shadow.add_samples(active, sample)

        return Contestant(shadow.uid, shadow.source, count)

    async def _compare(self, snapshot: ClusterSnapshot, decision: Decision) -> None:
        began = self.clock()
        deciding = self.policies.deciding
        if self.policies.canaries:
            # Compare shadows with the decision that the active policy makes without canaries.
            decision = await asyncio.to_thread(_decide_alone, snapshot, deciding.policy)
        for decider in self.policies.shadows:
            try:
                theirs, difference = await asyncio.to_thread(
                    _run_and_compare, snapshot, decision, decider.policy
                )
            except Exception:  # noqa: BLE001  # a shadow's error must not stop decisions
                _log.exception("shadow not compared", policy=decider.name)
                self.metrics.shadow_cycles.labels("failed").inc()
                continue
            decider.stats.add(theirs)
            if decision.admitted or theirs.admitted:  # else no gang could start
                decider.stats.shadow.add(difference)
            decider.stats.shadow.add_sizes(difference)
            self.metrics.shadow_cycles.labels("compared").inc()
        self.policies.judge()
        self._rest_until = self.clock() + _REST * (self.clock() - began)


def _decide_alone(snapshot: ClusterSnapshot, policy: Policy) -> Decision:
    return run_cycle(snapshot, policy, explain=False)


def _run_and_compare(
    snapshot: ClusterSnapshot, decision: Decision, policy: Policy
) -> tuple[Decision, Difference]:
    theirs = run_cycle(snapshot, policy, explain=False)
    return theirs, shadow.compare(decision, theirs)


def shares_of(decision: Decision, snapshot: ClusterSnapshot, policy: Policy) -> dict[str, Decision]:
    """Return the part of the decision by each canary's name; "" for ``policy`` itself."""
    if not policy.canaries:
        return {"": decision}
    names = [canary.name for canary in policy.canaries]
    actions: dict[str, list[Action]] = {name: [] for name in ("", *names)}
    for action in decision.actions:
        decider = canary_of(action.gang.queue, snapshot.queues, policy.canaries)
        actions[decider.name if decider is not None else ""].append(action)
    faults = {"": decision.fallback, **dict(decision.canary_fallbacks)}
    return {n: Decision(tuple(share), fallback=faults.get(n, "")) for n, share in actions.items()}


@dataclass(slots=True)
class CycleRunner:
    """Runs cycles with the policy that decides; counts, records and compares them.

    Attributes:
        fence: Raises NotLeader in a process that does not lead.
        limit_seconds: Time limit of a cycle, after which it considers no more gangs.
        beat: Called from the thread of the cycle before each gang's turn.
        clock: Monotonic seconds.
        last: Keeps the last cycles for the debug dump; None if none is served.
        outlooks: Renews the start forecast; None if it is disabled.
        logs_steps: The log shows each step of a cycle, and each gang's visit: level debug.
    """

    policies: Policies
    shadows: Shadows
    recording: Recording | None
    metrics: OperatorMetrics
    fence: Callable[[], None]
    limit_seconds: float
    beat: Callable[[], None]
    clock: Callable[[], float]
    last: LastCycles | None = None
    outlooks: Outlooks | None = None
    logs_steps: bool = False
    _turns: CycleBudget = field(default_factory=CycleBudget)
    _meter: UsageMeter = field(default_factory=UsageMeter)
    _cycles: int = 0

    async def decide(self, snapshot: ClusterSnapshot) -> Decision:
        in_force, began = self.policies.in_force, self.clock()
        deciding, canaries = self.policies.deciding, self.policies.canaries

        def is_time_left() -> bool:
            self.beat()
            return self.clock() - began < self.limit_seconds

        self._cycles += 1
        trace = CycleTrace(self._cycles, self.clock, self.logs_steps)
        turns = replace(self._turns, is_time_left=is_time_left, trace=trace)
        with self.metrics.cycles.time():
            # In a thread, because this event loop renews the lease and a cycle may take seconds.
            decision = await asyncio.to_thread(run_cycle, snapshot, in_force.policy, turns=turns)
        self._turns = turns.after(decision, snapshot.now)
        _log_trace(trace)
        self.fence()  # the lease may have been lost in the meantime
        self._observe(snapshot, decision, in_force.source)
        if self.last is not None:
            self.last.keep(snapshot, decision, in_force.source, self.clock() - began, trace)
        shares = shares_of(decision, snapshot, in_force.policy)
        for decider, name in ((deciding, ""), *((canary, canary.name) for canary in canaries)):
            decider.stats.add(shares[name])
        if decision.overruled:
            self.metrics.fallbacks.inc()
            _log.warning("policy overruled", why=decision.overruled)
        self.policies.judge()
        return decision

    def skip(self, snapshot: ClusterSnapshot) -> Decision:
        """Return the empty decision on ``snapshot``, which has nothing to decide."""
        decision = Decision()
        self._observe(snapshot, decision, SETTINGS_SOURCE)
        return decision

    def _observe(self, snapshot: ClusterSnapshot, decision: Decision, source: PolicySource) -> None:
        if self.recording is not None:
            self.recording.submit(snapshot, decision, source)
        if self.outlooks is not None:
            self.outlooks.submit(snapshot, decision, source)
        if decision.unreached:
            self.metrics.cycles_cut.inc()
        else:
            self.metrics.gangs.show_waiting(decision.held, snapshot)
        self.metrics.gangs.show_devices(decision.held, snapshot)
        devices = devices_held(snapshot, decision.held)
        self.metrics.usage.count(self._meter.look(self.clock(), devices), devices)


def _log_trace(trace: CycleTrace) -> None:
    """Log each step of a cycle, and each gang's visit, at level debug."""
    if not trace.has_visits:
        return
    for visit in trace.visits:
        _log.debug("gang visited", cycle=trace.cycle, **visit._asdict())
    for step in trace.steps:
        _log.debug(
            "cycle step", cycle=trace.cycle, step=step.name, gangs=step.gangs, seconds=step.seconds
        )
