"""Settings in the chart's values, and volumes that settings follow from."""

import json
from typing import Any

import pytest
import yaml
from pydantic.alias_generators import to_camel

from bireme_extender.settings import ExtenderSettings
from bireme_operator.settings import OperatorSettings
from testbed.controlplane.api import Manifest
from testbed.scenario.helm import CHART, Helm, pods_of
from tools.docs.reference import schema

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


def test_settings_of_the_values_reach_the_programs_beside_what_the_chart_sets(helm: Helm) -> None:
    text = helm.template(
        "--set=operator.settings.nodeLostSeconds=60,scheduling.orderer=fifo",
        "--set=operator.progress.enabled=true,operator.progress.caConfigMap=ca",
        "--set=operator.progress.certificateSecret=tls",
    )
    settings = settings_of(text)
    assert settings["operator"].pop("nodeLostSeconds") == 60
    assert settings["operator"]["leaseNamespace"] == "bireme-system"
    assert settings["scheduling"] == {"orderer": "fifo"}
    assert settings["extender"]["extenderAddress"] == "127.0.0.1:8888"
    assert settings["operator"]["progressAddress"] == "https://0.0.0.0:8082/etc/bireme-progress"
    # Nobody would read these in the values: the schema knows them not.
    for cls, section in ((OperatorSettings, "operator"), (ExtenderSettings, "extender")):
        assert set(settings[section]) == {to_camel(name) for name in schema.SET_BY_CHART[cls]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("scheduling.orderer=fifoo", "at '/scheduling/orderer': value must be one of 'a2c'"),
        ("scheduling.userWeight=-1", "at '/scheduling/userWeight': minimum: got -1, want 0"),
        ("scheduling.waitBound=5", "at '/scheduling': additional properties 'waitBound' not"),
        ("scheduling.topologyLevels={a,a}", "at '/scheduling/topologyLevels': items at 0 and 1"),
        ("program.logLevel=loud", "at '/program/logLevel': value must be one of"),
        ("operator.settings.maxGraceSeconds=few", "at '/operator/settings/maxGraceSeconds': got"),
        ("operator.settings.metricsAddress=a:1", "additional properties 'metricsAddress' not"),
        ("operator.settings.sweepIntervalSeconds=2", "properties 'sweepIntervalSeconds' not"),
        ("scheduler.extender.settings.logLevel=debug", "additional properties 'settings' not"),
        ("defaultQueue.spec.limt=5", "at '/defaultQueue/spec': additional properties 'limt' not"),
        ("learnedShadow.checkpoint.name=../x", "at '/learnedShadow/checkpoint/name': '../x' does"),
        ("defaultQueue.spec.userPriority=101", "at '/defaultQueue/spec/userPriority': maximum"),
        ("operator.records.volume.a.b=1,operator.records.volume.c.d=1", "maxProperties"),
    ],
)
def test_a_setting_that_a_program_would_refuse_is_refused_by_helm_already(
    helm: Helm, value: str, message: str
) -> None:
    done = helm("template", "bireme", str(CHART), "--set", value)
    assert done.returncode != 0
    assert message in done.stderr


def test_the_spec_of_the_default_queue_reaches_the_operator_unless_none_is_wanted(
    helm: Helm,
) -> None:
    limit = "--set=defaultQueue.spec.limit.cpu=64"
    assert settings_of(helm.template(limit))["defaultQueue"] == {
        "limit": {"cpu": 64},
        "userPriority": 50,
    }
    assert "defaultQueue" not in settings_of(helm.template("--set=defaultQueue.create=false"))


def test_the_learned_shadow_comes_with_the_right_to_make_it_unless_it_is_not_wanted(
    helm: Helm,
) -> None:
    def makers(text: str) -> list[dict[str, Any]]:
        rules = [r for m in yaml.safe_load_all(text) if m and m["kind"] == "ClusterRole"
                 for r in m["rules"]]  # fmt: skip
        return [
            r for r in rules if r["resources"] == ["schedulingpolicies"] and "create" in r["verbs"]
        ]

    text = helm.template()
    assert settings_of(text)["learnedShadow"] == {"name": "learned-index"}
    assert [rule["verbs"] for rule in makers(text)] == [["create"]]
    for values in ("learnedShadow.create=false", "operator.mode=Observe"):
        text = helm.template(f"--set={values}")
        assert "learnedShadow" not in settings_of(text)
        assert makers(text) == []


@pytest.mark.parametrize("orderer", ["my.module:Class", "checkpoint:/var/lib/bireme/a"])
def test_policies_of_ones_own_may_be_named(helm: Helm, orderer: str) -> None:
    settings = settings_of(helm.template(f"--set=scheduling.orderer={orderer}"))
    assert settings["scheduling"] == {"orderer": orderer}


def test_both_programs_look_for_checkpoints_where_their_volume_is_mounted(helm: Helm) -> None:
    volume = "--set=checkpoints.volume.persistentVolumeClaim.claimName=trained"
    before, after = (settings_of(helm.template(*flags)) for flags in ((), (volume,)))
    before["program"] = {"checkpointDirectory": "/var/lib/bireme/checkpoints"}
    assert after == before


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
