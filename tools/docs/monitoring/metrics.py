"""Every metric that the operator and the extender serve, and the tables of ``docs/metrics.md``."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from bireme_extender.metrics import Metrics as ExtenderMetrics
from bireme_operator.metrics import OperatorMetrics
from tools.docs.reference.tables import code, table

# Every Python program has these: not ours to describe.
_PROCESS: Final = "process_"


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
            present = family.samples[0].labels if family.samples else ()
            labels = tuple(getattr(collector, "_labelnames", present))
            ending = "_total" if family.type == "counter" else ""
            yield Metric(family.name + ending, family.type, labels, family.documentation)


def with_tables(page: str) -> str:
    """Fill the tables between the marks of ``page``; ValueError when a mark is missing."""
    for name, metrics in (("operator", of_operator()), ("extender", of_extender())):
        before, begin, rest = page.partition(f"<!-- metrics of the {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise ValueError(f"the page lacks <!-- metrics of the {name} --> or its <!-- end -->")
        rows = ((_shown(each), each.kind, each.meaning) for each in metrics)
        page = before + begin + table(("metric", "kind", "meaning"), rows) + end + after
    return page


def _shown(metric: Metric) -> str:
    labels = f"{{{','.join(metric.labels)}}}" if metric.labels else ""
    return code(metric.name + labels)
