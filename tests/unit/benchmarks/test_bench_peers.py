"""Parts of the comparison with peers that need no cluster."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks import report
from benchmarks.machine import report_of
from benchmarks.peers import __main__ as command
from benchmarks.peers.contest import QUICK, Load, Measured
from benchmarks.peers.feeding import feed
from benchmarks.peers.others import VOLCANO_VARIABLE, Coscheduling, Volcano
from benchmarks.peers.page import best_peer, median_of, result
from benchmarks.peers.sides import Bireme, Gang, Native, Side, Stock, condition
from benchmarks.timings.arena import CONCURRENCY, PODS, Status
from benchmarks.timings.workloads import pod_spec, replica_names
from testbed.controlplane.cluster import Cluster


def measured(side: type[Side], repetition: int, gangs_per_second: float) -> Measured:
    seconds = tuple(number / gangs_per_second for number in range(1, 101))
    return Measured(
        side=side.name,
        repetition=repetition,
        version="v1",
        large_seconds=2.0,
        many_seconds=seconds[-1],
        per_gang_seconds=seconds,
        since_start_seconds=seconds,
        word_seconds=(0.1, 0.3),
        freed_seconds=(0.2, 0.4),
        memory_mib={"program": 100.0, "other": 20.0},
        cpu_seconds={"kube-apiserver": 9.0, "etcd": 1.0, "program": 4.0, "other": 1.0},
        words=("no room",),
        took_seconds=60.0,
    )


def everyone(repetitions: int = 2) -> list[Measured]:
    rates = dict(zip(command.SIDES, (30, 50, 20, 31, 29, 10), strict=True))
    return [
        measured(side, repetition, rate + repetition)
        for side, rate in rates.items()
        for repetition in range(repetitions)
    ]


@pytest.mark.parametrize("kind", [side for side in command.SIDES if side is not Bireme])
def test_all_sides_schedule_the_same_pods(kind: type[Side], tmp_path: Path) -> None:
    gang = kind(Cluster("none"), tmp_path).gang("g", (3, 2))
    assert [pod["metadata"]["name"] for pod in gang.pods] == replica_names("g", 3)
    own = {"schedulerName", "schedulingGroup"}
    for pod in gang.pods:
        spec = {key: value for key, value in pod["spec"].items() if key not in own}
        assert spec == pod_spec(2)


def test_a_waiting_group_is_read_from_the_condition_that_says_so(tmp_path: Path) -> None:
    found = [{"type": "Unschedulable", "status": "True", "reason": "Few", "message": "4 more"}]
    assert Volcano(Cluster("none"), tmp_path).word(Status(conditions=found)) == "Few: 4 more"
    assert condition(Status(conditions=found), "Unschedulable", "False") == ""
    assert condition(Status(), "Unschedulable", "True") == ""


class Server:
    """Takes creates one after another and remembers them."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str]] = []
        self.done: set[str] = set()
        self.at_once = self.most_at_once = 0
        self.missing: list[str] = []

    async def create(self, path: str, body: bytes) -> None:
        made: dict[str, Any] = msgspec.json.decode(body)
        name: str = made["metadata"]["name"]
        self.begun.append((path, name))
        gang = name.partition("-worker-")[0]
        if path == PODS and gang not in self.done:
            self.missing.append(name)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        self.done.add(name)


def gangs_of(kind: Callable[[Cluster, Path], Side], count: int, pods: int) -> list[Gang]:
    side = kind(Cluster("none"), Path())
    return [side.gang(f"g{number:03d}", (pods, 1)) for number in range(count)]


def test_a_group_is_there_before_its_pods_and_gangs_come_in_their_order() -> None:
    server = Server()
    gangs = gangs_of(Coscheduling, 2 * CONCURRENCY, 4)
    submitted = asyncio.run(feed(server.create, gangs))
    assert server.missing == []
    assert Counter(path == PODS for path, _ in server.begun) == {
        True: 8 * CONCURRENCY,
        False: 2 * CONCURRENCY,
    }
    assert server.most_at_once == CONCURRENCY
    assert list(submitted) == [gang.name for gang in gangs]
    pods = [name for path, name in server.begun if path == PODS]
    # No gang's pods wait until all groups are there.
    first_pod = server.begun.index((PODS, pods[0]))
    assert first_pod < 2 * CONCURRENCY


