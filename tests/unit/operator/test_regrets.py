"""Moments played forward for shadows: by a process of its own, in turns, and at a bounded cost."""

import asyncio
import sys

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.regret import RegretSample, regret
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.rl.lookup import PolicySource, policy_of
from bireme.testing import ManualClock, a_gang, a_node, a_snapshot, a_task
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.questions import WorkerProcess
from bireme_operator.regrets import Contestant, ShadowEvaluator

SETTINGS = SchedulingSettings()
ACTIVE = PolicySource("active", orderer="fifo")
SHADOW = PolicySource("shadow", orderer="srtf", sizer="max")
DECIDES = policy_of(ACTIVE, SETTINGS, make_policy)[0]
NOW = 1000.0
INTERVAL_SECONDS = 600.0
PATIENCE_SECONDS = 60.0


def line(now: float = NOW) -> ClusterSnapshot:
    """A long gang before a short one, of which each fills the node."""
    long = a_gang("long", a_task(8), arrived=now - 2, estimated_seconds=1000.0)
    short = a_gang("short", a_task(8), arrived=now - 1, estimated_seconds=100.0)
    return a_snapshot([a_node("n")], long, short, now=now, settings=SETTINGS)


class Sampling:
    """Regrets of two shadows, by a process that runs ``program`` if one is given."""

    def __init__(self, *program: str, limit_seconds: float = PATIENCE_SECONDS) -> None:
        self.metrics, self.clock = OperatorMetrics(), ManualClock()
        questions = WorkerProcess(limit_seconds, 2**28, "")
        if program:
            questions.program = program
        self.regrets = ShadowEvaluator(
            *("test/1", SETTINGS, questions, INTERVAL_SECONDS, 0.05),
            metrics=self.metrics.policies,
            clock=self.clock,
        )
        self.found: list[tuple[str, RegretSample, PolicySource]] = []

    def submit(self, snapshot: ClusterSnapshot, *uids: str) -> None:
        def contestant(uid: str) -> Contestant:
            return Contestant(uid, SHADOW, lambda *sample: self.found.append((uid, *sample)))

        decision = run_cycle(snapshot, DECIDES)
        self.regrets.submit(snapshot, decision, ACTIVE, [contestant(uid) for uid in uids])

    def count(self, outcome: str) -> float:
        name, registry = "bireme_shadow_samples_total", self.metrics.registry
        return registry.get_sample_value(name, {"outcome": outcome}) or 0.0

    async def settled(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.regrets._tasks:
                await asyncio.sleep(0.01)


async def test_the_process_finds_what_the_core_does_and_says_beside_whom() -> None:
    sampling, snapshot = Sampling(), line()
    sampling.submit(snapshot, "a")
    await sampling.settled()
    expected = regret(snapshot, DECIDES, policy_of(SHADOW, SETTINGS, make_policy)[0])
    assert expected == RegretSample(1050.0, 600.0, 2)
    assert sampling.found == [("a", expected, ACTIVE)]
    assert sampling.count("taken") == 1


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("import sys; sys.exit('no memory')", "died"),
        ("import time; time.sleep(1000)", "late"),
        ("print('[]')", "unreadable"),
        ("print('{}')", "empty"),
    ],
)
async def test_what_fails_is_counted_and_tells_nothing(program: str, outcome: str) -> None:
    sampling = Sampling(sys.executable, "-c", program, limit_seconds=1.0)
    sampling.submit(line(), "a")
    await sampling.settled()
    assert sampling.count(outcome) == 1
    assert sampling.found == []


async def test_a_policy_that_cannot_be_made_again_costs_a_sample_alone() -> None:
    sampling = Sampling()
    lost = Contestant("a", PolicySource("lost", checkpoint="nowhere"), lambda *_: None)
    sampling.regrets.submit(line(), run_cycle(line(), DECIDES), ACTIVE, [lost])
    await sampling.settled()
    assert sampling.count("died") == 1


ANSWERS = """print('{"active_seconds":3,"shadow_seconds":1,"gangs":2}')"""


async def test_shadows_take_turns_with_an_interval_between_the_moments_of_each() -> None:
    sampling = Sampling(sys.executable, "-c", ANSWERS)
    sampling.submit(line(), "a", "b")
    sampling.submit(line(), "a", "b")
    assert sampling.count("skipped") == 1, "b is due, and a is being played"
    await sampling.settled()
    for _ in range(3):
        sampling.submit(line(), "a", "b")
        await sampling.settled()
    assert [uid for uid, _, _ in sampling.found] == ["a", "b"]
    sampling.clock.advance(INTERVAL_SECONDS)
    for _ in range(3):
        sampling.submit(line(), "a", "b")
        await sampling.settled()
    assert [uid for uid, _, _ in sampling.found] == ["a", "b", "a", "b"]
    assert sampling.count("skipped") == 1


async def test_a_long_play_is_followed_by_a_long_rest() -> None:
    sampling = Sampling(sys.executable, "-c", ANSWERS)
    sampling.submit(line(), "a")
    await asyncio.sleep(0)
    sampling.clock.advance(50.0)
    await sampling.settled()
    sampling.clock.advance(19 * 50.0 - 1)
    sampling.submit(line(), "a")
    assert (sampling.count("taken"), sampling.count("skipped")) == (1, 1)
    sampling.clock.advance(1.0)
    sampling.submit(line(), "a")
    await sampling.settled()
    assert sampling.count("taken") == 2


async def test_where_nobody_waits_there_is_nothing_to_play() -> None:
    sampling = Sampling()
    sampling.submit(a_snapshot([a_node("n")], settings=SETTINGS), "a")
    sampling.submit(line())
    assert not sampling.regrets._tasks
    assert sampling.count("skipped") == 0
