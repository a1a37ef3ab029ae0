"""Alerts that fire and alerts that do not, judged by promtool; skipped without it."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.prometheus import Programs, alerts


@dataclass(frozen=True, slots=True)
class Judge:
    """The rules of one file; what promtool needs is written into ``folder``."""

    programs: Programs
    rules: Path
    folder: Path

    def fires(self, alert: str, series: dict[str, str], at: str, **shown: str) -> None:
        """``alert`` fires ``at`` that time, with the labels and the value of ``shown``.

        ``series`` is in promtool's notation, one value every five minutes.

        Raises:
            AssertionError: it does not, in promtool's words.
        """
        rule = next(rule for rule in alerts(self.rules) if rule["alert"] == alert)
        labels = {name: text for name, text in shown.items() if name != "value"}
        words = {name: filled(text, shown) for name, text in rule["annotations"].items()}
        expected = {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": words}
        self._judge(alert, series, at, [expected])

    def is_silent(self, alert: str, series: dict[str, str], at: str) -> None:
        """The same for one that does not fire."""
        self._judge(alert, series, at, [])

    def _judge(
        self, alert: str, series: dict[str, str], at: str, expected: list[dict[str, Any]]
    ) -> None:
        asked = {"eval_time": at, "alertname": alert, "exp_alerts": expected}
        given = [{"series": name, "values": values} for name, values in series.items()]
        case = {"interval": "5m", "input_series": given, "alert_rule_test": [asked]}
        files = {"rule_files": [str(self.rules)], "evaluation_interval": "1m", "tests": [case]}
        test = self.folder / "test.yaml"
        test.write_text(yaml.safe_dump(files))
        command = [str(self.programs.promtool), "test", "rules", str(test)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)


def filled(text: str, shown: dict[str, str]) -> str:
    """A template of an annotation, filled in as Prometheus does."""
    text = re.sub(r"{{ \$value [^}]*}}", shown.get("value", ""), text)
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: shown.get(found[1], ""), text)


ROOT = Path(__file__).parents[2]
RULES = ROOT / "charts" / "bireme" / "rules"


@pytest.fixture
def bireme(programs: Programs, tmp_path: Path) -> Judge:
    return Judge(programs, RULES / "bireme.yaml", tmp_path)


@pytest.fixture
def pools(programs: Programs, tmp_path: Path) -> Judge:
    return Judge(programs, RULES / "node-pools.yaml", tmp_path)


def test_every_alert_has_a_line_in_the_page_that_says_what_to_look_at() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    names = [rule["alert"] for path in sorted(RULES.glob("*.yaml")) for rule in alerts(path)]
    assert len(names) == len(set(names))
    assert [name for name in names if page.count(f"| `{name}` |") != 1] == []


# --- Bireme itself ----------------------------------------------------------------------------


def test_a_standby_without_a_leader_alerts_after_two_minutes(bireme: Judge) -> None:
    alert, standby = "BiremeNoLeader", {'bireme_leader{pod="a"}': "0x9"}
    bireme.is_silent(alert, standby, "1m")
    bireme.fires(alert, standby, "10m")
    bireme.is_silent(alert, standby | {'bireme_leader{pod="b"}': "1x9"}, "10m")


def test_no_operator_at_all_is_no_leader_and_no_extender_is_not_ready(bireme: Judge) -> None:
    bireme.fires("BiremeNoLeader", {}, "10m")
    bireme.fires("BiremeExtenderNotReady", {}, "10m")
    bireme.is_silent("BiremeExtenderNotReady", {"bireme_extender_ready": "1x9"}, "10m")


def test_a_loop_that_stands_still_alerts(bireme: Judge) -> None:
    alert, series = "BiremeTurnTooOld", "bireme_cycle_age_seconds"
    bireme.is_silent(alert, {series: "2x9"}, "10m")
    bireme.fires(alert, {series: "45x9"}, "10m", value="45s")


def test_a_gang_that_is_neither_whole_nor_planned_again_alerts(bireme: Judge) -> None:
    alert, series = "BiremeGangPartial", "bireme_partial_gang_age_seconds"
    bireme.is_silent(alert, {series: "60 0 60 0 60"}, "20m")
    bireme.fires(alert, {series: "200x9"}, "10m", value="3m 20s")


def test_gangs_that_hold_devices_and_get_nothing_done_alert_by_queue_and_reason(
    bireme: Judge,
) -> None:
    alert = "BiremeGangsStalled"
    series = 'bireme_gangs_stalled{pod="%s",queue="q",reason="NoProgress"}'
    leads, before = {series % "a": "2x9"}, {series % "b": "1x2 stale"}
    bireme.is_silent(alert, {series % "a": "1 stale"}, "10m")
    bireme.is_silent(alert, leads, "4m")
    bireme.fires(alert, leads | before, "10m", queue="q", reason="NoProgress", value="2")


def test_gangs_that_are_planned_again_and_again_alert(bireme: Judge) -> None:
    alert = "BiremeGangsNotBound"
    moves = 'bireme_job_transitions_total{phase="Restarting",reason="%s"}'
    bireme.is_silent(alert, {moves % "GangNotBoundInTime": "0+1x10"}, "40m")
    bireme.is_silent(alert, {moves % "NodeLost": "0+5x10"}, "40m")
    bireme.fires(alert, {moves % "GangNotBoundInTime": "0+5x10"}, "40m", value="10")


def test_a_suspected_node_alerts_by_its_name_be_it_avoided_or_not(bireme: Judge) -> None:
    alert, name = "BiremeNodeSuspected", 'bireme_node_suspected{node="n1"}'
    bireme.is_silent(alert, {name: "_x9"}, "10m")
    for value in ("0", "1"):
        bireme.fires(alert, {name: f"_ {value}x3 stale"}, "10m", node="n1")
    bireme.is_silent(alert, {name: "1x3 stale"}, "30m")


def test_a_kube_scheduler_of_another_version_than_the_clusters_alerts(bireme: Judge) -> None:
    alert, attempts = "BiremeSchedulerVersion", "scheduler_schedule_attempts_total"

    def series(minor: str, *, profile: str = "bireme", cluster: str = "37") -> dict[str, str]:
        def build(instance: str, minor: str) -> str:
            labels = f'instance="{instance}",major="1",minor="{minor}"'
            return f'kubernetes_build_info{{{labels},git_version="v1.{minor}.2"}}'

        return {
            build("s", minor): "1x30",
            f'{attempts}{{instance="s",profile="{profile}",result="error"}}': "0x30",
            f'{attempts}{{instance="s",profile="{profile}",result="scheduled"}}': "5x30",
            # The API server's own, of which nothing is said here.
            build("a", "30"): "1x30",
            **{
                f'bireme_kubernetes_info{{instance="{o}",major="1",minor="{cluster}"}}': "1x30"
                for o in ("o1", "o2")
            },
        }

    bireme.is_silent(alert, series("37"), "2h")
    bireme.is_silent(alert, series("36"), "30m")
    for minor in ("36", "38"):
        bireme.fires(alert, series(minor), "2h", git_version=f"v1.{minor}.2")
    bireme.is_silent(alert, series("36", profile="default-scheduler"), "2h")
    no_operator = {n: v for n, v in series("36").items() if "bireme_kubernetes" not in n}
    bireme.is_silent(alert, no_operator, "2h")


def test_server_errors_alert_and_conflicts_do_not(bireme: Judge) -> None:
    alert = "BiremeApiErrors"
    failing = {'bireme_api_errors_total{verb="update",status="5xx"}': "0+60x20"}
    conflicts = {'bireme_api_errors_total{verb="update",status="409"}': "0+60x20"}
    bireme.is_silent(alert, conflicts, "40m")
    bireme.fires(alert, failing | conflicts, "40m", verb="update", status="5xx")


def test_a_policy_that_is_overruled_for_long_alerts(bireme: Judge) -> None:
    alert = "BiremePolicyOverruled"
    degraded = {'bireme_policy_degraded{policy="p"}': "0 1x9"}
    bireme.is_silent(alert, degraded, "10m")
    bireme.fires(alert, degraded, "25m", policy="p")


def test_a_wait_an_hour_past_its_bound_alerts(bireme: Judge) -> None:
    alert, name = "BiremeWaitsPastBound", 'bireme_queue_overdue_seconds{queue="q"}'
    bireme.is_silent(alert, {name: "3000x9"}, "30m")
    bireme.fires(alert, {name: "7200x9"}, "30m", queue="q", value="2h 0m 0s")


# --- node pools -------------------------------------------------------------------------------

STALE = {'bireme_pool_forecast_timestamp_seconds{pool="h200"}': "0x400"}
REFUSED = {'bireme_pool_scale_writes_total{outcome="refused"}': "0+1x100"}
WRITTEN = {'bireme_pool_scale_writes_total{outcome="written"}': "0+9x100"}


def test_a_forecast_of_more_than_26_hours_ago_alerts(pools: Judge) -> None:
    alert = "BiremePoolForecastStale"
    pools.is_silent(alert, STALE, "26h")
    pools.fires(alert, STALE, "26h20m", pool="h200", value="1d 2h 20m 0s")


def test_targets_that_refuse_alert_and_writes_that_work_do_not(pools: Judge) -> None:
    alert = "BiremePoolScaleFailing"
    pools.is_silent(alert, REFUSED | WRITTEN, "30m")
    pools.fires(alert, REFUSED | WRITTEN, "2h", outcome="refused")


def test_demand_above_its_forecast_for_most_of_a_day_alerts(pools: Judge) -> None:
    alert = "BiremePoolAboveForecast"
    forecast = {
        f'bireme_pool_forecast_nodes{{pool="h200",quantile="{q}"}}': "4x600" for q in (0.5, 0.9)
    }
    below = {'bireme_pool_demand_nodes{pool="h200"}': "4x600"}
    above = {'bireme_pool_demand_nodes{pool="h200"}': "4x200 5x400"}
    pools.is_silent(alert, forecast | below, "40h")
    pools.is_silent(alert, forecast | above, "24h")
    pools.fires(alert, forecast | above, "42h", pool="h200", value="100%")
