"""Shadows decide after the active policy, in spare time, and harm nobody."""

import asyncio
import threading
from collections.abc import Sequence
from typing import cast

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.policy import Orderer, Policy, Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo, SmallestFirst
from bireme.rl.lookup import PolicySource
from bireme.testing import ManualClock, a_gang, a_node, a_snapshot, a_task
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.policies import LoadedPolicy, Policies, Shadows
from testbed.objects.policies import settled

ACTIVE = Policy(Fifo(), Packing())
SNAPSHOT = a_snapshot(
    [a_node("n0")],
    a_gang("wide", a_task(8), arrived=0.0, estimated_seconds=3600.0),
    a_gang("small", a_task(2), arrived=1.0, estimated_seconds=60.0),
    now=10.0,
)


class Loaded:
    """Policies of which only the shadows matter here."""

    def __init__(self, *orderers: Orderer) -> None:
        self.deciding, self.canaries = LoadedPolicy(ACTIVE), ()
        self.judge = bool
        self.shadows = [
            LoadedPolicy(
                Policy(orderer, Packing(), rules=ACTIVE), f"uid-{i}", PolicySource(f"s{i}")
            )
            for i, orderer in enumerate(orderers)
        ]


class Board:
    """Shadows at work, on a clock of their own."""

    def __init__(self, *orderers: Orderer) -> None:
        self.clock, self.metrics, self.loaded = ManualClock(), OperatorMetrics(), Loaded(*orderers)
        self.shadows = Shadows(cast(Policies, self.loaded), self.metrics.policies, self.clock)

    def submit(self, snapshot: ClusterSnapshot = SNAPSHOT) -> None:
        self.shadows.submit(snapshot, run_cycle(snapshot, ACTIVE))

    def cycles(self, outcome: str) -> float:
        name = "bireme_shadow_cycles_total"
        return self.metrics.registry.get_sample_value(name, {"outcome": outcome}) or 0.0


class Gated:
    """Orders by arrival once it is let, taking ``seconds`` of ``clock``."""

    def __init__(self, clock: ManualClock | None = None, seconds: float = 0.0) -> None:
        self.let = threading.Event()
        self._clock, self._seconds = clock, seconds

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        assert self.let.wait(10)
        if self._clock is not None:
            self._clock.advance(self._seconds)
            self._seconds = 0.0
        return Fifo().order(gangs, snapshot)


class Broken:
    """Answers nonsense."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        return []


async def test_every_shadow_is_compared_with_what_was_decided() -> None:
    board = Board(Fifo(), SmallestFirst())
    board.submit()
    await settled(lambda: board.cycles("compared") == 2)
    same, other = (shadow.stats for shadow in board.loaded.shadows)
    assert same.shadow.agreement == 1.0
    assert other.shadow.agreement == 0.0, "it would start the small one instead"
    assert (same.decisions, other.decisions) == (1, 1)


async def test_a_cycle_in_which_nobody_could_start_compares_nothing() -> None:
    board = Board(SmallestFirst())
    board.submit(a_snapshot([a_node("n0")], a_gang("too-wide", a_task(9))))
    await settled(lambda: board.cycles("compared"))
    assert board.loaded.shadows[0].stats.shadow.cycles == 0


async def test_a_shadow_that_fails_is_overruled_for_itself_alone() -> None:
    board = Board(Broken())
    board.submit()
    await settled(lambda: board.cycles("compared"))
    (shadow,) = board.loaded.shadows
    assert shadow.stats.is_degraded
    assert "0 of 2 gangs" in shadow.stats.latest_fault


async def test_busy_shadows_skip_cycles_and_say_so() -> None:
    gated = Gated()
    board = Board(gated)
    board.submit()
    await asyncio.sleep(0)
    board.submit()
    board.submit()
    assert board.cycles("skipped") == 2
    gated.let.set()
    await settled(lambda: board.cycles("compared"))


async def test_shadows_rest_nineteen_times_as_long_as_they_thought() -> None:
    board = Board()
    gated = Gated(board.clock, 2.0)
    board.loaded.shadows = Loaded(gated).shadows
    gated.let.set()
    board.submit()
    await settled(lambda: board.cycles("compared") == 1)
    await asyncio.sleep(0)
    board.clock.advance(37.9)
    board.submit()
    assert board.cycles("skipped") == 1
    board.clock.advance(0.2)
    board.submit()
    await settled(lambda: board.cycles("compared") == 2)


async def test_a_comparison_that_fails_is_counted_and_the_next_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object, **__: object) -> Decision:
        raise RuntimeError("a bug")

    board = Board(Fifo())
    with monkeypatch.context() as patch:
        patch.setattr("bireme_operator.policies.run_cycle", fails)
        board.submit()
        await settled(lambda: board.cycles("failed"))
    await asyncio.sleep(0)
    board.submit()
    await settled(lambda: board.cycles("compared"))


async def test_without_shadows_nothing_is_counted() -> None:
    board = Board()
    board.submit()
    assert board.cycles("skipped") == 0
