"""Prometheus metrics of the operator. No per-job labels: job names are tenants' data."""

from collections import Counter as Counts
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from bireme_operator.gang_metrics import GangMetrics

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
MOST_NAMES = 100
"""Series of one metric about objects that administrators name: the first by their names."""


class Metrics:
    """The operator's metrics in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.is_leader = Gauge("bireme_leader", "1 while this process leads", registry=r)
        self.epoch = Gauge(
            "bireme_leader_epoch",
            "How often the leader has changed; it stamps every plan",
            registry=r,
        )
        self.cycle_age = Gauge(
            "bireme_cycle_age_seconds",
            "Since the leader's last cycle ended; 0 of a standby",
            registry=r,
        )
        self.cycles = Histogram(
            "bireme_cycle_seconds",
            "How long a cycle takes: looking, deciding, handing over",
            buckets=SECONDS,
            registry=r,
        )
        self.decisions = Histogram(
            "bireme_decision_seconds",
            "How long the decision in it takes",
            buckets=SECONDS,
            registry=r,
        )
        self.gangs = GangMetrics(r)
        self.protected = Counter(
            "bireme_preemptions_refused", "Gangs not stopped, by disruption budgets", registry=r
        )
        self.resizes = Counter(
            "bireme_resizes", "Changes of a running gang's size", ["reason"], registry=r
        )
        self.fallbacks = Counter(
            "bireme_policy_fallbacks", "Decisions of the rules in place of the policy's", registry=r
        )
        self.policies = PolicyMetrics(r)
        self.pools = PoolMetrics(r)
        self.reports = Counter(
            "bireme_progress_reports", "Progress reports, by HTTP status", ["status"], registry=r
        )
        self.recorded = Counter(
            "bireme_recorded_cycles", "Cycles with news, by outcome", ["outcome"], registry=r
        )

    def show_writes(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Serve ``counts``, writes by (verb, resource), as they stand whenever somebody asks."""
        labels = ("verb", "resource")
        self.registry.register(
            _Counts("bireme_api_writes", "Writes sent to the API server", labels, [counts])
        )

    def show_errors(self, counts: Sequence[Mapping[tuple[str, str], int]]) -> None:
        """Serve the sums of ``counts``, refused requests by (verb, status), likewise."""
        meaning, labels = (
            "Requests to the API server that failed; status none is no answer",
            ("verb", "status"),
        )
        self.registry.register(_Counts("bireme_api_errors", meaning, labels, counts))


class PolicyMetrics:
    """Those about SchedulingPolicies; administrators name them, and few."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.loads = Counter(
            "bireme_policy_loads", "SchedulingPolicies loaded", ["outcome"], registry=registry
        )
        self.deciding = self._by_policy("deciding", "1 for the SchedulingPolicy that decides")
        self.degraded = self._by_policy("degraded", "1 while its answers are overruled")
        self.agreement = self._by_policy("shadow_agreement", "Share of starts in common, lately")
        self.regret = self._by_policy(
            "shadow_regret_seconds", "Forecast time saved by its order per gang, lately"
        )
        self.size_agreement = self._by_policy(
            "shadow_size_agreement", "Share of elastic gangs that get the same size, lately"
        )
        self.compared = self._by_policy("shadow_decisions", "Cycles compared since it was loaded")
        self.shadow_cycles = Counter(
            "bireme_shadow_cycles", "Cycles of shadows, by outcome", ["outcome"], registry=registry
        )

    def _by_policy(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"bireme_policy_{name}", meaning, ["policy"], registry=self._registry)


class PoolMetrics:
    """Those about NodePoolScalers; administrators name them, and few."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.nodes = self._by_pool("nodes", "Nodes that are ready")
        self.floor = self._by_pool("floor", "The fewest nodes it should have now")
        self.needed = self._by_pool("needed", "Nodes that are in use, planned on or kept")
        self.demand = self._by_pool("demand_nodes", "Nodes' worth of what runs and waits")
        self.forecast = self._by_pool(
            "forecast_nodes", "Nodes' worth forecast for this hour", "quantile"
        )
        self.forecast_made = self._by_pool(
            "forecast_timestamp_seconds", "When the forecast was made, POSIX seconds"
        )
        self.writes = Counter(
            "bireme_pool_scale_writes",
            "Orders to targets, by what became of them",
            ["outcome"],
            registry=registry,
        )

    def show_forecast(self, pools: Mapping[str, Mapping[str, float]]) -> None:
        """The forecast of every pool by quantile; what is gone is told no more."""
        self.forecast.clear()
        for name in sorted(pools)[:MOST_NAMES]:
            for quantile, nodes in pools[name].items():
                self.forecast.labels(name, quantile).set(nodes)

    def _by_pool(self, name: str, meaning: str, *more: str) -> Gauge:
        labels = ["pool", *more]
        return Gauge(f"bireme_pool_{name}", meaning, labels, registry=self._registry)


def show(values: Mapping[Gauge, Mapping[str, float]]) -> None:
    """Gauges by the names of objects; those that are gone are told no more."""
    for gauge, by_name in values.items():
        gauge.clear()
        for name in sorted(by_name)[:MOST_NAMES]:
            gauge.labels(name).set(by_name[name])


class _Counts(Collector):
    """What others count, summed over ``counts``."""

    def __init__(
        self,
        name: str,
        meaning: str,
        labels: tuple[str, str],
        counts: Sequence[Mapping[tuple[str, str], int]],
    ) -> None:
        self._name, self._meaning, self._labels = name, meaning, labels
        self._counts = counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._meaning, labels=self._labels)
        for values, count in sum(map(Counts, self._counts), Counts[tuple[str, str]]()).items():
            family.add_metric(values, count)
        yield family
