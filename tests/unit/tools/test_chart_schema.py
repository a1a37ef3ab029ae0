"""The chart's schema: its generated definitions are what the programs read now."""

import json
from typing import Any

import pytest
import yaml

from bireme.core.bounds import bounds_of
from bireme.core.settings import SchedulingSettings
from bireme.kube.quantities import parse_quantity
from bireme.program_settings import ProgramSettings
from bireme.settings_source import section_settings
from bireme_operator import outlooks, regrets
from bireme_operator.settings import OperatorSettings
from tools.docs.reference import schema

DEFINITIONS = json.loads(schema.page())["definitions"]
SECTIONS = {
    "scheduling": SchedulingSettings,
    "operatorSettings": OperatorSettings,
    "program": ProgramSettings,
}


OPERATOR_BYTES = 700 * 2**20
"""The most that the operator takes at 10,000 nodes: the bound in docs/results/scale.md."""


def test_memory_limit_holds_the_operator_and_both_processes_beside_it() -> None:
    """The kubelet lets all processes of a container be killed that passes its limit."""
    values = yaml.safe_load((schema.PATH.parent / "values.yaml").read_text())
    limit = parse_quantity("memory", values["operator"]["resources"]["limits"]["memory"])
    assert limit >= OPERATOR_BYTES + outlooks.MEMORY_BYTES + regrets.MEMORY_BYTES


def test_the_schema_is_what_the_code_says() -> None:
    assert schema.PATH.read_text() == schema.page(), "run make reference"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_typed_with_its_bounds_and_meaning(section: str) -> None:
    cls: type[Any] = SECTIONS[section]
    properties = DEFINITIONS[section]["properties"]
    left_to_the_chart = schema.SET_BY_CHART.get(cls, ())
    assert len(properties) + len(left_to_the_chart) == len(section_settings(cls))
    assert all(each["description"].endswith(".") for each in properties.values())
    assert all("type" in each or "anyOf" in each for each in properties.values())
    bounded = [each for each in properties.values() if set(each) - {"type", "description", "items"}]
    assert len(bounded) >= len({*bounds_of(cls)} & {*section_settings(cls)} - {*left_to_the_chart})


def test_a_bound_of_a_setting_is_a_bound_in_the_schema() -> None:
    share = DEFINITIONS["scheduling"]["properties"]["overdueShare"]
    assert (share["minimum"], share["maximum"]) == (0, 1)
    level = DEFINITIONS["program"]["properties"]["logLevel"]
    assert level["enum"] == ["debug", "info", "warning", "error"]


def test_a_queue_is_closed_at_every_depth_and_keeps_no_word_of_kubernetes() -> None:
    queue = DEFINITIONS["queueSpec"]
    assert queue["additionalProperties"] is False
    term = queue["properties"]["namespaceSelector"]["properties"]["matchExpressions"]["items"]
    assert term["required"] == ["key", "operator"]
    assert term["additionalProperties"] is False
    assert queue["properties"]["limit"]["additionalProperties"]["type"] == ["integer", "string"]
    assert "x-kubernetes" not in json.dumps(queue)
