"""Queues: what their limit lets through."""

import pytest

from bireme.core.queues import Queue


@pytest.mark.parametrize(
    ("used", "asked", "excess"),
    [
        pytest.param({}, {"gpu": 8}, {}, id="exactly-full"),
        pytest.param({}, {"gpu": 9}, {"gpu": (9, 0, 8)}, id="one-too-many"),
        pytest.param({"gpu": 5}, {"gpu": 3}, {}, id="fills-up"),
        pytest.param({"gpu": 5}, {"gpu": 4}, {"gpu": (4, 5, 8)}, id="beside-others"),
        pytest.param({}, {"memory": 2**80}, {}, id="unlimited-resource"),
        pytest.param({"gpu": 99}, {"cpu": 1}, {}, id="overfull-but-not-asked"),
        pytest.param({"gpu": 99}, {"gpu": 0, "cpu": 1}, {}, id="overfull-and-asks-zero"),
        pytest.param({"gpu": 99}, {"gpu": 1}, {"gpu": (1, 99, 8)}, id="overfull-and-asked"),
        pytest.param(
            {"cpu": 9}, {"gpu": 9, "cpu": 2}, {"cpu": (2, 9, 10), "gpu": (9, 0, 8)}, id="both"
        ),
    ],
)
def test_excess_names_what_passes_the_limit(
    used: dict[str, int], asked: dict[str, int], excess: dict[str, tuple[int, int, int]]
) -> None:
    found = Queue("q", limit={"gpu": 8, "cpu": 10}).excess(used, asked)
    assert found == excess
    assert list(found) == sorted(found)


def test_a_limit_of_zero_lets_nothing_through() -> None:
    assert Queue("q", limit={"gpu": 0}).excess({}, {"gpu": 1}) == {"gpu": (1, 0, 0)}
