"""NodePoolScaler: the number of nodes of a pool, from its history and what waits now.

Cluster scoped and written by administrators. Two programs write the status, each its own fields:
the operator what it counts and does, the nightly job (`bireme forecast pools`) the forecast. A
forecast is only a floor: it never removes a node.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import ConfigDict, Field

from bireme.core.pool_history import HISTORY_DAYS, NO_HISTORY, PoolHistory, hours_at, oldest_hour
from bireme.core.resources import FloatArray
from bireme.core.times import HOUR
from bireme.kube.api.base import (
    ApiModel,
    Conditions,
    Count,
    DnsLabel,
    DnsSubdomain,
    LabelKey,
    LabelValue,
    Message,
    Resource,
    ResourceMap,
    Rule,
    Timestamp,
    validations,
)

# status.history: one entry per day (UTC) with up to 24 numbers as text. 57 days take some 20 kB,
# and a person can read them.

_HOURS: Final = 24
_LATEST: Final = 253_370_764_800.0
"""POSIX seconds of the year 9999, where dates of four digits end."""


def history_manifest(history: PoolHistory) -> dict[str, Any]:
    """Return the form of ``status.history``; the hours must begin at midnight UTC."""
    return {"days": [_day(history, first) for first in range(0, len(history.demand), _HOURS)]}


def _day(history: PoolHistory, first: int) -> dict[str, str]:
    begin = datetime.fromtimestamp(history.start + HOUR * first, UTC)
    hours = slice(first, first + _HOURS)
    return {
        "date": begin.strftime("%Y-%m-%d"),
        "demand": _text(history.demand[hours]),
        "tasks": _text(history.tasks[hours]),
    }


def _text(values: FloatArray) -> str:
    return " ".join("-" if math.isnan(value) else f"{round(value, 2):.10g}" for value in values)


def history_of(status: Mapping[str, Any]) -> PoolHistory:
    """Return the history in the status of a NodePoolScaler.

    Unreadable values count as not recorded and are noted. Negative values stay: the forecast
    refuses them.
    """
    notes: list[str] = []
    days: dict[float, tuple[FloatArray, FloatArray]] = {}
    for entry in (status.get("history") or {}).get("days") or ():
        begin = _midnight(str(entry.get("date")))
        if begin is None or begin in days:
            notes.append(f"day {entry.get('date')!a} is no date or there twice; left out")
            continue
        days[begin] = _values(entry, "demand", notes), _values(entry, "tasks", notes)
    if not days:
        return replace(NO_HISTORY, notes=tuple(notes))
    if any(later < earlier for earlier, later in pairwise(days)):
        notes.append("the days are not in order; sorted")
    return _join(days, tuple(notes))


def _join(
    days: Mapping[float, tuple[FloatArray, FloatArray]], notes: tuple[str, ...]
) -> PoolHistory:
    """Join all days to one series, from the oldest relevant day to the last recorded hour."""
    last = max(days)
    first = min(day for day in days if day >= oldest_hour(last))
    hours = int((last - first) // HOUR) + max(map(len, days[last]))
    columns = [
        hours_at([(day, values[column]) for day, values in days.items()], first, hours)
        for column in range(2)
    ]
    return PoolHistory(first, columns[0], columns[1], notes)


def _midnight(date: str) -> float | None:
    try:
        begin = datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return begin if 0 <= begin < _LATEST else None


def _values(entry: Mapping[str, Any], name: str, notes: list[str]) -> FloatArray:
    texts = str(entry.get(name) or "").split()
    if len(texts) > _HOURS:
        notes.append(f"{name} of {entry.get('date')} has {len(texts)} hours; the first 24 count")
    return np.array([_value(text, name, entry, notes) for text in texts[:_HOURS]], dtype=np.float64)


def _value(word: str, name: str, entry: Mapping[str, Any], notes: list[str]) -> float:
    try:
        value = math.nan if word == "-" else float(word)
    except ValueError:
        value = math.inf
    if math.isinf(value) or (math.isnan(value) and word != "-"):
        notes.append(f"{name} of {entry.get('date')} holds {word[:32]!a}, which is no number")
        return math.nan
    return value


MAX_NODES: Final = 5000
FORECAST_HOURS: Final = 48

Nodes = Annotated[int, Field(ge=0, le=MAX_NODES)]
Seconds = Annotated[int, Field(ge=0, le=FORECAST_HOURS * 3600)]
ShortText = Annotated[str, Field(max_length=256)]
Labels = Annotated[dict[str, LabelValue], Field(max_length=64)]


class PoolSelector(ApiModel):
    """The nodes that form the pool."""

    match_labels: dict[str, LabelValue] = Field(min_length=1, max_length=8)
    """Labels that all nodes of the pool have, and no other nodes. Bireme counts existing nodes by
    them, and expects them on new nodes."""


class ScaleTarget(ApiModel):
    """The object whose replicas are nodes: anything with a `/scale` subresource."""

    api_version: Annotated[
        str, Field(pattern="^([a-z0-9][-a-z0-9.]*/)?v[a-z0-9]+$", max_length=253)
    ]
    """API version, such as karpenter.sh/v1 or cluster.x-k8s.io/v1beta2."""
    kind: Annotated[str, Field(pattern="^[A-Z][A-Za-z0-9]*$", max_length=63)]
    """Kind, such as NodePool or MachineDeployment."""
    name: DnsSubdomain
    namespace: DnsLabel | None = None
    """Namespace, if the kind has namespaces."""


class PoolTaint(ApiModel):
    """A taint that new nodes come with."""

    key: LabelKey
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class NodeTemplate(ApiModel):
    """The next node of the pool."""

    allocatable: ResourceMap = Field(min_length=1)
    """The resources that pods can use on the node, as in its status.allocatable."""
    labels: Labels = Field(default={})
    """Labels beside those of nodeSelector."""
    taints: tuple[PoolTaint, ...] = Field(default=(), max_length=16)


class ScaleIn(ApiModel):
    """Conditions under which nodes may be removed."""

    policy: Literal["Never", "WhenEmpty"] = "Never"
    """Never: Bireme removes no nodes. WhenEmpty: Bireme lowers the replicas, down to the floor, by
    nodes that run only pods that never leave a node, such as those of DaemonSets."""
    cool_down_seconds: Annotated[int, Field(ge=60, le=604_800)] = 1800
    """Seconds that a node has been empty before it may go."""


class PrometheusHistory(ApiModel):
    """A range query that the nightly job sends."""

    url: Annotated[str, Field(pattern="^https?://[^ ]+$", max_length=1024)]
    """The server, such as http://prometheus.monitoring:9090."""
    query: Annotated[str, Field(min_length=1, max_length=4096)]
    """PromQL with one series as its result: demand in nodes, or tasks finished per hour."""


