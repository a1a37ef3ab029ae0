"""The dashboard and the alert rules of node pools, judged by Prometheus itself.

Names are compared with the operator's own metrics everywhere; the rest is skipped without promtool.
"""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

from bireme.forecasting.prometheus import hourly
from bireme.kube.pool_history import HOUR
from bireme_operator.metrics import Metrics
from promserver.programs import Programs
from promserver.server import Samples, serving

CHART = Path(__file__).parents[2] / "charts" / "bireme"
RULES = CHART / "rules" / "node-pools.yaml"
PANELS = json.loads((CHART / "dashboards" / "node-pools.json").read_text())["panels"]
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
EXPRESSIONS = [*QUERIES, *(rule["expr"] for rule in ALERTS)]
NOW = 1_795_305_600.0
DAYS = 8
QUANTILES = {"bireme_pool_forecast_nodes": [{"quantile": "0.5"}, {"quantile": "0.9"}]}

POOL = {
    "bireme_pool_nodes": "8",
    "bireme_pool_floor": "7",
    "bireme_pool_needed": "5",
    "bireme_pool_demand_nodes": "6",
    "bireme_pool_forecast_nodes": "4",
    "bireme_pool_forecast_timestamp_seconds": "0",
}


def exported() -> dict[str, tuple[str, ...]]:
    """Names of the operator's series, each with its labels."""
    found: dict[str, tuple[str, ...]] = {}
    for collector in Metrics().registry._collector_to_names:
        labels = tuple(getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            suffix = "_total" if family.type == "counter" else ""
            found[family.name + suffix] = labels
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_query_names_metrics_and_labels_that_the_operator_exports(expression: str) -> None:
    known = exported()
    named = re.findall(r"(bireme_\w+)(?:\{([^}]*)\})?", expression)
    assert named
    for name, selector in named:
        assert name in known
        assert set(re.findall(r"(\w+)[!=]", selector)) <= set(known[name])


def test_panels_stand_beside_each_other_and_say_what_they_show() -> None:
    places = [panel["gridPos"] for panel in PANELS]
    cells = [
        (x, y)
        for p in places
        for x in range(p["x"], p["x"] + p["w"])
        for y in range(p["y"], p["y"] + p["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert all(panel["title"] and panel["description"] for panel in PANELS)


# --- by Prometheus ----------------------------------------------------------------------------


def a_week() -> list[Samples]:
    """Of everything that the panels ask for, constant but for what is counted."""
    times = np.arange(NOW - DAYS * 24 * HOUR, NOW + 1, 300)
    series = [
        Samples(name, {"pool": "h200", **more}, [(at, float(value)) for at in times])
        for name, value in POOL.items()
        for more in QUANTILES.get(name, [{}])
    ]
    counted = [(at, float(number)) for number, at in enumerate(times)]
    series.append(Samples("bireme_pool_scale_writes_total", {"outcome": "written"}, counted))
    waiting = [(at, 3.0) for at in times]
    return [*series, Samples("bireme_gangs_waiting", {"reason": "ScalingUp"}, waiting)]


async def test_every_query_of_the_dashboard_has_an_answer(
    programs: Programs, tmp_path: Path
) -> None:
    with serving(programs, tmp_path, a_week()) as url:
        for query in QUERIES:
            values, _ = await hourly(url, query.replace("$pool", "h200"), NOW - 3 * HOUR, 3)
            assert np.isfinite(values).all(), query


def judge(
    programs: Programs, folder: Path, alert: str, series: dict[str, str], at: str, **said: str
) -> None:
    """promtool sees ``alert`` fire ``at`` that time with labels and value as ``said``, or not."""
    (rule,) = (rule for rule in ALERTS if rule["alert"] == alert)
    labels = {name: text for name, text in said.items() if name != "value"}
    words = {name: filled(text, said) for name, text in rule["annotations"].items()}
    expected = {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": words}
    asked = {"eval_time": at, "alertname": alert, "exp_alerts": [expected] if said else []}
    given = [{"series": name, "values": values} for name, values in series.items()]
    case = {"interval": "5m", "input_series": given, "alert_rule_test": [asked]}
    test = {"rule_files": [str(RULES)], "evaluation_interval": "5m", "tests": [case]}
    (folder / "test.yaml").write_text(yaml.safe_dump(test))
    command = [str(programs.promtool), "test", "rules", str(folder / "test.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def filled(text: str, said: dict[str, str]) -> str:
    """A template of an annotation, filled in as Prometheus does."""
    text = re.sub(r"{{ \$value [^}]*}}", said.get("value", ""), text)
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: said.get(found[1], ""), text)


STALE = {'bireme_pool_forecast_timestamp_seconds{pool="h200"}': "0x400"}
REFUSED = {'bireme_pool_scale_writes_total{outcome="refused"}': "0+1x100"}
WRITTEN = {'bireme_pool_scale_writes_total{outcome="written"}': "0+9x100"}


def test_a_forecast_of_more_than_26_hours_ago_is_told(programs: Programs, tmp_path: Path) -> None:
    alert = "BiremePoolForecastStale"
    judge(programs, tmp_path, alert, STALE, "26h")
    judge(programs, tmp_path, alert, STALE, "26h20m", pool="h200", value="1d 2h 20m 0s")


def test_targets_that_refuse_are_told_and_writes_that_work_are_not(
    programs: Programs, tmp_path: Path
) -> None:
    alert = "BiremePoolScaleFailing"
    judge(programs, tmp_path, alert, REFUSED | WRITTEN, "30m")
    judge(programs, tmp_path, alert, REFUSED | WRITTEN, "2h", outcome="refused")


def test_demand_above_its_forecast_for_most_of_a_day_is_told(
    programs: Programs, tmp_path: Path
) -> None:
    alert = "BiremePoolAboveForecast"
    forecast = {
        f'bireme_pool_forecast_nodes{{pool="h200",quantile="{q}"}}': "4x600" for q in (0.5, 0.9)
    }
    below = {'bireme_pool_demand_nodes{pool="h200"}': "4x600"}
    above = {'bireme_pool_demand_nodes{pool="h200"}': "4x200 5x400"}
    judge(programs, tmp_path, alert, forecast | below, "40h")
    judge(programs, tmp_path, alert, forecast | above, "24h")
    judge(programs, tmp_path, alert, forecast | above, "42h", pool="h200", value="100%")
