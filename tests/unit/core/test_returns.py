"""A gang that had to go owns where it goes, until it starts: no newcomer gets its places."""

from dataclasses import replace

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.nodes import MaintenanceWindow, Node
from bireme.core.reasons import Reason
from bireme.core.running import RunningGang, stopping
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running

HOUR = 3600.0
SLOW, FAST = "Tesla-V100-SXM2-32GB", "NVIDIA-H100-80GB-HBM3"


def models(*names: str) -> list[Node]:
    return [a_node(f"n{at}", labels={GPU_MODEL_LABEL: name}) for at, name in enumerate(names)]


def decide(
    nodes: list[Node], *waiting: Gang, running: tuple[tuple[Gang, dict[str, int]], ...], now: float
) -> tuple[Decision, ClusterSnapshot]:
    """Decide where gangs with ``displaced`` are being stopped, and the others run on."""
    empty = a_snapshot(nodes, *waiting, now=now)
    held = [a_running(gang, empty.nodes, places) for gang, places in running]
    held = [stopping(each) if each.gang.displaced else each for each in held]
    snapshot = with_running(empty, *held)
    return run_cycle(snapshot, make_policy(snapshot.settings)), snapshot


def starts(decision: Decision, snapshot: ClusterSnapshot) -> dict[str, set[str]]:
    """Return the nodes of every gang that starts, by its name."""
    return {
        admit.gang.name: {snapshot.nodes.names[row] for row in admit.placement.node_rows()}
        for admit in decision.admitted
    }


def returning(name: str = "back", gpus: int = 8) -> Gang:
    """A gang that has run for long: every order but by age puts it behind newcomers."""
    return replace(a_gang(name, a_task(gpus)), attained_seconds=10 * HOUR, displaced=True)


def newcomers(count: int, gpus: int = 8, priority: int = 0) -> list[Gang]:
    task = a_task(gpus)
    return [
        a_gang(f"new{at}", task, arrived=10 * HOUR + at, priority=priority) for at in range(count)
    ]


def test_newcomers_get_neither_the_places_it_leaves_nor_those_it_goes_to() -> None:
    nodes = models(SLOW, FAST)
    found = decide(nodes, *newcomers(2), running=((returning(), {"n0": 8}),), now=10 * HOUR + 9)
    assert starts(*found) == {}


def test_what_it_does_not_need_starts_as_ever() -> None:
    nodes = models(SLOW, FAST, FAST)
    found = decide(nodes, *newcomers(2), running=((returning(), {"n0": 8}),), now=10 * HOUR + 9)
    (node,) = starts(*found)["new0"]
    assert node in ("n1", "n2")
    assert set(starts(*found)) == {"new0"}


def test_a_higher_class_does_not_take_the_target_either() -> None:
    nodes = models(SLOW, FAST)
    late = newcomers(1, priority=1000)
    found = decide(nodes, *late, running=((returning(), {"n0": 8}),), now=10 * HOUR + 9)
    assert starts(*found) == {}


def test_a_target_that_is_lost_is_kept_no_longer() -> None:
    """Its own places are: it goes back there, and what is left elsewhere is free for others."""
    nodes = [*models(SLOW), a_node("n1", is_ready=False), a_node("n2", 4)]
    late = newcomers(2, gpus=4)
    found = decide(nodes, *late, running=((returning(), {"n0": 8}),), now=10 * HOUR + 9)
    assert starts(*found) == {"new0": {"n2"}}


def test_where_it_fits_nowhere_yet_others_do_not_fill_the_gaps() -> None:
    """It lost one of two nodes; four GPUs are free where four are in use."""
    nodes = [a_node("n0"), a_node("n1", is_ready=False), a_node("n2")]
    back, rest = returning(gpus=16), a_gang("rest", a_task(4))
    running = ((back, {"n0": 8, "n1": 8}), (rest, {"n2": 4}))
    found = decide(nodes, *newcomers(1, gpus=4), running=running, now=10 * HOUR + 9)
    assert starts(*found) == {}


def test_once_its_pods_have_ended_it_is_the_first() -> None:
    nodes = models(SLOW, FAST)
    found = decide(nodes, *newcomers(2), returning(), running=(), now=10 * HOUR + 9)
    assert starts(*found) == {"back": {"n1"}, "new0": {"n0"}}


def test_one_that_waits_already_to_return_goes_before_one_whose_pods_are_ending() -> None:
    first = replace(returning("first"), arrived=HOUR)
    nodes = models(SLOW, FAST)
    running = ((returning("second"), {"n0": 8}),)
    found = decide(nodes, first, running=running, now=10 * HOUR + 9)
    assert starts(*found) == {"first": {"n1"}}


def test_no_gang_moves_to_what_is_kept_for_another() -> None:
    nodes = models(SLOW, SLOW, FAST)
    other = a_gang("other", a_task(8))
    running = ((returning(), {"n0": 8}), (other, {"n1": 8}))
    decision, _ = decide(nodes, running=running, now=10 * HOUR)
    assert decision.vacated == ()


def test_what_maintenance_stops_owns_its_target_from_that_cycle_on() -> None:
    """The newcomer is decided on in the very cycle that stops the gang."""
    nodes = [replace(a_node("n0"), maintenance=MaintenanceWindow(HOUR, 3 * HOUR)), a_node("n1")]
    waiting = newcomers(1)
    empty = a_snapshot(nodes, *waiting, now=2 * HOUR)
    held = a_running(a_gang("job", a_task(8)), empty.nodes, {"n0": 8})
    decision = run_cycle(with_running(empty, held), make_policy(SchedulingSettings()))
    assert [stop.gang.name for stop in decision.vacated] == ["job"]
    assert decision.admitted == ()
    assert decision.vacated[0].reason is Reason.NODE_MAINTENANCE


def test_a_suspended_gang_keeps_nothing_but_what_its_pods_use() -> None:
    nodes = models(SLOW, FAST)
    gone = RunningGang(
        replace(returning(), displaced=False),
        a_running(returning(), a_snapshot(nodes).nodes, {"n0": 8}).placement,
        0.0,
        is_leaving=True,
    )
    empty = a_snapshot(nodes, *newcomers(2), now=10 * HOUR + 9)
    snapshot = with_running(empty, gone)
    found = run_cycle(snapshot, make_policy(snapshot.settings))
    assert starts(found, snapshot) == {"new0": {"n1"}}
