"""A SchedulingPolicy of a cluster as text: its parts, its state and its quality."""

from collections.abc import Iterator

from bireme import registry
from bireme.cli.arguments import Json
from bireme.core.policy import PARTS
from bireme.kube.api.scheduling_policy import RolloutSpec
from bireme.kube.conditions import cleaned


def text_of(policy: Json) -> str:
    """Return the lines about the manifest ``policy``, with each rule that it names explained."""
    return "\n".join(_lines(policy)) + "\n"


def _lines(policy: Json) -> Iterator[str]:
    spec, status = policy["spec"], policy.get("status") or {}
    yield f"SchedulingPolicy {policy['metadata']['name']}, {_stage(spec, status, policy)}"
    yield ""
    for condition in status.get("conditions") or ():
        message = cleaned(condition.get("message") or "")
        yield f"{condition['type']:<12}{condition['status']}, {condition['reason']}: {message}"
    if not status.get("conditions"):
        yield "It has no status yet: does an operator run and lead?"
    decisions, fallbacks = status.get("decisions"), status.get("fallbacks")
    if decisions is not None:
        yield f"{'decided':<12}{decisions} cycles, {fallbacks or 0} with a part answered by rules"
    if shadow := status.get("shadow"):
        whose = "as a shadow" if "of" not in shadow else "its rival"
        yield f"{whose:<12}{'; '.join(_shadow_lines(shadow))}"
    if rollout := spec.get("rollout"):
        yield f"{'rollout':<12}{'; '.join(_rollout(rollout))}"
    yield ""
    for part in PARTS:
        yield from _part(part, spec)


def _stage(spec: Json, status: Json, policy: Json) -> str:
    """Return the effective stage as text."""
    spec_stage = spec.get("stage", "Active")
    generation = policy["metadata"].get("generation")
    counts = (
        status.get("stage", spec_stage)
        if status.get("observedGeneration") == generation
        else spec_stage
    )
    if spec_stage == "Canary" and counts == spec_stage:
        queues = ", ".join(map(cleaned, (spec.get("canary") or {}).get("queues") or ()))
        return f"stage Canary: it decides for {queues}"
    if counts == spec_stage:
        return f"stage {spec_stage}"
    done = "rolled back, it decides nothing" if counts == "RolledBack" else "promoted, it decides"
    return f"{done} (its spec says {spec_stage})"


def _rollout(rollout: Json) -> Iterator[str]:
    rollout_spec = RolloutSpec.model_validate(rollout)
    for may, what in ((rollout_spec.promote, "promoted"), (rollout_spec.roll_back, "rolled back")):
        yield f"{what} automatically" if may == "Automatic" else f"never {what} automatically"
    yield f"from {rollout_spec.minimum_samples} samples on, by more than {rollout_spec.margin:.1%}"


def _shadow_lines(shadow: Json) -> Iterator[str]:
    if (of := shadow.get("of")) is not None:
        yield f"SchedulingPolicy {cleaned(of)}" if of else "the policy of the settings"
    yield f"{shadow.get('decisions', 0)} cycles compared"
    if (same := shadow.get("agreement")) is not None:
        yield f"{same:.0%} of the starts as decided"
    if (same := shadow.get("sizeAgreement")) is not None:
        yield f"{same:.0%} of the sizes"
    if (regret := shadow.get("regret")) is not None:
        better = "shorter" if regret > 0 else "longer"
        yield f"with its decisions jobs would take {abs(regret):.0f} s {better} on average"
        low, high, moments = (shadow.get(name) for name in ("regretLow", "regretHigh", "samples"))
        if low is None or high is None:
            yield f"samples: {moments or 0}, too few for an interval"
        else:
            yield f"95 % interval {low:.0f} to {high:.0f} s, samples: {moments or 0}"


def _part(part: str, spec: Json) -> Iterator[str]:
    name = spec.get(part)
    parameters = (spec.get("parameters") or {}).get(part) or {}
    parameter_text = "".join(
        f", {cleaned(name)} {value:g}" for name, value in sorted(parameters.items())
    )
    if name is None:
        learned = (spec.get("checkpoint") or {}).get("name")
        instead = f"checkpoint {learned}{parameter_text}, or else " if learned else ""
        yield f"{part:<12}{instead}as in the operator's settings"
        return
    yield f"{part:<12}{name}{parameter_text}"
    if ":" not in name and name in {row[1] for row in registry.describe()}:
        for kind, description in registry.explain(name):
            if kind == part:
                yield "\n".join(f"  {line}".rstrip() for line in description.splitlines())
