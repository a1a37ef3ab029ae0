"""Queue: jobs wait in it; it has limits, a priority, and namespaces that may use it.

Queues are cluster scoped and written by administrators: a tenant chooses a queue but cannot
raise its own weight. They form a tree by ``parent``; :mod:`bireme.core.queue_tree` describes how
limits and guarantees work in it.
"""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from bireme.kube.api.base import (
    ApiModel,
    Conditions,
    Count,
    DnsLabel,
    LabelKey,
    LabelValue,
    Resource,
    ResourceMap,
    Rule,
    validations,
)


class SelectorRequirement(ApiModel):
    """One term of a label selector."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule(
                "self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0"
                " : !has(self.values) || self.values.size() == 0",
                "values of key {self.key} do not go with operator {self.operator}: In and NotIn"
                " need at least one value, Exists and DoesNotExist take none",
            )
        )
    )

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[LabelValue, ...] = Field(default=(), max_length=64)


class LabelSelector(ApiModel):
    """A label selector; every term must hold, and an empty one selects everything."""

    match_labels: dict[str, LabelValue] = Field(default={}, max_length=32)
    match_expressions: tuple[SelectorRequirement, ...] = Field(default=(), max_length=32)

    def selects(self, labels: dict[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            _holds(requirement, labels) for requirement in self.match_expressions
        )


def _holds(requirement: SelectorRequirement, labels: dict[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None


_ABOVE_LIMIT: Final = (
    "(name in self.limit && isQuantity(string(self.guaranteed[name]))"
    " && isQuantity(string(self.limit[name]))"
    " && quantity(string(self.guaranteed[name]))"
    ".isGreaterThan(quantity(string(self.limit[name]))))"
)


class QueueSpec(ApiModel):
    """Limits and priority of a queue."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule(
                "!has(self.guaranteed) || !has(self.limit)"
                f" || self.guaranteed.all(name, !{_ABOVE_LIMIT})",
                f"guaranteed is above limit in {{self.guaranteed.map(name, {_ABOVE_LIMIT},"
                " '%s: %s above %s'.format([name, self.guaranteed[name], self.limit[name]]))}"
                ": lower it or raise the limit",
                field=".guaranteed",
            )
        )
    )

    parent: DnsLabel | None = None
    """The queue above this one. The usage of this queue counts there too, and the limit there
    applies here too."""
    weight: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Its share of the capacity that is not guaranteed, relative to the other queues of its parent.
    If one of them sets a weight, the queue with the lowest share per weight goes first, and queues
    without a weight count as 1."""
    guaranteed: ResourceMap = Field(default={})
    """Resources that its gangs, and those of queues below it, can reclaim from queues that hold
    more than their guarantee. Name the same resources in all queues of a parent."""
    limit: ResourceMap = Field(default={})
    """The largest total request of its admitted gangs. Resources without an entry are unlimited."""
    user_priority: Annotated[int, Field(ge=0, le=100)] = 50
    """The user's part of the combined priority of every job in the queue."""
    namespace_selector: LabelSelector | None = None
    """The namespaces whose jobs may use the queue; without it, all of them."""
    wait_bound_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """A job that has waited this long goes first, whatever its priority, within the operator's
    setting overdueShare. Its wait must also exceed eight times the time that it has run or is
    estimated to run; a job that has run before waits 32 times as long. Without it, the operator's
    setting of this name."""
    start_timeout_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = None
    """The time in which its gangs, and those of queues below it, must run after they get their
    places: all replicas of a job, minMember pods of a PodGroup. Jobs may set less. Without it, the
    value of the queue above, or of the operator's setting."""
    max_min_runtime_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None
    """Upper bound on runPolicy.minRuntimeSeconds of its jobs, and those of queues below it. The
    smallest value of this queue, the queues above it and the operator's setting applies."""
    preempt_pod_groups: bool = True
    """False: Bireme stops no PodGroup in it, or in queues below it, for another gang, not even for
    a higher priority or for a queue that reclaims its guarantee."""
    assume_resumable: bool | None = None
    """Default of runPolicy.resumable for its jobs, and those of queues below it, that neither set
    it nor have reported a checkpoint. Without it, the value of the queue above, or of the
    operator's setting."""
    state: Literal["Open", "Closed"] = "Open"
    """A Closed queue admits no new gangs, and its running gangs continue."""


class QueueStatus(ApiModel):
    """The state of the queue, written by the operator."""

    admitted: Count | None = None
    """Gangs that hold resources."""
    pending: Count | None = None
    """Gangs that wait."""
    usage: ResourceMap = Field(default={})
    """The total request of the admitted gangs."""
    conditions: Conditions = ()
    """Admitting: gangs may start in it, or the reason and what helps."""


_QUEUE_RULES: Final = validations(
    Rule(
        "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
        "metadata.name {self.metadata.name} must be at most 63 lower case letters, digits and"
        " '-', or no job can name the queue: choose such a name",
    ),
    Rule(
        "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
        "parent {self.spec.parent} is the queue itself: name another one, or none",
        field=".spec.parent",
    ),
)


class QueueResource(Resource):
    """A queue in which jobs wait."""

    model_config = ConfigDict(json_schema_extra=_QUEUE_RULES)

    kind: Literal["Queue"] = "Queue"
    spec: QueueSpec = QueueSpec()
    status: QueueStatus | None = None
