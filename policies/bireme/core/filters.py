"""Which nodes a pod template may use at all: one boolean per node, evaluated over columns.

The semantics are those of kube-scheduler's NodeAffinity, TaintToleration, NodeUnschedulable and
NodeReady checks, so that what the operator plans the stock scheduler accepts. How *much* fits on
a node is :mod:`bireme.core.capacity`.
"""

import re

import numpy as np

from bireme.core.constraints import NodeConstraints, Operator, Requirement, SelectorTerm
from bireme.core.nodes import NodeTable
from bireme.core.resources import BoolArray

_INTEGER = re.compile(r"[+-]?[0-9]{1,63}")


def feasible(constraints: NodeConstraints, nodes: NodeTable) -> BoolArray:
    """Nodes that ``constraints`` allow, shape (nodes,); remembered for the life of the table."""
    known = nodes.memo.get(constraints)
    if isinstance(known, np.ndarray):
        return known
    mask = nodes.is_ready & _tolerated(constraints, nodes)
    for key, value in constraints.node_selector:
        mask &= _matches(Requirement(key, Operator.IN, (value,)), nodes)
    if constraints.affinity_terms is not None:
        any_term = np.zeros(len(nodes), dtype=np.bool_)
        for term in constraints.affinity_terms:
            any_term |= _matches_term(term, nodes)
        mask &= any_term
    mask.setflags(write=False)
    nodes.remember(constraints, mask)
    return mask


def _tolerated(constraints: NodeConstraints, nodes: NodeTable) -> BoolArray:
    verdicts = [
        all(any(t.tolerates(taint) for t in constraints.tolerations) for taint in taints)
        for taints in nodes.taint_sets
    ]
    return np.array(verdicts, dtype=np.bool_)[nodes.taint_codes]


def _matches_term(term: SelectorTerm, nodes: NodeTable) -> BoolArray:
    if not term.labels and not term.names:
        return np.zeros(len(nodes), dtype=np.bool_)
    mask = np.ones(len(nodes), dtype=np.bool_)
    for requirement in term.labels:
        mask &= _matches(requirement, nodes)
    for requirement in term.names:
        mask &= _matches_name(requirement, nodes)
    return mask


def _matches(requirement: Requirement, nodes: NodeTable) -> BoolArray:
    column = nodes.label(requirement.key)
    verdicts = [_accepts(requirement, value) for value in column.values]
    missing = requirement.operator in (Operator.NOT_IN, Operator.DOES_NOT_EXIST)
    # The last entry answers for code -1: nodes without the label.
    return np.array([*verdicts, missing], dtype=np.bool_)[column.codes]


def _matches_name(requirement: Requirement, nodes: NodeTable) -> BoolArray:
    mask = np.zeros(len(nodes), dtype=np.bool_)
    mask[[nodes.row[name] for name in requirement.values if name in nodes.row]] = True
    return mask if requirement.operator is Operator.IN else ~mask


def _accepts(requirement: Requirement, value: str) -> bool:
    match requirement.operator:
        case Operator.IN:
            return value in requirement.values
        case Operator.NOT_IN:
            return value not in requirement.values
        case Operator.EXISTS:
            return True
        case Operator.DOES_NOT_EXIST:
            return False
        case Operator.GT | Operator.LT:
            return _compares(requirement, value)


def _compares(requirement: Requirement, value: str) -> bool:
    label, bound = _integer(value), _integer(next(iter(requirement.values), ""))
    if label is None or bound is None:
        return False  # as in the API: a label that is no integer matches neither Gt nor Lt
    return label > bound if requirement.operator is Operator.GT else label < bound


def _integer(text: str) -> int | None:
    """``text`` as the API reads it (Go's ParseInt): int64, neither blanks nor underscores."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
