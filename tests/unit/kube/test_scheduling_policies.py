"""Choice of the SchedulingPolicy that decides, and of those only compared."""

from typing import Any

import pytest

from bireme.kube.policy_source import MAX_SHADOWS, SchedulingPolicies
from testbed.objects.policies import delete, facts_of, put


def name_of_active(policies: SchedulingPolicies) -> str:
    return policies.active.name if policies.active is not None else ""


def test_nothing_is_active_where_there_is_no_policy() -> None:
    policies = SchedulingPolicies()
    assert policies.active is None
    put(policies, "watching", stage="Shadow", orderer="fifo")
    assert policies.active is None


def test_the_oldest_active_policy_counts() -> None:
    policies = SchedulingPolicies()
    put(policies, "a-new")
    put(policies, "old", age=60.0)
    put(policies, "z-older-shadow", age=90.0, stage="Shadow", orderer="fifo")
    assert name_of_active(policies) == "old"
    delete(policies, "old")
    assert name_of_active(policies) == "a-new"


def test_of_policies_as_old_the_first_by_name_counts() -> None:
    policies = SchedulingPolicies()
    for name in ("b", "a", "c"):
        put(policies, name)
    assert name_of_active(policies) == "a"


def test_only_the_oldest_shadows_count() -> None:
    policies = SchedulingPolicies()
    for index in range(MAX_SHADOWS + 2):
        put(policies, f"s{index}", age=float(index), stage="Shadow", orderer="fifo")
    oldest_first = [f"s{index}" for index in reversed(range(2, MAX_SHADOWS + 2))]
    assert [policy.name for policy in policies.shadows] == oldest_first


def test_a_status_alone_is_no_change() -> None:
    policies, notified = SchedulingPolicies(), []
    policies.on_change = lambda: notified.append(name_of_active(policies))
    put(policies, "a")
    put(policies, "a", status={"decisions": 5})
    assert policies.known["a"].status == {"decisions": 5}
    assert notified == ["a"]
    put(policies, "a", generation=2, orderer="srtf")
    put(policies, "a", generation=2, uid="another", orderer="srtf")
    delete(policies, "a")
    delete(policies, "a")
    assert notified == ["a", "a", "a", ""]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"checkpoint": {"sha256": "0" * 64}}, "spec.checkpoint.name: Field required"),
        ({"checkpoint": {"name": "../etc"}}, "spec.checkpoint.name: String should match"),
        ({"orderer": 5}, "spec.orderer: Input should be a valid string"),
        ({"stage": "Maybe"}, "spec.stage: Input should be"),
    ],
)
def test_a_spec_that_cannot_be_read_says_where(spec: dict[str, Any], field: str) -> None:
    facts = facts_of("odd", **spec)
    assert facts.spec is None
    assert facts.fault.startswith(field)
    assert facts.fault.endswith("; correct it, or update Bireme")


def test_fields_of_a_newer_bireme_are_left_alone() -> None:
    facts = facts_of("new", orderer="fifo", dreams=True)
    assert facts.spec is not None
    assert (facts.fault, facts.spec.orderer) == ("", "fifo")
