"""``overview.json``: is Bireme healthy, who waits and why, is the policy good?

Two operators may run, of which one leads; a standby serves zeros. So gauges are the largest of
all, and what is counted is the sum.
"""

from typing import Final

from tools.docs.monitoring.grafana import Dashboard, Json, Panel, coloured, red_below

_EXPECTED: Final = "404|409|410"
"""Errors of every day: gone already, written by somebody first, too old to go on from."""
_FROM_ZERO: Final = {"min": 0}
_STACKED: Final = {
    "min": 0,
    "custom": {"lineWidth": 1, "fillOpacity": 40, "stacking": {"mode": "normal"}},
}


def _number(title: str, description: str, query: str, unit: str, defaults: Json) -> Panel:
    return Panel(
        title=title,
        description=description,
        queries={title: query},
        kind="stat",
        unit=unit,
        size=(3, 4),
        defaults=defaults,
    )


def _quantile(share: float, histogram: str, *labels: str, over: str) -> str:
    by = ", ".join(("le", *labels))
    return f"histogram_quantile({share}, sum by ({by}) (rate({histogram}_bucket[{over}])))"


_ERRORS: Final = f'increase(bireme_api_errors_total{{status!~"{_EXPECTED}"}}[10m])'
_HEALTH: Final = (
    _number(
        "Leaders",
        "Operators that lead; anything but one is wrong.",
        "sum(bireme_leader)",
        "short",
        red_below(1),
    ),
    _number(
        "Epoch",
        "It rises with every change of leader.",
        "max(bireme_leader_epoch)",
        "short",
        coloured(),
    ),
    _number(
        "Last turn",
        "Since the leader last looked at the cluster; every 2 s it should.",
        "max(bireme_cycle_age_seconds)",
        "s",
        coloured((10, "yellow"), (30, "red")),
    ),
    _number(
        "Extenders ready",
        "Without one no pod of a gang is bound.",
        "sum(bireme_extender_ready)",
        "short",
        red_below(1),
    ),
    _number(
        "API errors, 10 min",
        "Requests of the operator that failed, but those of every day (404, 409, 410).",
        f"sum({_ERRORS}) or vector(0)",
        "short",
        coloured((5, "yellow"), (50, "red")),
    ),
    _number(
        "Oldest partial gang",
        "Since its plan was made; one is planned again when bind_timeout_seconds have passed.",
        "max(bireme_partial_gang_age_seconds)",
        "s",
        coloured((60, "yellow"), (120, "red")),
    ),
    _number(
        "Past the wait bound",
        "How far the gang that waits longest is past the bound of its queue.",
        "max(bireme_queue_overdue_seconds) or vector(0)",
        "s",
        coloured((1, "yellow"), (3600, "red")),
    ),
    _number(
        "Policies overruled",
        "SchedulingPolicies in whose place the rules answer.",
        "sum(max by (policy) (bireme_policy_degraded)) or vector(0)",
        "short",
        coloured((1, "red")),
    ),
    Panel(
        title="Turns and cycles",
        description="Latency of the leader's turns, and of the cycles (decisions) in them.",
        queries={
            "turn, p99": _quantile(0.99, "bireme_turn_seconds", over="5m"),
            "cycle, p99": _quantile(0.99, "bireme_cycle_seconds", over="5m"),
            "cycle, p50": _quantile(0.5, "bireme_cycle_seconds", over="5m"),
        },
        unit="s",
        defaults=_FROM_ZERO,
    ),
    Panel(
        title="Extender",
        description="Time it takes to answer the scheduler, by verb; every pod waits for it.",
        queries={
            "{{verb}}, p99": _quantile(0.99, "bireme_extender_request_seconds", "verb", over="5m"),
            "{{verb}}, p50": _quantile(0.5, "bireme_extender_request_seconds", "verb", over="5m"),
        },
        unit="s",
        defaults=_FROM_ZERO,
    ),
    Panel(
        title="API server, per second",
        description="Writes of the operator by verb, and its requests that failed.",
        queries={
            "{{verb}}": "sum by (verb) (rate(bireme_api_writes_total[5m]))",
            "{{verb}} failed: {{status}}": "sum by (verb, status) "
            "(rate(bireme_api_errors_total[5m]))",
        },
        defaults=_FROM_ZERO,
    ),
)

