"""Makes the metrics of one registry, all of which are called ``bireme_...``."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class MetricMaker:
    """``meaning`` is what /metrics and docs/metrics.md say of each."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        """Something that is counted; its series end in ``_total``."""
        return Counter(f"bireme_{name}", meaning, labels, registry=self._registry)

    def gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        """Something that is the case."""
        return Gauge(f"bireme_{name}", meaning, labels, registry=self._registry)

    def seconds(
        self, name: str, meaning: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        """Times that something took; its series begin with ``bireme_<name>_seconds``."""
        return Histogram(
            f"bireme_{name}_seconds", meaning, labels, buckets=buckets, registry=self._registry
        )
