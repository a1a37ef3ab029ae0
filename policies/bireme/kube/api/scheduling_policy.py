"""SchedulingPolicy: the policy that decides instead of the operator's settings, or as a shadow.

Cluster scoped and written by administrators. The oldest counts if several are in stage Active. A
canary decides for some queues. ``spec.rollout`` lets the operator promote or roll back a policy by
what it measures: the stage that counts then stands in the status, and the spec stays as it was
written. The guardrails hold for every policy; a checkpoint that cannot be used changes only its own
status.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, ValidationError

from bireme.core.regret import RegretSample
from bireme.kube.api.base import (
    ApiModel,
    Conditions,
    Count,
    DnsSubdomain,
    Resource,
    Rule,
    validations,
)

CHECKPOINT_NAME: Final = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
POLICY_NAME: Final = "^([a-z0-9][-a-z0-9]*|[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*)$"
# At most 27 characters, so that 200 with their spaces stay below the bound.
_MOMENT: Final = "[0-9.e+-]{1,13}/[0-9.e+-]{1,13}"

_PARTS: Final = "[self.?orderer.orValue(''), self.?placer.orValue(''), self.?sizer.orValue('')]"

_PARAMETRISED_BY_NOBODY: Final = " || ".join(
    f"(has(self.parameters.{part}) && !has(self.{part}))" for part in ("orderer", "placer", "sizer")
)

PolicyName = Annotated[str, Field(pattern=POLICY_NAME, max_length=253)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", max_length=64)]


class CheckpointReference(ApiModel):
    """A trained policy: a folder with its card and its networks."""

    name: Annotated[str, Field(pattern=CHECKPOINT_NAME, max_length=63)]
    """A folder below the setting `checkpointDirectory`, or else a checkpoint that comes with
    Bireme."""
    sha256: Sha256 | None = None
    """The digest of the folder's card.json, which holds those of its other files. Any other
    checkpoint under the name is refused; without it the name is enough."""


Parameters = Annotated[dict[str, float], Field(max_length=32)]


class PolicyParameters(ApiModel):
    """Parameters of the parts: numbers by name, as `bireme policies NAME` lists them.

    One left out has its default. One that is unknown or out of its bounds keeps the policy from
    being loaded, and its condition Loaded says what it may be.
    """

    orderer: Parameters | None = None
    """Parameters of spec.orderer, or of the checkpoint's orderer."""
    placer: Parameters | None = None
    """Parameters of spec.placer, or of the checkpoint's placer."""
    sizer: Parameters | None = None
    """Parameters of spec.sizer, or of the checkpoint's sizer."""


class CanaryScope(ApiModel):
    """The queues for whose gangs a canary decides."""

    queues: Annotated[tuple[DnsSubdomain, ...], Field(min_length=1, max_length=64)]
    """Names of queues; each includes the queues below it. If an older canary names one of them, the
    older canary decides there."""


class RolloutSpec(ApiModel):
    """Actions that the operator may take by itself, by the outcomes that it compares."""

    promote: Literal["Never", "Automatic"] = "Never"
    """Automatic: a Shadow or Canary begins to decide for all queues when the whole interval of its
    saving lies above the margin."""
    roll_back: Literal["Never", "Automatic"] = "Never"
    """Automatic: a deciding policy is rolled back when the whole interval of the saving without it
    lies above the margin. It is also rolled back when the rules answered in its place in more than
    half of its latest 20 cycles. It stays rolled back until its spec changes."""
    minimum_samples: Annotated[int, Field(ge=2, le=1_000_000)] = 40
    """Samples that are needed before the interval counts."""
    margin: Annotated[float, Field(ge=0, le=1)] = 0.02
    """The saving that is required, as a share of the mean completion time. The interval is checked
    again and again, so with 0 an equally good policy passes by chance sooner or later."""


