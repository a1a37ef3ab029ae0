"""Fixtures of integration tests: a fake API server, clients of it, programs to run beside it."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from bireme.kube.client import ApiClient
from testbed.controlplane.process import Process, free_ports
from testbed.fakeapi import FakeApi
from testbed.networks import encoders
from testbed.operator_term.node_pools import FakeAutoscaler, put_target
from testbed.operator_term.term import furnish
from testbed.prometheus import Programs, Unavailable, find_programs
from testbed.trained_policies import train


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as served:
        yield served


@pytest.fixture
async def client(api: FakeApi, tmp_path: Path) -> AsyncIterator[ApiClient]:
    connected = await ApiClient.connect(api.kubeconfig(tmp_path))
    yield connected
    await connected.close()


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[Path]:
    """A folder of small checkpoints, whose encoders are known for the time of the test."""
    with encoders.known():
        yield train(tmp_path / "trained")


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Prometheus and its tool; tests that need them are skipped where there are none."""
    try:
        return find_programs()
    except Unavailable as error:
        pytest.skip(f"no Prometheus: {error}")


@pytest.fixture
def extender_program(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Makes real extenders, each with a kubeconfig and settings; stops them after the test."""
    made: list[Process] = []

    def make(kubeconfig: Path, **settings: str) -> Process:
        (port,) = free_ports(1)
        own = {"KUBECONFIG": str(kubeconfig), "BIREME_EXTENDER_ADDRESS": f"127.0.0.1:{port}"}
        environment = {**own, **settings}
        process = Process(
            "extender",
            [sys.executable, "-m", "bireme_extender"],
            log_path=tmp_path / "extender.log",
            ready_url=f"http://{environment['BIREME_EXTENDER_ADDRESS']}/readyz",
            env=environment,
        )
        made.append(process)
        return process

    yield make
    for process in made:
        process.terminate()


@pytest.fixture
def pool(api: FakeApi) -> FakeAutoscaler:
    """A node pool without nodes, and its autoscaler."""
    furnish(api, 0)
    put_target(api, 0)
    return FakeAutoscaler(api)
