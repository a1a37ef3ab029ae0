"""Prometheus metrics of the operator. No per-job labels: job names are tenants' data."""

from collections import Counter as Counts
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from bireme_operator.gang_metrics import GangMetrics
from bireme_operator.metric_maker import MetricMaker

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
MOST_NAMES = 100
"""Series of one metric about objects that administrators name: the first by their names."""


class Metrics:
    """The operator's metrics in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        make = MetricMaker(self.registry)
        self.is_leader = make.gauge("leader", "1 while this process leads")
        self.epoch = make.gauge(
            "leader_epoch", "How often the leader has changed; it stamps every plan"
        )
        self.cycle_age = make.gauge(
            "cycle_age_seconds", "Since the leader's last turn ended; 0 of a standby"
        )
        self.turns = make.seconds(
            "turn", "How long a turn of the loop takes: looking, deciding, handing over", SECONDS
        )
        self.cycles = make.seconds(
            "cycle", "How long the cycle in a turn takes, which decides", SECONDS
        )
        self.mishaps = make.counter(
            "mishaps", "Objects that the operator's own code failed on; the log has the errors"
        )
        self.gangs = GangMetrics(make)
        self.protected = make.counter(
            "preemptions_refused", "Gangs not stopped, by disruption budgets"
        )
        self.resizes = make.counter("resizes", "Changes of a running gang's size", "reason")
        self.fallbacks = make.counter(
            "policy_fallbacks", "Decisions of the rules in place of the policy's"
        )
        self.policies = PolicyMetrics(make)
        self.pools = PoolMetrics(make)
        self.reports = make.counter(
            "progress_reports", "Progress reports, by HTTP status", "status"
        )
        self.recorded = make.counter("recorded_cycles", "Cycles with news, by outcome", "outcome")

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

    def __init__(self, make: MetricMaker) -> None:
        self.loads = make.counter("policy_loads", "SchedulingPolicies loaded", "outcome")
        self.deciding = make.gauge(
            "policy_deciding", "1 for the SchedulingPolicy that decides", "policy"
        )
        self.degraded = make.gauge("policy_degraded", "1 while its answers are overruled", "policy")
        self.agreement = make.gauge(
            "policy_shadow_agreement", "Share of starts in common, lately", "policy"
        )
        self.regret = make.gauge(
            "policy_shadow_regret_seconds",
            "Forecast time saved by its order per gang, lately",
            "policy",
        )
        self.size_agreement = make.gauge(
            "policy_shadow_size_agreement",
            "Share of elastic gangs that get the same size, lately",
            "policy",
        )
        self.compared = make.gauge(
            "policy_shadow_decisions", "Cycles compared since it was loaded", "policy"
        )
        self.shadow_cycles = make.counter(
            "shadow_cycles", "Cycles of shadows, by outcome", "outcome"
        )


class PoolMetrics:
    """Those about NodePoolScalers; administrators name them, and few."""

    def __init__(self, make: MetricMaker) -> None:
        self.nodes = make.gauge("pool_nodes", "Nodes that are ready", "pool")
        self.floor = make.gauge("pool_floor", "The fewest nodes it should have now", "pool")
        self.needed = make.gauge("pool_needed", "Nodes that are in use, planned on or kept", "pool")
        self.demand = make.gauge("pool_demand_nodes", "Nodes' worth of what runs and waits", "pool")
        self.forecast = make.gauge(
            "pool_forecast_nodes", "Nodes' worth forecast for this hour", "pool", "quantile"
        )
        self.forecast_made = make.gauge(
            "pool_forecast_timestamp_seconds", "When the forecast was made, POSIX seconds", "pool"
        )
        self.writes = make.counter(
            "pool_scale_writes", "Orders to targets, by what became of them", "outcome"
        )

    def show_forecast(self, pools: Mapping[str, Mapping[str, float]]) -> None:
        """The forecast of every pool by quantile; what is gone is told no more."""
        self.forecast.clear()
        for name in sorted(pools)[:MOST_NAMES]:
            for quantile, nodes in pools[name].items():
                self.forecast.labels(name, quantile).set(nodes)


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
