"""SchedulingPolicies: their watch cache, and their loading outside the event loop.

The effective stage is in the status if the operator has promoted a policy or rolled it back, else
in the spec. Among several Active policies the last promoted one decides: it was measured against
its predecessor. Without a promoted one the oldest decides, ties by name, so that a new object never
takes over. To change the policy, edit or delete the active one.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, TypeVar

from bireme.core.errors import error_text
from bireme.core.gangs import Key
from bireme.core.parameters import query_of
from bireme.kube import wire
from bireme.kube.api.scheduling_policy import PolicyParameters, RolloutSpec, SchedulingPolicySpec
from bireme.kube.cluster_objects import ClusterFacts, ClusterObjects
from bireme.tasks import Tasks

RETRY_SECONDS: Final = 30.0

# Maximum number of loaded shadows: each costs memory, and all share the spare time.
MAX_SHADOWS: Final = 4
MAX_CANARIES: Final = 4

PROMOTED: Final = "Promoted"
"""The condition whose transition time is the time of the promotion."""


class Stage(StrEnum):
    """Stage of a policy, as in its spec or its status."""

    SHADOW = "Shadow"
    CANARY = "Canary"
    ACTIVE = "Active"
    ROLLED_BACK = "RolledBack"
    """It decides nothing until its spec changes."""


@dataclass(frozen=True, slots=True)
class EffectiveStage:
    """The effective stage, and the time of the promotion to it; empty for the stage of the spec."""

    stage: Stage
    promoted: str = ""


@dataclass(frozen=True, slots=True)
class PolicyFacts(ClusterFacts[SchedulingPolicySpec]):
    """One SchedulingPolicy."""

    stage: Stage = Stage.ACTIVE
    """The stage of the spec."""

    @property
    def rollout(self) -> RolloutSpec:
        """The automatic rollout of the spec; by default the operator does nothing by itself."""
        return (self.spec.rollout if self.spec is not None else None) or RolloutSpec()

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues of its canary scope, as in the spec."""
        scope = self.spec.canary if self.spec is not None else None
        return scope.queues if scope is not None else ()

    @property
    def effective_stage(self) -> EffectiveStage:
        """The stage of the status if it was observed for this spec, else the stage of the spec."""
        stage = self.status.get("stage")
        if self.status.get("observedGeneration") != self.generation or stage == self.stage:
            return EffectiveStage(self.stage)
        if stage == Stage.ROLLED_BACK:
            return EffectiveStage(Stage.ROLLED_BACK)
        if stage != Stage.ACTIVE:
            return EffectiveStage(self.stage)
        conditions = self.status.get("conditions") or ()
        times = (c["lastTransitionTime"] for c in conditions if c["type"] == PROMOTED)
        return EffectiveStage(Stage.ACTIVE, next(times, self.created))

    @property
    def names(self) -> dict[str, str]:
        """The fields of :class:`bireme.rl.lookup.PolicySource`; "" for absent fields."""
        assert self.spec is not None  # noqa: S101  # a spec that cannot be read is never loaded
        checkpoint, parameters = self.spec.checkpoint, self.spec.parameters or PolicyParameters()
        return {
            "name": self.name,
            "orderer": self.spec.orderer or "",
            "placer": self.spec.placer or "",
            "sizer": self.spec.sizer or "",
            "orderer_parameters": query_of(parameters.orderer or {}),
            "placer_parameters": query_of(parameters.placer or {}),
            "sizer_parameters": query_of(parameters.sizer or {}),
            "checkpoint": "" if checkpoint is None else checkpoint.name,
            "sha256": "" if checkpoint is None else checkpoint.sha256 or "",
        }


def from_manifest(manifest: wire.CustomObject) -> PolicyFacts:
    """Return the facts of a SchedulingPolicy."""
    # The stage of an unreadable spec counts too: a shadow must never become the active policy.
    fields = manifest.fields
    stage = fields.get("stage") if isinstance(fields, dict) else None
    effective = stage if stage in (Stage.SHADOW, Stage.CANARY) else Stage.ACTIVE
    return PolicyFacts.read(manifest, SchedulingPolicySpec, stage=Stage(effective))


