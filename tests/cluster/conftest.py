"""Fixtures of the cluster tier: a real control plane per worker, emptied for every module.

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
from testbed.scenario.clusters import bare_cluster, embedded, pooled
from testbed.scenario.tenant import Tenant


def unique_name(prefix: str) -> str:
    """A cluster name that no other session uses."""
    return f"{prefix}-{os.getpid()}-{secrets.token_hex(2)}"


@pytest.fixture(scope="session", autouse=True)
def clusters_are_pooled() -> Iterator[None]:
    """One module after the other has this worker's cluster, which is emptied in between.

    Its programs collect their garbage less often: a tenth of their time, for some hundred MB.
    """
    with pytest.MonkeyPatch.context() as patch, pooled():
        patch.setenv("GOGC", "400")
        yield


@pytest.fixture(scope="module", autouse=True)
def world(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have embedded clusters for a module with the mark ``embedded``, and real ones for others.

    ``BIREME_CLUSTERS=real`` has real ones for all, and ``embedded`` embedded ones.
    """
    is_marked = request.node.get_closest_marker("embedded") is not None
    choice = os.environ.get("BIREME_CLUSTERS") or ("embedded" if is_marked else "real")
    with embedded(choice == "embedded"):
        yield


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster without nodes; the tests of a module share it and keep to their own namespace."""
    with bare_cluster("test") as borrowed:
        yield borrowed


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A new namespace of the module's cluster; removed, without waiting, after the test."""
    name = cluster.create_namespace(f"test-{secrets.token_hex(4)}")
    yield name
    cluster.api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def stack(cluster: Cluster, tmp_path: Path) -> Iterator[BiremeStack]:
    """Bireme's programs for the module's cluster, not yet started; always stopped."""
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
