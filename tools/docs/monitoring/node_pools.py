"""``node-pools.json``: forecast, floor and actual nodes of every NodePoolScaler."""

from typing import Final

from tools.docs.monitoring.grafana import Dashboard, Json, Panel, coloured, query_variable


def _fixed(colour: str) -> Json:
    return {"mode": "fixed", "fixedColor": colour}


_STEPS: Final = {"custom.lineInterpolation": "stepAfter"}
_MAIN: Final = Panel(
    title="Node pool $pool: forecast, floor, actual",
    description="Demand is what runs and what waits, in nodes' worth. The floor follows the upper "
    "forecast, what is in use and what waits; the nodes follow the floor.",
    queries={
        "demand": 'max(bireme_pool_demand_nodes{pool="$pool"})',
        "forecast, median": 'max(bireme_pool_forecast_nodes{pool="$pool", quantile="0.5"})',
        "forecast, upper": 'max(bireme_pool_forecast_nodes{pool="$pool", quantile!="0.5"})',
        "floor": 'max(bireme_pool_floor{pool="$pool"})',
        "nodes": 'max(bireme_pool_nodes{pool="$pool"})',
        "needed": 'max(bireme_pool_needed{pool="$pool"})',
    },
    size=(24, 10),
    defaults={"min": 0, "custom": {"lineWidth": 1, "fillOpacity": 0}},
    overrides={
        "forecast, upper": {
            "custom.fillBelowTo": "forecast, median",
            "custom.fillOpacity": 20,
            "color": _fixed("blue"),
        },
        "forecast, median": {
            "color": _fixed("blue"),
            "custom.lineStyle": {"fill": "dash", "dash": [6, 4]},
        },
        "floor": {**_STEPS, "color": _fixed("orange"), "custom.lineWidth": 2},
        "nodes": {**_STEPS, "color": _fixed("green"), "custom.lineWidth": 2},
        "demand": {"color": _fixed("text"), "custom.lineWidth": 2},
    },
    more={
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "repeat": "pool",
        "repeatDirection": "h",
        "maxPerRow": 2,
    },
)
_MEDIAN: Final = 'max by (pool) (bireme_pool_forecast_nodes{pool=~"$pool", quantile="0.5"})'
_UPPER: Final = 'max by (pool) (bireme_pool_forecast_nodes{quantile!="0.5"})'
_DEMAND: Final = "max by (pool) (bireme_pool_demand_nodes)"
_CHOSEN: Final = 'max by (pool) (bireme_pool_demand_nodes{pool=~"$pool"})'
_MADE: Final = 'max by (pool) (bireme_pool_forecast_timestamp_seconds{pool=~"$pool"})'

NODE_POOLS: Final = Dashboard(
    uid="bireme-node-pools",
    title="Bireme: node pools",
    description="Forecast, floor and actual nodes of every NodePoolScaler.",
    since="now-7d",
    until="now+1d",
    variables=(query_variable("pool", "Node pool", "label_values(bireme_pool_nodes, pool)"),),
    panels=(
        _MAIN,
        Panel(
            title="Error of the median, hourly mean",
            description="Forecast less demand, in nodes: above zero where too much was forecast.",
            queries={"{{pool}}": f"avg_over_time(({_MEDIAN} - {_DEMAND})[1h:5m])"},
            size=(12, 8),
            defaults={"custom": {"lineWidth": 1, "axisCenteredZero": True}},
        ),
        Panel(
            title="Time at or below the upper forecast, last 7 days",
            description="Should be near quantilePercent of the pool.",
            queries={"{{pool}}": f"avg_over_time(({_CHOSEN} <= bool {_UPPER})[7d:15m])"},
            kind="gauge",
            unit="percentunit",
            size=(6, 8),
            defaults={"min": 0, "max": 1},
        ),
        Panel(
            title="Age of the forecast",
            description="A forecast older than 26 hours is not followed.",
            queries={"{{pool}}": f"time() - {_MADE}"},
            kind="stat",
            unit="s",
            size=(6, 8),
            defaults=coloured((26 * 3600, "red")),
        ),
        Panel(
            title="Orders to targets, per hour",
            description="By what became of them; whatever is not written is worth a look at the "
            "condition Scaling.",
            queries={
                "{{outcome}}": "sum by (outcome) (increase(bireme_pool_scale_writes_total[1h]))"
            },
            size=(12, 7),
            defaults={
                "min": 0,
                "custom": {
                    "drawStyle": "bars",
                    "fillOpacity": 60,
                    "stacking": {"mode": "normal"},
                },
            },
        ),
        Panel(
            title="Gangs that wait for nodes",
            description="Gangs held because more nodes are coming, beside all that wait.",
            queries={
                "for more nodes": 'max(bireme_gangs_waiting{reason="ScalingUp"})',
                "all": "sum(max by (reason) (bireme_gangs_waiting))",
            },
            size=(12, 7),
            defaults={"min": 0},
        ),
    ),
)
