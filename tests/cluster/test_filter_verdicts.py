"""The planner answers as kube-scheduler's own filters do, on random clusters.

The plugins of the default profile are asked in a program of their own, not in a cluster: every pod
on every node, hundreds of times a second.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bireme.core.pod_constraints import Toleration
from bireme.kube import pods
from testbed.filters.comparison import DISABLED, PLANNED, VerdictCounts, compared
from testbed.filters.judge import Judge

PAGE = Path(__file__).parents[2] / "docs" / "scheduler-plugins.md"
CONFIG = Path(__file__).parents[2] / "manifests" / "scheduler-config.yaml"
CASES = 500
NEVER_ALONE = {
    "NodeName": "a pod that names its node is bound, and never queued",
    "DefaultPreemption": "it keeps a pod out of the queue only while its victims are being deleted",
}
"""Plugins that can refuse nothing here, and why."""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as judge:
        yield judge


@pytest.fixture(scope="module")
def counts(judge: Judge) -> VerdictCounts:
    return compared(range(CASES), judge)


def test_planner_and_filters_agree_on_every_pod_and_node(counts: VerdictCounts) -> None:
    shown = "\n".join(str(found) for found in counts.disagreements[:20])
    assert not counts.disagreements, f"{len(counts.disagreements)} of {counts.verdicts}\n{shown}"


def test_the_page_tells_how_every_plugin_of_the_default_profile_is_treated(
    counts: VerdictCounts,
) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", PAGE.read_text(), re.MULTILINE)
    assert {plugin for plugin, _ in rows} == counts.plugins
    assert {plugin for plugin, word in rows if word == "planned"} == PLANNED
    assert {plugin for plugin, word in rows if word == "disabled"} == DISABLED


def test_the_profile_of_our_scheduler_has_all_plugins_that_are_planned() -> None:
    [profile] = yaml.safe_load(CONFIG.read_text())["profiles"]
    assert {each["name"] for each in profile["plugins"]["multiPoint"]["disabled"]} == DISABLED
    assert {each["name"] for each in profile["plugins"]["score"]["disabled"]}.isdisjoint(PLANNED)
    assert profile["plugins"].keys() == {"multiPoint", "score"}


def test_the_cases_put_every_filter_to_the_test(counts: VerdictCounts) -> None:
    assert 0.3 <= counts.refused / counts.verdicts <= 0.8, str(counts)
    rare = {p for p in counts.plugins - NEVER_ALONE.keys() if counts.alone[p] < 20}
    assert not rare, f"{sorted(rare)} decide too seldom: {counts}"


@pytest.mark.parametrize(
    ("target", "name", "wrong"),
    [
        (Toleration, "tolerates", lambda *_: True),
        (pods, "_larger", lambda _left, right: right),
        (pods, "requirements", lambda _: ()),
    ],
    ids=["taints", "requests", "node affinity"],
)
def test_a_planner_that_reads_pods_wrongly_is_found(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, target: object, name: str, wrong: object
) -> None:
    monkeypatch.setattr(target, name, wrong)
    assert compared(range(60), judge).disagreements
