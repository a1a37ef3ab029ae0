"""The parts of a term that leader and observer share: its context, caches and deciding parts."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from bireme.core.settings import SchedulingSettings
from bireme.kube.client import ApiClient
from bireme.kube.cluster_state import ClusterState
from bireme.kube.node_pool_scalers import NodePoolScalers
from bireme.kube.policy_source import PolicyFacts
from bireme.registry import make_policy
from bireme.rl import lookup
from bireme_operator import loop
from bireme_operator.custom_resources import CustomResources, Sources
from bireme_operator.debug_dump import LastCycles
from bireme_operator.loop import Heartbeat
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.outlooks import Outlooks
from bireme_operator.policies import CycleRunner, LoadedPolicy, Policies, Shadows
from bireme_operator.recording import Recording
from bireme_operator.regrets import ShadowEvaluator
from bireme_operator.settings import OperatorSettings
from bireme_operator.watches import Watches

_log = structlog.get_logger(__name__)

# Time limit of a new leader's wait for its policy. Before that the settings would decide, and might
# preempt gangs that the policy would not.
FIRST_LOAD_SECONDS = 5.0
# Time after which a cycle decides on no more gangs: a job that comes meanwhile waits for its end.
_CYCLE_SECONDS = 5.0


def wall_clock() -> float:
    """Return POSIX seconds, for comparisons with the API server's times."""
    return time.time()  # noqa: TID251  # the one place where the operator asks for the time


@dataclass(frozen=True, slots=True)
class TermContext:
    """The process around a term, and the term's place in the order of leaders.

    Attributes:
        client: Writes through it pass the fence.
        epoch: Number of the leader, which stamps every plan.
        identity: Name of the process.
        fence: Raises NotLeader in a process that does not hold the lease.
        clock: Monotonic seconds.
        now: POSIX seconds.
        custom: Source of Bireme's own kinds; kopf if None. Simulations set one.
        queue: Spec of the Queue ``default``, created if there is none.
        shadow: Checkpoint of the learned shadow, created once per version.
        samples_shadows: Whether shadows are sampled, each by a process; not in simulated time.
    """

    client: ApiClient
    settings: OperatorSettings
    scheduling: SchedulingSettings
    metrics: OperatorMetrics
    epoch: int
    identity: str
    fence: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = wall_clock
    custom: Sources | None = None
    queue: Mapping[str, Any] | None = None
    shadow: Mapping[str, Any] | None = None
    samples_shadows: bool = True


@dataclass(frozen=True, slots=True)
class Caches:
    """The view of a term: the state of the cluster, its sources, and the policies that decide.

    Attributes:
        dirty: Set by every change that can matter to a decision.
        scalers: The NodePoolScalers, which :class:`ClusterState` has no room for.
    """

    dirty: asyncio.Event
    policies: Policies
    state: ClusterState
    scalers: NodePoolScalers
    watches: Watches

    @classmethod
    def of(cls, term: TermContext, *, is_automatic: bool, general: str = "") -> "Caches":
        """Return empty caches, which ``watches`` fill.

        Args:
            is_automatic: Policies are promoted and rolled back by their outcome.
            general: Names the scheduling that a rollout was judged under.
        """
        dirty = asyncio.Event()
        policies = Policies(
            make_policy(term.scheduling),
            policy_loader(term),
            term.metrics.policies,
            dirty.set,
            is_automatic=is_automatic,
            general=general,
        )
        state = ClusterState(term.scheduling, dirty.set, policies.known)
        scalers = NodePoolScalers(dirty.set)
        own_kinds = term.custom or CustomResources(
            term.client,
            term.metrics.watches,
            loop.MAX_SILENCE_SECONDS,
            clock=term.clock,
        )
        watches = Watches(term.client, state, scalers, own_kinds, term.clock)
        return cls(dirty, policies, state, scalers, watches)


@dataclass(frozen=True, slots=True)
class Deciding:
    """The deciding parts of a term, whether or not decisions are carried out.

    Attributes:
        last: Keeps the last cycles for the debug dump; None if none is served.
        outlooks: Renews the start forecast; None if it is disabled.
        closing: Parts to close after the term, in this order.
    """

    cycles: CycleRunner
    heartbeat: Heartbeat
    last: LastCycles | None
    outlooks: Outlooks | None
    closing: tuple[Policies | Shadows | Recording | Outlooks, ...]

    @classmethod
    def of(cls, term: TermContext, name: str, policies: Policies) -> "Deciding":
        """Return the parts of the term ``name``, which decides by ``policies``."""
        settings, metrics, clock = term.settings, term.metrics, term.clock
        regrets = None
        if term.samples_shadows:
            process = (settings, term.scheduling, metrics.policies, clock)
            regrets = ShadowEvaluator.begin(name, *process)
        shadows = Shadows(policies, metrics.policies, clock, regrets)
        recording = Recording.begin(name, settings, term.scheduling, metrics, clock)
        last = LastCycles(name, term.scheduling) if settings.debug_dump else None
        outlooks = Outlooks.begin(name, settings, term.scheduling, metrics.outlook, clock)
        heartbeat = Heartbeat(clock)
        cycles = CycleRunner(
            policies,
            shadows,
            recording,
            metrics,
            term.fence,
            limit_seconds=_CYCLE_SECONDS,
            beat=heartbeat.beat,
            clock=clock,
            last=last,
            outlooks=outlooks,
            logs_steps=settings.log_level == "debug",
        )
        given_parts = (policies, shadows, recording, outlooks)
        closing = tuple(part for part in given_parts if part is not None)
        return cls(cycles, heartbeat, last, outlooks, closing)


def policy_loader(term: TermContext) -> Callable[[PolicyFacts], LoadedPolicy]:
    """Return the loader of a SchedulingPolicy; it reads files, so run it in a thread.

    The settings supply the names that the SchedulingPolicy omits. The loader raises SettingError
    for an unknown name, and CheckpointError for an unusable checkpoint.
    """
    scheduling, directory = term.scheduling, term.settings.checkpoint_directory

    def load(facts: PolicyFacts) -> LoadedPolicy:
        named = msgspec.convert(facts.names, lookup.PolicySource)
        policy, source = lookup.policy_of(named, scheduling, make_policy, directory)
        return LoadedPolicy(policy, facts.uid, source)

    return load
