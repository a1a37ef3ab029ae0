"""Dolphin: the split it picks, against all splits there are."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang, Role, Task
from bireme.core.policy import Ranked
from bireme.core.speed import SpeedLaw
from bireme.testing import a_gang, a_node, a_snapshot, a_task
from bireme_lab.heuristics.measured_sizers import Dolphin
from bireme_lab.simulator.physics.laws import DL2_LAWS, OptimusLaw


def job(law: SpeedLaw | None, servers: int, workers: int, *others: Task) -> Gang:
    """An elastic gang that asks for ``servers`` and ``workers`` and may divide them anew."""
    most = servers + workers
    ps = a_task(servers, name="ps", role=Role.PS, min_replicas=1, max_replicas=most)
    worker = a_task(workers, min_replicas=1, max_replicas=most)
    return replace(a_gang("job", ps, worker, *others), is_elastic=True, speed=law)


def sized(gang: Gang, gpus: int = 64) -> Mapping[str, int]:
    node = a_node("node", gpus, cpu_millis=10**9, memory_bytes=10**13, pods=10**4)
    snapshot = a_snapshot([node])
    return Dolphin().sizes([Ranked(gang, 0.0)], snapshot)[gang.uid]


@given(st.sampled_from(sorted(DL2_LAWS)), st.integers(1, 8), st.integers(1, 8), st.integers(2, 16))
def test_no_other_split_that_fits_is_faster(
    model: str, servers: int, workers: int, gpus: int
) -> None:
    law = DL2_LAWS[model]
    sizes = sized(job(law, servers, workers), gpus)
    most = min(gpus, servers + workers)
    fastest = max(
        law.steps_per_second({"ps": p, "worker": w}, 1)
        for p in range(1, most)
        for w in range(1, most - p + 1)
    )
    assert sum(sizes.values()) <= most
    assert law.steps_per_second(sizes, 1) == fastest


def test_among_equally_fast_splits_the_smallest_is_taken() -> None:
    """Only the update takes time: no replica beyond the minimum helps."""
    assert sized(job(OptimusLaw((0.0, 1.0, 0.0, 0.0, 0.0), 8), 3, 3)) == {"ps": 1, "worker": 1}


@dataclass(frozen=True)
class Favourites:
    """Ten times as fast with two servers and one worker, or one server and three workers."""

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        return 10.0 if (sizes["ps"], sizes["worker"]) in {(2, 1), (1, 3)} else 1.0


def test_fewer_replicas_count_more_than_fewer_servers() -> None:
    assert sized(job(Favourites(), 2, 2)) == {"ps": 2, "worker": 1}


def test_tasks_of_other_roles_stay_as_asked() -> None:
    evaluator = a_task(2, name="eval", role=Role.EVALUATOR, min_replicas=1)
    assert sized(job(DL2_LAWS["wlm"], 2, 2, evaluator))["eval"] == 2


def test_a_gang_without_servers_keeps_to_its_fastest_number_of_workers() -> None:
    law = OptimusLaw((16.0, 0.0, 0.0, 1.0), ps="worker")
    gang = a_gang("job", a_task(8, min_replicas=1))
    fastest = max(range(1, 9), key=lambda w: law.steps_per_second({"worker": w}, 1))
    assert sized(replace(gang, speed=law)) == {"worker": fastest}


def test_a_gang_of_one_master_is_left_as_it_is() -> None:
    gang = a_gang("job", a_task(1, name="master", role=Role.MASTER))
    assert sized(replace(gang, speed=DL2_LAWS["wlm"])) == {"master": 1}


def test_a_gang_of_unknown_speed_gets_what_it_asks_for() -> None:
    assert sized(job(None, 2, 5)) == {"ps": 2, "worker": 5}


@dataclass
class Counting:
    """A speed law that counts how often it is asked."""

    law: SpeedLaw
    asked: list[int] = field(default_factory=list)

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        self.asked.append(sum(sizes.values()))
        return self.law.steps_per_second(sizes, nodes)


@pytest.mark.parametrize("replicas", [500, 2000])
def test_a_job_of_thousands_is_judged_on_a_grid_that_reaches_its_full_size(replicas: int) -> None:
    law = Counting(DL2_LAWS["resnet-50"])
    sizes = sized(job(law, replicas, replicas), gpus=9000)
    assert len(law.asked) <= 64 * 64
    assert max(law.asked) == 2 * replicas
    assert law.law.steps_per_second(sizes, 1) > law.law.steps_per_second({"ps": 1, "worker": 1}, 1)
