"""Policies of the operator: swaps between cycles, fallbacks where one cannot be loaded, counts."""

import threading
from collections.abc import Callable

import pytest

from bireme.core.decision import Decision, Preempt
from bireme.core.errors import SettingError
from bireme.core.policy import Policy
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.kube.policy_source import PolicyFacts
from bireme.rl.lookup import PolicySource
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.policies import GOOD_CYCLES, LoadedPolicy, Policies, PolicyStats
from testbed.objects.policies import delete, put, settled

RULES = Policy(Fifo(), Packing())
WRONG = Decision(fallback="the orderer failed: nan")


class Desk:
    """Policies whose loads fail for the names in ``bad``, and what they reported."""

    def __init__(self) -> None:
        self.bad: set[str] = set()
        self.gate: Callable[[float], object] = bool
        """Loading waits for it, for ten seconds at most."""
        self.swaps: list[str] = []
        self.metrics = OperatorMetrics()
        self.policies = Policies(RULES, self._load, self.metrics.policies, self._swapped)
        self.known = self.policies.known

    def _load(self, facts: PolicyFacts) -> LoadedPolicy:
        self.gate(10.0)
        if facts.name in self.bad:
            raise SettingError("it is bad")
        source = PolicySource(facts.name, orderer=f"spec-{facts.generation}")
        return LoadedPolicy(Policy(Fifo(), Packing()), facts.uid, source)

    def _swapped(self) -> None:
        self.swaps.append(self.deciding)

    @property
    def deciding(self) -> str:
        """Name and spec."""
        source = self.policies.deciding.source
        return f"{source.name} {source.orderer}".strip()

    def loads(self, outcome: str) -> float:
        name = "bireme_policy_loads_total"
        return self.metrics.registry.get_sample_value(name, {"outcome": outcome}) or 0.0


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_policy_takes_over_once_it_is_loaded_and_until_it_is_gone(desk: Desk) -> None:
    assert desk.policies.deciding.policy is RULES
    put(desk.known, "a")
    assert desk.deciding == "", "nobody waits for it"
    await settled(lambda: desk.deciding == "a spec-1")
    put(desk.known, "a", generation=2, orderer="srtf")
    assert desk.deciding == "a spec-1"
    await settled(lambda: desk.deciding == "a spec-2")
    delete(desk.known, "a")
    assert desk.policies.deciding.policy is RULES
    assert desk.swaps == ["a spec-1", "a spec-2", ""]


async def test_a_younger_policy_takes_over_when_the_older_one_is_gone(desk: Desk) -> None:
    put(desk.known, "old", age=60.0)
    put(desk.known, "young")
    await settled(lambda: desk.deciding == "old spec-1")
    delete(desk.known, "old")
    await settled(lambda: desk.deciding == "young spec-1")
    assert desk.swaps == ["old spec-1", "young spec-1"]


async def test_what_cannot_be_loaded_changes_nothing(desk: Desk) -> None:
    desk.bad.add("bad")
    put(desk.known, "bad", age=60.0)
    await settled(lambda: desk.loads("failed"))
    assert desk.deciding == ""
    delete(desk.known, "bad")
    put(desk.known, "good")
    await settled(lambda: desk.deciding == "good spec-1")
    put(desk.known, "bad", age=60.0)
    await settled(lambda: desk.loads("failed") == 2)
    assert desk.deciding == "good spec-1", "the last good one goes on"
    put(desk.known, "good", generation=2)
    assert desk.deciding == "good spec-1", "it has been superseded by what cannot be loaded"
    delete(desk.known, "bad")
    await settled(lambda: desk.deciding == "good spec-2")
    await desk.policies.close()


async def test_a_policy_that_becomes_a_shadow_decides_no_more(desk: Desk) -> None:
    put(desk.known, "a")
    await settled(lambda: desk.deciding == "a spec-1")
    facts = put(desk.known, "a", generation=2, stage="Shadow", orderer="fifo")
    assert desk.deciding == ""
    await settled(lambda: desk.policies.shadows)
    (shadow,) = desk.policies.shadows
    assert desk.policies.decider(facts) is shadow
    assert desk.deciding == ""


async def test_who_waits_for_the_first_policy_waits_until_it_is_loaded_or_refused(
    desk: Desk,
) -> None:
    await desk.policies.first_loaded(10.0)
    put(desk.known, "good", age=60.0)
    await desk.policies.first_loaded(10.0)
    assert desk.deciding == "good spec-1"
    desk.bad.add("bad")
    put(desk.known, "bad", age=90.0)
    await desk.policies.first_loaded(10.0)
    assert desk.loads("failed") == 1
    await desk.policies.close()


async def test_nobody_waits_for_ever_for_a_policy(desk: Desk) -> None:
    let = threading.Event()
    desk.gate = let.wait
    put(desk.known, "slow")
    await desk.policies.first_loaded(0.01)
    assert desk.deciding == ""
    let.set()
    await settled(lambda: desk.deciding == "slow spec-1")


def test_a_policy_is_degraded_from_its_first_bad_cycle_until_enough_good_ones() -> None:
    stats = PolicyStats()
    for _ in range(3):
        stats.add(Decision())
    assert not stats.is_degraded
    stats.add(WRONG)
    assert (stats.is_degraded, stats.fallbacks, stats.latest_fault) == (True, 1, WRONG.fallback)
    for _ in range(GOOD_CYCLES - 1):
        stats.add(Decision())
    assert stats.is_degraded
    stats.add(Decision())
    assert not stats.is_degraded
    stats.add(WRONG)
    assert (stats.is_degraded, stats.fallbacks) == (True, 2)


def test_only_cycles_in_which_something_was_done_are_decisions() -> None:
    gang, nodes = a_gang("low", a_task(8)), a_snapshot([a_node("n0")]).nodes
    stats = PolicyStats()
    stats.add(Decision())
    assert stats.decisions == 0
    stopped = a_running(gang, nodes, {"n0": 8})
    stats.add(Decision((Preempt(stopped, a_gang("high"), "makes room"),)))
    assert stats.decisions == 1