def test_without_groups_only_pods_are_created() -> None:
    server = Server()
    asyncio.run(feed(server.create, gangs_of(Stock, 2, 3)))
    assert [name for _, name in server.begun] == [
        *replica_names("g000", 3),
        *replica_names("g001", 3),
    ]


def test_a_refused_create_ends_the_load() -> None:
    async def refuse(path: str, body: bytes) -> None:
        raise OSError(path)

    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        asyncio.run(asyncio.wait_for(feed(refuse, gangs_of(Native, 3, 3)), 10))


def test_every_side_takes_part_in_each_repetition_and_begins_one_in_turn() -> None:
    orders = [command.order(repetition) for repetition in range(len(command.SIDES))]
    assert all(set(sides) == set(command.SIDES) for sides in orders)
    assert orders[0][0] is Bireme
    assert len({sides[0] for sides in orders}) > 2


def test_medians_have_an_interval_that_holds_them() -> None:
    estimate = median_of([3.0, 1.0, 2.0, 10.0, 2.5])
    assert estimate.mean == 2.5
    assert estimate.interval is not None
    low, high = estimate.interval
    assert 1.0 <= low <= 2.5 <= high <= 10.0
    assert median_of([4.0]).interval is None


def test_the_many_gangs_fill_the_cluster() -> None:
    assert Load(nodes=500, large=512).gangs == 500
    assert QUICK.gangs * QUICK.replicas * QUICK.gpus == QUICK.nodes * 8


def test_the_page_compares_with_stock_and_with_the_best_gang_scheduler(tmp_path: Path) -> None:
    found = everyone()
    assert best_peer({s.name: [m for m in found if m.side == s.name] for s in command.SIDES}) == (
        Coscheduling.name
    )
    made = result(found, command.SIDES, QUICK)
    beside = {row.what: row.ratio for row in made.rows if row.ratio is not None}
    assert beside["gangs bound per second, beside stock"] == pytest.approx(30.5 / 50.5)
    assert beside["gangs bound per second, beside coscheduling"] == pytest.approx(30.5 / 31.5)
    page = report_of("peers", "Peers", "peers", 0.0, made)
    report.write_case(tmp_path, page)
    text = (tmp_path / "peers.md").read_text()
    assert all(f"]({name})" in text for name in made.figures)
    assert all((tmp_path / name).read_text().startswith("<?xml") for name in made.figures)
    assert "<svg" not in (tmp_path / "peers.json").read_text()


def test_a_side_that_was_not_measured_is_named() -> None:
    found = [one for one in everyone() if one.side != Volcano.name]
    with pytest.raises(ValueError, match="Volcano was not measured"):
        result(found, command.SIDES, QUICK)


def test_without_volcano_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "vc-scheduler").touch()
    monkeypatch.setenv(VOLCANO_VARIABLE, str(tmp_path))
    assert command.main(["--quick"]) == 1
    printed = capsys.readouterr().err
    assert "vc-controller-manager, crd, scheduler.conf" in printed
    assert "with vc-scheduler" not in printed


def test_a_run_that_failed_goes_on_with_what_is_missing_and_writes_no_page_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[str] = []
    broken = {Volcano}

    async def measure(side: type[Side], repetition: int, *_: object) -> Measured:
        asked.append(side.name)
        if side in broken:
            raise OSError("no scheduler here")
        return measured(side, repetition, 10)

    monkeypatch.setattr(command, "volcano_folder", lambda: tmp_path)
    monkeypatch.setattr(command, "build", lambda _bundle: tmp_path)
    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "FOLDER", tmp_path / "scratch")
    monkeypatch.setattr("benchmarks.machine.revision", lambda: "v1")
    out = tmp_path / "results"
    assert command.main(["--quick", "--out", str(out)]) == 1
    assert "a side is missing" in capsys.readouterr().err
    assert not out.exists()
    broken.clear()
    asked.clear()
    assert command.main(["--quick", "--out", str(out)]) == 0
    assert asked == [Volcano.name]
    assert (out / "peers.md").exists()