class SchedulingPolicySpec(ApiModel):
    """The parts that decide. One left out is the checkpoint's if it has it, else the settings'."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule(
                "has(self.orderer) || has(self.placer) || has(self.sizer) || has(self.checkpoint)",
                "the policy names nothing: name an orderer, a placer, a sizer or a checkpoint",
            ),
            Rule(
                "!has(self.checkpoint) || !has(self.orderer) || !has(self.placer)"
                " || !has(self.sizer)",
                "checkpoint {self.checkpoint.name} would not be used beside orderer {self.orderer},"
                " placer {self.placer} and sizer {self.sizer}: leave out what it should be",
                field=".checkpoint",
            ),
            Rule(
                f"{_PARTS}.all(name, !name.startsWith('checkpoint:'))",
                f"{{{_PARTS}.filter(name, name.startsWith('checkpoint:'))}} names a file, and only"
                " checkpoint_directory is read: name its folder in spec.checkpoint",
            ),
            Rule(
                f"!has(self.parameters) || has(self.checkpoint) || !({_PARAMETRISED_BY_NOBODY})",
                "parameters are given for an orderer, a placer or a sizer that the policy does not"
                " name: name it beside them, or leave its parameters out",
                field=".parameters",
            ),
            Rule(
                "self.stage != 'Canary' || has(self.canary)",
                "a Canary decides for some queues and names none: list them in spec.canary.queues",
            ),
            Rule(
                "self.stage == 'Canary' || !has(self.canary)",
                "queues are given for a canary in stage {self.stage}: make the stage Canary, or"
                " leave spec.canary out",
                field=".canary",
            ),
        )
    )

    orderer: PolicyName | None = None
    """It orders the gangs: a name that `bireme policies` lists, or `package.module:Class`."""
    placer: PolicyName | None = None
    """It chooses the nodes of a gang, named likewise."""
    sizer: PolicyName | None = None
    """It chooses the size of elastic gangs, named likewise."""
    checkpoint: CheckpointReference | None = None
    """A trained policy for the parts that are left out."""
    parameters: PolicyParameters | None = None
    """Constants of the parts, such as a threshold or a weight, instead of their defaults."""
    stage: Literal["Active", "Canary", "Shadow"] = "Active"
    """An Active policy decides. A Shadow decides on the same snapshots as the active policy, and is
    only compared. A Canary decides for the queues in spec.canary."""
    canary: CanaryScope | None = None
    """For stage Canary: the queues for whose gangs it decides in place of the active policy."""
    rollout: RolloutSpec | None = None
    """Promotion and rollback by measured outcomes. Without it the operator does neither."""


class ShadowHistory(ApiModel):
    """The samples behind the regret, with which the next leader continues."""

    between: Annotated[str, Field(pattern="^[0-9a-f]{16}$", max_length=16)]
    """A digest of the two policies, the settings and Bireme's version. A leader with another digest
    begins anew."""
    moments: Annotated[str, Field(pattern=f"^{_MOMENT}( {_MOMENT})*$", max_length=8192)]
    """The latest 200 samples, oldest first. Each has the mean seconds of its gangs with the active
    policy, a slash, and those with the shadow."""


def shadow_history(between: str, samples: Iterable[RegretSample]) -> dict[str, str]:
    """Return the form of ``status.shadow.history``."""
    pairs = (f"{sample.active_seconds:.7g}/{sample.shadow_seconds:.7g}" for sample in samples)
    return {"between": between, "moments": " ".join(pairs)}


def samples_of(status: Mapping[str, Any], between: str) -> list[RegretSample]:
    """Return the samples of the comparison ``between`` in the ``status`` of a SchedulingPolicy.

    The list is empty for another comparison, or if a text violates the CRD.
    """
    manifest = (status.get("shadow") or {}).get("history") or {}
    try:
        history = ShadowHistory.model_validate(manifest)
    except ValidationError:
        return []  # unreadable moments are simulated again
    if history.between != between:
        return []
    pairs = (pair.split("/") for pair in history.moments.split(" "))
    return [RegretSample(float(active), float(other)) for active, other in pairs]


class ShadowStatus(ApiModel):
    """Comparison of a shadow with the policy that decided."""

    of: Annotated[str, Field(max_length=253)] | None = None
    """The SchedulingPolicy that is compared as the shadow, if it is not this one; empty for the
    policy of the settings."""
    decisions: Count | None = None
    """Compared cycles: those in which one of the two policies started a gang."""
    agreement: Annotated[float, Field(ge=0, le=1)] | None = None
    """The share of starts that both had in common, lately."""
    size_agreement: Annotated[float, Field(ge=0, le=1)] | None = None
    """The share of elastic gangs to which both policies gave the same size, lately: of the gangs
    that both started or that one of them resized."""
    regret: float | None = None
    """The seconds by which gangs take longer, on average, with the decisions of the active policy
    (order, sizes, places, stops) than with the shadow's. It is the mean over the latest samples,
    each simulated with both policies. Above zero the shadow is better."""
    regret_low: float | None = None
    """The lower bound of the 95 % interval of the regret; absent below 40 samples."""
    regret_high: float | None = None
    """The upper bound of that interval; absent below 40 samples."""
    regret_share: float | None = None
    """The regret as a share of the mean completion time with the active policy."""
    samples: Count | None = None
    """The number of samples of which the regret is the mean."""
    history: ShadowHistory | None = None


class SchedulingPolicyStatus(ApiModel):
    """The state of the policy, written by the operator."""

    conditions: Conditions = ()
    """Loaded: it decides, or is compared as a shadow. Degraded: the rules lately had to decide in
    its place. Promoted: the operator let it decide, by spec.rollout. RolledBack: the operator
    rolled it back. Both have the numbers, even before a step is taken."""
    stage: Literal["Active", "Canary", "Shadow", "RolledBack"] | None = None
    """The effective stage: that of the spec, unless the operator promoted the policy or rolled it
    back by spec.rollout. A change of the spec resets it."""
    checkpoint_sha256: Sha256 | None = None
    """The digest of the checkpoint that was loaded."""
    decisions: Count | None = None
    """Cycles in which it started, stopped or resized a gang, since it was loaded."""
    fallbacks: Count | None = None
    """Cycles in which the rules had to answer in its place, since it was loaded."""
    shadow: ShadowStatus | None = None
    """For a Shadow or Canary: its comparison with the active policy. For a policy that may be
    rolled back: the comparison of the policy that would decide without it."""
    observed_generation: Count | None = None
    """The generation of the spec that the status describes."""


class SchedulingPolicy(Resource):
    """The choice of the policy that orders, places and sizes gangs."""

    kind: Literal["SchedulingPolicy"] = "SchedulingPolicy"
    spec: SchedulingPolicySpec
    status: SchedulingPolicyStatus | None = None
