"""Fixtures of the cluster tier: a fresh real control plane per session, in seconds.

Nothing here skips: where a binary cannot be built or a cluster does not start, the tests fail.
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.controlplane.cluster import Cluster
from testbed.controlplane.stack import BiremeStack
from testbed.scenario import promises
from testbed.scenario.tenant import Tenant


def unique_name(prefix: str) -> str:
    """A cluster name that no other session uses."""
    return f"{prefix}-{os.getpid()}-{secrets.token_hex(2)}"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The session's cluster, without nodes; tests share it and keep to their own namespace."""
    with Cluster.start(unique_name("test")) as started:
        yield started


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A cluster for one test alone, for tests that break it."""
    with Cluster.start(unique_name("own")) as started:
        yield started


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A new namespace of the session's cluster; removed, without waiting, after the test."""
    name = cluster.create_namespace(f"test-{secrets.token_hex(4)}")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def stack(cluster: Cluster, tmp_path: Path) -> Iterator[BiremeStack]:
    """Bireme's programs for the session's cluster, not yet started; always stopped."""
    with BiremeStack(cluster, tmp_path / "stack") as programs:
        yield programs


@pytest.fixture
def tenant(stack: BiremeStack) -> Iterator[Tenant]:
    """A user of the stack whose first operator runs; its errors tell the story."""
    with Tenant.staying(stack.cluster, stack.log_tails) as tenant:
        yield tenant


@pytest.fixture(autouse=True)
def name_the_test() -> None:
    """Violations name the test in which they happened."""
    promises.begin_test()


@pytest.fixture(scope="session", autouse=True)
def only_where_it_is_observed() -> Iterator[None]:
    """Bireme runs on no cluster whose history is not judged."""
    start = BiremeStack.start

    def start_observed(stack: BiremeStack, timeout_seconds: float = 60.0) -> BiremeStack:
        if promises.history_of(stack.cluster) is None:
            raise AssertionError("start Bireme within promises.judged(cluster)")
        return start(stack, timeout_seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BiremeStack, "start", start_observed)
        yield
