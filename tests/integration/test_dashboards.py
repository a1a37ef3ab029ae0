"""The chart's dashboards and alert rules ask for what is served, and Prometheus can answer them.

Names and labels are compared with the programs' own metrics everywhere; the rest is skipped where
there is no Prometheus.
"""

import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bireme.core.times import HOUR
from bireme.prometheus import hourly
from testbed.prometheus import Programs, Samples, alerts, serving
from tools.docs.monitoring.__main__ import PAGE
from tools.docs.monitoring.metrics import Metric, of_extender, of_operator, with_tables

CHART = Path(__file__).parents[2] / "charts" / "bireme"
PANELS: dict[str, list[dict[str, Any]]] = {
    path.stem: json.loads(path.read_text())["panels"]
    for path in sorted((CHART / "dashboards").glob("*.json"))
}
QUERIES = {
    name: [target["expr"] for panel in panels for target in panel.get("targets", ())]
    for name, panels in PANELS.items()
}
ALERTS = [rule["expr"] for path in sorted((CHART / "rules").glob("*")) for rule in alerts(path)]
METRICS = [*of_operator(), *of_extender()]
LABELS = {name: set(metric.labels) for metric in METRICS for name in metric.series}
# Of kube-scheduler; tests/cluster/test_install.py asks a real one.
LABELS["kubernetes_build_info"] = {"major", "minor", "git_version"}
LABELS["scheduler_schedule_attempts_total"] = {"profile", "result"}
VALUES = {
    "pool": "h200",
    "phase": "Restarting",
    "reason": "ScalingUp",
    "state": "pending",
    "status": "5xx",
}
"""What queries select by, beside quantiles; any other label has any value."""
NOW = 1_795_305_600.0
DAYS = 8


@pytest.mark.parametrize("expression", [*chain(*QUERIES.values()), *ALERTS])
def test_every_query_names_metrics_and_labels_that_are_served(expression: str) -> None:
    served = r"((?:bireme|kubernetes|scheduler)_\w+)(?:\{([^}]*)\})?"
    named = re.findall(served, expression)
    assert named
    for name, selector in named:
        assert name in LABELS
        assert set(re.findall(r"(\w+)[!=]", selector)) <= LABELS[name]
    grouped = {
        label for found in re.findall(r"by \(([^)]*)\)", expression) for label in _words(found)
    }
    assert grouped <= {"le"}.union(*(LABELS[name] for name, _ in named))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


@pytest.mark.parametrize("dashboard", PANELS)
def test_legends_name_labels_that_the_query_leaves(dashboard: str) -> None:
    targets = [t for panel in PANELS[dashboard] for t in panel.get("targets", ())]
    for target in targets:
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert shown <= set(_words(target["expr"])), target["legendFormat"]


@pytest.mark.parametrize("dashboard", PANELS)
def test_panels_stand_beside_each_other_and_say_what_they_show(dashboard: str) -> None:
    panels = PANELS[dashboard]
    places = [panel["gridPos"] for panel in panels]
    cells = [
        (x, y)
        for p in places
        for x in range(p["x"], p["x"] + p["w"])
        for y in range(p["y"], p["y"] + p["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(p["title"] and (p["type"] == "row" or p["description"]) for p in panels)


def test_the_tables_of_metrics_are_what_the_programs_serve() -> None:
    assert with_tables(PAGE.read_text()) == PAGE.read_text(), "run make monitoring"


# --- by Prometheus ----------------------------------------------------------------------------


def a_week() -> Iterator[Samples]:
    """Of everything that is served: gauges stand still, counters grow by 1 in five minutes."""
    times = np.arange(NOW - DAYS * 24 * HOUR, NOW + 1, 300)
    for metric in METRICS:
        for name in metric.series:
            grows = metric.kind != "gauge"
            points = [(at, float(number if grows else 1)) for number, at in enumerate(times)]
            for labels in _labels_of(metric, name):
                yield Samples(name, labels, points)


def _labels_of(metric: Metric, name: str) -> Iterator[dict[str, str]]:
    labels = {label: VALUES.get(label, "any") for label in metric.labels}
    if metric.name == "bireme_queue_gangs":
        yield {**labels, "state": "admitted"}
    if metric.name == "bireme_devices":
        labels["state"] = "used"
    if "quantile" in labels:
        yield {**labels, "quantile": "0.5"}
        labels["quantile"] = "0.9"
    if name.endswith("_bucket"):
        yield {**labels, "le": "1"}
        labels["le"] = "+Inf"
    yield labels


async def test_every_query_of_the_dashboards_has_an_answer(
    programs: Programs, tmp_path: Path
) -> None:
    with serving(programs, tmp_path, [*a_week()]) as url:
        for query in chain(*QUERIES.values()):
            values, _ = await hourly(url, query.replace("$pool", "h200"), NOW - 3 * HOUR, 3)
            assert np.isfinite(values).all(), query
