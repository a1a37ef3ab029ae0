"""Configuration and start of Bireme's own scheduler."""

from pathlib import Path

import yaml

from bireme_lab.embedded.installation import SCHEDULER_CONFIGURATION
from testbed.controlplane.scheduling import render_scheduler_config, scheduler_command
from testbed.controlplane.stack import SCHEDULER_CONFIG


def test_rendering_changes_the_kubeconfig_and_the_extender_port_only() -> None:
    source = yaml.safe_load(SCHEDULER_CONFIG.read_text())
    rendered = yaml.safe_load(render_scheduler_config(source, Path("somewhere/kubeconfig"), 4711))
    assert rendered["clientConnection"].pop("kubeconfig") == "somewhere/kubeconfig"
    assert rendered["extenders"][0]["urlPrefix"] == "http://127.0.0.1:4711"
    rendered["extenders"][0]["urlPrefix"] = source["extenders"][0]["urlPrefix"]
    assert rendered == source


def test_profile_serves_bireme_pods_only_and_never_preempts() -> None:
    (profile,) = yaml.safe_load(SCHEDULER_CONFIG.read_text())["profiles"]
    assert profile["schedulerName"] == "bireme"
    assert {"name": "DefaultPreemption"} in profile["plugins"]["multiPoint"]["disabled"]


def test_extender_is_asked_by_name_and_may_be_away() -> None:
    (extender,) = yaml.safe_load(SCHEDULER_CONFIG.read_text())["extenders"]
    assert extender["nodeCacheCapable"]
    assert extender["ignorable"]
    assert (extender["filterVerb"], extender["prioritizeVerb"]) == ("filter", "prioritize")
    assert "bindVerb" not in extender
    assert "preemptVerb" not in extender


def test_scheduler_serves_health_on_loopback() -> None:
    command = scheduler_command(Path("ks"), Path("config"), 4712)
    assert command[:2] == ["ks", "--config=config"]
    assert {"--bind-address=127.0.0.1", "--secure-port=4712"} <= set(command)


def test_the_chart_and_the_embedded_cluster_carry_the_same_configuration() -> None:
    chart = Path(__file__).parents[3] / "charts" / "bireme" / "files" / "scheduler-config.yaml"
    assert chart.read_text() == SCHEDULER_CONFIG.read_text()
    assert SCHEDULER_CONFIGURATION.read_text() == SCHEDULER_CONFIG.read_text()
