"""Every metric that the operator and the extender serve, as their own registries say."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from bireme_extender.metrics import Metrics as ExtenderMetrics
from bireme_operator.metrics import OperatorMetrics

_PROCESS: Final = "process_"
"""Metrics of every Python program; not ours to describe."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; ``name`` as a query has it, but without a histogram's endings."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names that queries may use."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{ending}" for ending in ("bucket", "count", "sum"))
        return (self.name,)


def of_operator() -> list[Metric]:
    metrics = OperatorMetrics()
    once = {("create", "pods"): 1}
    metrics.show_writes(once)
    metrics.show_errors([once])
    return _of(metrics.registry)


def of_extender() -> list[Metric]:
    metrics = ExtenderMetrics()
    metrics.show_cache(lambda: {"pods": 0.0}, list)
    return _of(metrics.registry)


def _of(registry: CollectorRegistry) -> list[Metric]:
    return sorted(_found(registry), key=lambda metric: metric.name)


def _found(registry: CollectorRegistry) -> Iterator[Metric]:
    for collector in set(registry._collector_to_names):  # it has no other list
        for family in collector.collect():
            if family.name.startswith(_PROCESS):
                continue
            told = family.samples[0].labels if family.samples else ()
            labels = tuple(getattr(collector, "_labelnames", told))
            ending = "_total" if family.type == "counter" else ""
            yield Metric(family.name + ending, family.type, labels, family.documentation)
