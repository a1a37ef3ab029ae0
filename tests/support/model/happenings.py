"""What may come to the clusters of :mod:`tests.support.model.machine`: jobs, queues and their
changes.

Few, small and in each other's way: gangs that fill a node or all of them, gangs that nothing holds,
elastic ones, limits just below what is asked, queues above queues and one that is not there.
"""

from typing import TypeAlias

from hypothesis import strategies as st

from bireme.core.settings import SchedulingSettings
from tests.support.model.truth import Thing, a_task

SETTINGS = SchedulingSettings(
    wait_bound_seconds=30, min_runtime_seconds=5, eviction_budget=1, resize_settle_seconds=5
)

JOBS: tuple[Thing, ...] = (
    {"tasks": {"worker": a_task(1)}},
    {"tasks": {"worker": a_task(3)}},
    {"tasks": {"worker": a_task(1, 4)}},
    {"tasks": {"worker": a_task(1, 8)}},
    {"tasks": {"worker": a_task(2, 4)}},
    {"tasks": {"worker": a_task(12)}},
    {"tasks": {"worker": a_task(4, 1, least=2)}},
    {"tasks": {"worker": a_task(2, 0, 40_000)}},
    {"tasks": {"ps": a_task(1, 0, 30_000), "worker": a_task(3, 2)}},
    {"tasks": {"worker": a_task(2, least=1, most=8)}, "elastic": True},
    {"tasks": {"worker": a_task(4, least=2, most=14)}, "elastic": True},
    {"tasks": {"worker": a_task(3, most=4)}, "elastic": True},
)
FIRST_QUEUES: dict[str, Thing] = {
    "open": {},
    "first": {"priority": 90},
    "small": {"limit": 6},
    "org": {"limit": 9},
    "team": {"parent": "org"},
}
QUEUES = ("open", "first", "small", "org", "team", "gone")
CHANGES: tuple[Thing, ...] = (
    {"limit": 6},
    {"limit": None},
    {"limit": 0},
    {"guaranteed": 4},
    {"guaranteed": 0},
    {"weight": 3},
    {"weight": None},
    {"parent": "org"},
    {"parent": "team"},
    {"parent": ""},
    {"priority": 90},
    {"bound": 10},
)
Submission: TypeAlias = tuple[int, int, int, float | None]
"""Kind of job, queue, priority and estimate."""
submissions = st.tuples(
    st.integers(0, len(JOBS) - 1),
    st.sampled_from((0, 0, 0, 1, 2, 3, 4, 4, 5)),
    st.sampled_from((0, 0, 10, 1000)),
    st.sampled_from((None, 5.0, 20.0, 100.0)),
)
