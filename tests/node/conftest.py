"""Fixtures of the node tier: a cluster with a real node, where pods are real.

Where a machine cannot have one the tests skip and say why.
"""

import os
import secrets
from collections.abc import Iterator

import pytest

from testbed.controlplane.cluster import Cluster
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.realnode.obstacle import obstacle
from testbed.scenario import promises
from testbed.scenario.helm import NAMESPACE, Helm, install, uninstall
from testbed.scenario.tenant import Tenant
from tools.images.archives import Images, base, build
from tools.images.archives import obstacle as images_obstacle


def unique_name(prefix: str) -> str:
    """A cluster name that no other session uses."""
    return f"{prefix}-{os.getpid()}-{secrets.token_hex(2)}"


@pytest.fixture(scope="session")
def able() -> None:
    """Skips unless this machine can have a real node."""
    if reason := obstacle() or images_obstacle():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster(able: None) -> Iterator[Cluster]:
    """The session's cluster: a real node, which has the base image, and two fake ones."""
    with Cluster.start(unique_name("node"), real_node=True) as started:
        started.node.load(base().path)
        started.add_nodes(fake_nodes(2, racks=2))
        yield started


@pytest.fixture(scope="session")
def images(cluster: Cluster) -> Images:
    """Bireme's own images, loaded onto the real node."""
    made = build()
    for image in made.all:
        cluster.node.load(image.path)
    return made


@pytest.fixture(autouse=True)
def name_the_test() -> None:
    """Violations name the test in which they happened."""
    promises.begin_test()


@pytest.fixture
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    """A namespace of the session's cluster."""
    with Tenant.staying(cluster) as made:
        yield made


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm with caches of its own."""
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def release(cluster: Cluster, images: Images, helm: Helm) -> Iterator[Tenant]:
    """The chart installed by its default values, in a namespace where nothing else may run.

    The history of the cluster is judged for as long.

    What a test changes by ``scenario.installed.install`` the next module does not find.
    """
    cluster.create_namespace(NAMESPACE)
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", NAMESPACE, restricted)
    install(cluster, helm, wait=True)
    with promises.judged(cluster):
        yield Tenant(cluster, NAMESPACE)
    uninstall(cluster, helm)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=60s", timeout_seconds=90)
