"""The snapshot: consistency, waits and bounds; the settings it carries."""

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from bireme.core.errors import SettingError, SnapshotError
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, with_running


def test_usage_of_another_shape_is_refused() -> None:
    with pytest.raises(SnapshotError, match=r"\(2, 5\)"):
        a_snapshot([a_node("n0")], used=np.zeros((2, 5), dtype=np.int64))


@pytest.mark.parametrize(("arrived", "wait"), [(40.0, 60.0), (100.0, 0.0), (500.0, 0.0)])
def test_a_wait_is_never_negative(arrived: float, wait: float) -> None:
    assert a_snapshot([], now=100.0).wait_seconds(a_gang(arrived=arrived)) == wait


def test_the_wait_of_a_running_gang_ends_with_its_start() -> None:
    """Its overdue time protects it for as long as it runs, and its run time gives it no rank."""
    gang = a_gang(arrived=10.0)
    bare = a_snapshot([a_node("n0")], settings=SchedulingSettings(wait_bound_seconds=20), now=95.0)
    snapshot = with_running(bare, a_running_gang(gang, bare.nodes, started=60.0))
    assert snapshot.wait_seconds(gang) == 50.0
    assert snapshot.overdue_seconds(gang) == 30.0
    assert snapshot.wait_seconds(replace(gang, tasks=gang.tasks)) == 85.0, "members that came later"


@pytest.mark.parametrize(
    ("queue", "bound"), [("own", 5), ("default", 86_400), ("unknown", 86_400)], ids=str
)
def test_a_queue_may_set_its_own_wait_bound(queue: str, bound: int) -> None:
    queues = [Queue("own", wait_bound_seconds=5), Queue("default")]
    assert a_snapshot([], queues=queues).wait_bound_seconds(a_gang(queue=queue)) == bound


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"user_weight": -0.1}, "user_weight is -0.1", id="negative-weight"),
        pytest.param({"user_weight": nan}, "user_weight is nan", id="weight-is-no-number"),
        pytest.param(
            {"min_runtime_seconds": 3601}, "above max_min_runtime_seconds", id="above-its-most"
        ),
        pytest.param({"wait_weight": inf}, "priority weights", id="endless-weight"),
        pytest.param(
            {f"{name}_weight": 0.0 for name in ("user", "job", "wait", "parallelism")},
            "sum must be above 0",
            id="no-weight-at-all",
        ),
        pytest.param({"job_priority_half": 0}, "job_priority_half is 0", id="half-priority"),
        pytest.param({"parallelism_half": -1}, "parallelism_half is -1", id="half-width"),
        pytest.param({"wait_bound_seconds": 0}, "wait_bound_seconds is 0", id="no-bound"),
        pytest.param({"topology_levels": ()}, "at least one text", id="no-level"),
        pytest.param({"topology_levels": ("a", "a")}, "each once", id="level-twice"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(
    changes: dict[str, float], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        replace(SchedulingSettings(), **changes)  # type: ignore[arg-type]  # wrong on purpose
