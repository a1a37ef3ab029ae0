"""Nodes that refused pods: gangs of the same namespace avoid them for a while."""

from bireme.core.gangs import (
    Gang,
    NodeConstraints,
    Requirement,
    SelectorOperator,
    SelectorTerm,
)
from bireme.core.nodes import NodeTable, feasible
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.testing import ManualClock, a_gang, a_node, a_task
from bireme_operator.lifecycle import Transition
from bireme_operator.node_troubles import NodeTroubles
from tests.support.objects.facts import a_job

NODES = NodeTable(
    [a_node(name, 8, labels={"zone": name[0]}) for name in ("a1", "a2", "b1")],
    SchedulingSettings().topology_levels,
)
JOB = a_job()


def refused(clock: ManualClock) -> NodeTroubles:
    """``a1`` has refused a pod of the namespace of JOB."""
    troubles = NodeTroubles(clock)
    move = Transition("Restarting", Reason.POD_REJECTED, "", node="a1", rejections=1)
    troubles.observe(JOB, move)
    return troubles


def usable(gang: Gang) -> list[str]:
    mask = feasible(gang.tasks[0].constraints, NODES)
    return [name for name, is_usable in zip(NODES.names, mask, strict=True) if is_usable]


def a_gang_with(terms: tuple[SelectorTerm, ...] | None) -> Gang:
    return a_gang("g", a_task(1, 1, constraints=NodeConstraints(affinity_terms=terms)))


def test_gangs_of_the_namespace_avoid_the_node_for_ten_minutes_and_others_do_not() -> None:
    clock = ManualClock()
    troubles = refused(clock)
    own, other = JOB.gang(0), a_gang("other", namespace="other")
    assert usable(troubles.around(own)) == ["a2", "b1"]
    assert troubles.around(other) is other
    clock.advance(600)
    assert troubles.around(own) is own


def test_the_demands_of_a_gang_on_its_nodes_still_hold() -> None:
    troubles = refused(ManualClock())
    in_a = SelectorTerm((Requirement("zone", SelectorOperator.IN, ("a",)),))
    for terms, expected in ((None, ["a2", "b1"]), ((in_a,), ["a2"]), ((SelectorTerm(),), [])):
        assert usable(troubles.around(a_gang_with(terms))) == expected


def test_a_namespace_whose_gang_fits_nowhere_else_is_forgiven_once() -> None:
    troubles = refused(ManualClock())
    assert troubles.forgive(JOB.key[0])
    assert not troubles.forgive(JOB.key[0])
    assert usable(troubles.around(JOB.gang(0))) == ["a1", "a2", "b1"]
