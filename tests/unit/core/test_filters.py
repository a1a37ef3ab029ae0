"""Feasibility: which nodes a pod template may use, rule by rule as the Kubernetes API has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.nodes import CORDON, Node, NodeTable, feasible
from bireme.core.pod_constraints import (
    NodeConstraints,
    Requirement,
    SelectorOperator,
    SelectorTerm,
    Taint,
    Toleration,
)
from bireme.testing import a_node
from testbed import random_snapshots
from testbed.model import oracles

LEVELS = ("kubernetes.io/hostname",)
LABELLED = [
    a_node("five", labels={"gen": "5"}),
    a_node("plain"),
    a_node("seven", labels={"gen": "7"}),
    a_node("text", labels={"gen": "v7"}),
]


def allowed(constraints: NodeConstraints, *nodes: Node) -> set[str]:
    table = NodeTable(nodes, LEVELS)
    mask = feasible(constraints, table)
    return {name for name, ok in zip(table.names, mask, strict=True) if ok}


def labelled(*requirements: Requirement) -> NodeConstraints:
    return NodeConstraints(affinity_terms=(SelectorTerm(labels=requirements),))


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        pytest.param(SelectorOperator.IN, ("5", "v7"), {"five", "text"}, id="In"),
        pytest.param(
            SelectorOperator.NOT_IN, ("5",), {"plain", "seven", "text"}, id="NotIn-and-missing"
        ),
        pytest.param(SelectorOperator.EXISTS, (), {"five", "seven", "text"}, id="Exists"),
        pytest.param(SelectorOperator.DOES_NOT_EXIST, (), {"plain"}, id="DoesNotExist"),
        pytest.param(SelectorOperator.GT, ("5",), {"seven"}, id="Gt-is-strict"),
        pytest.param(SelectorOperator.LT, ("7",), {"five"}, id="Lt-is-strict"),
        pytest.param(SelectorOperator.GT, ("-1",), {"five", "seven"}, id="Gt-ignores-text"),
        pytest.param(SelectorOperator.LT, ("x",), set(), id="Lt-bound-is-no-integer"),
        pytest.param(SelectorOperator.GT, (), set(), id="Gt-without-bound"),
        pytest.param(SelectorOperator.IN, (), set(), id="In-nothing"),
    ],
)
def test_label_operator_selects_nodes(
    operator: SelectorOperator, values: tuple[str, ...], expected: set[str]
) -> None:
    assert allowed(labelled(Requirement("gen", operator, values)), *LABELLED) == expected


@pytest.mark.parametrize("value", ["1_000", " 7", "7 ", "\u0667", "9" * 30, "", "+"])
def test_a_label_that_go_does_not_read_as_an_integer_matches_no_comparison(value: str) -> None:
    node = a_node("odd", labels={"gen": value})
    above = labelled(Requirement("gen", SelectorOperator.GT, ("1",)))
    below = labelled(Requirement("gen", SelectorOperator.LT, (str(2**62),)))
    assert allowed(above, node) == allowed(below, node) == set()


@pytest.mark.parametrize("value", ["+7", "007", "-0"])
def test_a_label_that_go_reads_as_an_integer_is_compared(value: str) -> None:
    below = labelled(Requirement("gen", SelectorOperator.LT, ("8",)))
    assert allowed(below, a_node("odd", labels={"gen": value})) == {"odd"}


def test_requirements_of_one_term_must_all_hold() -> None:
    both = labelled(
        Requirement("gen", SelectorOperator.EXISTS),
        Requirement("gen", SelectorOperator.NOT_IN, ("7", "v7")),
    )
    assert allowed(both, *LABELLED) == {"five"}


def test_one_of_several_terms_is_enough() -> None:
    either = NodeConstraints(
        affinity_terms=(
            SelectorTerm((Requirement("gen", SelectorOperator.IN, ("5",)),)),
            SelectorTerm((Requirement("gen", SelectorOperator.IN, ("7",)),)),
        )
    )
    assert allowed(either, *LABELLED) == {"five", "seven"}


def test_an_empty_term_matches_nothing_and_spoils_no_other() -> None:
    assert allowed(NodeConstraints(affinity_terms=(SelectorTerm(),)), *LABELLED) == set()
    with_other = (SelectorTerm(), SelectorTerm((Requirement("gen", SelectorOperator.IN, ("5",)),)))
    assert allowed(NodeConstraints(affinity_terms=with_other), *LABELLED) == {"five"}


def test_affinity_without_terms_matches_nothing_but_no_affinity_matches_all() -> None:
    assert allowed(NodeConstraints(affinity_terms=()), *LABELLED) == set()
    assert len(allowed(NodeConstraints(affinity_terms=None), *LABELLED)) == len(LABELLED)


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        pytest.param(SelectorOperator.IN, ("five",), {"five"}, id="In"),
        pytest.param(SelectorOperator.NOT_IN, ("five",), {"plain", "seven", "text"}, id="NotIn"),
        pytest.param(SelectorOperator.IN, ("gone",), set(), id="In-unknown-node"),
    ],
)
def test_match_fields_select_by_node_name(
    operator: SelectorOperator, values: tuple[str, ...], expected: set[str]
) -> None:
    term = SelectorTerm(names=(Requirement("metadata.name", operator, values),))
    assert allowed(NodeConstraints(affinity_terms=(term,)), *LABELLED) == expected


def test_match_fields_and_labels_of_one_term_must_both_hold() -> None:
    term = SelectorTerm(
        labels=(Requirement("gen", SelectorOperator.EXISTS),),
        names=(Requirement("metadata.name", SelectorOperator.IN, ("plain",)),),
    )
    assert allowed(NodeConstraints(affinity_terms=(term,)), *LABELLED) == set()


def test_node_selector_needs_every_label_and_affinity_too() -> None:
    nodes = [
        a_node("both", labels={"disk": "ssd", "net": "ib"}),
        a_node("one", labels={"disk": "ssd"}),
        a_node("other", labels={"disk": "hdd", "net": "ib"}),
    ]
    selector = (("disk", "ssd"), ("net", "ib"))
    assert allowed(NodeConstraints(selector), *nodes) == {"both"}
    term = SelectorTerm((Requirement("net", SelectorOperator.DOES_NOT_EXIST),))
    assert allowed(NodeConstraints(selector[:1], (term,)), *nodes) == {"one"}


TAINT = Taint("dedicated", "train", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        pytest.param(Toleration("dedicated", "Equal", "train", "NoSchedule"), True, id="exact"),
        pytest.param(Toleration("dedicated", "Equal", "train"), True, id="any-effect"),
        pytest.param(Toleration("dedicated", "Equal", "serve"), False, id="other-value"),
        pytest.param(Toleration("dedicated", "Equal", ""), False, id="no-value"),
        pytest.param(Toleration("dedicated", "Equal", "train", "NoExecute"), False, id="effect"),
        pytest.param(Toleration("dedicated", "Exists"), True, id="key-exists"),
        pytest.param(Toleration("other", "Exists"), False, id="other-key-exists"),
        pytest.param(Toleration("", "Exists"), True, id="everything"),
        pytest.param(Toleration("", "Exists", "", "NoSchedule"), True, id="all-of-effect"),
        pytest.param(Toleration("", "Exists", "", "NoExecute"), False, id="all-of-other-effect"),
        pytest.param(Toleration("", "Equal", "train"), False, id="equal-needs-a-key"),
        pytest.param(Toleration("dedicated", "Unheard", "train"), False, id="unknown-operator"),
    ],
)
def test_toleration_accepts_the_taint_or_not(toleration: Toleration, tolerates: bool) -> None:
    node = a_node("tainted", taints=[TAINT])
    expected = {"tainted"} if tolerates else set()
    assert allowed(NodeConstraints(tolerations=(toleration,)), node) == expected


def test_every_taint_of_a_node_must_be_tolerated() -> None:
    node = a_node("twice", taints=[TAINT, Taint("gpu", "", "NoExecute")])
    one = Toleration("dedicated", "Exists")
    assert allowed(NodeConstraints(tolerations=(one,)), node) == set()
    both = (one, Toleration("gpu", "Exists"))
    assert allowed(NodeConstraints(tolerations=both), node) == {"twice"}


def test_a_cordoned_node_takes_only_pods_that_tolerate_the_cordon() -> None:
    nodes = [a_node("closed", is_cordoned=True), a_node("open")]
    assert allowed(NodeConstraints(), *nodes) == {"open"}
    tolerant = NodeConstraints(tolerations=(Toleration(CORDON.key, "Exists"),))
    assert allowed(tolerant, *nodes) == {"closed", "open"}


def test_a_node_that_is_not_ready_takes_nothing_whatever_is_tolerated() -> None:
    everything = NodeConstraints(tolerations=(Toleration(operator="Exists"),))
    assert allowed(everything, a_node("down", is_ready=False)) == set()


def test_the_mask_is_remembered_and_cannot_be_changed_by_its_reader() -> None:
    table = NodeTable(LABELLED, LEVELS)
    mask = feasible(NodeConstraints(), table)
    assert feasible(NodeConstraints(), table) is mask
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = False


def test_feasibility_of_an_empty_cluster_is_empty() -> None:
    picky = labelled(Requirement("gen", SelectorOperator.GT, ("1",)))
    assert allowed(picky) == allowed(NodeConstraints()) == set()


@given(random_snapshots.clusters(), st.sampled_from(random_snapshots.CONSTRAINTS))
def test_feasibility_equals_the_plain_reading_of_the_rules(
    nodes: tuple[Node, ...], constraints: NodeConstraints
) -> None:
    expected = {node.name for node in nodes if oracles.may_use(node, constraints)}
    assert allowed(constraints, *nodes) == expected