_WAITS: Final = (
    Panel(
        title="Gangs that wait, by reason",
        description="Why; bireme why JOB says more of each.",
        queries={"{{reason}}": "max by (reason) (bireme_gangs_waiting)"},
        defaults=_STACKED,
    ),
    Panel(
        title="Gangs that wait, by queue",
        description="Depth of the queues.",
        queries={"{{queue}}": 'max by (queue) (bireme_queue_gangs{state="pending"})'},
        defaults=_STACKED,
    ),
    Panel(
        title="Gangs with places, by queue",
        description="Planned or running.",
        queries={"{{queue}}": 'max by (queue) (bireme_queue_gangs{state="admitted"})'},
        defaults=_STACKED,
    ),
    Panel(
        title="Longest wait of now",
        description="Of those that still wait, by queue; and of the one that is next.",
        queries={
            "{{queue}}": "max by (queue) (bireme_queue_oldest_wait_seconds)",
            "next in the order": "max(bireme_head_wait_seconds)",
        },
        unit="s",
        defaults=_FROM_ZERO,
    ),
    Panel(
        title="Waits of gangs that were admitted",
        description="Over the last hour, by queue.",
        queries={
            "{{queue}}, p95": _quantile(0.95, "bireme_wait_seconds", "queue", over="1h"),
            "{{queue}}, p50": _quantile(0.5, "bireme_wait_seconds", "queue", over="1h"),
        },
        unit="s",
        defaults=_FROM_ZERO,
    ),
    Panel(
        title="Admitted, per hour",
        description="Gangs that got their places, by queue.",
        queries={"{{queue}}": "sum by (queue) (increase(bireme_gangs_admitted_total[1h]))"},
        defaults=_FROM_ZERO,
    ),
)

_RESTARTS: Final = 'bireme_job_transitions_total{phase="Restarting"}'
_FATES: Final = (
    Panel(
        title="From the plan until all replicas run",
        description="Over the last hour; and the age of the oldest gang that is not whole.",
        queries={
            "p99": _quantile(0.99, "bireme_start_seconds", over="1h"),
            "p50": _quantile(0.5, "bireme_start_seconds", over="1h"),
            "not whole": "max(bireme_partial_gang_age_seconds)",
        },
        unit="s",
        defaults=_FROM_ZERO,
    ),
    Panel(
        title="Completion time of jobs",
        description="From creation to the end, over the last day, by queue.",
        queries={
            "{{queue}}, p95": _quantile(0.95, "bireme_completion_seconds", "queue", over="1d"),
            "{{queue}}, p50": _quantile(0.5, "bireme_completion_seconds", "queue", over="1d"),
        },
        unit="s",
        defaults=_FROM_ZERO,
    ),
    Panel(
        title="Stopped, resized and ended, per hour",
        description="Gangs that start again and why, changes of size, and jobs that ended.",
        queries={
            "stopped: {{reason}}": f"sum by (reason) (increase({_RESTARTS}[1h]))",
            "spared by a budget": "sum(increase(bireme_preemptions_refused_total[1h]))",
            "{{reason}}": "sum by (reason) (increase(bireme_resizes_total[1h]))",
            "{{phase}}": "sum by (phase) (increase(bireme_completion_seconds_count[1h]))",
        },
        defaults=_FROM_ZERO,
    ),
)

_POLICY: Final = (
    Panel(
        title="Cycles, per minute",
        description="And those in which the rules answered in the policy's place; of the "
        "extender, calls that the rules scored.",
        queries={
            "cycles": "60 * sum(rate(bireme_cycle_seconds_count[5m]))",
            "by the rules instead": "60 * sum(rate(bireme_policy_fallbacks_total[5m]))",
            "scores by the rules": "60 * sum(rate(bireme_extender_score_fallbacks_total[5m]))",
        },
        defaults=_FROM_ZERO,
    ),
    Panel(
        title="Who decides, and how like it the shadows are",
        description="1 for the SchedulingPolicy that decides; for shadows the share of starts "
        "in common.",
        queries={
            "{{policy}} decides": "max by (policy) (bireme_policy_deciding) == 1",
            "{{policy}}, shadow": "max by (policy) (bireme_policy_shadow_agreement)",
        },
        unit="percentunit",
        defaults={"min": 0, "max": 1},
    ),
    Panel(
        title="Regret of the shadows",
        description="Forecast time per gang that a shadow's order would have saved: one that "
        "stays above zero is worth a try.",
        queries={"{{policy}}": "max by (policy) (bireme_policy_shadow_regret_seconds)"},
        unit="s",
        defaults={"custom": {"lineWidth": 1, "axisCenteredZero": True}},
    ),
)

OVERVIEW: Final = Dashboard(
    uid="bireme-overview",
    title="Bireme: overview",
    description="Is it healthy, who waits and why, is the policy good?",
    since="now-6h",
    panels=(
        "Is it healthy?",
        *_HEALTH,
        "Who waits, and for what?",
        *_WAITS,
        "What becomes of them?",
        *_FATES,
        "Is the policy good?",
        *_POLICY,
    ),
)
