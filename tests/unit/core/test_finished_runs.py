"""The memory of finished runs: bounded, by node name, and right by a second, plain computation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.finished_runs import (
    MAX_RUNS,
    MIN_SECONDS,
    NO_RUNS,
    FinishedRun,
    FinishedRuns,
    make_finished_run,
)
from bireme.core.gpus import GPU_MODEL_LABEL, gpu_model
from bireme.core.nodes import NodeTable
from bireme.testing import a_node, a_snapshot

MODELS = {"a": "T4", "b": "V100", "c": "A100", "d": "H100"}


def table_of(names: str) -> NodeTable:
    nodes = [a_node(name, 8, labels={GPU_MODEL_LABEL: MODELS[name]}) for name in names]
    return a_snapshot(nodes).nodes


ALL = table_of("abcd")


def a_run(**facts: object) -> FinishedRun | None:
    given: dict[str, object] = {
        "replicas": {"a": 1},
        "nodes": ALL,
        "elapsed_seconds": 600.0,
        "stated_seconds": None,
        "user": "u",
        "template": "t",
    }
    return make_finished_run(**(given | facts))  # type: ignore[arg-type]


@st.composite
def runs(draw: st.DrawFn) -> FinishedRun:
    found = a_run(
        replicas=draw(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1)),
        elapsed_seconds=draw(st.floats(MIN_SECONDS, 1e6)),
        stated_seconds=draw(st.none() | st.floats(0.0, 1e6)),
        user=draw(st.sampled_from("uv")),
        template=draw(st.sampled_from("st")),
    )
    assert found is not None
    return found


@given(st.lists(runs(), max_size=12), st.sampled_from(["abcd", "ac", "d", ""]))
def test_rows_are_those_of_the_nodes_that_are_left(given: list[FinishedRun], names: str) -> None:
    table, memory = table_of(names), NO_RUNS
    for run in given:
        memory = memory.plus(run)
    found = memory.on(table)
    left = [run for run in given if any(name in names for name, _ in run.shares)]
    expected = [[dict(run.shares).get(name, 0.0) for name in names] for run in left]
    np.testing.assert_array_equal(found.shares, np.array(expected).reshape(found.shares.shape))
    for run, speed in zip(left, found.speeds.tolist(), strict=True):
        models = [gpu_model(MODELS[name]).speed for name, _ in run.shares]
        like = [each for each in given if each.group == run.group]
        usual = sum(math.log(each.elapsed_seconds * each.slowest) for each in like) / len(like)
        seconds = run.stated_seconds
        seconds = math.exp(usual) if seconds is None else max(seconds, 1.0)
        log_speed = math.log(seconds / run.elapsed_seconds / min(models))
        assert speed == pytest.approx(min(max(log_speed, -2.0), 2.0), abs=1e-9)
    same = [[one.group == other.group for one in left] for other in left]
    group = found.group
    np.testing.assert_array_equal(
        group[:, None] == group, np.array(same).reshape(len(left), len(left))
    )


def test_the_oldest_runs_are_forgotten_and_earlier_snapshots_keep_theirs() -> None:
    memories = [NO_RUNS]
    for second in range(MAX_RUNS + 10):
        memories.append(memories[-1].plus(a_run(elapsed_seconds=100.0 + second)))
    assert len(memories[-1].runs) == MAX_RUNS
    assert memories[-1].runs[0].elapsed_seconds == 110.0
    assert [len(memory.runs) for memory in memories[:3]] == [0, 1, 2]


@pytest.mark.parametrize(
    "facts",
    [
        {"elapsed_seconds": MIN_SECONDS - 1},
        {"replicas": {}},
        {"replicas": {"a": 1, "gone": 1}},
    ],
    ids=["short", "nowhere", "unknown-node"],
)
def test_a_run_that_tells_nothing_of_its_nodes_is_not_remembered(facts: dict[str, object]) -> None:
    assert a_run(**facts) is None
    assert NO_RUNS.plus(a_run(**facts)) is NO_RUNS


def test_rows_are_worked_out_once_for_a_table() -> None:
    memory = FinishedRuns().plus(a_run())
    assert memory.on(ALL) is memory.on(ALL)
    assert memory.on(table_of("ab")).shares.shape == (1, 2)
    assert memory.on(ALL).shares.shape == (1, 4)
