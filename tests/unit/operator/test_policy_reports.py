"""The status of a SchedulingPolicy."""

from typing import Any

import pytest

from bireme.core.decision import Decision
from bireme.core.errors import SettingError
from bireme.core.policy import Policy
from bireme.core.regret import RegretSample
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.kube.policy_source import MAX_SHADOWS, PolicyFacts
from bireme.rl.lookup import PolicySource
from bireme.rl.shadow import Difference
from bireme_operator.cluster_reports import PolicyReports, is_news, policy_status
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.policies import LoadedPolicy, Policies
from testbed.objects.facts import CREATED
from testbed.objects.policies import put, settled

DIGEST = "ab" * 32


def load(facts: PolicyFacts) -> LoadedPolicy:
    if facts.name.startswith("bad"):
        raise SettingError("its networks are NaN")
    return LoadedPolicy(
        Policy(Fifo(), Packing()), facts.uid, PolicySource(facts.name, sha256=DIGEST)
    )


@pytest.fixture
def policies() -> Policies:
    return Policies(Policy(Fifo(), Packing()), load, OperatorMetrics().policies, lambda: None)


async def status_of(policies: Policies, name: str, later: float = 0.0) -> dict[str, Any]:
    """The status of a policy once there is something to say, with its conditions by type."""
    facts = policies.known.known[name]
    await settled(lambda: policy_status(facts, policies, CREATED) is not None)
    status = policy_status(facts, policies, CREATED + later) or {}
    return {**status, "conditions": {c["type"]: c for c in status["conditions"]}}


def condition_of(status: dict[str, Any], condition: str) -> tuple[str, str, str]:
    found = status["conditions"][condition]
    return found["status"], found["reason"], found["message"]


async def test_a_policy_that_decides_says_so_with_its_checkpoint(policies: Policies) -> None:
    facts = put(policies.known, "a", generation=3)
    assert policy_status(facts, policies, CREATED) is None, "nothing is reported while it is loaded"
    status = await status_of(policies, "a")
    assert condition_of(status, "Loaded") == ("True", "PolicyLoaded", "it decides")
    assert condition_of(status, "Degraded") == ("False", "AnswersValid", "")
    assert status["checkpointSha256"] == DIGEST
    assert (status["observedGeneration"], status["decisions"], status["fallbacks"]) == (3, 0, 0)
    assert "shadow" not in status


async def test_a_policy_that_is_overruled_says_why(policies: Policies) -> None:
    put(policies.known, "a")
    before = await status_of(policies, "a")
    policies.deciding.stats.add(Decision(fallback="the orderer failed:\x00 nan"))
    put(policies.known, "a", status={**before, "conditions": list(before["conditions"].values())})
    status = await status_of(policies, "a", later=60.0)
    words = "the rules answered in its place: the orderer failed:  nan"
    assert condition_of(status, "Degraded") == ("True", "PolicyOverruled", words)
    assert status["fallbacks"] == 1
    times = [status["conditions"][c]["lastTransitionTime"] for c in ("Loaded", "Degraded")]
    assert times == ["1970-01-12T13:46:40Z", "1970-01-12T13:47:40Z"], "only one of them changed"


async def test_a_policy_that_cannot_be_loaded_says_why_and_who_decides(policies: Policies) -> None:
    put(policies.known, "bad")
    status = await status_of(policies, "bad")
    words = "its networks are NaN; the settings decide"
    assert condition_of(status, "Loaded") == ("False", "LoadFailed", words)
    assert "Degraded" not in status["conditions"]
    put(policies.known, "bad", stage="Shadow", generation=2, orderer="fifo")
    status = await status_of(policies, "bad")
    assert condition_of(status, "Loaded")[2] == "its networks are NaN; meanwhile it is not compared"
    await policies.close()


