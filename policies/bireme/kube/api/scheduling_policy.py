"""SchedulingPolicy: the policy that decides instead of the operator's settings, or as a shadow.

Cluster scoped and written by administrators. Of several in stage Active the oldest counts. A canary
decides for some queues. ``spec.rollout`` lets the operator promote or roll back a policy by what it
measures: the stage that counts then stands in the status, and the spec stays as it was written. The
guardrails hold for every policy; a checkpoint that cannot be used changes only its own status.
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
    """Parameters of the parts: numbers by name, as `bireme policies show NAME` lists them.

    One left out has its default. One that is unknown or out of its bounds keeps the policy from
    being loaded, and its condition Loaded says what it may be.
    """

    orderer: Parameters | None = None
    """Of spec.orderer, or of the checkpoint's."""
    placer: Parameters | None = None
    """Of spec.placer, or of the checkpoint's."""
    sizer: Parameters | None = None
    """Of spec.sizer, or of the checkpoint's."""


class CanaryScope(ApiModel):
    """The queues for whose gangs a canary decides."""

    queues: Annotated[tuple[DnsSubdomain, ...], Field(min_length=1, max_length=64)]
    """Names of queues; each stands for the queues below it too. Where an older canary names one of
    them, that one decides there."""


class RolloutSpec(ApiModel):
    """What the operator may do by itself, by the outcomes that it compares."""

    promote: Literal["Never", "Automatic"] = "Never"
    """Automatic: a Shadow or Canary comes to decide for all queues once the interval of what its
    decisions save lies wholly above the margin."""
    roll_back: Literal["Never", "Automatic"] = "Never"
    """Automatic: a policy that decides is taken back once the same interval of the policy that
    would decide without it lies wholly above the margin, or once the rules had to answer in its
    place in more than half of its latest 20 cycles. It stays so until its spec changes."""
    minimum_samples: Annotated[int, Field(ge=2, le=1_000_000)] = 40
    """Comparisons before an interval counts; of very few there is none."""
    margin: Annotated[float, Field(ge=0, le=1)] = 0.02
    """How much better it must be: a share of the time that gangs take. The interval is looked at
    again and again, so with 0 a policy that is only as good passes by chance sooner or later."""


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
    """Active decides. Shadow decides too, on what the active one saw, and is only compared. Canary
    decides for the queues in spec.canary."""
    canary: CanaryScope | None = None
    """For stage Canary: the queues for whose gangs it decides in place of the active policy."""
    rollout: RolloutSpec | None = None
    """Promotion and rollback by what is measured; without it the operator does neither."""


class ShadowHistory(ApiModel):
    """The moments behind the regret, from which the next leader goes on."""

    between: Annotated[str, Field(pattern="^[0-9a-f]{16}$", max_length=16)]
    """A digest of the two policies, of the settings and of Bireme's version. A leader for which it
    is another begins anew."""
    moments: Annotated[str, Field(pattern=f"^{_MOMENT}( {_MOMENT})*$", max_length=8192)]
    """The latest 200, oldest first: the mean seconds of the gangs of a moment by the active policy,
    a slash, and those by the shadow."""


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
    """The SchedulingPolicy that is played as the shadow, where it is another one than this; empty
    for the policy of the settings."""
    decisions: Count | None = None
    """Cycles compared: those in which either of the two started a gang."""
    agreement: Annotated[float, Field(ge=0, le=1)] | None = None
    """The share of starts that both had in common, lately."""
    size_agreement: Annotated[float, Field(ge=0, le=1)] | None = None
    """The share of elastic gangs that both gave the same size, lately: of those that both started
    or any of both resized."""
    regret: float | None = None
    """By how much longer the gangs of a moment take on average by the decisions of the active
    policy (order, sizes, places, stops) than by the shadow's, in seconds: the mean over the latest
    moments that were played forward by both. Above zero where the shadow would do better."""
    regret_low: float | None = None
    """The lower bound of the 95 % interval of the regret; left out while there are too few moments
    to tell, fewer than 40."""
    regret_high: float | None = None
    """The upper bound, likewise."""
    regret_share: float | None = None
    """The regret over the mean completion time by the active policy."""
    samples: Count | None = None
    """The moments that the regret is the mean of."""
    history: ShadowHistory | None = None


class SchedulingPolicyStatus(ApiModel):
    """The state of the policy, written by the operator."""

    conditions: Conditions = ()
    """Loaded: it decides, or is compared as a shadow. Degraded: the rules lately had to decide in
    its place. Promoted: the operator lets it decide, by spec.rollout. RolledBack: the operator
    took it back. Both have the numbers, also before anything was done."""
    stage: Literal["Active", "Canary", "Shadow", "RolledBack"] | None = None
    """The stage that counts: that of the spec, unless the operator promoted the policy or rolled it
    back by spec.rollout. Every change of the spec begins anew."""
    checkpoint_sha256: Sha256 | None = None
    """The digest of the checkpoint that was loaded."""
    decisions: Count | None = None
    """Cycles in which it started, stopped or resized a gang, since it was loaded."""
    fallbacks: Count | None = None
    """Cycles in which the rules had to answer in its place, since it was loaded."""
    shadow: ShadowStatus | None = None
    """For a Shadow or Canary: compared with the active policy. For a policy that may be rolled
    back: the policy that would decide without it, compared with it."""
    observed_generation: Count | None = None
    """The generation of the spec that the status describes."""


class SchedulingPolicy(Resource):
    """The choice of the policy that orders, places and sizes gangs."""

    kind: Literal["SchedulingPolicy"] = "SchedulingPolicy"
    spec: SchedulingPolicySpec
    status: SchedulingPolicyStatus | None = None
