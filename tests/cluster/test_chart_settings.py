"""Settings in the chart's values, and volumes that settings follow from."""

import json
from typing import Any

import pytest
import yaml

from tests.support.scenario.helm import Helm, pods_of
from tools.controlplane.api import Manifest

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


def settings_of(text: str) -> Manifest:
    """The settings file that operator and extender read."""
    maps = (m.get("data") or {} for m in yaml.safe_load_all(text) if m)
    (file,) = (data["settings.yaml"] for data in maps if "settings.yaml" in data)
    settings: Manifest = yaml.safe_load(file)
    return settings


def test_settings_of_the_values_reach_the_programs_and_what_the_chart_needs_wins(
    helm: Helm,
) -> None:
    text = helm.template("--set=operator.settings.metricsPort=1,scheduling.orderer=fifo")
    settings = settings_of(text)
    assert settings["operator"]["metricsPort"] == 8080
    assert settings["operator"]["leaseNamespace"] == "bireme-system"
    assert settings["scheduling"] == {"orderer": "fifo"}
    assert settings["extender"]["extenderHost"] == "127.0.0.1"


def test_both_programs_look_for_checkpoints_where_their_volume_is_mounted(helm: Helm) -> None:
    volume = "--set=checkpoints.volume.persistentVolumeClaim.claimName=trained"
    before, after = (settings_of(helm.template(*flags)) for flags in ((), (volume,)))
    folder = {"checkpointDirectory": "/var/lib/bireme/checkpoints"}
    assert after == {name: settings | folder for name, settings in before.items()}


def test_records_are_written_where_their_volume_is_mounted(helm: Helm) -> None:
    def of_operator(*flags: str) -> tuple[Any, Manifest]:
        text = helm.template(*flags)
        return settings_of(text)["operator"].get("recordDirectory"), pods_of(text)[0]

    folder, pod = of_operator("--set=operator.records.volume.emptyDir.sizeLimit=2Gi")
    (mounted,) = (m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "records")
    assert mounted == {"name": "records", "mountPath": folder}
    assert {"name": "records", "emptyDir": {"sizeLimit": "2Gi"}} in pod["volumes"]
    folder, pod = of_operator()
    assert folder is None
    assert "records" not in json.dumps(pod)