class HistorySource(ApiModel):
    """The data that the forecast is made from."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule(
                "(has(self.source) && self.source == 'Prometheus') == has(self.prometheus)",
                "source {self.source} does not go with the field prometheus: give its url"
                " and query with source Prometheus, and leave it out otherwise",
            )
        )
    )

    source: Literal["Recorded", "Prometheus"] = "Recorded"
    """Recorded: the hourly counts of the operator in status.history. Prometheus: the answer to a
    query."""
    prometheus: PrometheusHistory | None = None
    measure: Literal["Demand", "Tasks"] = "Demand"
    """Demand is a number of nodes. Tasks are jobs finished per hour; Bireme converts them into
    nodes by the tasks that one node has finished per hour."""


class NodePoolScalerSpec(ApiModel):
    """The nodes of the pool, their bounds, and the object that is scaled."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule(
                "self.min <= self.max",
                "min {self.min} is above max {self.max}: lower it or raise max",
                field=".min",
            ),
            Rule(
                "self.mode != 'Apply' || has(self.scaleTargetRef)",
                "mode {self.mode} has nothing to scale: name it in scaleTargetRef, or use mode"
                " ForecastOnly",
                field=".mode",
            ),
        )
    )

    node_selector: PoolSelector
    scale_target_ref: ScaleTarget | None = None
    """The object that is scaled. The operator must be allowed get and patch on its scale."""
    mode: Literal["ForecastOnly", "Apply"] = "ForecastOnly"
    """ForecastOnly reports what it would do and writes nothing. Apply raises the target's replicas
    to the floor, and lowers them only as scaleIn allows."""
    min: Nodes = 0
    """The floor is never lower."""
    max: Annotated[int, Field(ge=1, le=MAX_NODES)]
    """Bireme never raises the replicas above it, whatever waits and whatever was forecast."""
    max_step: Annotated[int, Field(ge=1, le=MAX_NODES)] = 10
    """The most nodes by which a forecast raises replicas in an hour. It does not limit the nodes
    for waiting gangs."""
    quantile_percent: Annotated[int, Field(ge=50, le=99)] = 90
    """Certainty of the floor: the percentage of hours in which demand should stay at or below
    it."""
    headroom: Annotated[float, Field(ge=0, le=MAX_NODES)] = 0
    """Nodes, such as 1.5, that stay free beyond the demand, so that the next gangs need not wait
    for a node. Neither a forecast nor maxStep limits it."""
    lead_seconds: Seconds = 600
    """Seconds from the request for a node until it is ready. The floor looks ahead by this time."""
    node_template: NodeTemplate | None = None
    """The resources of a new node. Without it, those of the newest node of the pool. A pool with
    neither does not grow for waiting gangs."""
    scale_in: ScaleIn = ScaleIn()
    history: HistorySource = HistorySource()
    time_zone: Annotated[str, Field(pattern="^[A-Za-z0-9_+/-]+$", max_length=64)] = "UTC"
    """Time zone in which days and weeks repeat, as in Europe/Berlin. Hours are stored in UTC."""