async def test_the_spec_loaded_last_goes_on_beside_one_that_cannot_be(policies: Policies) -> None:
    put(policies.known, "a", age=60.0)
    await status_of(policies, "a")
    put(policies.known, "bad", age=90.0)
    words = "its networks are NaN; SchedulingPolicy a, as last loaded, decides"
    assert condition_of(await status_of(policies, "bad"), "Loaded")[2] == words
    status = await status_of(policies, "a")
    words = "SchedulingPolicy bad is Active too and older; delete one of them"
    assert condition_of(status, "Loaded") == ("False", "Superseded", words)
    assert (status["decisions"], status["checkpointSha256"]) == (0, DIGEST), "it still decides"
    await policies.close()


async def test_a_superseded_policy_claims_nothing_of_what_it_once_did(policies: Policies) -> None:
    put(policies.known, "old", age=60.0)
    once = [{"type": "Degraded", "status": "True", "reason": "PolicyOverruled", "message": ""}]
    put(policies.known, "young", status={"conditions": once, "decisions": 7, "fallbacks": 1})
    await status_of(policies, "old")
    status = await status_of(policies, "young")
    assert set(status) == {"conditions", "observedGeneration", "stage"}
    assert set(status["conditions"]) == {"Loaded"}


async def test_a_shadow_says_how_it_compares(policies: Policies) -> None:
    put(policies.known, "s", stage="Shadow", orderer="fifo")
    status = await status_of(policies, "s")
    assert condition_of(status, "Loaded") == ("True", "PolicyLoaded", "it is compared as a shadow")
    assert "shadow" not in status
    (shadow,) = policies.shadows
    found = Difference(1.0, None), Difference(0.5, 0.25)
    shadow.stats.shadow.add_sizes(found[0])
    assert "shadow" not in await status_of(policies, "s")
    shadow.stats.shadow.add_sizes(found[1])
    assert (await status_of(policies, "s"))["shadow"] == {"sizeAgreement": 0.25}
    for each in found:
        shadow.stats.shadow.add(each)
    status = await status_of(policies, "s")
    likeness = {"decisions": 2, "agreement": 0.75, "sizeAgreement": 0.25}
    assert status["shadow"] == likeness
    assert "decisions" not in status
    decides = policies.deciding.source
    for _ in range(39):
        shadow.stats.shadow.add_samples(decides, RegretSample(112.34, 100.0))
    found = (await status_of(policies, "s"))["shadow"]
    assert found.pop("history")["moments"] == " ".join(["112.34/100"] * 39)
    assert found == {**likeness, "samples": 39, "regret": 12.3, "regretShare": 0.1098}
    shadow.stats.shadow.add_samples(decides, RegretSample(112.34, 100.0))
    found = (await status_of(policies, "s"))["shadow"]
    assert (found["samples"], found["regretLow"], found["regretHigh"]) == (40, 12.3, 12.3)
    shadow.stats.shadow.add_samples(PolicySource("another"), RegretSample(90.0, 100.0))
    found = (await status_of(policies, "s"))["shadow"]
    assert (found["samples"], found["regret"], found["regretShare"]) == (1, -10.0, -0.1111)
    assert found["history"]["moments"] == "90/100", "beside that alone"


async def test_one_shadow_too_many_is_not_loaded(policies: Policies) -> None:
    for index in range(MAX_SHADOWS + 1):
        put(policies.known, f"s{index}", age=-float(index), stage="Shadow", orderer="fifo")
    status = await status_of(policies, f"s{MAX_SHADOWS}")
    words = f"only the {MAX_SHADOWS} oldest shadows are loaded"
    assert condition_of(status, "Loaded") == ("False", "TooManyShadows", words)


def test_numbers_and_words_are_no_news_but_conditions_and_checkpoints_are() -> None:
    condition = {"type": "Loaded", "status": "True", "reason": "PolicyLoaded", "message": "a"}
    one = {"conditions": [condition], "decisions": 1, "observedGeneration": 1}
    words = {**one, "decisions": 2, "conditions": [{**condition, "message": "b"}]}
    assert not is_news(one, words, PolicyReports.news)
    for change in (
        {"observedGeneration": 2},
        {"checkpointSha256": DIGEST},
        {"conditions": [{**condition, "reason": "LoadFailed"}]},
    ):
        assert is_news(one, {**one, **change}, PolicyReports.news)
