"""Usage of every node by pods: recomputed, so nothing can leave a ghost behind."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.nodes import NodeTable
from bireme.core.resources import IntArray, Request, request_of
from bireme.core.settings import SchedulingSettings
from bireme.kube.node_usage import NodeUsage, add_members
from bireme.testing import GPU, a_node

LEVELS = SchedulingSettings().topology_levels
NAMES = ("n0", "n1", "n2")
TABLES = (
    NodeTable([a_node(name) for name in NAMES], LEVELS),
    NodeTable([a_node("n0"), a_node("n2", gpus=0)], LEVELS),
    NodeTable([], LEVELS),
)
REQUESTS = st.builds(
    lambda cpu, gpus: request_of({"cpu": cpu, GPU: gpus, "pods": 1}),
    st.integers(0, 3),
    st.integers(0, 2),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.integers(0, 4), st.sampled_from(("", *NAMES, "gone")), REQUESTS
        ),
        st.tuples(st.just("remove"), st.integers(0, 4)),
        st.tuples(st.just("look"), st.integers(0, 2)),
    ),
    max_size=40,
)


def summed(pods: dict[int, tuple[str, Request]], nodes: NodeTable) -> IntArray:
    """The oracle: every pod, one by one."""
    used = np.zeros_like(nodes.allocatable)
    for where, request in pods.values():
        if where in nodes.row:
            for name, amount in request:
                column = nodes.axis.column(name)
                if column is not None:
                    used[nodes.row[where], column] += amount
    return used


@given(STEPS)
def test_usage_is_what_the_pods_that_exist_ask(steps: list[tuple[object, ...]]) -> None:
    usage, pods = NodeUsage(), {}
    for step in steps:
        match step:
            case ("put", int(pod), str(where), tuple(request)):
                usage.put(("ns", str(pod)), where, request)
                pods[pod] = (where, request)
            case ("remove", int(pod)):
                usage.put(("ns", str(pod)), "")
                pods.pop(pod, None)
            case ("look", int(table)):
                np.testing.assert_array_equal(
                    usage.matrix(TABLES[table]), summed(pods, TABLES[table])
                )
    for nodes in TABLES:
        np.testing.assert_array_equal(usage.matrix(nodes), summed(pods, nodes))


def test_only_a_change_is_reported_as_one() -> None:
    usage, one = NodeUsage(), request_of({"cpu": 1})
    key = ("ns", "p")
    assert not usage.put(key, "", one)
    assert usage.put(key, "n0", one)
    assert not usage.put(key, "n0", one)
    assert usage.put(key, "n0", request_of({"cpu": 2}))
    assert usage.put(key, "n1", request_of({"cpu": 2}))
    assert usage.put(key, "", one)


def test_the_matrix_is_the_callers_own() -> None:
    usage = NodeUsage()
    usage.matrix(TABLES[0])[:] = 99
    assert not usage.matrix(TABLES[0]).any()


def test_members_add_up_on_the_nodes_that_exist() -> None:
    used = np.ones_like(TABLES[0].allocatable)
    two, three = request_of({"cpu": 2}), request_of({"cpu": 3, "unknown": 5})
    add_members(used, TABLES[0], [("n0", two), ("n0", two), ("gone", two), ("n1", three)])
    cpu = TABLES[0].axis.names.index("cpu")
    assert used[:, cpu].tolist() == [5, 4, 1]
    assert (np.delete(used, cpu, axis=1) == 1).all()
