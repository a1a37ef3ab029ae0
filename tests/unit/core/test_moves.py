"""Moves: whom faster GPUs are worth a restart, and that a gang moves only where nobody loses."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision, Vacate
from bireme.core.gangs import Gang
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.nodes import MaintenanceWindow, Node
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.play import Play
from bireme.core.policy import Policy
from bireme.core.reasons import Reason
from bireme.core.regret import Work
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.registry import make_policy
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running
from bireme_lab.contest.families import tuning_worlds
from bireme_lab.simulator.simulation import simulate

HOUR = 3600.0


def nodes(*models: str, **facts: Any) -> list[Node]:
    """Make nodes n0, n1, ... of 8 GPUs of these models, each in a rack of its own."""
    return [
        a_node(f"n{at}", labels={GPU_MODEL_LABEL: model}, rack=f"r{at}", **facts)
        for at, model in enumerate(models)
    ]


def world(
    *running: RunningGang,
    on: list[Node],
    waiting: tuple[Gang, ...] = (),
    now: float = HOUR,
    **settings: Any,
) -> ClusterSnapshot:
    chosen = SchedulingSettings(**settings)
    return with_running(a_snapshot(on, *waiting, now=now, settings=chosen), *running)


def decide(snapshot: ClusterSnapshot) -> Decision:
    return run_cycle(snapshot, make_policy(snapshot.settings))


def moved(snapshot: ClusterSnapshot) -> list[str]:
    return [stop.gang.name for stop in decide(snapshot).vacated]


def runs(gang: Gang, on: list[Node], *places: int, **more: Any) -> RunningGang:
    """Let ``gang`` run with 8 replicas on each node of these numbers, and the rest on the last."""
    table = a_snapshot(on).nodes
    left, held = gang.tasks[0].replicas, {}
    for place in places:
        held[f"n{place}"] = min(8, left)
        left -= 8
    return a_running(gang, table, held, **more)


TWO = nodes("Tesla-V100-SXM2-32GB", "NVIDIA-H100-80GB-HBM3")


def test_where_faster_gpus_have_no_cpu_left_the_placer_is_not_blamed_for_slower_ones() -> None:
    """Both the move and the placer look at some of the models alone: only where both allow."""
    on = nodes("Tesla-V100-SXM2-32GB", "NVIDIA-H100-80GB-HBM3", "Tesla-T4")
    on[1] = replace(on[1], allocatable={**on[1].allocatable, "cpu": 1000})
    job = a_gang("job", a_task(8, cpu_millis=2000))
    decision = decide(world(runs(job, on, 0), on=on))
    assert (decision.vacated, decision.overruled) == ((), "")


def test_a_gang_moves_to_faster_gpus_that_nobody_else_wants_and_says_what_it_gains() -> None:
    snapshot = world(runs(a_gang("job", a_task(8)), TWO, 0), on=TWO)
    assert snapshot.may_change
    (stop,) = decide(snapshot).actions
    assert isinstance(stop, Vacate)
    assert (stop.gang.name, stop.reason) == ("job", Reason.FASTER_GPUS)
    assert stop.message == (
        "stopped after 60 min to start again on NVIDIA-H100-80GB-HBM3, 3.7 times as fast as "
        "Tesla-V100-SXM2-32GB: no gang waits for those GPUs, and the restart saves time even "
        "without a checkpoint if the gang runs for as long again"
    )
    staying = replace(make_policy(snapshot.settings), may_move=False)
    assert run_cycle(snapshot, staying).actions == ()


JOB = a_gang("job", a_task(8))


def _other(snapshot: ClusterSnapshot, change: Callable[[RunningGang], Any]) -> ClusterSnapshot:
    (running,) = snapshot.running
    return with_running(replace(snapshot, running=(), known_table=None), change(running))


def test_what_keeps_a_gang_where_it_is() -> None:
    there = world(runs(JOB, TWO, 0), on=TWO)
    assert moved(there) == ["job"]
    kept = {
        "not preemptible": _other(
            there, lambda r: replace(r, gang=replace(r.gang, is_preemptible=False))
        ),
        "leaving": _other(there, lambda r: replace(r, is_leaving=True)),
        "starting": _other(there, lambda r: replace(r, is_starting=True)),
        "a budget": _other(there, lambda r: replace(r, kept_by_budget=True)),
        "ran longer before": _other(
            there, lambda r: replace(r, gang=replace(r.gang, attained_seconds=HOUR + 1))
        ),
        "its own least run time": _other(
            there, lambda r: replace(r, started=1.0, gang=replace(r.gang, min_runtime_seconds=HOUR))
        ),
        "elastic": _other(there, lambda r: replace(r, gang=replace(r.gang, is_elastic=True))),
        "too young for the restart": world(runs(JOB, TWO, 0), on=TWO, now=261.0),
        "the least run time of all": world(
            runs(JOB, TWO, 0), on=TWO, now=1800.0, min_runtime_seconds=1801
        ),
        "no preemption": world(runs(JOB, TWO, 0), on=TWO, preemption=False),
        "switched off": world(runs(JOB, TWO, 0), on=TWO, placer="packing?moves=0"),
        "a placer that knows no speed": world(runs(JOB, TWO, 0), on=TWO, placer="best-fit"),
        "on the faster GPUs already": world(runs(JOB, TWO, 1), on=TWO),
        "faster GPUs are in use": world(
            runs(JOB, TWO, 0), runs(a_gang("other", a_task(1)), TWO, 1), on=TWO
        ),
        "too little faster": world(
            runs(JOB, pair := nodes("Tesla-V100-SXM2-32GB", "NVIDIA-A100-SXM4-80GB"), 0), on=pair
        ),
        "equal GPUs": world(runs(JOB, same := nodes("Tesla-V100", "Tesla-V100"), 0), on=same),
        "maintenance ahead": world(
            runs(
                JOB,
                ahead := [*TWO, a_node("n2", maintenance=MaintenanceWindow(9 * HOUR, 10 * HOUR))],
                0,
            ),
            on=ahead,
        ),
    }
    assert {why: moved(snapshot) for why, snapshot in kept.items()} == {why: [] for why in kept}
    # None of these counts against it: it moves for its own good.
    spent = _other(there, lambda r: replace(r, gang=replace(r.gang, evictions=99)))
    assert moved(spent) == ["job"]


def test_while_a_gang_waits_nobody_moves() -> None:
    running = runs(JOB, TWO, 0)
    assert moved(world(running, on=TWO, waiting=(a_gang("large", a_task(16)),))) == []
    # One that starts now takes what it needs first.
    decision = decide(world(running, on=TWO, waiting=(a_gang("new", a_task(4)),)))
    assert [action.reason for action in decision.actions] == [Reason.ADMITTED]
    wide = nodes("Tesla-V100-SXM2-32GB", *["NVIDIA-H100-80GB-HBM3"] * 2)
    decision = decide(world(runs(JOB, wide, 0), on=wide, waiting=(a_gang("new", a_task(4)),)))
    assert [action.reason for action in decision.actions] == [
        Reason.ADMITTED,
        Reason.FASTER_GPUS,
    ]


def test_the_first_in_order_moves_where_there_is_room_for_one() -> None:
    on = nodes("Tesla-V100-SXM2-32GB", "Tesla-V100-SXM2-32GB", "NVIDIA-H100-80GB-HBM3")
    low, high = (a_gang(name, a_task(8), priority=p) for name, p in (("low", 0), ("high", 9)))
    assert moved(world(runs(low, on, 0), runs(high, on, 1), on=on)) == ["high"]


def test_it_moves_to_no_wider_domain_and_to_the_fastest_that_holds_it() -> None:
    spread = nodes("Tesla-V100-SXM2-32GB", *["NVIDIA-H100-80GB-HBM3"] * 2)
    fillers = [runs(a_gang(f"f{at}", a_task(4)), spread, at) for at in (1, 2)]
    assert moved(world(runs(JOB, spread, 0), *fillers, on=spread)) == []
    three = nodes("Tesla-V100-SXM2-32GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-B200")
    (stop,) = decide(world(runs(JOB, three, 0), on=three)).vacated
    assert "on NVIDIA-B200, 7.5 times as fast" in stop.message


class _Counting(Packing):
    asked = 0

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        self.asked += 1
        return super().place(gang, capacity)

    def faster(self, running: RunningGang, capacity: FreeCapacity, now: float) -> Placement | None:
        self.asked += 1
        return super().faster(running, capacity, now)


def test_of_many_gangs_alike_that_fit_nowhere_else_one_is_tried() -> None:
    on = nodes(*["Tesla-V100-SXM2-32GB", "NVIDIA-H100-80GB-HBM3"] * 20)
    # Each of the faster nodes has room for one replica of eight.
    held = [runs(a_gang(f"g{at}", a_task(8 - at % 2)), on, at) for at in range(40)]
    placer = _Counting()
    assert run_cycle(world(*held, on=on), Policy(Fifo(), placer)).actions == ()
    assert placer.asked == 1


class _Failing(Packing):
    def faster(self, running: RunningGang, capacity: FreeCapacity, now: float) -> Placement | None:
        raise RuntimeError("no such thing")


def test_a_placer_that_fails_to_move_moves_nobody_and_is_told_of() -> None:
    snapshot = world(runs(JOB, TWO, 0), on=TWO)
    decision = run_cycle(snapshot, Policy(Fifo(), _Failing()))
    assert decision.actions == ()
    assert "the placer failed to move" in decision.overruled
    assert "no such thing" in decision.overruled


def test_who_moves_starts_again_at_the_same_moment_on_faster_gpus() -> None:
    moves = 0
    for at in tuning_worlds(Path(), "heterogeneous", "training", 2):
        policy = make_policy(at.settings)
        outcome = simulate(at.trace, at.nodes, policy, at.settings, physics=at.physics)
        speeds = at.physics.machines.speeds if at.physics.machines else {}
        for record in outcome.jobs:
            assert record.finished is not None
            for before, after in zip(record.segments, record.segments[1:], strict=False):
                if before.ended_by == "moved":
                    moves += 1
                    old, new = (
                        min(speeds[node] for _, node, _ in s.places) for s in (before, after)
                    )
                    assert after.began == before.ended
                    assert new >= 2 * old
        assert outcome.counts["moves"] == sum(
            segment.ended_by == "moved" for job in outcome.jobs for segment in job.segments
        )
    assert moves >= 6


def test_in_a_world_whose_machines_are_alike_nobody_moves_whatever_their_labels_say() -> None:
    (at, *_) = tuning_worlds(Path(), "heterogeneous", "training", 1)
    alike = replace(at.physics, machines=None)
    outcome = simulate(at.trace, at.nodes, make_policy(at.settings), at.settings, physics=alike)
    assert outcome.counts["moves"] == 0


def test_a_play_moves_nobody() -> None:
    """It would be asked to: a gang ends an hour on, and others may still grow or shrink."""
    slow, fast = "Tesla-V100-SXM2-32GB", "NVIDIA-H100-80GB-HBM3"
    on = nodes(slow, fast, slow)
    young = replace(JOB, estimated_seconds=8 * HOUR)
    short = a_gang("short", a_task(4), estimated_seconds=HOUR)
    task = a_task(4, min_replicas=2, max_replicas=4)
    elastic = a_gang("elastic", task, is_elastic=True, estimated_seconds=8 * HOUR)
    snapshot = world(
        runs(young, on, 0, started=HOUR - 1.0),
        *(runs(gang, on, 2, started=HOUR - 1.0) for gang in (short, elastic)),
        on=on,
    )
    policy = make_policy(snapshot.settings)
    decision = run_cycle(snapshot, policy)
    assert not decision.vacated, "it has just begun"
    play, control = (Play(snapshot, decision, policy, course=Work(snapshot)) for _ in range(2))
    control._policy = policy
    assert [stop.gang.name for _, told in control for stop in told.vacated] == ["job"]
    assert not [stop for _, told in play for stop in told.vacated]
