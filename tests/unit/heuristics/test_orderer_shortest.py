"""Shortest first, by estimate, by remaining time, by remaining service; smallest first."""

import math
from dataclasses import replace

import pytest

from bireme.core.gangs import Gang, Role
from bireme.core.policy import Orderer
from bireme.heuristics.simple_orderers import (
    ShortestJob,
    ShortestRemainingService,
    ShortestRemainingTime,
    SmallestFirst,
)
from bireme.testing import a_gang, a_task
from testbed.decisions import ranked, uids

TIMED = [ShortestJob(), ShortestRemainingTime(), ShortestRemainingService()]


def job(
    uid: str,
    seconds: float | None = None,
    *,
    gpus: int = 1,
    served: float = 0.0,
    arrived: float = 0.0,
) -> Gang:
    gang = a_gang(uid, a_task(1, gpus), arrived=arrived)
    return replace(gang, estimated_seconds=seconds, attained_seconds=served)


@pytest.mark.parametrize("orderer", TIMED, ids=lambda orderer: type(orderer).__name__)
def test_the_shorter_job_goes_first_and_the_unknown_last(orderer: Orderer) -> None:
    gangs = job("unknown"), job("long", 60.0, arrived=-9.0), job("short", 30.0)
    entries = ranked(orderer, *gangs)
    assert uids(entries) == ["short", "long", "unknown"]
    assert [entry.score for entry in entries] == [-30.0, -60.0, 0.0]


@pytest.mark.parametrize("orderer", TIMED, ids=lambda orderer: type(orderer).__name__)
def test_among_the_unknown_the_least_service_goes_first(orderer: Orderer) -> None:
    gangs = job("wide", served=10.0, gpus=8), job("long", served=50.0), job("new", arrived=1.0)
    assert uids(ranked(orderer, *gangs)) == ["new", "long", "wide"]


@pytest.mark.parametrize("orderer", TIMED, ids=lambda orderer: type(orderer).__name__)
def test_ties_go_to_the_interrupted_then_the_first_then_the_uid(orderer: Orderer) -> None:
    gangs = [job(uid, 5.0, arrived=1.0) for uid in ("c", "b", "a")]
    gangs = [replace(gangs[0], interrupted=True), *gangs[1:], job("z", 5.0)]
    assert uids(ranked(orderer, *gangs)) == ["c", "z", "a", "b"]


def test_what_has_run_counts_for_the_remaining_time_only() -> None:
    running, waiting = job("running", 100.0), job("waiting", 60.0)
    facts = {"running": {running: 0.0}, "now": 50.0}
    assert uids(ranked(ShortestJob(), waiting, **facts)) == ["waiting", "running"]  # type: ignore[arg-type]
    entries = ranked(ShortestRemainingTime(), waiting, **facts)  # type: ignore[arg-type]
    assert [(entry.gang.uid, entry.score) for entry in entries] == [
        ("running", -50.0),
        ("waiting", -60.0),
    ]


def test_remaining_service_is_remaining_time_times_devices() -> None:
    wide, narrow = job("wide", 10.0, gpus=8), job("narrow", 70.0)
    assert uids(ranked(ShortestRemainingTime(), wide, narrow)) == ["wide", "narrow"]
    entries = ranked(ShortestRemainingService(), wide, narrow)
    assert [(entry.gang.uid, entry.score) for entry in entries] == [
        ("narrow", -70.0),
        ("wide", -80.0),
    ]


def test_only_remaining_time_gives_a_claim_to_the_places_of_others() -> None:
    known, unknown = job("known", 60.0, gpus=2), job("unknown")
    assert [e.preemption_priority for e in ranked(ShortestJob(), known, unknown)] == [None, None]
    assert [e.preemption_priority for e in ranked(SmallestFirst(), known)] == [None]
    assert [e.preemption_priority for e in ranked(ShortestRemainingTime(), known, unknown)] == [
        -60.0,
        -math.inf,
    ]
    assert [e.preemption_priority for e in ranked(ShortestRemainingService(), known)] == [-120.0]


def test_a_gang_that_has_outrun_its_estimate_is_about_to_end() -> None:
    entries = ranked(ShortestRemainingTime(), job("w", 1.0), running={job("r", 5.0): 0.0}, now=99.0)
    assert [(entry.gang.uid, entry.preemption_priority) for entry in entries] == [
        ("r", 0.0),
        ("w", -1.0),
    ]


def test_smallest_first_counts_devices_and_replicas_where_there_are_none() -> None:
    gangs = [
        a_gang("gpus-8", a_task(4, 2)),
        a_gang("gpus-4", a_task(4, 1), a_task(9, 0, role=Role.PS)),
        a_gang("replicas-5", a_task(5, 0)),
    ]
    entries = ranked(SmallestFirst(), *gangs)
    assert [(entry.gang.uid, entry.score) for entry in entries] == [
        ("gpus-4", -4.0),
        ("replicas-5", -5.0),
        ("gpus-8", -8.0),
    ]
