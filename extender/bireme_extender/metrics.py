"""Prometheus metrics of the extender. Tenants cannot choose labels, so there are few series."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bireme_extender.membership import RefusalReason

VERBS = ("filter", "prioritize")
_SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0)


class Metrics:
    """The extender's metrics in a separate registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        calls = "Calls by verb and outcome"
        self._requests = counter("bireme_extender_requests", calls, ["verb", "outcome"])
        self._outcomes: dict[tuple[str, str], Counter] = {}
        seconds = Histogram(
            "bireme_extender_request_seconds",
            "Time from the complete request to the answer",
            ["verb"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.seconds = {verb: seconds.labels(verb) for verb in VERBS}
        refused = "Filter calls that let no node pass"
        refusals = counter("bireme_extender_refusals", refused, ["reason"])
        self.refusals = {reason: refusals.labels(reason.value) for reason in RefusalReason}
        self.fallbacks = counter(
            "bireme_extender_score_fallbacks",
            "Answers that the rules gave in place of a failed scorer",
        )
        waited = "Filter calls that waited for a plan: it arrived, or it came too late"
        self.plan_waits = counter("bireme_extender_plan_waits", waited, ["outcome"])
        loaded = "SchedulingPolicies loaded"
        self.policy_loads = counter("bireme_extender_policy_loads", loaded, ["outcome"])
        self.learned_scorer = gauge(
            "bireme_extender_learned_scorer",
            "1 while a learned placer scores nodes, 0 while the rules do",
        )
        ProcessCollector(registry=registry)

    def show_cache(
        self, ages: Callable[[], dict[str, float]], troubles: Callable[[], Sequence[str]]
    ) -> None:
        """Serve the age of each watch, and whether the cache is ready."""
        self.registry.register(_CacheAges(ages))
        ready = Gauge("bireme_extender_ready", "1 while it answers calls", registry=self.registry)
        ready.set_function(lambda: float(not troubles()))

    def count(self, verb: str, outcome: str) -> None:
        """Count a call of ``verb`` with ``outcome``; both come from short fixed lists."""
        counter = self._outcomes.get((verb, outcome))
        if counter is None:  # cached: the lookup by labels costs more than the rest of a call
            counter = self._outcomes[verb, outcome] = self._requests.labels(verb, outcome)
        counter.inc()


class _CacheAges(Collector):
    def __init__(self, ages: Callable[[], dict[str, float]]) -> None:
        self._ages = ages

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "bireme_extender_cache_age_seconds",
            "Seconds since the watch was last heard",
            labels=["watch"],
        )
        for name, age in self._ages().items():
            family.add_metric([name], age)
        yield family
