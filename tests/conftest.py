"""What every tier shares: how hypothesis judges, and which tests need a cluster.

Property tests judge what is computed; how long a busy machine takes for it is no finding.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

CLUSTER_TIERS = [Path(__file__).parent / name for name in ("cluster", "node")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in the folders of clusters carries the marker ``cluster``."""
    for item in items:
        if any(item.path.is_relative_to(tier) for tier in CLUSTER_TIERS):
            item.add_marker(pytest.mark.cluster)