class RecordedDay(ApiModel):
    """One day (UTC) as the operator counted it."""

    date: Annotated[str, Field(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$", max_length=10)]
    demand: ShortText
    """The mean demand of each hour in nodes, up to 24 values; - for an hour without a count."""
    tasks: ShortText
    """The jobs that finished in each hour, in the same form."""


class RecordedHistory(ApiModel):
    """The hours that the operator counted, oldest day first."""

    days: tuple[RecordedDay, ...] = Field(default=(), max_length=HISTORY_DAYS + 1)


class ForecastHour(ApiModel):
    """The demand forecast for one hour, in nodes."""

    hour: Timestamp
    """The beginning of the hour."""
    p50: Annotated[float, Field(ge=0)]
    """The median: demand is as likely above as below it."""
    upper: Annotated[float, Field(ge=0)]
    """The demand that quantilePercent of hours should not exceed."""


class ForecastModel(ApiModel):
    """The model that made the forecast, and how well it has done."""

    name: Annotated[str, Field(max_length=64)]
    skill: float | None = None
    """The part of the seasonal naive forecast's loss that the model saves; 0 is no better."""
    accuracy: float | None = None
    """1 - WAPE on the latest days, 1 at best."""
    why: Message = ""
    """The reason for the choice of this model."""


class NodePoolScalerStatus(ApiModel):
    """The state of the pool, written by the operator and the nightly job."""

    observed_generation: Count | None = None
    """The generation of the spec that the operator's part describes."""
    nodes: Count | None = None
    """Nodes of the pool that are ready."""
    needed: Count | None = None
    """Nodes that hold a replica of a gang, or will hold one by a plan."""
    floor: Count | None = None
    """The fewest nodes the pool should have now."""
    replicas: Count | None = None
    """Replicas of the scale target."""
    why: Message | None = None
    """The reason for the floor, and what is done about it."""
    history: RecordedHistory | None = None
    forecast: tuple[ForecastHour, ...] = Field(default=(), max_length=FORECAST_HOURS)
    forecast_time: Timestamp | None = None
    """The time at which the forecast was made."""
    model: ForecastModel | None = None
    tomorrow: ShortText | None = None
    """The forecast of the next day in a few words."""
    conditions: Conditions = ()
    """Scaling: Bireme requests the nodes of the floor from the target, up to max. Forecast: a
    usable forecast exists."""


class NodePoolScaler(Resource):
    """The number of nodes of a pool, from its past demand and the gangs that wait now."""

    kind: Literal["NodePoolScaler"] = "NodePoolScaler"
    spec: NodePoolScalerSpec
    status: NodePoolScalerStatus | None = None
