"""What a SchedulingPolicy says about itself: whether it decides, how it does, or why not."""

from collections.abc import Iterator

from bireme.core.reasons import Reason
from bireme.kube.conditions import cleaned, with_condition
from bireme.kube.scheduling_policies import MOST_SHADOWS, PolicyFacts
from bireme_operator.metrics import PolicyMetrics, show
from bireme_operator.policies import Policies
from bireme_operator.status import Status
from bireme_operator.status_reports import Reporting, StatusReports
from bireme_operator.tallies import Likeness, Tally

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


class PolicyReports(StatusReports):
    """Writes ``SchedulingPolicy.status``."""

    kind = "SchedulingPolicy"
    news = ("observedGeneration", "checkpointSha256")

    def __init__(self, policies: Policies, metrics: PolicyMetrics, to: Reporting) -> None:
        super().__init__(to)
        self._policies = policies
        self._metrics = metrics

    def said(self) -> Iterator[tuple[PolicyFacts, Status]]:
        """See :class:`StatusReports`."""
        for policy in list(self._policies.known.known.values()):
            status = status_of(policy, self._policies, self._now())
            if status is not None:
                yield policy, status

    def show(self) -> None:
        """See :class:`StatusReports`."""
        policies, metrics = self._policies, self._metrics
        deciders = {name: policies.decider(p) for name, p in policies.known.known.items()}
        tallies = {name: each.tally for name, each in deciders.items() if each is not None}
        likeness = {name: tally.likeness for name, tally in tallies.items()}
        compared = {name: found for name, found in likeness.items() if found.cycles}
        sizes = {name: found.size_agreement for name, found in likeness.items()}
        show(
            {
                metrics.deciding: {n: float(n == policies.deciding.name) for n in deciders},
                metrics.degraded: {n: float(t.is_degraded) for n, t in tallies.items()},
                metrics.agreement: {n: found.agreement for n, found in compared.items()},
                metrics.regret: {n: found.regret_seconds for n, found in compared.items()},
                metrics.compared: {n: float(f.cycles) for n, f in compared.items()},
                metrics.size_agreement: {n: f for n, f in sizes.items() if f is not None},
            }
        )