class SchedulingPolicies(ClusterObjects[PolicyFacts]):
    """SchedulingPolicies by name.

    Attributes:
        effective_stage: Returns the effective stage: by the status, or newer knowledge of a leader.
    """

    read = staticmethod(from_manifest)

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        super().__init__(on_change)
        self.effective_stage: Callable[[PolicyFacts], EffectiveStage] = lambda facts: (
            facts.effective_stage
        )

    def put(self, key: Key, manifest: wire.CustomObject) -> None:
        previous = self.known.get(key[1])
        super().put(key, manifest)
        current = self.known[key[1]]
        # A change of the status matters only if it changes the effective stage.
        is_new_spec = previous is None or previous.demand != current.demand
        if (
            not is_new_spec
            and previous is not None
            and previous.effective_stage != current.effective_stage
        ):
            self.on_change()

    @property
    def active(self) -> PolicyFacts | None:
        """The policy that decides; None if the settings do."""
        return next(iter(self.actives), None)

    @property
    def actives(self) -> list[PolicyFacts]:
        """The Active policies: first the deciding one, then its successors if it is deleted."""
        by_age = self._in(Stage.ACTIVE)
        return sorted(
            by_age, key=lambda policy: self.effective_stage(policy).promoted, reverse=True
        )

    @property
    def canaries(self) -> list[PolicyFacts]:
        """The oldest canaries, at most ``MAX_CANARIES``, oldest first."""
        return self._in(Stage.CANARY)[:MAX_CANARIES]

    @property
    def shadows(self) -> list[PolicyFacts]:
        """The oldest in stage Shadow, at most ``MAX_SHADOWS``, oldest first."""
        return self._in(Stage.SHADOW)[:MAX_SHADOWS]

    def _in(self, stage: Stage) -> list[PolicyFacts]:
        """Return the policies of that stage, oldest first."""
        policies = (
            policy for policy in self.known.values() if self.effective_stage(policy).stage is stage
        )
        return sorted(policies, key=lambda policy: policy.age)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoadOutcome(Generic[T]):
    """Result of loading a policy: ``value``, or ``fault`` with the reason of the failure."""

    demand: tuple[str, int]
    value: T | None = None
    fault: str = ""


@dataclass(slots=True)
class PolicyLoads(Generic[T]):
    """Loads the wanted policies with ``load`` and calls ``on_done`` with each outcome.

    ``load`` runs in a thread, for one policy at a time and once for each spec. A loaded policy
    stays, even if its files change. ``load`` may raise anything. A failed load is tried again after
    ``RETRY_SECONDS``, because a checkpoint folder may appear later than the object that names it.
    """

    load: Callable[[PolicyFacts], T]
    on_done: Callable[[PolicyFacts, LoadOutcome[T]], None]
    _policies: dict[str, PolicyFacts] = field(default_factory=dict)
    _outcomes: dict[str, LoadOutcome[T]] = field(default_factory=dict)
    _due: set[str] = field(default_factory=set)
    _tasks: Tasks = field(default_factory=Tasks)
    _retry: asyncio.TimerHandle | None = None

    def want(self, policies: Iterable[PolicyFacts]) -> None:
        """Load these, in this order, and drop all others."""
        self._policies = {policy.uid: policy for policy in policies}
        self._outcomes = {
            u: outcome for u, outcome in self._outcomes.items() if u in self._policies
        }
        self._start()

    def outcome(self, policy: PolicyFacts) -> LoadOutcome[T] | None:
        """Return the outcome for this spec; None while it loads, or if it is not wanted."""
        outcome = self._outcomes.get(policy.uid)
        return outcome if outcome is not None and outcome.demand == policy.demand else None

    async def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        await self._tasks.close()

    def _start(self) -> None:
        if not self._tasks:
            self._tasks.start(self._run())

    async def _run(self) -> None:
        # One at a time, because loading takes memory and processor time.
        while policy := self._next():
            self._due.discard(policy.uid)
            outcome = await asyncio.to_thread(self._try_load, policy)
            if policy.uid in self._policies:
                self._outcomes[policy.uid] = outcome
                self.on_done(policy, outcome)
            if outcome.fault:
                self._try_again_later()

    def _next(self) -> PolicyFacts | None:
        policies = self._policies.values()
        return next((p for p in policies if self.outcome(p) is None or p.uid in self._due), None)

    def _try_load(self, policy: PolicyFacts) -> LoadOutcome[T]:
        try:
            if policy.fault:
                return LoadOutcome(policy.demand, fault=policy.fault)
            return LoadOutcome(policy.demand, self.load(policy))
        except Exception as error:  # noqa: BLE001  # a user's own class may raise anything
            return LoadOutcome(policy.demand, fault=error_text(error))

    def _try_again_later(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._again)

    def _again(self) -> None:
        """Load the failed policies again; their faults stay until then."""
        self._due = {uid for uid, outcome in self._outcomes.items() if outcome.fault}
        self._start()
