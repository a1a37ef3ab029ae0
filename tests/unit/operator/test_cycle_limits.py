"""The time of a cycle: it ends at its limit, shows life until then, and each step is traced."""

from dataclasses import dataclass, field
from typing import cast

from structlog.testing import capture_logs

from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import ManualClock, a_gang, a_node, a_snapshot, a_task
from bireme_operator.debug_dump import LastCycles
from bireme_operator.loop import Heartbeat
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.policies import CycleRunner, LoadedPolicy, Policies, Shadows

NAMES = "abcdefgh"
SNAPSHOT = a_snapshot(
    [a_node("n0", 4)], *(a_gang(name, a_task(1, 1), namespace=name) for name in NAMES), now=10.0
)


@dataclass
class Slow:
    """A placer that takes ``seconds`` for each gang; ``ages`` are of the heartbeat after each."""

    clock: ManualClock
    seconds: float
    heartbeat: Heartbeat
    ages: list[float] = field(default_factory=list)

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        self.clock.advance(self.seconds)
        self.ages.append(self.heartbeat.age_seconds)
        return Packing().place(gang, capacity)


class Board:
    """A runner of cycles by a slow placer, on a clock of its own."""

    def __init__(self, seconds: float, limit_seconds: float) -> None:
        clock = ManualClock()
        self.heartbeat, self.metrics = Heartbeat(clock), OperatorMetrics()
        self.placer = Slow(clock, seconds, self.heartbeat)
        policies = cast(Policies, Deciding(Policy(Fifo(), self.placer)))
        shadows = Shadows(policies, self.metrics.policies, clock)
        self.runner = CycleRunner(
            *(policies, shadows, None, self.metrics, lambda: None),
            limit_seconds=limit_seconds,
            beat=self.heartbeat.beat,
            clock=clock,
            last=LastCycles("run", SchedulingSettings()),
            logs_steps=True,
        )

    async def decide(self) -> Decision:
        return await self.runner.decide(SNAPSHOT)


class Deciding:
    """Policies of which only the one that decides matters here."""

    def __init__(self, policy: Policy) -> None:
        self.deciding = self.in_force = LoadedPolicy(policy)
        self.canaries, self.judge = (), bool


async def test_a_cycle_past_its_limit_leaves_the_rest_to_the_next_one() -> None:
    board = Board(seconds=1.0, limit_seconds=4.0)
    first, second = await board.decide(), await board.decide()
    assert [admit.gang.uid for admit in first.admitted] == list("abcd")
    assert [gang.uid for gang in first.unreached] == list("efgh")
    assert [admit.gang.uid for admit in second.admitted] == list("efgh")
    assert board.metrics.registry.get_sample_value("bireme_cycles_cut_total") == 2


async def test_a_long_cycle_shows_life_at_each_gang() -> None:
    board = Board(seconds=20.0, limit_seconds=1000.0)
    began = board.placer.clock.now
    assert not (await board.decide()).unreached
    assert board.placer.clock.now - began > 60.0
    assert max(board.placer.ages) < 60.0


async def test_a_gang_that_hangs_in_a_cycle_shows_none() -> None:
    board = Board(seconds=70.0, limit_seconds=1000.0)
    await board.decide()
    assert board.placer.ages[0] == 70.0


async def test_each_step_and_each_gang_of_a_cycle_is_traced_with_its_time() -> None:
    board = Board(seconds=2.0, limit_seconds=1000.0)
    await board.decide()
    with capture_logs() as lines:
        await board.decide()
    assert {line["cycle"] for line in lines} == {2}
    visits = [line for line in lines if line["event"] == "gang visited"]
    assert [line["gang"] for line in visits] == [f"{name}/{name}" for name in NAMES]
    # Four fit, and no gang is placed after the first that does not: all are of one shape.
    assert [line["seconds"] for line in visits] == [2] * 5 + [0] * 3
    assert visits[0]["reasons"] == ("Admitted",)
    steps = {line["step"]: line for line in lines if line["event"] == "cycle step"}
    assert [*steps] == [
        *("faults", "order", "namespace limits", "sizes", "visits", "resizes", "preferences"),
        "moves",
    ]
    assert (steps["visits"]["gangs"], steps["visits"]["seconds"]) == (len(NAMES), 10)
    assert board.runner.last is not None
    first, second = board.runner.last.dump()["cycles"]
    assert (first["cycle"], second["cycle"]) == (1, 2)
    assert [step["step"] for step in second["steps"]] == [*steps]
