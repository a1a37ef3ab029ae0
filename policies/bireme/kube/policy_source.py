"""SchedulingPolicies: a watch cache of them, and loading the wanted ones outside the event loop.

Of those in stage Active the oldest counts, ties by name, so that a new object never takes over: to
change the policy, the active one is edited or deleted.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from bireme.core.errors import error_text
from bireme.core.parameters import query_of
from bireme.kube import wire
from bireme.kube.api.scheduling_policy import PolicyParameters, SchedulingPolicySpec
from bireme.kube.cluster_objects import ClusterFacts, ClusterObjects
from bireme.tasks import Tasks

RETRY_SECONDS: Final = 30.0

# The most shadows in use: each costs memory, and all share the time that is left over.
MOST_SHADOWS: Final = 4


@dataclass(frozen=True, slots=True)
class PolicyFacts(ClusterFacts[SchedulingPolicySpec]):
    """One SchedulingPolicy."""

    is_shadow: bool = False

    @property
    def names(self) -> dict[str, str]:
        """The fields of :class:`bireme.rl.lookup.PolicySource`, "" for what the spec leaves out."""
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
    # The stage counts even in a spec that cannot be read: a shadow never comes to decide.
    fields = manifest.fields
    is_shadow = isinstance(fields, dict) and fields.get("stage") == "Shadow"
    return PolicyFacts.read(manifest, SchedulingPolicySpec, is_shadow=is_shadow)


class SchedulingPolicies(ClusterObjects[PolicyFacts]):
    """SchedulingPolicies by name."""

    read = staticmethod(from_manifest)

    @property
    def active(self) -> PolicyFacts | None:
        """The policy that decides; None if the settings do."""
        active = (policy for policy in self.known.values() if not policy.is_shadow)
        return min(active, key=lambda policy: policy.age, default=None)

    @property
    def shadows(self) -> list[PolicyFacts]:
        """The oldest in stage Shadow, at most ``MOST_SHADOWS``, oldest first."""
        shadows = (policy for policy in self.known.values() if policy.is_shadow)
        return sorted(shadows, key=lambda policy: policy.age)[:MOST_SHADOWS]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoadOutcome(Generic[T]):
    """Result of loading a policy: ``value``, or ``fault`` with the reason it failed."""

    demand: tuple[str, int]
    value: T | None = None
    fault: str = ""


@dataclass(slots=True)
class PolicyLoads(Generic[T]):
    """Loads the wanted policies with ``load`` and calls ``on_done`` with each outcome.

    ``load`` runs in a thread, for one policy at a time and once for each spec; what is loaded
    stays, even if its files change. It may raise anything. A failed load is tried again after
    ``RETRY_SECONDS``, because a checkpoint folder may appear later than the object that names it.
    """

    load: Callable[[PolicyFacts], T]
    on_done: Callable[[PolicyFacts, LoadOutcome[T]], None]
    _wanted: dict[str, PolicyFacts] = field(default_factory=dict)
    _outcomes: dict[str, LoadOutcome[T]] = field(default_factory=dict)
    _due: set[str] = field(default_factory=set)
    _tasks: Tasks = field(default_factory=Tasks)
    _retry: asyncio.TimerHandle | None = None

    def want(self, policies: Iterable[PolicyFacts]) -> None:
        """Load these, in this order, and drop all others."""
        self._wanted = {policy.uid: policy for policy in policies}
        self._outcomes = {u: found for u, found in self._outcomes.items() if u in self._wanted}
        self._start()

    def outcome(self, policy: PolicyFacts) -> LoadOutcome[T] | None:
        """Return the outcome for this spec; None while it loads, or if it is not wanted."""
        found = self._outcomes.get(policy.uid)
        return found if found is not None and found.demand == policy.demand else None

    async def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        await self._tasks.close()

    def _start(self) -> None:
        if not self._tasks:
            self._tasks.start(self._run())

    async def _run(self) -> None:
        # One at a time, because a policy that is loaded takes memory and processor time.
        while policy := self._next():
            self._due.discard(policy.uid)
            outcome = await asyncio.to_thread(self._tried, policy)
            if policy.uid in self._wanted:
                self._outcomes[policy.uid] = outcome
                self.on_done(policy, outcome)
            if outcome.fault:
                self._try_again_later()

    def _next(self) -> PolicyFacts | None:
        wanted = self._wanted.values()
        return next((p for p in wanted if self.outcome(p) is None or p.uid in self._due), None)

    def _tried(self, policy: PolicyFacts) -> LoadOutcome[T]:
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
        """Load the failed ones again; their faults stay until then."""
        self._due = {uid for uid, outcome in self._outcomes.items() if outcome.fault}
        self._start()
