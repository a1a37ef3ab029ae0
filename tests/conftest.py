"""What every tier shares: how hypothesis judges, and who runs beside whom.

Property tests judge what is computed; how long a busy machine takes for it is no finding.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

POLITE = 10
CLUSTER_TIERS = [Path(__file__).parent / name for name in ("cluster", "node")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of real control planes share one worker, and so one cluster; all others are free."""
    for item in items:
        if any(item.path.is_relative_to(tier) for tier in CLUSTER_TIERS):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.xdist_group("cluster"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Beside tests of clusters, which wait for what takes seconds, others take what is left."""
    if "PYTEST_XDIST_WORKER" in os.environ and item.get_closest_marker("cluster") is None:
        os.nice(max(0, POLITE - os.nice(0)))
