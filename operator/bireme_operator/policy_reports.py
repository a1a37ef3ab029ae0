"""What a SchedulingPolicy says about itself: whether it decides, how it does, or why it does not.

A condition that changes is written at the next sweep, numbers alone once in a while.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from bireme.core.reasons import Reason
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.conditions import cleaned, with_condition
from bireme.kube.scheduling_policies import MOST_SHADOWS, PolicyFacts
from bireme_operator.events import Events
from bireme_operator.metrics import PolicyMetrics
from bireme_operator.policies import Policies
from bireme_operator.status import Status
from bireme_operator.tallies import Likeness, Tally
from bireme_operator.writes import Writes

_log = structlog.get_logger(__name__)
LOADED, DEGRADED = "Loaded", "Degraded"


def status_of(policy: PolicyFacts, policies: Policies, now: float) -> Status | None:
    """What ``policy`` should say; None while it is being loaded. ``now`` is POSIX seconds."""
    verdict = _verdict(policy, policies)
    if verdict is None:
        return None
    is_loaded, reason, message = verdict
    before = {c["type"]: c for c in policy.status.get("conditions") or ()}
    said: Status = {"conditions": list(before.values()), "observedGeneration": policy.generation}
    with_condition(said, LOADED, is_loaded, reason, cleaned(message), now)
    decider = policies.decider(policy)
    if decider is None:
        said["conditions"] = [c for c in said["conditions"] if c["type"] != DEGRADED]
        return said
    if decider.source.sha256:
        said["checkpointSha256"] = decider.source.sha256
    _add_tally(said, policy, decider.tally, now)
    return said


def _verdict(policy: PolicyFacts, policies: Policies) -> tuple[bool, Reason, str] | None:
    """Whether it is loaded, and why or why not."""
    active, outcome = policies.known.active, policies.outcome(policy)
    if not policy.is_shadow and active is not None and active.uid != policy.uid:
        message = f"SchedulingPolicy {active.name} is Active too and older; delete one of them"
        return False, Reason.SUPERSEDED, message
    if policy.is_shadow and policy.name not in {p.name for p in policies.known.shadows}:
        return False, Reason.TOO_MANY_SHADOWS, f"only the {MOST_SHADOWS} oldest shadows are loaded"
    if outcome is None:
        return None
    if outcome.fault:
        return False, Reason.LOAD_FAILED, f"{outcome.fault}; {_meanwhile(policy, policies)}"
    return True, Reason.POLICY_LOADED, "it is compared" if policy.is_shadow else "it decides"


def _meanwhile(policy: PolicyFacts, policies: Policies) -> str:
    if policy.is_shadow:
        return "it is not compared"
    name = policies.deciding.name
    return f"SchedulingPolicy {name}, as last loaded, decides" if name else "the settings decide"


def _add_tally(said: Status, policy: PolicyFacts, tally: Tally, now: float) -> None:
    is_degraded = tally.is_degraded
    reason = Reason.POLICY_OVERRULED if is_degraded else Reason.ANSWERS_VALID
    message = f"the rules answered in its place: {tally.why}" if is_degraded else ""
    with_condition(said, DEGRADED, is_degraded, reason, cleaned(message), now)
    said["fallbacks"] = tally.fallbacks
    if not policy.is_shadow:
        said["decisions"] = tally.decisions
    elif likeness := _shown(tally.likeness):
        said["shadow"] = likeness


def _shown(likeness: Likeness) -> Status:
    """What is known of a shadow; empty before anything is."""
    shown: Status = {}
    if likeness.cycles:
        shown["decisions"] = likeness.cycles
        shown["agreement"] = round(likeness.agreement, 4)
        shown["regret"] = round(likeness.regret_seconds, 1)
    if likeness.size_agreement is not None:
        shown["sizeAgreement"] = round(likeness.size_agreement, 4)
    return shown


def is_news(before: Status, said: Status) -> bool:
    """Whether ``said`` differs in more than numbers and words."""
    facts = [
        {c["type"]: (c["status"], c["reason"]) for c in _conditions(s)} for s in (before, said)
    ]
    names = ("observedGeneration", "checkpointSha256")
    return facts[0] != facts[1] or any(before.get(name) != said.get(name) for name in names)


def _conditions(status: Status) -> list[dict[str, Any]]:
    return list(status.get("conditions") or ())


class PolicyReports:
    """Writes ``SchedulingPolicy.status``; ``now`` gives POSIX seconds, ``clock`` monotonic ones."""

    def __init__(
        self,
        policies: Policies,
        writes: Writes,
        events: Events,
        metrics: PolicyMetrics,
        refresh_seconds: float,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._policies = policies
        self._writes = writes
        self._events = events
        self._metrics = metrics
        self._refresh_seconds = refresh_seconds
        self._clock, self._now = clock, now
        self._written: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    def offer(self) -> None:
        """Report what is new, unless the last report is still being written."""
        self._show()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_all())

    async def close(self) -> None:
        """Stop the report under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write_all(self) -> None:
        known = self._policies.known.known
        self._written = {name: at for name, at in self._written.items() if name in known}
        for policy in list(known.values()):
            said = status_of(policy, self._policies, self._now())
            if said is None or not self._is_due(policy, said):
                continue
            try:
                await self._write(policy, said)
            except ApiError as error:
                if not (error.is_conflict or error.is_not_found):
                    _log.info("policy status not written", policy=policy.name, error=str(error))
            except NotLeader:
                return

    def _is_due(self, policy: PolicyFacts, said: Status) -> bool:
        if is_news(policy.status, said):
            return True
        age = self._clock() - self._written.get(policy.name, float("-inf"))
        return said != policy.status and age >= self._refresh_seconds

    async def _write(self, policy: PolicyFacts, said: Status) -> None:
        self._written[policy.name] = self._clock()
        await self._writes.write_policy_status(policy.name, policy.resource_version, said)
        before = {(c["type"], c["reason"]) for c in _conditions(policy.status)}
        for condition in _conditions(said):
            if (condition["type"], condition["reason"]) not in before:
                reason, words = Reason(condition["reason"]), condition["message"]
                key = ("", policy.name)
                await self._events.post("SchedulingPolicy", key, policy.uid, reason, words)

    def _show(self) -> None:
        """The metrics."""
        policies, metrics = self._policies, self._metrics
        deciders = {name: policies.decider(p) for name, p in policies.known.known.items()}
        tallies = {name: each.tally for name, each in deciders.items() if each is not None}
        likeness = {name: tally.likeness for name, tally in tallies.items()}
        compared = {name: found for name, found in likeness.items() if found.cycles}
        sizes = {name: found.size_agreement for name, found in likeness.items()}
        metrics.show(
            {
                metrics.deciding: {n: float(n == policies.deciding.name) for n in deciders},
                metrics.degraded: {n: float(t.is_degraded) for n, t in tallies.items()},
                metrics.agreement: {n: found.agreement for n, found in compared.items()},
                metrics.regret: {n: found.regret_seconds for n, found in compared.items()},
                metrics.compared: {n: float(f.cycles) for n, f in compared.items()},
                metrics.size_agreement: {n: f for n, f in sizes.items() if f is not None},
            }
        )
