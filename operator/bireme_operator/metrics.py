"""Prometheus metrics of the operator.

A tenant's names become no labels. Labels are the names of queues, which administrators create, and
namespaces in counts of device-seconds, up to a limit. All others count together as ``(other)``, a
name that neither can have.
"""

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from bireme.core.accelerators import GPU_UNITS
from bireme.core.decision import Admit, Hold
from bireme.core.device_use import device_uses, places_for_holds
from bireme.core.gpus import GPU_MODEL_LABEL, is_known_gpu_model
from bireme.core.queue_tree import QueueTree
from bireme.core.queues import Queue
from bireme.core.resources import CPU, Amounts
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.usage import Holder, Lapse, Use
from bireme.kube.allocations import GangView
from bireme.kube.cluster_state import ClusterState
from bireme.kube.training_jobs import FINISHED, JobFacts
from bireme_operator.lifecycle import Transition


@dataclass(frozen=True, slots=True)
class MetricMaker:
    """Creates metrics in one registry; ``meaning`` is the text in /metrics and docs/metrics.md."""

    registry: CollectorRegistry

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        """Create the counter ``bireme_<name>_total``."""
        return Counter(f"bireme_{name}", meaning, labels, registry=self.registry)

    def gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        """Create the gauge ``bireme_<name>``."""
        return Gauge(f"bireme_{name}", meaning, labels, registry=self.registry)

    def seconds(
        self, name: str, meaning: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        """Create the histogram ``bireme_<name>_seconds`` of durations."""
        return Histogram(
            f"bireme_{name}_seconds", meaning, labels, buckets=buckets, registry=self.registry
        )


MAX_QUEUES: Final = 64
MAX_HOLDERS: Final = 512
"""Limit of (resource, queue, namespace, pool) combinations with their own series."""
OTHER: Final = "(other)"
_WAITS: Final = (1, 5, 15, 60, 300, 900, 3600, 14_400, 43_200, 86_400)
_STARTS: Final = (1, 3, 10, 30, 60, 120, 300, 900)
_RENEWALS: Final = (0.3, 1, 3, 10, 30, 60, 120)
_COMPLETIONS: Final = (60, 300, 900, 3600, 14_400, 43_200, 86_400, 259_200, 604_800, 1_209_600)


@dataclass(frozen=True, slots=True)
class QueueLabels:
    """Label values for queues, bounded over the life of the process."""

    _label_sets: set[str] = field(default_factory=set)

    def of(self, queue: str) -> str:
        """Return the name itself for the first :data:`MAX_QUEUES`, else :data:`OTHER`."""
        if queue not in self._label_sets and len(self._label_sets) >= MAX_QUEUES:
            return OTHER
        self._label_sets.add(queue)
        return queue


class UsageMetrics:
    """Device-seconds by holder; each process counts those of its own leadership."""

    def __init__(self, make: MetricMaker) -> None:
        self._label_sets: set[tuple[str, str, str, str]] = set()
        self._seconds = make.counter(
            "usage_seconds", "Seconds that bireme_device_seconds_total covers"
        )
        labels = ("resource", "queue", "namespace", "pool")
        self._held = make.counter(
            "device_seconds",
            "Devices times the seconds that gangs had them, by use: running, starting, stopping, "
            "or reserved for a waiting gang",
            *labels,
            "use",
        )
        self._lost = make.counter(
            "device_seconds_lost",
            "Device-seconds of runs that a stop made useless: those since the last progress "
            "report, or the whole run without reports",
            *labels,
        )

    def count(self, lapse: Lapse, holders: Iterable[Holder]) -> None:
        """Count the device-seconds of ``lapse``; ``holders`` are the present ones."""
        self._seconds.inc(lapse.seconds)
        for holder, seconds in lapse.device_seconds.items():
            self._held.labels(*self._of(holder), holder.use.value).inc(seconds)
        for holder in holders:
            self._of(holder)

    def count_loss(self, losses: Mapping[Holder, float]) -> None:
        """Count the lost device-seconds in ``losses``, by holder."""
        for holder, seconds in losses.items():
            self._lost.labels(*self._of(holder)).inc(seconds)

    def _of(self, holder: Holder) -> tuple[str, str, str, str]:
        """Return the labels; after the first :data:`MAX_HOLDERS` all others are :data:`OTHER`."""
        labels = holder.resource, holder.queue, holder.namespace, holder.pool
        if labels in self._label_sets:
            return labels
        if len(self._label_sets) >= MAX_HOLDERS:
            return holder.resource, OTHER, OTHER, OTHER
        self._label_sets.add(labels)
        # Create all series at 0: Prometheus ignores the first value of a series.
        self._lost.labels(*labels)
        for use in Use:
            self._held.labels(*labels, use.value)
        return labels


class GangMetrics:
    """Metrics about gangs: waits and their reasons, partial gangs, phases of jobs."""

    def __init__(self, make: MetricMaker) -> None:
        self._queues = QueueLabels()
        self._admitted = make.counter("gangs_admitted", "Gangs admitted", "queue")
        self._waits = make.seconds(
            "wait", "How long gangs waited before they were admitted", _WAITS, "queue"
        )
        self._starts = make.seconds(
            "start", "From a job's plan until all its replicas run", _STARTS
        )
        self._completions = make.seconds(
            "completion", "From a job's creation to its end", _COMPLETIONS, "queue", "phase"
        )
        self._transitions = make.counter(
            "job_transitions",
            "Changes of a job's phase, by new phase and reason",
            "phase",
            "reason",
        )
        self._waiting = make.gauge("gangs_waiting", "Gangs that wait, by reason", "reason")
        self._head = make.gauge("head_wait_seconds", "How long the first waiting gang has waited")
        self._oldest = make.gauge(
            "queue_oldest_wait_seconds", "Longest wait of the gangs that still wait", "queue"
        )
        self._overdue = make.gauge(
            "queue_overdue_seconds",
            "Longest time that a waiting gang is past its wait bound",
            "queue",
        )
        meaning = "Pending and admitted gangs, as in Queue.status"
        self._in_queue = make.gauge("queue_gangs", meaning, "queue", "state")
        meaning = "Limit of a queue with all queues below it; cpu in cores, memory in bytes"
        self._limit = make.gauge("queue_limit", meaning, "queue", "resource")
        meaning = (
            "Guarantee of a queue, its own or that of the queues below it; units as in "
            "bireme_queue_limit"
        )
        self._guarantee = make.gauge("queue_guarantee", meaning, "queue", "resource")
        meaning = (
            "Usage of a queue with all queues below it: devices, and the resources that it "
            "limits or guarantees"
        )
        self._used = make.gauge("queue_used", meaning, "queue", "resource")
        labels = ("resource", "pool", "model")
        self._devices = make.gauge(
            "devices",
            "Devices of all nodes: used by pods or plans, kept for a waiting gang, free, or "
            "closed (on nodes that are cordoned or not ready)",
            *labels,
            "state",
        )
        self._scattered = make.gauge(
            "devices_scattered", "Free devices on nodes that are partly used", *labels
        )
        self._unknown_models = make.gauge(
            "unknown_gpu_models",
            "Nodes with a GPU model that neither Bireme nor the setting gpuModels knows; "
            "policies assume the speed of another model",
            "model",
        )
        self._stalled = make.gauge(
            "gangs_stalled",
            "Running gangs with devices that reported no progress, or had a replica that was not "
            "ready, for stalledAfterSeconds",
            "queue",
            "reason",
        )
        self._partial = make.gauge(
            "partial_gangs", "Gangs that have a plan and a replica on no node yet"
        )
        self._partial_age = make.gauge(
            "partial_gang_age_seconds", "Age of the oldest plan of a gang with a replica on no node"
        )

    def show_stalled(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Show the numbers of stalled gangs by queue and reason."""
        totals = Counts[tuple[str, ...]]()
        for (queue, reason), count in counts.items():
            totals[self._queues.of(queue), reason] += count
        _show(self._stalled, totals)

    def count_admission(self, admit: Admit, snapshot: ClusterSnapshot) -> None:
        """Count an admission at its beginning."""
        queue = self._queues.of(admit.gang.queue)
        self._admitted.labels(queue).inc()
        self._waits.labels(queue).observe(snapshot.wait_seconds(admit.gang))

    def count_move(
        self, job: JobFacts, move: Transition, view: GangView | None, now: float
    ) -> None:
        """Count a recorded change of a job's phase; ``now`` is POSIX seconds."""
        self._transitions.labels(move.phase, move.reason).inc()
        if move.phase == "Running" and view is not None:
            self._starts.observe(max(0.0, now - view.plan.planned))
        if move.phase in FINISHED and job.spec is not None:
            queue = view.plan.queue if view is not None else job.queue
            labels = self._completions.labels(self._queues.of(queue), move.phase)
            labels.observe(max(0.0, now - job.created))

    def show_waiting(self, holds: Iterable[Hold], snapshot: ClusterSnapshot) -> None:
        """Show the waiting gangs; a gang with a configuration fault counts only as a reason."""
        reasons, oldest, first = Counts[str](), dict[str, Hold](), None
        overdue = dict[str, float]()
        for hold in holds:
            reasons[hold.reason] += 1
            if hold.position is None:
                continue
            queue = self._queues.of(hold.gang.queue)
            if queue not in oldest or hold.gang.arrived < oldest[queue].gang.arrived:
                oldest[queue] = hold
            first = first or hold
            # Check this cheap bound first: few gangs of a long queue exceed it.
            if snapshot.now - hold.gang.arrived > snapshot.wait_bound_seconds(hold.gang):
                overdue_seconds = snapshot.overdue_seconds(hold.gang)
                overdue[queue] = max(overdue_seconds, overdue.get(queue, 0.0))
        self._head.set(snapshot.wait_seconds(first.gang) if first is not None else 0.0)
        _show(self._waiting, {(reason,): count for reason, count in reasons.items()})
        gangs = {queue: hold.gang for queue, hold in oldest.items()}
        _show(self._oldest, {(q,): snapshot.wait_seconds(gang) for q, gang in gangs.items()})
        _show(self._overdue, {(q,): overdue.get(q, 0.0) for q in gangs})

    def show_devices(self, holds: Iterable[Hold], snapshot: ClusterSnapshot) -> None:
        """Show the states of all nodes' devices, including reservations for the gangs of ``holds``.

        Pools and models beyond :data:`MAX_NAMES` count together.
        """
        devices: dict[tuple[str, ...], float] = defaultdict(float)
        scattered: dict[tuple[str, ...], float] = defaultdict(float)
        for number, use in enumerate(device_uses(snapshot, places_for_holds(snapshot, holds))):
            is_shown = number < MAX_NAMES
            labels = use.resource, *((use.pool, use.model) if is_shown else (OTHER, OTHER))
            for state in ("used", "kept", "free", "closed"):
                devices[*labels, state] += use.weight * getattr(use, state)
            scattered[labels] += use.weight * use.scattered
        label = snapshot.nodes.label(GPU_MODEL_LABEL)
        models = snapshot.nodes.gpu_models
        numbers = Counts(label.codes.tolist())
        unknown = {
            value: float(numbers[code])
            for code, value in enumerate(label.values)
            if value and not is_known_gpu_model(value, models)
        }
        show({self._unknown_models: unknown})
        _show(self._devices, devices)
        _show(self._scattered, scattered)

    def show_queues(self, counts: Mapping[str, Mapping[str, Any]]) -> None:
        """Show the numbers of gangs ``admitted`` and ``pending`` by queue."""
        totals = Counts[tuple[str, ...]]()
        for queue, by_state in counts.items():
            for state in ("admitted", "pending"):
                totals[self._queues.of(queue), state] += by_state[state]
        _show(self._in_queue, totals)

    def show_limits(self, tree: QueueTree, queues: Mapping[str, Queue]) -> None:
        """Show limits, guarantees and usage of ``queues``, except those counted as :data:`OTHER`.

        A limit of several queues together would have no meaning.
        """
        names = [name for name in queues if self._queues.of(name) != OTHER]
        limits = _by_resource({name: queues[name].limit for name in names})
        guarantees = _by_resource({name: tree.guarantee(name) for name in names})
        used = _by_resource({name: tree.usage(name) for name in names})
        of_interest = limits.keys() | guarantees.keys()
        is_counted = tree.accelerators.is_accelerator
        _show(self._limit, limits)
        _show(self._guarantee, guarantees)
        _show(
            self._used,
            dict.fromkeys(of_interest, 0.0)
            | {
                key: n
                for key, n in used.items()
                if key in of_interest or (n and is_counted(key[1]))
            },
        )

    def show_partial(self, state: ClusterState, now: float) -> None:
        """Show the gangs that are not whole at ``now``, POSIX seconds."""
        ages = list(partial_ages(state, now))
        self._partial.set(len(ages))
        self._partial_age.set(max(ages, default=0.0))


def partial_ages(state: ClusterState, now: float) -> Iterator[float]:
    """Yield the seconds since the plan, or its last resize, of gangs with a replica on no node."""
    for key, view in state.views.of_gangs():
        planned, job = state.objects.plan_of(key), state.objects.jobs.get(key)
        if planned is None or not view.unbound:
            continue
        # A finished or stopping gang gets no more replicas.
        if planned.is_job and (job is None or not _is_starting(job, view)):
            continue
        yield max(0.0, now - max(view.plan.planned, view.plan.resized))


def _is_starting(job: JobFacts, view: GangView) -> bool:
    is_current = view.plan.attempt == job.attempt
    return is_current and not (job.is_leaving or job.is_finished or job.is_suspended)


def _by_resource(amounts: Mapping[str, Amounts]) -> dict[tuple[str, ...], float]:
    """Return ``amounts`` by queue and resource in Prometheus' units: cores, GPUs and bytes."""
    return {
        (queue, resource): amount / (1000.0 if resource in (CPU, GPU_UNITS) else 1.0)
        for queue, of_queue in amounts.items()
        for resource, amount in of_queue.items()
    }


def _show(gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
    """Set exactly these values; remove other series."""
    # Otherwise a deleted object's series would be scraped for ever with its last value.
    gauge.clear()
    for labels, value in values.items():
        gauge.labels(*labels).set(value)


SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
# Limit of series of one metric about objects that administrators name, the first by name: every
# series costs memory here and in Prometheus.
MAX_NAMES = 100


class OperatorMetrics:
    """The operator's metrics in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        make = MetricMaker(self.registry)
        self.is_leader = make.gauge("leader", "1 while this process leads")
        self.epoch = make.gauge(
            "leader_epoch", "Number of changes of the leader; every plan carries it"
        )
        self.kubernetes = make.gauge(
            "kubernetes_info", "1, with the version of the API server as labels", "major", "minor"
        )
        self.cycle_age = make.gauge(
            "cycle_age_seconds", "Seconds since the leader's last turn ended; 0 on a standby"
        )
        self.turns = make.seconds(
            "turn", "How long a turn of the loop takes: reading, deciding, handing over", SECONDS
        )
        self.cycles = make.seconds(
            "cycle", "How long the scheduling cycle of a turn takes", SECONDS
        )
        self.cycles_cut = make.counter(
            "cycles_cut",
            "Cycles that ended before they decided on all gangs; bireme_gangs_waiting keeps the "
            "last complete cycle",
        )
        self.reconcile_errors = make.counter(
            "reconcile_errors",
            "Objects on which the operator's own code failed; its log has the errors",
        )
        self.suspected = make.gauge(
            "node_suspected",
            "1 while gangs avoid a node with which gangs of two namespaces had trouble; 0 if too "
            "many nodes of its pool are suspected",
            "node",
        )
        self.watches = WatchMetrics(make)
        self.gangs = GangMetrics(make)
        self.usage = UsageMetrics(make)
        self.protected = make.counter(
            "preemptions_refused", "Gangs that disruption budgets kept from being stopped"
        )
        self.resizes = make.counter("resizes", "Changes of a running gang's size", "reason")
        self.fallbacks = make.counter(
            "policy_fallbacks", "Decisions that the rules made in place of the policy"
        )
        self.policies = PolicyMetrics(make)
        self.pools = PoolMetrics(make)
        self.reports = make.counter(
            "progress_reports", "Progress reports, by HTTP status", "status"
        )
        self.events_left_out = make.counter(
            "events_left_out", "Events not posted because a namespace had too many at once"
        )
        self._observed = make.gauge(
            "observed_actions",
            "Actions that the last cycle would have taken, in mode Observe",
            "action",
        )
        self.observed_binds = make.counter(
            "observed_binds",
            "Pods that others bound, by the last decision on their gang, in mode Observe",
            "outcome",
        )
        self.recorded = make.counter("recorded_cycles", "Cycles with news, by outcome", "outcome")
        self.outlook = OutlookMetrics(make)

    def show_observed(self, actions: Mapping[str, int]) -> None:
        """Show the actions of an observed cycle, by kind."""
        show({self._observed: {name.lower(): float(n) for name, n in actions.items()}})

    def show_writes(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Serve ``counts``, writes by (verb, resource), at every scrape."""
        labels = ("verb", "resource")
        self.registry.register(
            _Counts("bireme_api_writes", "Writes sent to the API server", labels, [counts])
        )

    def show_errors(self, counts: Sequence[Mapping[tuple[str, str], int]]) -> None:
        """Serve the sums of ``counts``, refused requests by (verb, status), likewise."""
        meaning = "Requests to the API server that failed; status none is no answer"
        labels = ("verb", "status")
        self.registry.register(_Counts("bireme_api_errors", meaning, labels, counts))


class WatchMetrics:
    """Metrics about the watches of Bireme's own kinds."""

    def __init__(self, make: MetricMaker) -> None:
        self.restarts = make.counter("watch_restarts", "Restarts of kopf after it ended")
        self.repairs = make.counter(
            "watch_repairs",
            "Objects of Bireme's kinds that kopf missed and an audit repaired: ghost or lost",
            "kind",
            "outcome",
        )


class PolicyMetrics:
    """Metrics about SchedulingPolicies; administrators name them, and few."""

    def __init__(self, make: MetricMaker) -> None:
        self.loads = make.counter("policy_loads", "SchedulingPolicies loaded", "outcome")
        self.deciding = make.gauge(
            "policy_deciding", "1 for the SchedulingPolicy that decides", "policy"
        )
        self.stage = make.gauge(
            "policy_stage",
            "1 for the effective stage of a SchedulingPolicy, which may be RolledBack",
            "policy",
            "stage",
        )
        self.promotions = make.counter(
            "policy_promotions", "SchedulingPolicies promoted by spec.rollout", "reason"
        )
        self.rollbacks = make.counter(
            "policy_rollbacks", "SchedulingPolicies rolled back by spec.rollout", "reason"
        )
        self.degraded = make.gauge("policy_degraded", "1 while its answers are overruled", "policy")
        self.agreement = make.gauge(
            "policy_shadow_agreement",
            "Share of recent starts on which the shadow and the active policy agree",
            "policy",
        )
        self.regret = make.gauge(
            "policy_shadow_regret_seconds",
            "Mean seconds by which a gang takes longer with the active policy than with the "
            "shadow, lately",
            "policy",
        )
        self.regret_low = make.gauge(
            "policy_shadow_regret_low_seconds", "Lower 95 % bound of the regret", "policy"
        )
        self.regret_high = make.gauge(
            "policy_shadow_regret_high_seconds", "Upper 95 % bound of the regret", "policy"
        )
        self.regret_share = make.gauge(
            "policy_shadow_regret_ratio",
            "The regret as a share of the mean completion time with the active policy",
            "policy",
        )
        self.regret_samples = make.gauge(
            "policy_shadow_regret_samples", "Samples of which the regret is the mean", "policy"
        )
        self.shadow_samples = make.counter(
            "shadow_samples",
            "Samples of a shadow that were due: taken; empty, because no gang had ended; "
            "skipped, because the last sample or the pause after it was not over; or failed",
            "outcome",
        )
        self.shadow_sample_seconds = make.seconds(
            "shadow_sample", "How long one sample of a shadow takes", _RENEWALS
        )
        self.size_agreement = make.gauge(
            "policy_shadow_size_agreement",
            "Share of elastic gangs to which shadow and active policy gave the same size, lately",
            "policy",
        )
        self.compared = make.gauge(
            "policy_shadow_decisions", "Cycles compared since it was loaded", "policy"
        )
        self.shadow_cycles = make.counter(
            "shadow_cycles", "Cycles of shadows, by outcome", "outcome"
        )

    def show_stages(self, stages: Mapping[str, str]) -> None:
        """Show the stage of every policy; remove other series."""
        names = sorted(stages)[:MAX_NAMES]
        _show(self.stage, {(name, stages[name]): 1.0 for name in names})


class OutlookMetrics:
    """Metrics about the outlook, which is renewed in the background."""

    def __init__(self, make: MetricMaker) -> None:
        self.renewals = make.counter(
            "outlook_renewals",
            "Renewals of the outlook: renewed, or kept as it was because the renewal failed or "
            "was late",
            "outcome",
        )
        self.seconds = make.seconds(
            "outlook_renewal", "How long a renewal of the outlook takes", _RENEWALS
        )
        self.made = make.gauge(
            "outlook_timestamp_seconds", "Time of the snapshot behind the outlook, POSIX seconds"
        )


class PoolMetrics:
    """Metrics about NodePoolScalers; administrators name them, and few."""

    def __init__(self, make: MetricMaker) -> None:
        self.nodes = make.gauge("pool_nodes", "Nodes of the pool that are ready", "pool")
        self.floor = make.gauge(
            "pool_floor", "The fewest nodes that the pool should have now", "pool"
        )
        self.needed = make.gauge(
            "pool_needed", "Nodes of the pool that are in use, planned on or kept", "pool"
        )
        self.demand = make.gauge(
            "pool_demand_nodes", "Demand of running and waiting gangs, in nodes", "pool"
        )
        self.forecast = make.gauge(
            "pool_forecast_nodes",
            "Forecast of the demand in this hour, in nodes",
            "pool",
            "quantile",
        )
        self.forecast_made = make.gauge(
            "pool_forecast_timestamp_seconds", "Time of the forecast, POSIX seconds", "pool"
        )
        self.writes = make.counter(
            "pool_scale_writes", "Requests to scale a target, by outcome", "outcome"
        )

    def show_forecast(self, pools: Mapping[str, Mapping[str, float]]) -> None:
        """Show the forecast of every pool by quantile; remove other series."""
        first = {name: pools[name] for name in sorted(pools)[:MAX_NAMES]}
        _show(
            self.forecast,
            {(n, q): demand for n, quantiles in first.items() for q, demand in quantiles.items()},
        )


def show(values: Mapping[Gauge, Mapping[str, float]]) -> None:
    """Set gauges by the names of objects; remove other series."""
    for gauge, by_name in values.items():
        _show(gauge, {(name,): by_name[name] for name in sorted(by_name)[:MAX_NAMES]})


@dataclass(frozen=True, eq=False)
class _Counts(Collector):
    """Serves sums of ``counts``, which other modules update, at every scrape."""

    # Without equality: a registry uses its collectors as keys.
    name: str
    meaning: str
    labels: tuple[str, str]
    counts: Sequence[Mapping[tuple[str, str], int]]

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self.name, self.meaning, labels=self.labels)
        for values, count in sum(map(Counts, self.counts), Counts[tuple[str, str]]()).items():
            family.add_metric(values, count)
        yield family
