"""Policies that go wrong: the rules answer in the same cycle, and the decision says so."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.policy import Policy, Ranked
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.testing import a_gang, a_running, a_snapshot, a_task, with_running
from tests.unit.core.wrong_orderers import NODES, RULES, Answer, Wrong, admitted, fails


def three_for_two(policy: Policy) -> Decision:
    """Three gangs of four GPUs on one node: the order decides who waits."""
    gangs = [a_gang(name, a_task(4), arrived=float(at)) for at, name in enumerate("abc")]
    return run_cycle(a_snapshot(NODES[:1], *gangs, now=10.0), policy)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(fails, "ZeroDivisionError: by nought", id="raises"),
        pytest.param(lambda order: order[1:], "2 of 3 gangs", id="loses-one"),
        pytest.param(lambda order: [*order, order[0]], "4 of 3", id="repeats-one"),
        pytest.param(lambda order: [order[0], *order[:2]], "unknown", id="repeats-for-another"),
        pytest.param(
            lambda order: [Ranked(a_gang("a", a_task(7)), 1.0), *order[:2]], "unknown", id="alters"
        ),
        pytest.param(lambda order: [*order, Ranked(a_gang("new"), 1.0)], "4 of 3", id="invents"),
        pytest.param(lambda _: None, "the orderer failed: TypeError", id="returns-nothing"),
        pytest.param(lambda _: 7, "the orderer failed: TypeError", id="returns-a-number"),
        pytest.param(lambda _: ["a", "b", "c"], "AttributeError", id="returns-names"),
        pytest.param(
            lambda order: [replace(e, preemption_priority=math.nan) for e in order],
            "not a number",
            id="nan",
        ),
        pytest.param(
            lambda order: [replace(e, stop_priority=math.nan) for e in order],
            "not a number",
            id="nan-for-stops",
        ),
        pytest.param(
            lambda order: [replace(e, stop_priority_until=math.nan) for e in order],
            "not a number",
            id="nan-for-a-moment",
        ),
        *(
            pytest.param(
                lambda order, score=score: [replace(e, score=score) for e in order],
                "no finite number",
                id=f"score-{score}",
            )
            for score in (math.nan, math.inf)
        ),
        pytest.param(
            lambda order: [replace(e, preemption_priority="high") for e in order],
            "TypeError",
            id="claim-in-words",
        ),
    ],
)
@pytest.mark.parametrize("rules", [RULES, None])
def test_where_an_orderer_goes_wrong_the_rules_or_arrival_decide_the_cycle(
    answer: Answer, text: str, rules: Policy | None
) -> None:
    decision = three_for_two(Policy(Wrong(answer), Packing(), rules=rules))
    assert admitted(decision) == ["a", "b"]
    assert text in decision.fallback


def test_where_the_rules_go_wrong_too_arrival_decides() -> None:
    rules = Policy(Wrong(fails), Packing())
    decision = three_for_two(Policy(Wrong(lambda order: order[1:]), Packing(), rules=rules))
    assert admitted(decision) == ["a", "b"]
    assert "2 of 3 gangs" in decision.fallback


def test_an_orderer_that_is_merely_odd_is_followed() -> None:
    decision = three_for_two(Policy(Wrong(lambda order: order), Packing(), rules=RULES))
    assert (admitted(decision), decision.fallback) == (["c", "b"], "")


class FailsOnRunning:
    """Newest first among those that wait; it cannot rank gangs that run."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        if any(gang.uid in snapshot.running_by_uid for gang in gangs):
            raise KeyError("running")
        return [
            Ranked(g, 0.0, preemption_priority=1e9) for g in sorted(gangs, key=lambda g: -g.arrived)
        ]


def test_one_orderer_decides_the_whole_cycle_because_claims_of_two_do_not_compare() -> None:
    """Both gangs want the place of a third; the rules rank and judge them, by their claims."""
    gangs = [
        a_gang("first", a_task(8), arrived=0.0, priority=10),
        a_gang("second", a_task(8), arrived=1.0),
    ]
    settings = SchedulingSettings(min_runtime_seconds=0)
    snapshot = a_snapshot(NODES[:1], *gangs, now=10.0, settings=settings)
    runs = a_running(a_gang("runs", a_task(8), priority=1000), snapshot.nodes, {"n0": 8})
    policy = Policy(FailsOnRunning(), Packing(), rules=Policy(CombinedPriority(), Packing()))
    decision = run_cycle(with_running(snapshot, runs), policy)
    assert decision.preempted == ()
    assert [hold.gang.uid for hold in decision.held] == ["first", "second"]
    assert "KeyError: 'running'" in decision.fallback


# --- placers --------------------------------------------------------------------------------------
