"""Tetris: alignment with what is free, the weight of remaining work, running gangs alike."""

from dataclasses import replace

import numpy as np
import pytest

from bireme.core.gangs import Gang
from bireme.heuristics.tetris import TetrisOrder
from bireme.testing import (
    GIB,
    GPU,
    a_gang,
    a_node,
    a_running_gang,
    a_snapshot,
    a_task,
    with_running,
)

NODE = a_node("n", 10, cpu_millis=10_000, memory_bytes=10 * GIB, pods=100)


def job(uid: str, gpus: int = 2, cpu_millis: int = 1000, seconds: float | None = None) -> Gang:
    """A gang of one replica with 1 GiB."""
    gang = a_gang(uid, a_task(1, gpus, cpu_millis=cpu_millis))
    return replace(gang, estimated_seconds=seconds)


def scores(*gangs: Gang, busy: dict[str, int] | None = None, now: float = 0.0) -> dict[str, float]:
    snapshot = a_snapshot([NODE], *gangs, now=now)
    used = np.zeros_like(snapshot.used)
    for name, amount in (busy or {}).items():
        used[0, snapshot.nodes.axis.names.index(name)] = amount
    snapshot = replace(snapshot, used=used)
    return {entry.gang.uid: entry.score for entry in TetrisOrder().order(gangs, snapshot)}


def test_without_estimates_the_score_is_the_alignment() -> None:
    # Shares of 2 GPUs, 1 core, 1 GiB and 1 pod: 0.2 + 0.1 + 0.1 + 0.01.
    assert scores(job("g")) == {"g": pytest.approx(0.41)}
    assert scores(job("g"), busy={GPU: 5, "cpu": 10_000}) == {"g": pytest.approx(0.21)}


def test_what_asks_for_the_abundant_resource_goes_first() -> None:
    gangs = job("cores", 1, 8000), job("gpus", 8, 1000)
    assert list(scores(*gangs, busy={GPU: 8})) == ["cores", "gpus"]
    assert list(scores(*gangs, busy={"cpu": 8000})) == ["gpus", "cores"]


def test_remaining_work_weighs_as_much_as_alignment_on_average() -> None:
    found = scores(job("short", seconds=100.0), job("long", seconds=300.0))
    assert found == {"short": pytest.approx(0.41 * 2.5), "long": pytest.approx(0.41 * 1.5)}


def test_a_gang_without_estimate_gets_nothing_for_being_short() -> None:
    found = scores(job("known", seconds=100.0), job("unknown"))
    assert found == {"known": pytest.approx(0.41 * 3), "unknown": pytest.approx(0.41)}


def test_remaining_work_is_time_times_demand() -> None:
    found = scores(job("wide", 8, seconds=10.0), job("narrow", 1, seconds=10.0))
    weight = (1.01 + 0.31) / (1 / 1.01 + 1 / 0.31)
    assert found["wide"] == pytest.approx(1.01 + weight / 1.01)
    assert found["narrow"] == pytest.approx(0.31 + weight / 0.31)


def test_the_start_of_a_gang_changes_nobodys_score() -> None:
    gangs = job("a", 4, seconds=100.0), job("b", 1, 5000, seconds=50.0)
    snapshot = a_snapshot([NODE], gangs[1], now=7.0)
    started = with_running(snapshot, a_running_gang(gangs[0], snapshot.nodes, started=7.0))
    entries = TetrisOrder().order(gangs, started)
    assert {entry.gang.uid: entry.score for entry in entries} == pytest.approx(scores(*gangs))
    assert all(entry.preemption_priority is None for entry in entries)


def test_gangs_nobody_can_hold_and_empty_clusters_do_not_break_it() -> None:
    absurd = a_gang("absurd", a_task(1, 1, memory_bytes=2**60))
    alien = a_gang("alien", replace(a_task(), request=(("example.com/x", 3),)))
    assert set(scores(absurd, alien, job("g", seconds=0.0))) == {"absurd", "alien", "g"}
    nowhere = a_snapshot([], absurd)
    assert [entry.score for entry in TetrisOrder().order([absurd], nowhere)] == [0.0]
