"""Gangs that PodDisruptionBudgets protect, counted as the API server counts."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from bireme.kube import disruption_budgets, names, quantities
from bireme.kube.disruption_budgets import Budget, refusal
from bireme.kube.pods import PodFacts
from testbed.objects.facts import CREATED, a_job, a_plan, a_pod, running
from testbed.scenario.manifests import task

MINE = {names.POD_GROUP_LABEL: "job"}


def budgets(
    name: str = "keep", allowed: int = 0, *, observed: int = 1, selector: object = None
) -> tuple[Budget, ...]:
    """One budget over the pods of ``job`` unless given otherwise, as it comes off the wire."""
    chosen = {"matchLabels": MINE} if selector is None else selector
    manifest = {
        "metadata": {"name": name, "generation": 1},
        "spec": {"selector": chosen},
        "status": {"disruptionsAllowed": allowed, "observedGeneration": observed},
    }
    return disruption_budgets.read([msgspec.json.encode(manifest)])


def gang(name: str = "job", **phases: str) -> list[PodFacts]:
    job = a_job(task("worker", 3), name=name)
    return running(job, a_plan(job), **phases)


def test_a_gang_under_no_budget_may_go() -> None:
    assert refusal((), gang()) == ""
    assert disruption_budgets.read([]) == ()


@pytest.mark.parametrize(("allowed", "protects"), [(0, True), (2, True), (3, False), (9, False)])
def test_a_budget_lets_the_whole_gang_go_or_none_of_it(allowed: int, protects: bool) -> None:
    assert bool(refusal(budgets(allowed=allowed), gang())) == protects


def test_a_refusal_names_the_budget_and_the_numbers() -> None:
    assert refusal(budgets(allowed=2), gang()) == "budget keep allows 2 evictions, 3 are needed"


def test_a_negative_allowance_is_none() -> None:
    assert "allows 0 evictions" in refusal(budgets(allowed=-1), gang())


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        ({"matchLabels": MINE}, True),
        ({"matchLabels": {names.POD_GROUP_LABEL: "other"}}, False),
        ({}, True),
        ({"matchExpressions": [{"key": names.JOB_LABEL, "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": names.JOB_LABEL, "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NewIn"}]}, True),
    ],
)
def test_a_selector_chooses_pods_and_one_that_nobody_understands_all(
    selector: Mapping[str, Any], covers: bool
) -> None:
    assert bool(refusal(budgets(selector=selector), gang())) == covers


def test_a_budget_without_a_selector_covers_nothing() -> None:
    bare = b'{"metadata": {"name": "bare"}, "spec": {}}'
    assert refusal(disruption_budgets.read([bare]), gang()) == ""


def test_a_status_older_than_its_spec_allows_nothing() -> None:
    assert "allows 0 evictions" in refusal(budgets(allowed=3, observed=0), gang())


def test_pods_that_do_not_run_are_not_counted() -> None:
    pods = gang(worker_0="Pending", worker_1="Succeeded")
    assert refusal(budgets(allowed=1), pods) == ""
    job = a_job(task("worker", 3))
    plan = a_plan(job)
    leaving = {"deletionTimestamp": quantities.format_timestamp(CREATED)}
    assert refusal(budgets(), [a_pod(job, plan, plan.members[0], **leaving)]) == ""


def test_a_pod_under_two_budgets_cannot_be_evicted() -> None:
    both = (*budgets("one", 9), *budgets("two", 9))
    assert refusal(both, gang()) == "budgets one and two both cover pod job-worker-0"


def test_gangs_that_go_first_use_the_budget_up() -> None:
    everything = budgets(allowed=5, selector={})
    assert refusal(everything, gang()) == ""
    assert "allows 5 evictions, 6 are needed" in refusal(everything, gang(), gang("other"))


def test_an_object_that_is_no_budget_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        disruption_budgets.read([b'{"spec": {}}'])
